"""A cluster as a value: brokers, topics and partitions, their states, and what must always hold.

Topics and partitions are small rows beside the cluster's head, each a record of its own. A change
of a partition's in-sync replicas writes its row and leaves the brokers alone.

Keeps INV-76.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.core.engine.effects import METADATA, BrokenInvariant
from coordlib.core.engine.tables import Place, Table
from coordlib.core.engine.time import Timer
from coordlib.core.wire import codec
from coordlib.core.wire.api import Endpoint
from coordlib.core.wire.stored import PartitionValue, TopicValue

#: A row without its lists and texts, and its share of a block, at most.
ROW_BYTES: Final = 96
NUMBER_BYTES: Final = 9
#: Mark of rows with a replica that is to be deleted; no broker has this number.
DELETING: Final = -1
BROKER, TOPIC, PARTITION = "broker", "topic", "partition"
#: cluster, what, name, and of a partition its number
_KEY_LENGTHS: Final = {BROKER: 3, TOPIC: 3, PARTITION: 4}
_decode_key: Final = msgspec.json.Decoder(list[str | int]).decode


class Topic(msgspec.Struct, frozen=True, array_like=True):
    """A `TopicValue` as the shard's blob keeps it."""

    topic_id: int
    partitions: int
    min_isr: int
    unclean: bool
    is_deleting: bool = False


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """A `PartitionValue` as the shard's blob keeps it; the same fields in the same order."""

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
    asked: int = -1
    move: str = ""
    guard: int = -1
    new: tuple[int, ...] = ()
    deleting: dict[int, int] = {}

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that it is to have."""
        return tuple(each for each in self.replicas if each not in self.removing)


class MetadataTable(Table):
    """A table in `coord.metadata`, which topics, partitions and active brokers share."""

    def key(self, entity: str, place: Place) -> bytes:
        name, number = place
        return codec.encode(key_of(entity, self.name, name, number))

    def place(self, key: bytes) -> tuple[str, Place] | None:
        cluster, what, name, number = _parts(key)
        return (str(cluster), (str(name), int(number))) if what == self.name else None


def key_of(cluster: str, what: str, name: str | int, number: int) -> list[Any]:
    """The key of a record in `coord.metadata`, as JSON."""
    return [cluster, what, name, number] if what == PARTITION else [cluster, what, name]


def is_broker_key(key: bytes) -> bool:
    """Whether it is of an active broker, which only others read. Raises msgspec.MsgspecError."""
    return _parts(key)[1] == BROKER


def _parts(key: bytes) -> tuple[str | int, ...]:
    """The parts of a key; the number is 0 where it has none. Raises msgspec.MsgspecError."""
    parts = _decode_key(key)
    if len(parts) < 2 or len(parts) != _KEY_LENGTHS.get(str(parts[1])):
        raise msgspec.ValidationError(f"No key of coord.{METADATA}: {key!r}")
    return (*parts, 0) if len(parts) == 3 else tuple(parts)


def _topic(value: TopicValue) -> Topic:
    return Topic(*msgspec.structs.astuple(value))


def _partition(value: PartitionValue) -> Partition:
    return Partition(*msgspec.structs.astuple(value))


def _partition_bytes(row: Partition) -> int:
    numbers = len(row.replicas) + len(row.isr) + len(row.adding) + len(row.removing)
    numbers += len(row.new) + 2 * len(row.deleting)
    return ROW_BYTES + NUMBER_BYTES * numbers


def marks(row: Partition) -> Iterable[int]:
    """The brokers that have to do with a partition, and whether anything of it is to be deleted."""
    return (*row.replicas, *row.deleting, DELETING) if row.deleting else row.replicas


TOPICS: Final = MetadataTable(TOPIC, METADATA, TopicValue, Topic, _topic, lambda _: ROW_BYTES)
PARTITIONS: Final = MetadataTable(
    PARTITION, METADATA, PartitionValue, Partition, _partition, _partition_bytes, marks
)


def saved_topic(row: Topic) -> TopicValue:
    """A topic as `coord.metadata` has it."""
    return TopicValue(**msgspec.structs.asdict(row))


def saved_partition(row: Partition) -> PartitionValue:
    """A partition as `coord.metadata` has it."""
    return PartitionValue(**msgspec.structs.asdict(row))


class BrokerState(StrEnum):
    """The state of a registered broker. `Initial` is the agent's own, before any answer."""

    INACTIVE = "Inactive"
    """Registered and fenced: leads nothing, in no ISR but as its last member.
    action: heartbeats with a target are answered
    transition: says Active -> ACTIVE
    """
    ACTIVE = "Active"
    """Ready: may lead, may be in sync, stands in the metadata.
    action: leads and follows
    transition: says Stopping -> STOPPING; is silent, leaves, says Inactive, is replaced -> INACTIVE
    """
    STOPPING = "Stopping"
    """Ready; its leaderships move away (controlled shutdown).
    action: lets go of what it is asked for
    transition: says Active -> ACTIVE; is silent, leaves, says Inactive, is replaced -> INACTIVE
    """


#: Of registered brokers. Silence, LeaveGroup and a newer incarnation lead to Inactive, too.
VALID_PREVIOUS_BROKER_STATES: Final[Mapping[BrokerState, frozenset[BrokerState]]] = {
    BrokerState.INACTIVE: frozenset({BrokerState.ACTIVE, BrokerState.STOPPING}),
    BrokerState.ACTIVE: frozenset({BrokerState.INACTIVE, BrokerState.STOPPING}),
    BrokerState.STOPPING: frozenset({BrokerState.ACTIVE}),
}

#: current state -> target -> the state after a BrokerHeartbeat.
TARGETS: Final[Mapping[BrokerState, Mapping[BrokerState, BrokerState]]] = {
    BrokerState.INACTIVE: {
        BrokerState.ACTIVE: BrokerState.ACTIVE,
        BrokerState.STOPPING: BrokerState.INACTIVE,
        BrokerState.INACTIVE: BrokerState.INACTIVE,
    },
    BrokerState.ACTIVE: {
        BrokerState.ACTIVE: BrokerState.ACTIVE,
        BrokerState.STOPPING: BrokerState.STOPPING,
        BrokerState.INACTIVE: BrokerState.INACTIVE,
    },
    BrokerState.STOPPING: {
        BrokerState.ACTIVE: BrokerState.ACTIVE,
        BrokerState.STOPPING: BrokerState.STOPPING,
        BrokerState.INACTIVE: BrokerState.INACTIVE,
    },
}


class PartitionState(StrEnum):
    """The state of a partition, as its row tells it."""

    NON_EXISTENT = "NonExistentPartition"
    """There is no row.
    action: none
    transition: CreateTopics, CreatePartitions -> NEW
    """
    NEW = "NewPartition"
    """It was never led.
    action: none
    transition: a replica's broker is Active -> ONLINE; its topic is deleted -> OFFLINE
    """
    ONLINE = "OnlinePartition"
    """It has a leader.
    action: AlterPartition
    transition: an election -> ONLINE; nobody can be elected, its topic is deleted -> OFFLINE
    """
    OFFLINE = "OfflinePartition"
    """It had a leader.
    action: none
    transition: an election -> ONLINE; all replicas are deleted -> NON_EXISTENT
    """


VALID_PREVIOUS_PARTITION_STATES: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(
        {PartitionState.NEW, PartitionState.OFFLINE, PartitionState.ONLINE}
    ),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}


class ReplicaState(IntEnum):
    """The state of a replica; numbers as Kafka's, which rows keep of replicas to be deleted."""

    NEW = 1
    """Made or added, and never online since.
    action: follows
    transition: its broker comes, it is in sync -> ONLINE; its broker goes -> OFFLINE
    """
    ONLINE = 2
    """Its broker is ready.
    action: follows or leads
    transition: reads of another leader -> ONLINE; its broker goes, it is removed -> OFFLINE
    """
    OFFLINE = 3
    """Its broker is Inactive, or has to stop it.
    action: none
    transition: its broker comes -> ONLINE; is to be deleted -> DELETION_STARTED, or
        DELETION_INELIGIBLE where its broker is Inactive
    """
    DELETION_STARTED = 4
    """Its broker has to delete it.
    action: ReplicasDeleted is waited for
    transition: ReplicasDeleted -> DELETION_SUCCESSFUL, with an error -> DELETION_INELIGIBLE, as
        when its broker goes
    """
    DELETION_SUCCESSFUL = 5
    """It is deleted.
    action: none
    transition: the row loses it -> NON_EXISTENT
    """
    DELETION_INELIGIBLE = 6
    """It cannot be deleted now.
    action: none
    transition: its broker comes, DeleteTopics comes again, it is assigned anew -> OFFLINE,
        ONLINE; its broker is unregistered -> DELETION_SUCCESSFUL
    """
    NON_EXISTENT = 7
    """The row does not have it.
    action: none
    transition: it is made or added -> NEW
    """


_R = ReplicaState
VALID_PREVIOUS_REPLICA_STATES: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    # Kafka has the first one alone: there an operator's word does not end a deletion.
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED, _R.DELETION_INELIGIBLE}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}

#: States that a row keeps of a replica that is to be deleted.
TO_BE_DELETED: Final = frozenset(
    {_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.DELETION_INELIGIBLE}
)


def partition_state(row: Partition | None) -> PartitionState:
    """The state of a partition."""
    if row is None:
        return PartitionState.NON_EXISTENT
    if row.leader >= 0:
        return PartitionState.ONLINE
    is_deleted = row.deleting.keys() >= set(row.replicas)  # all of them: with its topic
    return PartitionState.NEW if row.leader_epoch < 0 and not is_deleted else PartitionState.OFFLINE


def replica_state(row: Partition | None, broker: int, is_ready: bool) -> ReplicaState:
    """The state of a broker's replica; `is_ready`: the broker is Active or Stopping."""
    if row is None:
        return _R.NON_EXISTENT
    if broker in row.deleting:
        return _R(row.deleting[broker])
    if broker not in row.replicas:
        return _R.NON_EXISTENT
    if broker in row.new:
        return _R.NEW
    return _R.ONLINE if is_ready else _R.OFFLINE


def move_broker(before: BrokerState, after: BrokerState) -> None:
    """Raises BrokenInvariant when a broker must not go from the one state to the other."""
    if before not in VALID_PREVIOUS_BROKER_STATES[after]:
        raise BrokenInvariant(f"broker: {before} to {after}")


def move_partition(before: PartitionState, after: PartitionState) -> None:
    """The same of a partition."""
    if before not in VALID_PREVIOUS_PARTITION_STATES[after]:
        raise BrokenInvariant(f"partition: {before} to {after}")


def move_replica(before: ReplicaState, after: ReplicaState) -> None:
    """The same of a replica."""
    if before not in VALID_PREVIOUS_REPLICA_STATES[after]:
        raise BrokenInvariant(f"replica: {before.name} to {after.name}")


#: A broker without its texts, with its row's share and the time when it was heard.
BROKER_BYTES: Final = 640
ENDPOINT_BYTES: Final = 48
SUPERSEDED_BYTES: Final = 16
GUARD_BYTES: Final = 288
HEAD_BYTES: Final = 1024


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Leaderships that a broker must let go of: the rows that were `asked` by this cause.

    Never taken back: the broker may be letting go already.
    """

    #: Runs for the release timeout from when it could be read; its cause names the demand.
    timer: Timer
    #: How many leaderships were asked for, for people.
    count: int


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """An incarnation that was not asked and may still lead (rule 14)."""

    broker: int
    incarnation: int
    client: str
    session_timeout_ms: int
    #: One session after it was last heard, on the shard's clock: its own fence has stopped it.
    due_ms: int
    #: Its release timeout, from when it could read that it is out.
    notice: Timer = msgspec.field(name="told")


class Broker(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A registered broker, in its newest incarnation."""

    broker: int
    #: Offset of its registration: rises for ever.
    incarnation: int
    member: str
    client: str
    #: Partition of `coord.responses` that it reads.
    reply: int
    state: BrokerState = BrokerState.INACTIVE
    #: Offset and log time of the record that gave the state.
    since: int
    since_ms: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    storage: str
    session_timeout_ms: int
    release_timeout_ms: int
    #: Whether it sends no heartbeats and proves nothing (KIP-343: a legacy registration).
    is_legacy: bool = False
    #: Correlation id of its RegisterBroker: (client, this) tells a repeat from a new process.
    first_id: str
    #: (client, correlation id) of registrations that a newer one has superseded, newest last.
    superseded: tuple[tuple[str, str], ...] = ()
    #: Whether its silence ends something. An Inactive broker may be without.
    has_session: bool = True
    #: Offset whose outputs must be visible before its session runs; None: it runs.
    awaits_cover: int | None = None
    demand: Demand | None = None
    #: How many of the partitions that it leads are to be led by another (`Partition.move`).
    moving: int = 0
    #: Until when its registrations have booked the shard's clock, in microseconds of it.
    free_us: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether metadata name it."""
        return self.state is not BrokerState.INACTIVE

    @property
    def is_active(self) -> bool:
        """Whether it may be elected, and enter an ISR."""
        return self.state is BrokerState.ACTIVE

    @cached_property
    def size_bytes(self) -> int:
        """Upper bound of its share of the head; in JSON quotation marks in texts count twice."""
        texts = (self.member, self.member, self.client, self.rack or "", self.storage)
        names = (text for each in self.endpoints for text in (each.name, each.host))
        past = sum(SUPERSEDED_BYTES + 2 * len(text) for pair in self.superseded for text in pair)
        return (
            BROKER_BYTES
            + sum(len(text.encode()) for text in (*texts, self.first_id, *names))
            + ENDPOINT_BYTES * len(self.endpoints)
            + past
        )


class Cluster(
    msgspec.Struct, frozen=True, kw_only=True, dict=True, tag_field="kind", tag="brokers"
):
    """The head of a cluster. `dict` keeps what is derived: it is asked for each row of a step."""

    v: int = 1
    group: str
    is_quarantined: bool = False
    #: Rises with every change of a broker's state or incarnation.
    generation: int = 0
    #: By broker id, in order.
    brokers: dict[int, Broker] = {}
    #: By the member id of the incarnation.
    guards: dict[str, Guard] = {}
    topic_count: int = 0
    partition_count: int = 0

    def by_member(self, member: str) -> Broker | None:
        """The broker with this member id, in its registered incarnation."""
        for broker in self.brokers.values():
            if broker.member == member:
                return broker
        return None

    @cached_property
    def active(self) -> Set[int]:
        """The brokers that may be elected."""
        return {number for number, each in self.brokers.items() if each.is_active}

    @cached_property
    def stopping(self) -> Set[int]:
        """The brokers that stop."""
        state = BrokerState.STOPPING
        return {number for number, each in self.brokers.items() if each.state is state}

    @cached_property
    def replies(self) -> tuple[int, ...]:
        """The partitions of the answers that its brokers read."""
        return tuple(sorted({each.reply for each in self.brokers.values()}))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return not self.brokers and not self.topic_count

    def size_bytes(self) -> int:
        """Upper bound of the head and of its row; see `Broker.size_bytes`."""
        return self._size_bytes

    @cached_property
    def _size_bytes(self) -> int:
        guards = sum(
            GUARD_BYTES + len(name.encode()) + len(guard.client.encode())
            for name, guard in self.guards.items()
        )
        brokers = sum(each.size_bytes for each in self.brokers.values())
        return HEAD_BYTES + 2 * len(self.group.encode()) + guards + brokers


def next_generation(generation: int) -> int:
    """The one after this; after the last int32 comes 1."""
    return generation % limits.INT32_MAX + 1


def invariants(cluster: Cluster) -> Iterator[tuple[str, bool]]:
    """What always holds of a head."""
    brokers: Mapping[int, Broker] = cluster.brokers
    # INV-15
    yield "brokers stand under their own id", all(n == b.broker for n, b in brokers.items())
    yield "brokers are in order", list(brokers) == sorted(brokers)
    members = {each.member for each in brokers.values()}
    yield "a member id is one broker's", len(members) == len(brokers)
    for each in brokers.values():
        # INV-74
        yield "who is Inactive is asked for nothing", each.is_ready or not each.demand
        yield "who is Inactive lets go of nothing", each.is_ready or not each.moving
        yield "who is ready has a session", each.is_legacy or each.has_session or not each.is_ready
        yield "a legacy broker has no session", not (each.is_legacy and each.has_session)
    yield "counts are not negative", cluster.topic_count >= 0 and cluster.partition_count >= 0
    # INV-43
    yield "it can be written", cluster.size_bytes() < limits.OUTPUT_BYTES_MAX
