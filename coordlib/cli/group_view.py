"""A group as the topics tell it: state, owners, committed offsets, lag. No coordinator is asked.

The compacted topics are read committed, from their beginning to the end seen at the start, and of
the group's own shard only. So it works while the job is down; `AsOf` says how far the job was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coordlib.cli.group_lag import read_lag
from coordlib.cli.status import read_marker
from coordlib.coordinators.groups.assigned import describe_group as assigned
from coordlib.coordinators.groups.assigned.group import Group as AssignedGroup
from coordlib.coordinators.groups.classic import describe_group as classic
from coordlib.coordinators.groups.classic.group import Failure
from coordlib.coordinators.groups.classic.group import Group as ClassicGroup
from coordlib.coordinators.registry import MACHINES
from coordlib.coordinators.shard.kind import UnknownSavedVersion
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError
from coordlib.kafka.compacted import newest_by_key
from coordlib.lag.measure import UNKNOWN, Lag, Place
from coordlib.records import consumer_protocol as cp
from coordlib.records import responses as rs
from coordlib.records.partitioner import shard_of
from coordlib.records.stored import CommittedValue

TIMEOUT_S = 5.0
T = TypeVar("T")

ClientOptions = Mapping[str, str]
"""librdkafka's options, with `bootstrap.servers`."""


Group = ClassicGroup | AssignedGroup
Described = Callable[[Any], Iterable[rs.DescribedMember]]
Awaited = Callable[[Any], Iterable[rs.AwaitedMember]]
#: What DescribeGroup answers about members and about who is awaited, by the kind of the group.
_DESCRIBES: Mapping[str, tuple[Described, Awaited]] = {
    "classic": (classic.described, classic.awaited),
    "assigned": (assigned.described, assigned.awaited),
}


@dataclass(frozen=True)
class SeenGroup:
    """A group as its value in the topic has it."""

    group: str
    kind: str
    #: None: newer code wrote something else there.
    state: str | None
    generation: int | None = None
    protocol: str | None = None
    is_quarantined: bool = False
    #: As its kind decodes it; None: this version cannot, and `unreadable` says why.
    value: Group | None = None
    unreadable: str | None = None

    @property
    def member_count(self) -> int | None:
        """None: unknown."""
        return None if self.value is None else len(self.value.members)

    @property
    def leader(self) -> str | None:
        return None if self.value is None else self.value.leader

    @property
    def failure(self) -> Failure | None:
        """Why nobody owns anything until the next rebalance; None: the leader could divide."""
        return self.value.failure if isinstance(self.value, ClassicGroup) else None

    @cached_property
    def members(self) -> Mapping[str, rs.DescribedMember]:
        """By member id, as DescribeGroup tells them."""
        if self.value is None:
            return {}
        described, _ = _DESCRIBES[self.kind]
        return {member.member: member for member in described(self.value)}

    @property
    def waits_for(self) -> tuple[rs.AwaitedMember, ...]:
        """Who holds the group up, as DescribeGroup tells it."""
        if self.value is None:
            return ()
        _, awaited = _DESCRIBES[self.kind]
        return tuple(awaited(self.value))


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition of a group; None is unknown or none."""

    topic: str | None
    partition: int | None
    committed: int | None
    lag: Lag
    member: str | None
    client: str | None


@dataclass(frozen=True, slots=True)
class AsOf:
    """How far the job had judged a shard when the topics were read."""

    offset: int  # of the last request judged
    clock_ms: int  # the shard's clock then
    waiting: int  # records of the requests topic behind it


@dataclass(frozen=True, slots=True)
class GroupView:
    """Everything about one group."""

    group: SeenGroup
    shard: int
    lines: tuple[PartitionLine, ...]
    as_of: AsOf | None


def read_groups(client: ClientOptions, prefix: str) -> list[SeenGroup]:
    """Every group under a prefix, by name.

    Raises:
        CannotReach, SetupError: no broker, or no such topics.
    """
    with _Reader(client) as reader:
        shards = reader.partitions(f"{prefix}.groups")
        found = [
            _group(key, value)
            for shard in range(shards)
            for key, value in newest_by_key(client, f"{prefix}.groups", shard).items()
        ]
    return sorted((g for g in found if g is not None), key=lambda g: g.group)


def read_group(client: ClientOptions, prefix: str, name: str) -> GroupView:
    """One group, with its offsets and lag.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND.
        CannotReach, SetupError: no broker, or no such topics.
    """
    with _Reader(client) as reader:
        shards = reader.partitions(f"{prefix}.groups")
        shard = shard_of(name, shards)
        as_of = _as_of(reader, client, prefix, shard)
        value = newest_by_key(client, f"{prefix}.groups", shard).get(name.encode())
        group = None if value is None else _group(name.encode(), value)
        if group is None:
            raise GroupError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {name}, prefix {prefix}, shard {shard}",
                "Check its name: coord groups list",
            )
        committed = _committed(client, prefix, shard, name)
    owners = _owners(group)
    offsets = {place: _offset(committed.get(place)) for place in sorted({*committed, *owners})}
    lags = read_lag(client, f"{prefix}.lag", shard, name, offsets)
    return GroupView(group, shard, tuple(_lines(group, offsets, owners, lags)), as_of)


class _Reader:
    """A Kafka client for what is not in the compacted topics: partitions and log ends."""

    def __init__(self, client: ClientOptions) -> None:
        self._consumer = Consumer(
            {**client, "group.id": "coordlib-reader", "enable.auto.commit": False, "log_level": 0}
        )

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic of ours has."""
        try:
            found = self._consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        except KafkaException as problem:
            raise CannotReach(
                "No Kafka broker answers", problem.args[0].str(), "Check --bootstrap-servers."
            ) from problem
        if found.error is not None or not found.partitions:
            raise SetupError(
                f"There is no topic {topic}",
                "the cluster answers, and the engine's topics are not there",
                "Check --prefix; topics are made by: coord topics create",
            )
        return len(found.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Log start and log end offset; None when the partition is gone or cannot be read."""
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=TIMEOUT_S
            )
        except KafkaException:
            return None
        return found or None


class _Head(msgspec.Struct):
    """What any kind in any version begins with. Newer code may write other types: see `_typed`."""

    kind: str
    v: Any = None
    state: Any = None
    generation: Any = None
    protocol: Any = None
    is_quarantined: Any = False


_decode_head = msgspec.json.Decoder(_Head).decode


def _group(key: bytes, value: bytes) -> SeenGroup | None:
    """The group that a record is of; None: somebody else wrote it, and it is of none."""
    try:
        name, head = key.decode(), _decode_head(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    decoded = _decoded(head.kind, value)
    return SeenGroup(
        group=name,
        kind=head.kind,
        state=_typed(head.state, str),
        generation=_typed(head.generation, int),
        protocol=_typed(head.protocol, str),
        is_quarantined=head.is_quarantined is True,
        value=decoded,
        unreadable=f"kind {head.kind}, version {head.v}" if decoded is None else None,
    )


def _decoded(kind: str, value: bytes) -> Group | None:
    """What the kind's own decoder makes of it; None: a kind or a version that is not known here."""
    if kind not in MACHINES or kind not in _DESCRIBES:
        return None
    try:
        group: Group = MACHINES[kind].decode_saved(value)
    except (UnknownSavedVersion, msgspec.MsgspecError):
        return None
    return group


def _typed(value: Any, wanted: type[T]) -> T | None:
    return value if isinstance(value, wanted) else None


def _committed(
    client: ClientOptions, prefix: str, shard: int, name: str
) -> dict[Place, CommittedValue]:
    found = {}
    for key, value in newest_by_key(client, f"{prefix}.committed", shard).items():
        try:
            group, topic, partition = msgspec.json.decode(key, type=tuple[str, str, int])
            if group == name:
                found[Place(topic, partition)] = msgspec.json.decode(value, type=CommittedValue)
        except msgspec.MsgspecError:  # not ours
            continue
    return found


def _offset(committed: CommittedValue | None) -> int | None:
    return None if committed is None else committed.offset


def _owners(group: SeenGroup) -> dict[Place, str]:
    """Partition to member, as far as assignments are those of consumers."""
    return {
        Place(topic, partition): name
        for name, member in group.members.items()
        for topic, partitions in _assigned(group, member).items()
        for partition in partitions
    }


def _assigned(group: SeenGroup, member: rs.DescribedMember) -> Mapping[str, Sequence[int]]:
    if group.value is None or group.value.protocol_type != cp.CONSUMER:
        return {}
    try:
        return cp.decode_assignment(member.assignment).partitions
    except cp.Unreadable:
        return {}


def _lines(
    group: SeenGroup,
    offsets: Mapping[Place, int | None],
    owners: Mapping[Place, str],
    lags: Mapping[Place, Lag],
) -> list[PartitionLine]:
    lines = []
    for place, committed in offsets.items():
        owner = owners.get(place)
        client = None if owner is None else group.members[owner].client
        lines.append(PartitionLine(*place, committed, lags[place], owner, client))
    idle = sorted(set(group.members) - set(owners.values()))
    return lines + [
        PartitionLine(None, None, None, UNKNOWN, name, group.members[name].client) for name in idle
    ]


def _as_of(reader: _Reader, client: ClientOptions, prefix: str, shard: int) -> AsOf | None:
    marker = read_marker(client, prefix)
    position = None if marker is None else marker.shards.get(str(shard))
    if position is None:
        return None
    bounds = reader.bounds(f"{prefix}.requests", shard)
    waiting = max(0, bounds[1] - position.offset - 1) if bounds else 0
    return AsOf(position.offset, position.clock_ms, waiting)
