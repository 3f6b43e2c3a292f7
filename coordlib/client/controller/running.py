"""A broker over a transport: threads outside, the state machine inside; `agent.py` adds the rest.

Heartbeats and reading go on by themselves. Callbacks come only from the thread that calls `poll` or
`close`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from coordlib.client.controller import signals as bs
from coordlib.client.controller.folder import Home
from coordlib.client.controller.futures import Futures
from coordlib.client.controller.life import BrokerLife
from coordlib.client.controller.signals import Call, Callback
from coordlib.client.controller.standing import State
from coordlib.client.groups.member import WAIT_S
from coordlib.client.kit import signals as sg
from coordlib.client.kit.callbacks import Callbacks, UserCall, weakly
from coordlib.client.kit.driven import Driven
from coordlib.client.kit.transport import Transport
from coordlib.client.kit.uninterrupted import uninterrupted
from coordlib.errors import CoordError

#: How long `close` waits until the log has its last word.
LEAVE_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 30.0


class Running(Driven[sg.Input | bs.OwnInput, bs.Output]):
    """The base of `BrokerAgent`.

    Args:
        life: the state machine.
        transport: delivers to it.
        home: its folder.
        callbacks: the user's.
        stop_timeout_s: how long `close` lets others take over.
    """

    NOUN = "agent"

    def __init__(
        self,
        life: BrokerLife,
        transport: Transport,
        home: Home,
        callbacks: Mapping[Callback, Callable[..., None] | None],
        stop_timeout_s: float,
    ) -> None:
        super().__init__(life)  # type: ignore[arg-type]  # members' own inputs are not fed
        self.identity = life.identity
        self._life, self._transport, self._home = life, transport, home
        self._users, self._stop_timeout_s = callbacks, stop_timeout_s
        self._owns_transport = False
        self._callbacks = Callbacks(weakly(self._users_of), weakly(self._called_back))
        self._raised: CoordError | None = None
        self._is_left = self._is_closed = self._has_ended = False
        self._futures = Futures(self._where)

    def _begin(self, owns_transport: bool) -> None:
        """Register. The transport is closed with the agent if it is its own."""
        self._owns_transport = owns_transport
        try:
            self._transport.attach(self)
            self._give(bs.Begin(self._transport.now_ms()))
        except BaseException:
            self._transport.detach(self)
            raise

    # ---- what the user does -------------------------------------------------------------------

    def ready(self) -> None:
        """Be Active: what it has is loaded. One that stops goes on."""
        self._give(bs.Ready(self._transport.now_ms()))

    def stop(self) -> None:
        """Let others lead what this broker leads; from any thread, callbacks and signal handlers.

        `poll` goes on, and returns False when nothing is left that another could lead.
        """
        self._give(bs.Stop(self._transport.now_ms()))

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Run the callbacks that are due; wait for one up to `timeout_s`.

        Must be called more often than the release timeout, or the broker goes: it leads nothing
        until it is polled again.

        Returns whether to go on: False once `stop` was called and nothing is left to be let go of.

        Raises:
            BrokerReplaced: a newer process is registered as this broker.
            GroupError: the controller refused this broker for good.
            CannotReach, CoordError: the transport, or this agent, has failed.
        """
        until = time.monotonic() + timeout_s
        while True:
            self._transport.check()
            has_run = self._poll_once()
            if self._life.is_done:
                return False
            left_s = until - time.monotonic()
            if left_s <= 0 and not has_run:
                return True
            if not has_run:
                self.wait_for_change(min(WAIT_S, left_s))

    def close(self, timeout_s: float | None = None) -> None:
        """Let others lead, then on_fenced, leave, and end. A second call does nothing.

        Not in a callback: call `stop` there.

        Args:
            timeout_s: how long others may take to lead what it leads; None: `stop_timeout_s`. 0:
                nothing is waited for.

        Raises what a callback raises, when all else is done. One that was interrupted goes on when
        it is called again.
        """
        if self._callbacks.is_inside(threading.get_ident()):
            raise CoordError("close was called in a callback.", self._where, "Call stop there.")
        if self._has_ended:
            return
        patience_s = self._stop_timeout_s if timeout_s is None else timeout_s
        raised: Exception | None = None
        for step, most_s in (
            (self._stop_in_order, patience_s),
            (self._leave, LEAVE_TIMEOUT_S if patience_s > 0 else 0.0),
        ):
            try:
                step(most_s)
            except Exception as problem:  # noqa: BLE001  # raised when all else is done
                raised = raised or problem
        self._end()
        self._futures.tell()
        if raised is not None:
            raise raised

    def _stop_in_order(self, timeout_s: float) -> None:
        if self._is_closed:
            return  # in a close that was interrupted later
        self.stop()
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and self._broken is None and not self._life.is_done:
            if self._is_cut_off():
                return
            if not self._poll_once(raises=False):
                self.wait_for_change(WAIT_S)

    def _is_cut_off(self) -> bool:
        """Whether the transport has failed: nobody will answer any more."""
        try:
            self._transport.check()
        except CoordError:
            return True
        return False

    def _leave(self, timeout_s: float) -> None:
        self._is_closed = True
        self._give(bs.Close(self._transport.now_ms()))
        if self._broken is None:
            self._poll_once(raises=False)
        # Whose user could not be told does not leave: nothing is to be waited for.
        wait_s = timeout_s if self._life.state is State.LEAVING else 0.0
        self._wait_until(wait_s, lambda: self._is_left or self._broken is not None)

    @uninterrupted
    def _end(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        with self._changed:
            self._abandon()
        self._transport.detach(self)
        self._home.close(has_stopped=self._life.state in (State.LEAVING, State.LEFT))
        if self._owns_transport:
            self._transport.close()

    # ---- the transport's side -----------------------------------------------------------------

    def _tell(self) -> None:
        self._futures.tell()

    def _do(self, output: bs.Output) -> None:
        match output:
            case sg.Send(request):
                self._transport.send(self, request)
            case Call():
                self._callbacks.due.append(output)
            case bs.Altered():
                self._futures.settle(output)
            case bs.Registered(incarnation):
                keep = partial(self._home.keep, self.identity, self._life.broker, incarnation)
                self._transport.beside(self, keep)
            case sg.Raise(error):
                self._raised = error
            case sg.Left():
                self._is_left = True

    # ---- small things -------------------------------------------------------------------------

    def _poll_once(self, raises: bool = True) -> bool:
        """Run all callbacks that are due by now; whether there was one."""
        has_run = False
        while True:
            self._give(sg.Polled(self._transport.now_ms()))
            raised = self._broken or self._raised
            if raises and raised is not None:
                self._raised = None
                raise raised
            if not self._callbacks.run():
                return has_run
            has_run = True
            self._tell()

    def _users_of(self, call: Call) -> UserCall:
        return self._users[call.callback], call.arguments

    def _called_back(self, call: Call, has_raised: bool) -> None:
        self._step(bs.CalledBack(self._transport.now_ms(), call, has_raised))

    def _abandon(self) -> None:
        self._futures.abandon(self._broken)

    @property
    def _where(self) -> str:
        return f"cluster {self.identity.group}, broker {self._life.broker}"
