"""`BrokerAgent`: a broker of a cluster. What is asked of it may be asked from any thread.

Threads are outside, the state machine inside. Heartbeats and reading go on by themselves. Callbacks
come only from the thread that calls `poll` or `close`.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, Final

from coordlib.client.controller import requests as bs
from coordlib.client.controller.folder import Home
from coordlib.client.controller.machine import BrokerMachine
from coordlib.client.controller.metadata import ClusterMetadata
from coordlib.client.controller.requests import (
    Altered,
    BrokerTiming,
    Call,
    Callback,
    Following,
    Leadership,
    Registration,
    check_named,
)
from coordlib.client.controller.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.calls import Callbacks, UserCall, uninterrupted, weakly
from coordlib.client.kit.driver import WAIT_S, Driver, OpenFutures
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.fence import Stop
from coordlib.client.kit.transport import KafkaTransport, Name, Transport, default_client_id
from coordlib.core.wire import api
from coordlib.errors import CoordError, SetupError

#: How long `close` waits until the log has its last word.
LEAVE_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 30.0


class BrokerAgent(Driver[BrokerMachine, sg.Input | bs.OwnInput, bs.Output]):
    """A broker of a cluster: it leads and follows partitions as the controller says.

    It registers at once, and is Inactive until `ready`. Leaving its `with` block is a controlled
    shutdown: others lead first, for `stop_timeout_s` at most.

    All callbacks may be left out. One that raises lets `poll` raise, and is called again by the
    next `poll`; a deletion that raises has failed (KAFKA_STORAGE_ERROR).

    Args:
        cluster: the cluster's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        broker: its id, 0 or more. Of two processes with one id the newer one wins.
        endpoints: where others reach it, 1 to 16.
        folder: of its data. Its lock keeps a second process out; what lies in it tells the
            controller that the data are the same as before. None: nothing outlives the process.
        transport: shared among agents of one program; by default one of its own.
        rack: where it stands; replicas of new partitions are spread over racks.
        client: client id, at most 150 bytes; by default host, process and a random part.
        timing: session, release timeout (how long letting go may take; also the longest time
            between polls), fence timeout, heartbeats.
        stop_timeout_s: how long `close` lets others take over.
        on_leader: lead this partition in this epoch; a leadership may also go on in a new epoch.
        on_follower: follow in this epoch; stop leading it, if you did. What you have of another
            topic id is of a topic that was deleted: delete it first, also before you lead.
        on_resign: stop leading these, then return: others lead as soon as it has returned.
        on_stop: (topic, partition, delete): this replica is not yours any more. Stop it, delete its
            data if `delete`, then return.
        on_fenced: it is fenced, with the reason, and all leaderships are over: complete what
            has begun, refuse what is new. What goes on is told anew by on_leader.
        on_unfenced: it may take requests again.

    Raises:
        SetupError: a name, an id or an endpoint that is not allowed; a folder that cannot be used.
        NotReady: another process uses the folder.
        CannotReach: no broker of Kafka's, or no coordinator's topics under this prefix.

    Source: KIP-343 (seed 001); time-and-fencing.md, rules 8 to 12, 15 and 16.
    """

    NOUN = "agent"

    def __init__(  # noqa: PLR0913  # all but the cluster by keyword, most with a default
        self,
        cluster: str,
        config: Mapping[str, Any] | None = None,
        *,
        broker: int,
        endpoints: Sequence[api.Endpoint],
        folder: Path | str | None = None,
        transport: Transport | None = None,
        rack: str | None = None,
        client: str | None = None,
        prefix: str = "coord",
        timing: BrokerTiming | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        on_leader: Callable[[Leadership], None] | None = None,
        on_follower: Callable[[Following], None] | None = None,
        on_resign: Callable[[Partitions], None] | None = None,
        on_stop: Callable[[str, int, bool], None] | None = None,
        on_fenced: Callable[[str], None] | None = None,
        on_unfenced: Callable[[], None] | None = None,
    ) -> None:
        check_named(broker, endpoints, rack)
        if transport is None and not config:
            what = "A broker needs the options of Kafka's clients, or a transport."
            raise SetupError(what, "config", 'At least {"bootstrap.servers": "HOST:PORT"}.')
        name = Name(group=cluster, client=client, prefix=prefix)
        own_client = client or default_client_id()
        callbacks: dict[Callback, Callable[..., None] | None] = {
            Callback.LEADER: on_leader,
            Callback.FOLLOWER: on_follower,
            Callback.RESIGN: on_resign,
            Callback.STOP: on_stop,
            Callback.FENCED: on_fenced,
            Callback.UNFENCED: on_unfenced,
        }
        #: Its id.
        self.broker = broker
        timing = timing or BrokerTiming()
        with ExitStack() as undone:
            home = Home(folder)
            undone.callback(home.close, has_stopped=True)  # none of the user's code has run
            over = transport
            if over is None:
                over = KafkaTransport(config or {}, prefix, own_client)
                undone.callback(over.close)
            identity = name.identity(own_client, over)
            registration = Registration(
                broker=broker,
                endpoints=tuple(endpoints),
                rack=rack,
                storage=home.storage,
                previous=home.previous(identity, broker),
            )
            where = f"cluster {cluster}, broker {broker}"
            super().__init__(
                BrokerMachine(identity, timing, registration),
                identity,
                over,
                transport is None,
                Callbacks(weakly(self._users_of), weakly(self._called_back)),
                OpenFutures(
                    partial(_complete, where=where),
                    lambda ticket, error: Altered(ticket, error=error),
                    where,
                ),
            )
            self._home, self._users, self._stop_timeout_s = home, callbacks, stop_timeout_s
            self._register()
            undone.pop_all()

    def _register(self) -> None:
        try:
            self._transport.attach(self)
            self._give(bs.Begin(self._transport.now_ms()))
        except BaseException:
            self._transport.detach(self)
            raise

    # ---- what it may do, from any thread ------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """What names this process of the broker: followers tell it their leader; -1: not yet."""
        return self._machine.incarnation

    @property
    def member_id(self) -> str:
        """The controller's name for this process; empty before it was registered."""
        return self._machine.member

    @property
    def state(self) -> str:
        """Initial, Inactive, Active or Stopping, as it has read; then Failed, Leaving, Left."""
        return self._machine.state.value

    @uninterrupted
    def may_lead(self, topic: str, partition: int, epoch: int | None = None) -> bool:
        """Whether it acts as leader at this moment: ask before anything is acknowledged or read.

        Args:
            epoch: whether it is this very leadership, the one that `on_leader` told of.
        """
        place = TopicPartition(topic, partition)
        with self._changed:
            is_broken = self._broken is not None
            now_ms = self._transport.now_ms()
            return not is_broken and self._machine.may_lead(now_ms, place, epoch)

    @uninterrupted
    def must_acknowledge(self, topic: str, partition: int) -> frozenset[int]:
        """The brokers who must have a write before it is committed (rule 16).

        The ISR that was read, and everybody whom `alter_isr` has named since. Each counts in the
        incarnation that fetched: of two processes with one id the older one's fetches count
        nothing once the newer one has fetched. Empty: it does not lead.
        """
        with self._changed:
            return self._machine.must_acknowledge(TopicPartition(topic, partition))

    def alter_isr(
        self, topic: str, partition: int, isr: Mapping[int, int], has_recovered: bool = False
    ) -> "Future[api.AlteredRow]":
        """Ask the controller for other in-sync replicas. One change of a partition at a time.

        Call it under the lock under which you decide what is committed: from the call on, all that
        it names must acknowledge, also if it is refused. Whoever is added has all that was
        committed until then.

        Args:
            isr: broker to the incarnation that fetched, as it told; this broker itself need not be
                named.
            has_recovered: after an unclean election: this leader has what it will have.

        Returns:
            The row as it stands; or the future raises GroupError (INELIGIBLE_REPLICA,
            INVALID_UPDATE_VERSION, NOT_LEADER_OR_FOLLOWER, …), BrokerFenced, CannotReach when the
            request could not be written, CoordError while another change is under way. What it
            calls when it is done runs in a thread that serves all agents of the transport: it
            must be quick; it may take the lock under which changes are asked for.

        Raises:
            TypeError: a broker or an incarnation is no integer.
        """
        place = TopicPartition(topic, partition)
        named = {index(broker): index(incarnation) for broker, incarnation in isr.items()}
        return self.ask(
            lambda now_ms, ticket: bs.AlterIsr(now_ms, ticket, place, named, bool(has_recovered))
        )

    @property
    @uninterrupted
    def is_fenced(self) -> bool:
        """Whether it is fenced: it takes no requests and shows no metadata."""
        with self._changed:
            is_broken = self._broken is not None
            return is_broken or self._machine.is_fenced(self._transport.now_ms())

    @uninterrupted
    def metadata(self) -> ClusterMetadata:
        """Brokers, topics and partitions as it has read of them; stays as it is.

        Of a cluster with more than some 90,000 partitions it has the topics of this broker's own
        replicas, and what has changed since (`is_whole` is false).

        Raises BrokerFenced: it is fenced, or nothing was read yet. MetadataRefused: the
        controller does not answer the question; the broker leads and follows all the same.
        """
        with self._changed:
            if self._broken is not None:
                raise self._broken
            return self._machine.metadata(self._transport.now_ms())

    @uninterrupted
    def stopped_by(self) -> Stop | None:
        """The rule by which it leads nothing at this moment; None: it may, or is not Active."""
        with self._changed:
            return self._machine.stopped_by(self._transport.now_ms())

    # ---- what the user does -------------------------------------------------------------------

    def ready(self) -> None:
        """Ask to become Active: its data is loaded. Cancels a `stop`."""
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
            if self._machine.is_done:
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
        if self.callbacks.is_inside(threading.get_ident()):
            raise CoordError("close was called in a callback.", self._where, "Call stop there.")
        if self.has_ended:
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
        self._futures.complete()
        if raised is not None:
            raise raised

    def _stop_in_order(self, timeout_s: float) -> None:
        if self._is_closed:
            return  # in a close that was interrupted later
        self.stop()
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and self._broken is None and not self._machine.is_done:
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
        wait_s = timeout_s if self._machine.state is State.LEAVING else 0.0
        self._wait_until(wait_s, lambda: self._is_left or self._broken is not None)

    def _free(self) -> None:
        self._home.close(has_stopped=self._machine.state in (State.LEAVING, State.LEFT))

    # ---- the transport's side -----------------------------------------------------------------

    def _do(self, output: bs.Output) -> None:
        match output:
            case Call():
                self.callbacks.due.append(output)
            case Altered():
                self._futures.settle(output.ticket, output)
            case bs.Registered(incarnation):
                keep = partial(self._home.keep, self.identity, self._machine.broker, incarnation)
                self._transport.in_background(self, keep)

    # ---- small things -------------------------------------------------------------------------

    def _poll_once(self, raises: bool = True) -> bool:
        """Run all callbacks that are due by now; whether there was one."""
        has_run = False
        while True:
            self._give(sg.Polled(self._transport.now_ms()))
            if raises:
                self._raise_failure()
            if not self.callbacks.run():
                return has_run
            has_run = True
            self._futures.complete()

    def _users_of(self, call: Call) -> UserCall:
        return self._users[call.callback], call.arguments

    def _called_back(self, call: Call, has_raised: bool) -> None:
        self._step(bs.CalledBack(self._transport.now_ms(), call, has_raised))

    @property
    def _where(self) -> str:
        return f"cluster {self.identity.group}, broker {self.broker}"


def _complete(future: "Future[api.AlteredRow]", answer: Altered, where: str) -> None:
    if answer.row is not None:
        future.set_result(answer.row)
    else:
        future.set_exception(answer.error or CoordError("There is no answer.", where))
