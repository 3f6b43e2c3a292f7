"""Topics and partitions of a cluster: small rows beside its head, each a record of its own.

A change of a partition's in-sync replicas writes its row and leaves the brokers alone.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from coordlib.core.engine.routing import METADATA
from coordlib.core.engine.table import Place, Table
from coordlib.core.wire import codec
from coordlib.core.wire.clusters import PartitionValue, TopicValue

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
