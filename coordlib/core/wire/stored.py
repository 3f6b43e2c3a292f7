"""Values of the compacted topics and of the event log: what readers other than members see.

Keys of `coord.assignments` and `coord.committed` are JSON arrays. The value of `coord.groups` is
the group's hard state and is defined beside its state machine.

The ids that listings of topics have shown stand in `coord.progress`: a rebuild needs them.
Committed offsets name ids, too, but not in which order they came, and some are of topics of another
cluster. Topics stand in pages, by a hash of their names: a record is written for what has changed.
# INV-150
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import UNSET, UnsetType

from coordlib.core.wire import codec
from coordlib.core.wire.envelope import WIRE_VERSION

#: The space that a line of history does not spell out.
GROUP_SPACE: Final = "group"
#: Letter of the input that every shard has, in coordinates and positions: `coord.requests`.
REQUESTS: Final = "r"
#: Version of the progress marker. 1 and 3 were of code that was never released.
MARKER_VERSION: Final = 2

EVENT_GROUP_CREATED = "GroupCreated"
EVENT_REBALANCE_STARTED = "RebalanceStarted"
EVENT_GENERATION_STARTED = "GenerationStarted"
EVENT_ASSIGNMENT_ISSUED = "AssignmentIssued"
EVENT_ASSIGNMENT_FAILED = "AssignmentFailed"
EVENT_MEMBER_JOINED = "MemberJoined"
EVENT_MEMBER_REMOVED = "MemberRemoved"
EVENT_MEMBER_FENCED = "MemberFenced"
EVENT_HAND_OVER_DELAYED = "HandOverDelayed"
EVENT_OFFSETS_COMMITTED = "OffsetsCommitted"
EVENT_COMMIT_REFUSED = "CommitRefused"
EVENT_OFFSETS_EXPIRED = "OffsetsExpired"
EVENT_OFFSETS_DELETED = "OffsetsDeleted"
EVENT_OFFSETS_PENDING = "OffsetsPending"
EVENT_OFFSETS_DROPPED = "OffsetsDropped"
EVENT_GROUP_EMPTIED = "GroupEmptied"
EVENT_GROUP_DELETED = "GroupDeleted"
EVENT_REQUEST_REJECTED = "RequestRejected"
EVENT_RELEASE_DEMANDED = "ReleaseDemanded"
EVENT_GROUP_SETTLED = "GroupSettled"
EVENT_STRATEGY_FAILED = "StrategyFailed"
EVENT_GROUP_KIND_CHANGED = "GroupKindChanged"
EVENT_BROKER_REGISTERED = "BrokerRegistered"
EVENT_BROKER_STATE_CHANGED = "BrokerStateChanged"
EVENT_BROKER_UNREGISTERED = "BrokerUnregistered"
EVENT_LEADERSHIP_DEMANDED = "LeadershipDemanded"
EVENT_PARTITIONS_CHANGED = "PartitionsChanged"
EVENT_TOPIC_CREATED = "TopicCreated"
EVENT_TOPIC_DELETION_STARTED = "TopicDeletionStarted"
EVENT_TOPIC_DELETED = "TopicDeleted"
EVENT_REPLICA_DELETION_FAILED = "ReplicaDeletionFailed"
EVENT_REASSIGNMENT_STARTED = "ReassignmentStarted"
EVENT_REASSIGNMENT_COMPLETED = "ReassignmentCompleted"
EVENT_REASSIGNMENT_CANCELLED = "ReassignmentCancelled"
EVENT_ISR_REFUSED = "IsrRefused"
EVENT_TRANSACTIONAL_ID_CREATED = "TransactionalIdCreated"
EVENT_PRODUCER_FENCED = "ProducerFenced"
EVENT_TRANSACTION_STARTED = "TransactionStarted"
EVENT_TRANSACTION_PREPARED = "TransactionPrepared"
EVENT_TRANSACTION_COMPLETED = "TransactionCompleted"
EVENT_TRANSACTIONAL_ID_EXPIRED = "TransactionalIdExpired"
EVENT_REQUESTS_LOST = "RequestsLost"
EVENT_GROUP_QUARANTINED = "GroupQuarantined"
EVENT_GROUP_RELEASED = "GroupReleased"
EVENT_CLAIM_WON = "ClaimWon"
EVENT_CLAIM_RELEASED = "ClaimReleased"
EVENT_CLAIM_EXPIRED = "ClaimExpired"
EVENT_CLAIM_RESUMED = "ClaimResumed"
EVENT_CLAIM_LOST = "ClaimLost"
EVENT_POSITION_MOVED = "PositionMoved"
EVENT_HEARTBEAT_REFUSED = "HeartbeatRefused"
EVENT_RELEASE_REFUSED = "ReleaseRefused"
EVENT_CLAIM_REFUSED = "ClaimRefused"
EVENT_GROUP_PAUSED = "GroupPaused"
EVENT_GROUP_RESUMED = "GroupResumed"
EVENT_MESSAGE_REJECTED = "MessageRejected"
EVENT_SENDER_CLOCK = "SenderClock"
EVENT_LOG_GAP = "LogGap"


class AssignmentValue(msgspec.Struct, frozen=True, kw_only=True):
    """A member's current assignment. Key: `["group","member"]`."""

    generation: int
    protocol: str | None
    assignment: bytes
    #: Log offset of the leader's SyncGroup: rises for ever, a fencing token for other systems.
    fence: int
    since_ms: int


class OwnerValue(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns a partition by a claim. Key: `["group","topic",partition]`."""

    client: str
    #: As the message has it that made the client the owner.
    instance: str
    #: Offset of the record that won the slot: rises as long as the coordination topic lives.
    epoch: int
    #: Log time, epoch milliseconds.
    since_ms: int
    #: claimed, reclaimed, heartbeat or resumed.
    how: str


class CommittedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A committed offset. Key: `["group","topic",partition]`."""

    offset: int
    leader_epoch: int
    metadata: str
    #: Log time of the commit, epoch milliseconds.
    commit_ms: int
    #: The shard's clock at the commit: what retention counts on.
    commit_clock_ms: int
    generation: int
    member: str
    #: The client's own time of the position, epoch milliseconds, and the id of the topic that it
    #: has read; each is left out where it named none.
    timestamp_ms: int | UnsetType = UNSET
    topic_id: str | UnsetType = UNSET


class PendingOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The position of one partition among pending offsets."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    #: Offset in `coord.requests` of the record that named it: of two, the later one holds.
    record: int
    timestamp_ms: int | UnsetType = UNSET
    topic_id: str | UnsetType = UNSET


class PendingValue(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that wait for a decision. Key: `["pending","group","key"]`."""

    decided_by: str
    client: str
    #: The correlation id of the request that made it.
    id: str
    member: str
    generation: int
    #: Log time of that request, epoch milliseconds.
    since_ms: int
    #: Without those that a later commit has taken out.
    offsets: tuple[PendingOffset, ...]
    #: The Delta table; left out where another decides.
    table: str | UnsetType = UNSET
    #: `commit` or `abort`: decided while the group was quarantined, done when it is released.
    decision: str | UnsetType = UNSET


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history: what happened to a group, when, and because of what."""

    v: int = 1
    event_id: str
    time_ms: int
    group: str
    #: The same as `kind`.
    protocol: str | None
    type: str
    generation: int
    member: str
    cause: str
    reason: str
    detail: dict[str, Any]
    #: The kind of what `group` names; None: it is not there, and requests like this have no kind.
    kind: str | None = None
    #: The space of names that `group` is of; None: consumer groups.
    space: str | None = None


class LagLine(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in one partition; null is unknown."""

    topic: str
    partition: int
    #: None: the offset was deleted since the sample before.
    committed: int | None
    log_start: int | None = None
    log_end: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    #: Whether the seconds are a lower bound.
    is_at_least: bool = False
    #: Messages that were removed before they were committed.
    lost: int | None = None
    #: Whether the log is shorter than what was committed.
    is_beyond_end: bool = False


class LagSample(msgspec.Struct, frozen=True, kw_only=True):
    """A group's lag at one time. Key: the group; many lines come as several records."""

    v: int = 1
    #: By the clock of the job's driver, epoch milliseconds.
    time_ms: int
    #: After which the next is due, if there is something to tell.
    interval_ms: int
    group: str
    lines: tuple[LagLine, ...]
    #: Kind and space of what `group` names, as in an Event; left out for consumer groups, whose
    #: committed offsets do not name the kind.
    kind: str | UnsetType = UNSET
    space: str | UnsetType = UNSET


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a prefix is made of, and what its jobs read. Key `layout` of `coord.progress`.

    The counts and the ids that stand in it never change; newer code may add topics.
    """

    v: int = 1
    shards: int
    reply_partitions: int
    #: By full name. A topic may come; one that is here must stay the same.
    topic_ids: dict[str, str]
    #: Of the job that started last, or the lowest of all job instances. No newer client starts.
    wire_version: int = WIRE_VERSION
    #: The topic that the pipeline reads; its partitions are the shards. Empty: `<prefix>.requests`.
    input: str = ""


class ControlKey(msgspec.Struct, frozen=True, kw_only=True):
    """With what control records may be signed, and from where on they must be (rule 17)."""

    #: Its name in records.
    key: str
    #: The public half, of Ed25519.
    public: bytes
    #: Shard (as text) -> offset in `coord.requests`: it counts for no record before.
    since: dict[str, int]

    def counts_at(self, shard: int, offset: int) -> bool:
        """Whether a record at this place may be signed with it, and must be signed at all."""
        return offset >= self.since.get(str(shard), 0)


class ControlKeys(msgspec.Struct, frozen=True, kw_only=True):
    """All keys that there ever were, and how often drivers have started.

    Key `keys` of `coord.progress`.
    """

    v: int = 1
    starts: int
    keys: tuple[ControlKey, ...]


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that are not judged, as each of them ended the job. Key `set-aside` of
    `coord.progress`."""

    v: int = 1
    #: Coordinate of the record -> why it is rejected.
    records: dict[str, str]


class ShardPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a shard stands: its clock travels with the marker, so that a rebuild keeps it."""

    clock_ms: int
    previous_ms: int
    #: Newest judged record of each input, by the input's letter; absent: none yet.
    offsets: dict[str, int] = {}
    published: int
    #: What the shard has said and no tick covers yet: the newest record of each part, and how many
    #: bytes it has.
    answered: tuple[tuple[int, int], ...] = ()
    #: Number of the newest control record that counted: start of its driver, then its own.
    control: tuple[int, int] = (0, 0)

    @property
    def offset(self) -> int:
        """The newest judged request; -1: none yet."""
        return self.offsets.get(REQUESTS, -1)


class JudgedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The newest judged record of an input, so that a start finds out whether it is still there."""

    #: The broker's stamp, epoch milliseconds.
    time_ms: int
    #: Of its value.
    digest: str


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The newest committed batch. Key `marker` of `coord.progress`."""

    v: int = MARKER_VERSION
    checkpoint: str
    batch: int
    #: topic -> partition (as text, JSON has no other keys) -> [first, last] offset of the batch.
    ranges: dict[str, dict[str, tuple[int, int]]]
    #: SHA-256 over all outputs of the batch, in order.
    digest: str
    #: topic -> partition -> next offset to read: where a rebuilt job goes on.
    next_offsets: dict[str, dict[str, int]]
    shards: dict[str, ShardPosition]
    #: topic -> partition -> the record before the next offset; absent: only its place is known.
    judged: dict[str, dict[str, JudgedRecord]] = {}
    #: Compacted topic -> partition -> where it ends at least, by all that was written into it.
    saved: dict[str, dict[str, int]] = {}


class _Versioned(msgspec.Struct):
    v: int = 1


def decode_marker(value: bytes) -> Marker:
    """Read the progress marker. Raises msgspec.MsgspecError: this code does not know its form."""
    version = msgspec.json.decode(value, type=_Versioned).v
    if version != MARKER_VERSION:
        known = f"version {version}, this code knows {MARKER_VERSION}"
        raise msgspec.ValidationError(f"Other code has written the progress marker: {known}.")
    return msgspec.json.decode(value, type=Marker)


class BrokerEndpoint(msgspec.Struct, frozen=True):
    """Where a broker can be reached."""

    name: str
    host: str
    port: int


class BrokerValue(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is Active or Stopping. Key: `["cluster","broker",id]`."""

    incarnation: int
    current_state: str
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    since_ms: int


class TopicValue(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of a cluster. Key: `["cluster","topic","name"]`."""

    #: Offset of the record that made it; of its n-th topic, counted from 0, n * 2**39 more.
    topic_id: int
    partitions: int
    min_isr: int
    unclean: bool
    is_deleting: bool = False


class PartitionValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition of a cluster. Key: `["cluster","partition","topic",number]`.

    The fields with defaults are left out where they have these; the last five are the job's own.
    """

    topic_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    fence: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    #: Record of the demand by which its leader was asked to let go; -1: it was not.
    asked: int = -1
    #: The election that is wanted once the leader has let go.
    move: str = ""
    #: The incarnation that may still lead, so that nobody is elected; -1: none.
    guard: int = -1
    #: Replicas that have never been online.
    new: tuple[int, ...] = ()
    #: Broker -> state of its replica, which is to be deleted.
    deleting: dict[int, int] = {}


#: Topic -> the ids that listings have shown, the present one last. An old one that stands there
#: twice is shown again by the newest whole listing.
TopicIds = Mapping[str, tuple[str, ...]]
TOPIC_ID_PAGES: Final = 64
#: Topics of a page: below 1 MiB with the longest names, and 100,000 topics fill no page.
PAGE_TOPICS_MAX: Final = 2_000
_KEY: Final = b"topic-ids-"


class TopicIdsValue(msgspec.Struct, frozen=True, kw_only=True):
    """A page. Key `topic-ids-0` to `topic-ids-63` of `coord.progress`."""

    v: int = 1
    ids: dict[str, tuple[str, ...]]


_decode: Final = msgspec.json.Decoder(TopicIdsValue).decode


def topic_id_page_of(topic: str) -> int:
    """The page of a topic."""
    return crc32(topic.encode()) % TOPIC_ID_PAGES


def topic_id_records(ids: TopicIds, pages: Iterable[int]) -> list[tuple[bytes, bytes]]:
    """Keys and values of these pages."""
    of_page: dict[int, dict[str, tuple[str, ...]]] = {each: {} for each in sorted(pages)}
    for topic in sorted(ids):
        found = of_page.get(topic_id_page_of(topic))
        if found is not None and len(found) < PAGE_TOPICS_MAX:
            found[topic] = ids[topic]
    return [
        (_KEY + str(page).encode(), codec.encode(TopicIdsValue(ids=found)))
        for page, found in of_page.items()
    ]


def is_topic_id_page(key: bytes) -> bool:
    """Whether a record of `coord.progress` is one."""
    return key.startswith(_KEY)


def read_topic_ids(found: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """All pages among the records of `coord.progress`. Raises msgspec.MsgspecError."""
    ids: dict[str, tuple[str, ...]] = {}
    for key, value in found.items():
        if is_topic_id_page(key):
            ids |= _decode(value).ids
    return dict(sorted(ids.items()))
