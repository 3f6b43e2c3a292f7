"""A group read from the topics: state, owners, committed offsets, lag. No coordinator is asked.

The compacted topics are read committed, from their beginning to the end seen at the start, and of
the group's own shard only. So it works while the job is down; `AsOf` says how far the job was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coordlib.cli.group_lag import read_lag
from coordlib.cli.status import read_marker
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError
from coordlib.kafka.compacted import newest_by_key
from coordlib.lag.measure import UNKNOWN, Lag, Place
from coordlib.records import consumer_protocol as cp
from coordlib.records import responses as rs
from coordlib.records.partitioner import shard_of
from coordlib.records.stored import CommittedValue

TIMEOUT_S = 5.0
JOIN = "JoinGroup"  # the kind of a parked request
CLASSIC = "classic"

ClientOptions = Mapping[str, str]
"""librdkafka's options, with `bootstrap.servers`."""


class SeenParked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a member waits on."""

    kind: str = ""


class SeenGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that a member of a server-assigned group was given."""

    partitions: dict[str, tuple[int, ...]] = {}


class SeenDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What such a member is asked to let go of."""


class SeenProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """What a classic member offered, with its subscription if it is a consumer."""

    metadata: bytes = b""


class SeenMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member, as much as a reader needs of it; unknown fields are ignored."""

    client: str = ""
    instance: str | None = None
    #: Of a classic group's members.
    assignment: bytes = b""
    protocols: tuple[SeenProtocol, ...] = ()
    parked: SeenParked | None = None
    has_synced: bool = True
    #: Of a server-assigned group's members.
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    exclude: str | None = None
    grants: tuple[SeenGrant, ...] = ()
    demands: tuple[SeenDemand, ...] = ()


class SeenOther(msgspec.Struct, frozen=True, kw_only=True):
    """A client that is no member, and for which the group waits."""

    client: str = ""


class SeenFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the leader could not divide."""

    error: str = ""
    message: str = ""


class SeenGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group's hard state, as much as a reader needs of it."""

    group: str
    kind: str = CLASSIC
    state: str
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, SeenMember] = {}
    #: Former owners that may still be at work, and announced ids; by member id.
    guards: dict[str, SeenOther] = {}
    pending: dict[str, SeenOther] = {}
    is_quarantined: bool = False
    #: Of a classic group in which nobody owns anything until its next rebalance.
    failure: SeenFailure | None = None

    @property
    def shown_state(self) -> str:
        """Kafka's name of the state, or that an operator has to look at it."""
        return f"Quarantined({self.state})" if self.is_quarantined else self.state

    @property
    def waits_for(self) -> tuple[rs.AwaitedMember, ...]:
        """Who holds the group up, as DescribeGroup tells it."""
        found = [(name, each.client, rs.NOT_STOPPED) for name, each in self.guards.items()]
        found += [(name, each.client, rs.NOT_JOINED) for name, each in self.pending.items()]
        for name, member in self.members.items():
            is_joining = member.parked is not None and member.parked.kind == JOIN
            if self.state == "PreparingRebalance" and not is_joining:
                found.append((name, member.client, rs.NOT_REJOINED))
            elif self.state in ("CompletingRebalance", "Stable") and not member.has_synced:
                found.append((name, member.client, rs.NOT_SYNCED))
            elif member.demands:
                found.append((name, member.client, rs.NOT_RELEASED))
        return tuple(rs.AwaitedMember(*each) for each in found)


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
                "No Kafka broker answers.", problem.args[0].str(), "Check --bootstrap-servers."
            ) from problem
        if found.error is not None or not found.partitions:
            raise SetupError(
                f"There is no topic {topic}.",
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


def _group(key: bytes, value: bytes) -> SeenGroup | None:
    """Tolerant: a record of somebody else is no group."""
    try:
        return msgspec.convert(
            {"group": key.decode()} | msgspec.json.decode(value, type=dict), SeenGroup, strict=False
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


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
        for assigned in _assigned(group, member)
        for topic, partitions in assigned.items()
        for partition in partitions
    }


def _assigned(group: SeenGroup, member: SeenMember) -> list[Mapping[str, Sequence[int]]]:
    if member.grants:
        return [grant.partitions for grant in member.grants]
    if group.protocol_type != cp.CONSUMER:
        return []
    try:
        return [cp.decode_assignment(member.assignment).partitions]
    except cp.Unreadable:
        return []


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
