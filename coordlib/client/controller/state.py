"""The state of one broker, the state that it wants to be in, its door, and how it ends.

A BrokerHeartbeat is sent when target and state differ, and while a broker that stops may not yet;
signs of life are plain heartbeats (KIP-343, MetadataHeartbeat). `since` names the state that it
knows: where that is not the present one, nothing changes, and the answer tells the present one
(rule 12).

The door is whether it takes requests and shows metadata (KIP-343's fencing). Acting as leader and
being there end apart (time-and-fencing.md, Brokers): a lease ends before the session does, by the
fence; the door closes after F without contact, or at once where the broker reads that it is
Inactive. It opens when Active is answered, and again when the fence is open: then the broker has
been Active all the time (rule 11).

It ends when its user was told that the door is closed and LeaveGroup is written. A broker that was
replaced says so too, once and as soon as its user has stopped: what it led waits for just that
(`core/controller/arrivals.py`).
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar, Final

from coordlib import limits
from coordlib.client.controller import requests as bs
from coordlib.client.controller.requests import BrokerTiming, BrokerWording, Registration, Target
from coordlib.client.kit import events as sg
from coordlib.client.kit.fence import BaseState
from coordlib.client.kit.requests import Identity, Step


class State(Enum):
    """Where a broker stands, as it has read."""

    #: action: RegisterBroker unanswered. transition: answer -> INACTIVE; refused -> FAILED
    INITIAL = "Initial"
    #: action: leads nothing. transition: says Active -> ACTIVE; unregistered -> INITIAL
    INACTIVE = "Inactive"
    #: action: leads and follows. transition: says Stopping -> STOPPING; out -> INACTIVE
    ACTIVE = "Active"
    #: action: lets go of what it is asked for. transition: says Active -> ACTIVE; out -> INACTIVE
    STOPPING = "Stopping"
    #: action: every poll raises. transition: close -> LEAVING
    FAILED = "Failed"
    #: action: LeaveGroup is being written. transition: acknowledged or given up -> LEFT
    LEAVING = "Leaving"
    #: action: none. transition: none
    LEFT = "Left"


#: It may lead, and metadata name it.
READY: Final = frozenset({State.ACTIVE, State.STOPPING})
#: The controller has answered its registration.
REGISTERED: Final = READY | {State.INACTIVE}
#: It is registered, or will be.
LIVING: Final = REGISTERED | {State.INITIAL}


class BrokerStanding(BaseState[State, bs.Output]):
    """One broker's place in its cluster."""

    NOUN = "broker"
    VALID_PREVIOUS_STATES: ClassVar[Mapping[State, frozenset[State]]] = {
        State.INITIAL: frozenset({State.INACTIVE}),
        State.INACTIVE: REGISTERED | {State.INITIAL},
        State.ACTIVE: REGISTERED,
        State.STOPPING: REGISTERED,
        State.FAILED: LIVING,
        State.LEAVING: LIVING | {State.FAILED},
        State.LEFT: frozenset({State.LEAVING}),
    }

    def __init__(
        self, identity: Identity, timing: BrokerTiming, registration: Registration
    ) -> None:
        super().__init__(
            identity,
            State.INITIAL,
            timing.session_timeout_ms,
            timing.release_timeout_ms,
            timing.heartbeat_interval_ms,
        )
        self.timing, self.registration = timing, registration
        self.wording = BrokerWording(identity, timing)
        self.incarnation = -1
        #: The record that gave the state, as far as it is known (rule 12).
        self.since = -1

    @property
    def is_ready(self) -> bool:
        return self.state in READY

    @property
    def where(self) -> str:
        """For errors."""
        return f"cluster {self.identity.group}, broker {self.registration.broker}"

    def take(self, now_ms: int, output: sg.Send) -> None:
        """The next step of the protocol."""
        self.step = Step(output, now_ms)
        self._out.append(output)

    def pass_on(self, outputs: Iterable[sg.Output]) -> None:
        """What `PendingRequests` wants to send; nobody waits there for an answer."""
        self._out += [each for each in outputs if isinstance(each, sg.Send)]


NO_CONTACT = "no contact with the log for the fence timeout"


class FencingGate:
    """Whether a broker takes requests. Closed at first. Times are of the fence's clock, in ms."""

    def __init__(self, fenced_after_ms: int) -> None:
        self._fenced_after_ms = fenced_after_ms
        #: When the older one began of: the newest acknowledged sign of life, the newest reading.
        self._contact_ms: int | None = None
        self._is_open = False
        #: Whether the user was told that it is open.
        self.is_reported = False
        #: Why the user is to be told that it was closed; None: he is not.
        self.closed_because: str | None = None

    def contact(self, signed_ms: int, read_ms: int | None) -> None:
        """Note contact in both directions: an acknowledged sign of life, and a reading."""
        if read_ms is not None:
            self._contact_ms = min(signed_ms, read_ms)

    def open(self) -> None:
        """Open the gate: the broker is Active, and its fence is open."""
        self._is_open = True

    def close(self, why: str) -> None:
        """Close the gate; the user is notified once of the first reason."""
        if self.is_reported and self.closed_because is None:
            self.closed_because = why
        self._is_open = False

    def check_time(self, now_ms: int) -> None:
        """Close the gate if contact was lost. To be called before any other input is handled."""
        if self._is_open and not self.is_open(now_ms):
            self.close(NO_CONTACT)

    def is_open(self, now_ms: int) -> bool:
        """Whether the broker takes requests; without side effects."""
        if not self._is_open or self._contact_ms is None:
            return False
        return now_ms - self._contact_ms <= self._fenced_after_ms


#: How often a broker that stops asks whether it may, beside each time it has let go.
STOP_ASK_MS = 1_000
UNPOLLED = "poll was not called"


class Targets:
    """The target state of one broker, from what its user asks for and whether he polls."""

    def __init__(self, me: BrokerStanding) -> None:
        self._me = me
        #: The user's: Active once it is ready, Stopping from when it wants to end.
        self._wanted = State.INACTIVE
        self._polled_ms = 0
        #: Whether the user's thread was not seen for the release timeout.
        self._is_away = False
        #: It gave up its leaderships by itself, and has to say so: from then on nothing but the
        #: answer to its word Inactive lets it lead (rule 15).
        self.owes_word = False
        #: Not before that: user code that has just asked must be done (the fence's margin).
        self._word_from_ms = 0
        #: Ask for the state, whatever is wanted.
        self.must_ask = False
        self._may_stop = False
        self._ask_again_ms: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether a broker that stops has nothing left that another could lead."""
        me = self._me
        if self._wanted is not State.STOPPING:
            return False
        is_out = me.state in (State.INITIAL, State.INACTIVE) and not self._is_entering
        return is_out or (me.state is State.STOPPING and self._may_stop)

    @property
    def _is_entering(self) -> bool:
        """Whether an answer may make it Active at any moment."""
        return self._me.step is not None and self._me.state is State.INACTIVE

    # ---- the user -----------------------------------------------------------------------------

    def seen(self, now_ms: int) -> None:
        """Note that the user has polled."""
        self._polled_ms, self._is_away = now_ms, False

    def ready(self, now_ms: int) -> None:
        """Request the state Active. Cancels a pending `stop`."""
        self.seen(now_ms)
        self._wanted = State.ACTIVE

    def stop(self, now_ms: int) -> None:
        """Begin a controlled shutdown: others are to lead."""
        self.seen(now_ms)
        self._wanted = State.STOPPING

    def elapsed(self, now_ms: int) -> None:
        """Check whether the user has polled within the release timeout."""
        if now_ms - self._polled_ms >= self._me.timing.release_timeout_ms:
            self._is_away = True

    def gives_up(self, now_ms: int) -> bool:
        """Whether all leaderships end now because the user does not poll; true once."""
        is_in = self._me.is_ready or self._is_entering
        if not self._is_away or self.owes_word or not is_in:
            return False
        self.owes_word, self._word_from_ms = True, now_ms + self._me.timing.margin_ms
        return True

    def went_out(self) -> None:
        """The controller has declared the broker Inactive."""
        self.owes_word, self._may_stop, self._ask_again_ms = False, False, None

    def due_ms(self) -> int | None:
        """When a request is due, or the user's release timeout ends."""
        me = self._me
        if me.state not in REGISTERED:
            return None
        due = [] if self._is_away else [self._polled_ms + me.timing.release_timeout_ms]
        if me.step is None:
            due += [self._word_from_ms] if self.owes_word else []
            due += [] if self._ask_again_ms is None else [self._ask_again_ms]
        return min(due, default=None)

    # ---- said ---------------------------------------------------------------------------------

    def say(self, now_ms: int, is_free: bool) -> None:
        """Send a BrokerHeartbeat if one is due.

        Args:
            is_free: whether the user knows that the door is closed, if it is. Before that it must
                not be opened again. A user who is away cannot be told; then the margin has passed.
        """
        me = self._me
        if me.step is not None or not self._is_due(now_ms):
            return
        target = self._target()
        may_say = now_ms >= self._word_from_ms if self.owes_word else is_free
        if may_say:
            self.must_ask, self._ask_again_ms = False, None
            reason = UNPOLLED if self.owes_word else None
            registration = me.registration.broker, me.incarnation, me.since
            me.take(now_ms, sg.Send(me.wording.target(*registration, target, reason)))

    def _is_due(self, now_ms: int) -> bool:
        is_again = self._ask_again_ms is not None and now_ms >= self._ask_again_ms
        return self.must_ask or is_again or self._target() != self._me.state.value

    def _target(self) -> Target:
        if self.owes_word or self._is_away or self._wanted is State.INACTIVE:
            return "Inactive"
        if self._wanted is State.STOPPING:
            return "Stopping" if self._me.is_ready else "Inactive"
        return "Active"

    def answered(self, now_ms: int, may_stop: bool) -> None:
        """Take the answer to a BrokerHeartbeat; it is repeated until the broker may stop."""
        self._may_stop = may_stop
        is_stopping = self._wanted is State.STOPPING and not may_stop
        self._ask_again_ms = now_ms + STOP_ASK_MS if is_stopping else None

    def let_go(self, now_ms: int) -> None:
        """No demand is open any more: ask at once whether the broker may stop."""
        if self._ask_again_ms is not None:
            self._ask_again_ms = now_ms


class Leaving:
    """The last steps of one broker."""

    def __init__(self, me: BrokerStanding) -> None:
        self._me = me
        self.is_closing = False
        self._reason, self._leave_id = "", ""
        #: The member id for which it has said that it stopped; ids are never used twice.
        self._reported_as = ""

    def close(self, reason: str) -> None:
        if not self.is_closing:
            self.is_closing, self._reason = True, reason

    def go_on(self, is_free: bool) -> None:
        """Send LeaveGroup once the user has stopped (`is_free`)."""
        me = self._me
        if not is_free or me.state in (State.LEAVING, State.LEFT):
            return
        me.become(State.LEAVING)
        member = me.own_id()
        me.step = None
        if member and member != self._reported_as:
            self._say_leave(member, self._reason)
        else:
            # A registration that is still on its way makes a broker that is Inactive, and silent.
            self._end()

    def say_out(self, is_free: bool) -> None:
        """Send LeaveGroup for a broker that has failed for good: it leads nothing any more."""
        member = self._me.member
        if is_free and member and member != self._reported_as:
            why = self._me.failure.what if self._me.failure is not None else ""
            self._say_leave(member, f"stopped: {why}"[: limits.REASON_LENGTH_MAX])

    def _say_leave(self, member: str, reason: str) -> None:
        me, self._reported_as = self._me, member
        request = me.wording.leave_cluster(member, reason)
        self._leave_id = request.id
        me.say(sg.Send(request))

    def written(self, id_: str) -> bool:
        """Take the outcome of the LeaveGroup; return whether it was that."""
        if id_ != self._leave_id:
            return False
        if self._me.state is State.LEAVING:
            self._end()
        return True

    def _end(self) -> None:
        self._me.become(State.LEFT)
        self._me.say(sg.Left())
