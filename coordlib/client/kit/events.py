"""The inputs and outputs of a member's state machine: plain values, no IO.

Inputs are things that happened; `now_ms` is the moment, on the clock of `fence.py`. Outputs are
things to do, in order. The shell around the state machine does them and feeds back their outcome.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from coordlib.core.wire import api
from coordlib.core.wire.transactions import Result
from coordlib.errors import CoordError


class TopicPartition(NamedTuple):
    """One partition of a topic that the group shares."""

    topic: str
    partition: int


Partitions = tuple[TopicPartition, ...]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Rows, as partitions by topic."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return {topic: tuple(some) for topic, some in topics.items()}


class Callback(Enum):
    """The user's callbacks, always run in the user's own thread, inside `poll` or `close`."""

    #: These are yours now, beside what was kept. Action: start at the committed offsets.
    ASSIGNED = "assigned"
    #: These will have another owner. Action: commit what is done, then let go.
    REVOKED = "revoked"
    #: These may have another owner already. Action: stop at once; commits would be refused.
    LOST = "lost"


# ---- inputs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantTopics:
    """The user wants these topics; the member joins, or rejoins with the new subscription."""

    now_ms: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a member of a server-assigned group, as fields of Subscribe."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    exclude: str | None = None
    strategy: str | None = None
    capacity: int = 1


@dataclass(frozen=True, slots=True)
class WantSubscription:
    """The user wants this of a server-assigned group; the member joins, or subscribes anew."""

    now_ms: int
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The user wants no topics any more, and may subscribe again: revoke, then leave."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Polled:
    """The user's thread is here: alive, and ready for a callback."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class CalledBack:
    """The callback of an earlier `Call` has returned."""

    now_ms: int
    callback: Callback


@dataclass(frozen=True, slots=True)
class Close:
    """The user ends the membership: revoke, then leave."""

    now_ms: int
    reason: str | None = None
    #: The callback in which the user does so, on the same thread: it counts as returned, since its
    #: return would come after this. None: no callback runs, or it is another thread's.
    inside: Callback | None = None


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Time went on; nothing else happened."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The log took a request, at `offset`; `produced_ms` is the first produce() call for it."""

    now_ms: int
    id: str
    offset: int
    produced_ms: int


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The producer gave up on a request; it may nevertheless have been written."""

    now_ms: int
    id: str
    why: str = ""
    #: Whether trying again is useless (too large, refused by the broker).
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class LogCut:
    """Requests of this member, or responses to it, may be lost: a log has lost its end."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Received:
    """A response to a request of this member, or a notification to its group or shard."""

    now_ms: int
    message: api.AnyResponse


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """Everything that could be read when the end was asked for has been received."""

    now_ms: int
    asked_ms: int


@dataclass(frozen=True, slots=True)
class Divided:
    """The assignor's result for a generation: what the leader's SyncGroup will carry."""

    now_ms: int
    generation: int
    assignments: tuple[api.MemberAssignment, ...]
    #: All members' topics, and the counts of those that exist: the leader watches these now.
    topics: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotDivided:
    """The topics' metadata could not be read; a later attempt may succeed."""

    now_ms: int
    generation: int
    why: str


class WhyNot(NamedTuple):
    """Why there is no assignment, for the other members: the fields of the leader's SyncGroup."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class AssignorFailed:
    """The assignor raised, or gave an invalid assignment: this member cannot assign now."""

    now_ms: int
    generation: int
    error: CoordError
    why: WhyNot


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """All topics with their partition counts."""

    now_ms: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopicsNotSeen:
    """The topics' metadata could not be read."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """The user commits positions; answered under `ticket` unless refused at once."""

    now_ms: int
    ticket: int
    offsets: tuple[api.CommittedOffset, ...]
    #: Whether the user's thread stands still until the answer is here.
    is_waited: bool = False
    #: Of a repeat: the ticket of the first attempt, which is its place among all commits.
    first: int = 0


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """The user asks for committed offsets; None: all of the group."""

    now_ms: int
    ticket: int
    topics: tuple[api.TopicPartitions, ...] | None
    #: Whether the answer waits for the end of transactions that have offsets of these partitions.
    is_stable: bool = True


@dataclass(frozen=True, slots=True)
class CommitWithWrites:
    """The user commits positions that one commit of a Delta table decides."""

    now_ms: int
    ticket: int
    offsets: tuple[api.CommittedOffset, ...]
    table: str
    #: Who read the batch: the membership of that time.
    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class Decide:
    """This member knows what became of its own commit with writes."""

    now_ms: int
    ticket: int
    key: str
    result: Result
    #: Who sent the commit, perhaps a membership that has ended.
    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class CommitChecked:
    """The table was looked into for an entry of any member."""

    now_ms: int
    key: str
    #: None: it could not be found out.
    result: Result | None


#: Inputs from the user, in both kinds of groups.
UserInput = (
    Polled
    | CalledBack
    | Unsubscribe
    | Close
    | CommitOffsets
    | FetchOffsets
    | CommitWithWrites
    | Decide
)
#: Inputs from the log, from time and from tables, in both kinds of groups.
LogInput = Received | ReadToEnd | Elapsed | Acknowledged | NotWritten | LogCut | CommitChecked
#: Inputs that only members of classic groups have.
ClassicInput = WantTopics | Divided | NotDivided | AssignorFailed | TopicsSeen | TopicsNotSeen
#: Inputs that only members of server-assigned groups have.
AssignedInput = WantSubscription
Input = UserInput | LogInput | ClassicInput | AssignedInput


# ---- outputs ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Write this request to the group's shard; everything goes through one producer, in order."""

    request: api.Request


@dataclass(frozen=True, slots=True)
class Call:
    """Run this callback, then feed `CalledBack`. Comes only from `Polled` and `Close`."""

    callback: Callback
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Divide:
    """This member leads: run the assignor named `protocol`, then feed its outcome."""

    generation: int
    protocol: str
    members: tuple[api.JoinedMember, ...]
    #: The group keeps its assignment (KIP-814): only look up the topics that the leader watches.
    is_kept: bool = False
    #: This member's own id.
    member: str = ""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Read the metadata of all topics, then feed `TopicsSeen` or `TopicsNotSeen`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of the question with this `ticket`: rows, or the error to raise."""

    ticket: int
    offsets: tuple[api.FetchedOffset, ...] = ()
    failed: tuple[api.FailedPartition, ...] = ()
    error: CoordError | None = None
    #: The key of an accepted commit with writes.
    pending: str = ""


@dataclass(frozen=True, slots=True)
class CheckCommit:
    """Find out whether a batch is in its Delta table, then feed `CommitChecked`."""

    awaited: api.AwaitedDecision
    #: The offset of the question that was answered so: what shuts the batch's writer out.
    token: int


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this from `poll`: the membership has failed for good, or has no assignment for now."""

    error: CoordError


@dataclass(frozen=True, slots=True)
class Left:
    """The membership has ended; nothing more will be sent."""


Output = Send | Call | Divide | LookUp | CheckCommit | Answer | Raise | Left
