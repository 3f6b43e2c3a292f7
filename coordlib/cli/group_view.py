"""A group as the topics tell it: state, owners, committed offsets, lag. No coordinator is asked.

The compacted topics are read committed, from their beginning to the end seen at the start, and of
the group's own shard only. So it works while the job is down; `AsOf` says how far the job was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from coordlib.cli.group_lag import read_lag
from coordlib.cli.status import read_marker
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching
from coordlib.kafka.cluster import partitions_of
from coordlib.kafka.compacted import newest_by_key
from coordlib.kafka.places import Place
from coordlib.lag.measure import UNKNOWN, Lag
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
    """Somebody who is no member, and for whom the group waits."""

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
    found = [
        _group(key, value)
        for shard in range(_shards(client, prefix))
        for key, value in newest_by_key(client, f"{prefix}.groups", shard).items()
    ]
    return sorted((g for g in found if g is not None), key=lambda g: g.group)


def read_group(client: ClientOptions, prefix: str, name: str) -> GroupView:
    """One group, with its offsets and lag.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND.
        CannotReach, SetupError: no broker, or no such topics.
    """
    shard = shard_of(name, _shards(client, prefix))
    as_of = _as_of(client, prefix, shard)
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


def _shards(client: ClientOptions, prefix: str) -> int:
    """How many shards a prefix has. Raises CannotReach, SetupError."""
    topic = f"{prefix}.groups"
    with reaching("No Kafka broker answers", "Check --bootstrap-servers."):
        found = partitions_of(client, topic, TIMEOUT_S)
    if not found:
        raise SetupError(
            f"There is no topic {topic}",
            "the cluster answers, and the engine's topics are not there",
            "Check --prefix; topics are made by: coord topics create",
        )
    return len(found)


def _log_end(client: ClientOptions, place: Place) -> int | None:
    """None where the partition is gone or cannot be read."""
    try:
        with reaching("Kafka stopped answering", "Look into the broker's log."):
            bounds = log_bounds(open_admin(client), [place], TIMEOUT_S).get(place)
    except CannotReach:
        return None  # how much waits is left out then; all else stands in other partitions
    return None if bounds is None else bounds.end


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


def _as_of(client: ClientOptions, prefix: str, shard: int) -> AsOf | None:
    marker = read_marker(client, prefix)
    position = None if marker is None else marker.shards.get(str(shard))
    if position is None:
        return None
    end = _log_end(client, Place(f"{prefix}.requests", shard))
    waiting = 0 if end is None else max(0, end - position.offset - 1)
    return AsOf(position.offset, position.clock_ms, waiting)
