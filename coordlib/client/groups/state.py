"""The state of one member: its place in the group, and its partitions. Pure.

Outputs are collected in order, which is that of requests in the log.

**Partitions** are a member's in three senses that change at different moments. `granted` has the
partitions that the coordinator gave; `delivered` those that the user got by callback and has not
given up; the fence decides whether the user may act on them now. Callbacks follow from these three
alone, and only one is under way at a time:

    delivered, but the fence has fallen   -> LOST, all of it
    delivered, but not granted            -> REVOKED, just that; all before an eager rejoin
    granted, but not delivered            -> ASSIGNED, just that; for every assignment, also empty
"""

from collections.abc import Iterable
from enum import Enum

from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Call, Callback, Partitions, TopicPartition
from coordlib.client.kit.fence import BaseState, Fence
from coordlib.client.kit.requests import Identity, RequestBuilder, Step, Timing
from coordlib.errors import CoordError


class State(Enum):
    """Where a member stands in the protocol."""

    #: action: nothing is asked. transition: a subscription and nothing held -> JOINING
    IDLE = "Idle"
    #: action: JoinGroup unanswered, no heartbeats. transition: answer -> DIVIDING, SYNCING, IDLE
    JOINING = "Joining"
    #: action: this leader's assignor runs. transition: result -> SYNCING; notice -> JOINING
    DIVIDING = "Dividing"
    #: action: SyncGroup unanswered. transition: answer -> STABLE; notice, refusal -> JOINING, IDLE
    SYNCING = "Syncing"
    #: action: heartbeats; the user works. transition: notice and let go -> JOINING; removed -> IDLE
    STABLE = "Stable"
    #: action: every poll raises. transition: close -> LEAVING
    FAILED = "Failed"
    #: action: LeaveGroup is being written. transition: acknowledged or given up -> LEFT
    LEAVING = "Leaving"
    #: action: none. transition: none
    LEFT = "Left"


#: The member has a generation: it heartbeats, and notices concern it.
IN_GENERATION = frozenset({State.DIVIDING, State.SYNCING, State.STABLE})
#: Others wait for this member: it must show that its user is alive.
ACTIVE = IN_GENERATION | {State.JOINING}
#: No question is taken any more.
ENDED = frozenset({State.FAILED, State.LEAVING, State.LEFT})
VALID_PREVIOUS_STATES: dict[State, frozenset[State]] = {
    State.IDLE: ACTIVE,
    State.JOINING: IN_GENERATION | {State.IDLE},
    State.DIVIDING: frozenset({State.JOINING}),
    State.SYNCING: frozenset({State.JOINING, State.DIVIDING}),
    State.STABLE: frozenset({State.SYNCING}),
    State.FAILED: ACTIVE | {State.IDLE},
    State.LEAVING: ACTIVE | {State.IDLE, State.FAILED},
    State.LEFT: frozenset({State.LEAVING}),
}


class Ownership:
    """Decides which callback is next."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        #: The partitions that callbacks may give the user; a cooperative member has them until the
        #: next assignment. None: none was given since it last let go of all.
        self.granted: Partitions | None = None
        #: Log offset of what caused the grant: rises with every assignment of any group.
        self.fence_token: int | None = None
        #: None: no callback gave the user anything since everything was given up.
        self.delivered: Partitions | None = None
        #: Whether an assignment came for which no callback has run.
        self._is_undelivered = False
        #: The callback that runs now, and what it lets go of.
        self.calling: Callback | None = None
        self.leaving: Partitions = ()

    def usable(self, now_ms: int) -> Partitions:
        """The partitions that the user may act on at this moment."""
        return self.delivered if self.delivered is not None and self.fence.may_work(now_ms) else ()

    def is_free(self, now_ms: int, keeps: bool) -> bool:
        """Whether the user holds nothing that a rejoin would take away.

        Args:
            keeps: whether the member goes on working on what is granted while it joins.
        """
        if keeps and self.fence.may_work(now_ms):
            return self.calling in (None, Callback.ASSIGNED) and not self._gone()
        return not self.delivered and self.calling is None

    def begin_join(self, now_ms: int, keeps: bool) -> Partitions:
        """A JoinGroup goes out: what it names as owned. Only when `is_free`."""
        if keeps and self.granted and self.fence.may_work(now_ms):
            self.fence.joining(now_ms)
            return self.granted
        self.let_go()
        return ()

    def narrow(self, topics: Iterable[str]) -> None:
        """Other topics are not wanted any more: they are let go of before the rejoin."""
        if self.granted is not None:
            self.granted = tuple(each for each in self.granted if each.topic in set(topics))

    def grant(self, now_ms: int, given: Partitions, fence_token: int | None, sign_ms: int) -> None:
        """The SyncGroup was answered; `sign_ms` is the newest sign of life (rule 8)."""
        self.granted, self.fence_token, self._is_undelivered = given, fence_token, True
        self.fence.start(now_ms, sign_ms)

    def withdraw(self) -> None:
        """Membership ended without the user, whose partitions are lost at the next poll."""
        self.granted = self.fence_token = None
        self._is_undelivered = False
        self.fence.clear()

    def let_go(self) -> None:
        """Nothing is held any more, and the callback for it has run."""
        self.delivered = None
        self.withdraw()

    def next_call(self, now_ms: int, must_let_go: bool) -> Call | None:
        """The callback that is due; an empty assignment has one, an empty loss has none."""
        may_work = self.fence.may_work(now_ms)
        if self.delivered is not None and not may_work:
            return self._lose()
        leaving = self.delivered if must_let_go else self._gone()
        if leaving:
            self.leaving = leaving
            return self._call(Callback.REVOKED, leaving)
        if must_let_go or self.granted is None or not may_work:
            return None
        if self.delivered is None or self._is_undelivered:
            added = without(self.granted, self.delivered or ())
            self.delivered, self._is_undelivered = self.granted, False
            return self._call(Callback.ASSIGNED, added)
        return None

    def returned(self, callback: Callback) -> None:
        """The callback has returned."""
        self.calling = None
        if callback is Callback.REVOKED and self.delivered is not None:
            self.delivered, self.leaving = without(self.delivered, self.leaving), ()

    def _gone(self) -> Partitions:
        """Partitions that the user still has and the newest assignment lacks."""
        if self.delivered is None or self.granted is None:
            return ()
        return without(self.delivered, self.granted)

    def _lose(self) -> Call | None:
        lost, self.delivered = self.delivered, None
        return self._call(Callback.LOST, lost) if lost else None

    def _call(self, callback: Callback, partitions: Partitions) -> Call:
        self.calling = callback
        return Call(callback, partitions)


def without(some: Partitions, others: Iterable[TopicPartition]) -> Partitions:
    """The first without the second, in its order."""
    dropped = set(others)
    return tuple(each for each in some if each not in dropped)


class MemberState(BaseState[State, sg.Output]):
    """One member's place in its group."""

    NOUN = "member"

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(
            identity,
            State.IDLE,
            timing.session_timeout_ms,
            timing.rebalance_timeout_ms,
            timing.heartbeat_interval_ms,
        )
        self.timing = timing
        self.requests = RequestBuilder(identity, timing)
        self.held = Ownership(self.fence)
        self.generation = -1
        #: The first id of the generation, or of the membership: refusals of older requests concern
        #: an older one.
        self.first_id = self.requests.next_id()
        #: Why there is nothing to own for now: the next poll raises it, once.
        self.news: CoordError | None = None

    @property
    def is_static(self) -> bool:
        """Whether its place waits for it when it goes (KIP-345)."""
        return self.identity.instance is not None

    @property
    def keeps_alive(self) -> bool:
        """Whether it heartbeats, and notices about its generation concern it."""
        is_parked_owner = self.state is State.JOINING and self.fence.is_guarding
        return self.state in IN_GENERATION or is_parked_owner

    @property
    def where(self) -> str:
        """For errors."""
        return f"group {self.identity.group}, member {self.member or self.identity.client}"

    def forget(self, keeps_member: bool = False) -> None:
        """End a membership that the coordinator does not have; the user's partitions are lost."""
        self.become(State.IDLE)
        self.member, self.generation = (self.member if keeps_member else ""), -1
        self.step = self.news = None
        self.held.withdraw()

    def fail(self, error: CoordError) -> None:
        """Fail for good: every poll raises from now on; the user's partitions are lost."""
        self.become(State.FAILED)
        self.step = self.news = None
        self.held.withdraw()
        self.failure = error

    def take(self, now_ms: int, output: sg.Send | sg.Divide) -> None:
        """The next step of the protocol."""
        self.step = Step(output, now_ms)
        self._out.append(output)

    def say_all(self, outputs: Iterable[sg.Output]) -> None:
        self._out += outputs
