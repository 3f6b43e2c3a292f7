"""May this member work? The fence of one member, pure: rules 8 to 11 (time-and-fencing.md).

A member whose session may have expired must not go on working, and the one clock that it can trust
is its own. So it stops by itself, by two times that it knows for certain: when it first sent a sign
of life that the log then took, and when it asked for the end of its responses that it then read.
Neither needs the coordinator to be up.

Times are milliseconds of one monotonic clock that goes on while the machine sleeps
(CLOCK_BOOTTIME), never of a wall clock. A stop is latched at the next call of any method, so that
news which arrive after it cannot hide it.

**Several demands.** A server-assigned group may ask for one thing after another before the first is
done. Each demand has its own date by rule 10, and the earliest counts: a Release that the log took
ends its own demand and no other. What was demanded before a stop is still owed after it.

**Members that keep what they own while they join (KIP-429).** The rules speak of a member that
holds nothing between two generations; these do not stop at a JoinGroup. What then holds:

- Between JoinGroup and its answer no session expires: a parked member has none.
  But the answer may be out already, and this member not have read it. From the tick that covers the
  answer its session runs again, and heartbeats of the old generation no longer count for it (rule
  13: classic groups refuse them), though the log acknowledges them. So an acknowledged heartbeat
  proves too little while a join is open. What proves enough is to have read to an end that was
  asked for at time r without meeting an answer: then none was visible at r, the covering tick is
  later than r, and the session ends after r + S. Nor can the answer be older than the JoinGroup
  itself. Hence, beside rules 8 to 10: **while a join is open, the member stops when the younger of
  its JoinGroup's first produce() and its last complete reading is older than S - margin.** Once the
  answer was read, that same moment is the newest sign of life, until a heartbeat of the new
  generation is acknowledged.
- The answer to the join demands a SyncGroup within RT, counted by the coordinator from its covering
  tick, and who does not bring it is out: a demand as in rule 10. A leader meets it late when its
  assignor hangs.
- The assignment may demand to revoke. No safety hangs on when that is done: partitions that this
  member named as owned are given to no other in that generation, and in a later one only after it
  has joined again without naming them, or is out of the group. A join without them is sent after
  on_revoked has returned, and carries the generation, so that a late duplicate of an earlier one
  cannot consent (rule 12). What bounds the wait is the member itself: it treats the demand as rule
  10 says, and leaves the group when its user does not poll within RT; if it cannot hear of the
  demand, rule 9 silences it and its session ends.
- A generation whose leader could not assign gives no partitions. Its members let go of all that
  they named; no demand stands behind that, as no member can get it in this generation, and the
  next one begins only after they have joined again without naming it, or are out.
- Rule 11 revives no member between a join and the assignment after it: its heartbeats are answered
  with REBALANCE_IN_PROGRESS there. The assignment itself opens the fence: a member that gets
  it was a member all the time, and the partitions that it had named were given to no other.

**Heartbeats.** One at a time: behind an unacknowledged heartbeat a second proves nothing more, and
a broker that comes back must not find a queue of old ones.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from coordlib.client.kit.events import Acknowledged
from coordlib.client.kit.requests import Identity, Step
from coordlib.core.wire.envelope import printable
from coordlib.errors import CoordError, ErrorCode, GroupError

MARGIN_MIN_MS = 1_000
#: So many readings fit into the time after which a member stops without one.
READINGS = 6
#: The demand that names no cause: to join again. At most one such is open.
REJOIN = -1


class Stop(Enum):
    """Why a member stopped."""

    NO_SIGN_OF_LIFE = "rule 8: no acknowledged heartbeat for the session timeout less the margin"
    UNREAD = "rule 9: the responses were not read to their end for the rebalance timeout"
    NO_REACTION = "rule 10: the reaction that was asked for was not acknowledged in time"
    JOIN_UNHEARD = "rule 8, joining: whether the join was answered was not read for as long"


def margin_of(session_ms: int, rebalance_ms: int) -> int:
    """How much earlier than its coordinator a member ends (rule 8)."""
    return max(MARGIN_MIN_MS, min(session_ms, rebalance_ms) // 4)


class Fence:
    """Closed until `start`; then open as long as rules 8 to 10 hold; open again by rule 11."""

    def __init__(self, session_ms: int, rebalance_ms: int) -> None:
        margin_ms = margin_of(session_ms, rebalance_ms)
        #: How old the newest sign of life may become.
        self.sign_for_ms = session_ms - margin_ms
        #: How old the newest complete reading may become.
        self.read_for_ms = rebalance_ms - margin_ms
        #: First produce() of the newest acknowledged sign of life; None: nothing to guard.
        self._sign_ms: int | None = None
        #: When the end was asked for, of the newest reading that reached it.
        self._read_ms: int | None = None
        #: By when each reaction that is owed must be acknowledged, by the cause of its demand.
        self._due_ms: dict[int, int] = {}
        #: produce() of the JoinGroup that waits for its answer; None: none does.
        self._join_ms: int | None = None
        #: From a JoinGroup to the next assignment: nothing but that assignment revives.
        self._is_between = False
        self._stop: Stop | None = None
        self._return = _Return(self.sign_for_ms)

    def start(self, now_ms: int, sign_ms: int) -> None:
        """A SyncGroup was answered; `sign_ms` is its produce() or that of a later heartbeat."""
        # Rule 8: an answered JoinGroup or SyncGroup is the first heartbeat of the row.
        self.clear()
        self._sign_ms = sign_ms
        self._latch(now_ms)

    def clear(self) -> None:
        """Nothing is held any more: closed, and no reaction is owed. Readings still count."""
        self._sign_ms = self._join_ms = self._stop = None
        self._due_ms = {}
        self._is_between = False

    @property
    def is_guarding(self) -> bool:
        """Whether the member may hold something."""
        return self._sign_ms is not None

    def joining(self, now_ms: int) -> None:
        """A JoinGroup goes out, and what is owned is kept."""
        self._latch(now_ms)
        if self._sign_ms is not None:
            self._join_ms, self._is_between = now_ms, True

    def join_answered(self, now_ms: int) -> None:
        """The new generation has begun; heartbeats of the old one prove nothing from here on."""
        self._latch(now_ms)
        if self._join_ms is not None:
            self._sign_ms, self._join_ms = self._unanswered_at_ms(self._join_ms), None
            self.demanded(now_ms)

    def acknowledged(self, now_ms: int, produced_ms: int, offset: int) -> None:
        """The log took a heartbeat, first given to produce() at `produced_ms`."""
        self._latch(now_ms)
        if self._stop is not None:
            # Rule 11: that alone revives nothing; it may be the first of a new row.
            self._return.acknowledged(produced_ms, offset)
        elif self._sign_ms is not None:
            # Rule 8: the age counts from the first produce() call, not from the acknowledgement.
            self._sign_ms = max(self._sign_ms, produced_ms)

    def read_to_end(self, now_ms: int, asked_ms: int) -> None:
        """All that could be read when the end was asked for, at `asked_ms`, has been read."""
        self._latch(now_ms)
        # Rule 9: the age counts from the asking. Rule 10: `_due_ms` stays as it is.
        self._read_ms = asked_ms if self._read_ms is None else max(self._read_ms, asked_ms)
        if self._stop is not None:
            self._return.read_to_end(asked_ms)
            self._revive(now_ms)

    def demanded(self, now_ms: int, cause: int = REJOIN) -> None:
        """A notice was read that demands a reaction: a rejoin, or the release of one demand."""
        self._latch(now_ms)
        if cause not in self._due_ms and self._sign_ms is not None:
            # Rule 10: counted from the last complete reading *before* the notice, because the
            # notice may have been readable ever since. A repeated notice buys no time.
            self._due_ms[cause] = (self._read_ms or 0) + self.read_for_ms

    def reacted(self, now_ms: int, cause: int = REJOIN) -> int | None:
        """The log took the reaction. Returns by when it had to; None: nothing was demanded."""
        self._latch(now_ms)
        return self._due_ms.pop(cause, None)

    def not_accepted(self, now_ms: int, cause: int, due_ms: int) -> None:
        """The reaction was refused for now: its demand stands with the date that it had."""
        self._latch(now_ms)
        self._due_ms[cause] = due_ms

    def progressed(self, now_ms: int, offset: int) -> None:
        """Every request of the shard up to `offset` was judged, and no refusal came with it."""
        self._latch(now_ms)
        self._return.progressed(now_ms, offset)

    def may_work(self, now_ms: int) -> bool:
        """Whether the member may act on what it holds."""
        self._latch(now_ms)
        return self._sign_ms is not None and self._stop is None

    def is_open(self, now_ms: int) -> bool:
        """Like `may_work`, but without side effects: for monitoring."""
        sign_ms = self._sign_ms
        return sign_ms is not None and self._stop is None and not self._broken_rule(now_ms, sign_ms)

    def may_heartbeat(self, now_ms: int) -> bool:
        """Rule 9, second half: a member that cannot read its responses must not look alive."""
        return self._read_ms is not None and now_ms - self._read_ms <= self.read_for_ms

    def reading_lasts_ms(self) -> int:
        """How old the newest complete reading may become before a newer one is to be made.

        The rules bear an older one; but the time for a reaction counts from it (rule 10), and
        while a join is open so does the session (rule 8). One that stopped waits for it (rule 11).
        """
        return 0 if self._stop else min(self.sign_for_ms, self.read_for_ms) // READINGS

    def stopped_by(self, now_ms: int) -> Stop | None:
        """The rule that stopped the member; None while it may work or holds nothing."""
        self._latch(now_ms)
        return self._stop

    def _latch(self, now_ms: int) -> None:
        if self._sign_ms is None or self._stop is not None:
            return
        self._stop = self._broken_rule(now_ms, self._sign_ms)
        if self._stop is not None:
            self._return = _Return(self.sign_for_ms, stopped_ms=now_ms)

    def _broken_rule(self, now_ms: int, sign_ms: int) -> Stop | None:
        if now_ms - sign_ms > self.sign_for_ms:
            return Stop.NO_SIGN_OF_LIFE
        if not self.may_heartbeat(now_ms):
            return Stop.UNREAD
        if self._due_ms and now_ms > min(self._due_ms.values()):
            return Stop.NO_REACTION
        if self._join_ms is not None:
            unheard_ms = now_ms - self._unanswered_at_ms(self._join_ms)
            return Stop.JOIN_UNHEARD if unheard_ms > self.sign_for_ms else None
        return None

    def _unanswered_at_ms(self, join_ms: int) -> int:
        """The newest moment at which the open join was certainly not answered."""
        return join_ms if self._read_ms is None else max(join_ms, self._read_ms)

    def _revive(self, now_ms: int) -> None:
        """Rule 11: a new row of signs, judged healthy, all read, and no reaction owed."""
        if self._is_between:
            return
        sign_ms = self._return.sign_ms(now_ms)
        if sign_ms is not None and not self._due_ms:
            self._sign_ms, self._stop = sign_ms, None
            self._latch(now_ms)


class _Return:
    """What a stopped member has shown since it stopped (rule 11)."""

    def __init__(self, sign_for_ms: int, stopped_ms: int = 0) -> None:
        self._sign_for_ms, self._stopped_ms = sign_for_ms, stopped_ms
        #: Offset of the first heartbeat of the unbroken row; produce() time of its newest.
        self._first_offset: int | None = None
        self._newest_ms = stopped_ms
        #: When a Progress that covers the row was read, and whether all was read since.
        self._judged_ms: int | None = None
        self._is_read = False

    def acknowledged(self, produced_ms: int, offset: int) -> None:
        if produced_ms < self._stopped_ms:
            return  # Said before the stop: it proves nothing about the time after it.
        self._break(produced_ms)
        if self._first_offset is None:
            self._first_offset = offset
        self._newest_ms = max(self._newest_ms, produced_ms)

    def progressed(self, now_ms: int, offset: int) -> None:
        covers = self._first_offset is not None and offset >= self._first_offset
        if covers and self._judged_ms is None:
            self._judged_ms = now_ms

    def read_to_end(self, asked_ms: int) -> None:
        # A refusal may stand behind the Progress; a reading asked for afterwards has seen it.
        if self._judged_ms is not None and asked_ms >= self._judged_ms:
            self._is_read = True

    def sign_ms(self, now_ms: int) -> int | None:
        """produce() time of the newest sign, once everything is shown; None until then."""
        self._break(now_ms)
        return self._newest_ms if self._is_read else None

    def _break(self, at_ms: int) -> None:
        if at_ms - self._newest_ms > self._sign_for_ms:
            self._first_offset = self._judged_ms = None
            self._is_read = False


class Heartbeats:
    """The row of one member, begun anew with each generation."""

    def __init__(self, interval_ms: int, fence: Fence) -> None:
        self._interval_ms, self._fence = interval_ms, fence
        #: The heartbeat that the log has not taken yet.
        self._open_id: str | None = None
        self._sent_ms = 0
        #: produce() of the newest acknowledged sign of life (rule 8).
        self.sign_ms = 0

    def begin(self, now_ms: int, sign_ms: int) -> None:
        """A JoinGroup was answered; it counts as the first of the row."""
        self._open_id, self._sent_ms, self.sign_ms = None, now_ms, sign_ms

    def due_ms(self) -> int | None:
        """When the next may be sent; None: not before something else happens."""
        due_ms = self._sent_ms + self._interval_ms
        return due_ms if self._open_id is None and self._fence.may_heartbeat(due_ms) else None

    def is_due(self, now_ms: int) -> bool:
        is_time = self._open_id is None and now_ms - self._sent_ms >= self._interval_ms
        return is_time and self._fence.may_heartbeat(now_ms)  # rule 9: not without reading

    def sent(self, id_: str, now_ms: int) -> None:
        self._open_id, self._sent_ms = id_, now_ms

    def is_open(self, id_: str) -> bool:
        """Whether this is the heartbeat that waits for its acknowledgement."""
        return id_ == self._open_id

    def acknowledged(self, event: Acknowledged) -> None:
        self._open_id = None
        self.sign_ms = max(self.sign_ms, event.produced_ms)
        self._fence.acknowledged(event.now_ms, event.produced_ms, event.offset)

    def not_written(self) -> None:
        """The next one comes at its time."""
        self._open_id = None


StateT = TypeVar("StateT", bound=Enum)
OutputT = TypeVar("OutputT")


class BaseState(Generic[StateT, OutputT]):
    """What members of groups and brokers of clusters have in common.

    Args:
        state: the first one.
        release_timeout_ms: how long its user may take to let go.
    """

    #: What it is, for errors.
    NOUN: ClassVar[str]
    #: Which states may come before which.
    VALID_PREVIOUS_STATES: ClassVar[Mapping[Any, frozenset[Any]]]

    def __init__(
        self,
        identity: Identity,
        state: StateT,
        session_timeout_ms: int,
        release_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        self.identity = identity
        self.fence = Fence(session_timeout_ms, release_timeout_ms)
        self.beats = Heartbeats(heartbeat_interval_ms, self.fence)
        self.state = state
        self.member = ""
        #: After this time without an answer a step is sent again.
        self.silent_ms = release_timeout_ms
        #: The step of the protocol that has no answer yet: at most one is under way.
        self.step: Step | None = None
        #: Why it has failed for good.
        self.failure: CoordError | None = None
        self._out: list[OutputT] = []

    def own_id(self) -> str:
        """The member id: as answered, or as the place of its first request will give it."""
        if not self.member and self.step is not None and self.step.offset is not None:
            return self.identity.member_at(self.step.offset)
        return self.member

    def step_due_ms(self) -> int | None:
        """When the step is to be sent again; None: not before something else happens."""
        return None if self.step is None else self.step.due_ms(self.silent_ms)

    def become(self, state: StateT) -> None:
        if self.state not in self.VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"{self.state} -> {state} is no transition of a {self.NOUN}")
        self.state = state

    def say(self, *outputs: OutputT) -> None:
        self._out += outputs

    def outputs(self) -> list[OutputT]:
        """What was said since the last call."""
        out, self._out = self._out, []
        return out


class AssignmentFailed(GroupError):
    """The group's leader could not assign. `poll` raises it once for each such generation.

    The member stays in the group and owns nothing until the next rebalance; the leader begins one
    after a while, to try again. `code` and the message are the leader's.
    """

    def __init__(self, code: ErrorCode, where: str, message: str) -> None:
        problem = f"The leader could not assign partitions: {printable(message)}"
        super().__init__(code, where, problem)


class MemberFenced(GroupError):
    """The member may not act now: it stopped itself, or holds no assignment (rules 8 to 11)."""

    def __init__(self, where: str, stop: Stop | None) -> None:
        self.stop = stop
        why = stop.value if stop is not None else "it holds no assignment at this moment"
        message = f"The member may not commit: {why}. Call poll, and continue with what it assigns."
        super().__init__(ErrorCode.ILLEGAL_GENERATION, where, message)
