"""Groups as the topics have them: state, owners, committed offsets, lag, topics."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from coordlib.cli.kit.listing import AsOf
from coordlib.cli.kit.reading import ClientOptions, read_as_of, read_shards
from coordlib.core.engine.effects import GROUPS, TRANSACTIONS
from coordlib.core.engine.step import UnknownSavedVersion
from coordlib.core.groups.assigned import members as assigned
from coordlib.core.groups.assigned.group import Group as AssignedGroup
from coordlib.core.groups.assigned.group import Member as AssignedMember
from coordlib.core.groups.classic import members as classic
from coordlib.core.groups.classic.group import Failure
from coordlib.core.groups.classic.group import Group as ClassicGroup
from coordlib.core.groups.classic.group import Member as ClassicMember
from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import CommittedValue
from coordlib.core.wire.topics import BadPattern, compile_pattern, resolve
from coordlib.errors import ErrorCode, GroupError
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching, refusing
from coordlib.kafka.cluster import TopicIdReader
from coordlib.kafka.lag import UNKNOWN, Lag, SampledEnds, measure, newest_samples, sampled_ends
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.reading import newest_by_key

LAG_TIMEOUT_S: Final = 5.0


def read_lag(
    client: Mapping[str, str],
    topic: str,
    shard: int,
    group: str,
    offsets: Mapping[Place, int | None],
) -> dict[Place, Lag]:
    """The lag of each partition; log start and end alone where nothing is committed.

    Args:
        topic: of the samples; it need not be there.

    Raises:
        CannotReach: the brokers stopped answering.
    """
    with reaching("Kafka stopped answering", "Look into the broker's log."):
        bounds = log_bounds(open_admin(client), offsets, LAG_TIMEOUT_S, on_denied=refusing(client))
        sampled = sampled_ends(newest_samples(client, topic, shard, group))
    now_ms = time.time_ns() // 1_000_000
    return {
        place: lag_now(committed, bounds.get(place), sampled.get(place), now_ms)
        for place, committed in offsets.items()
    }


def lag_now(
    committed: int | None, bounds: Bounds | None, sampled: SampledEnds | None, now_ms: int
) -> Lag:
    """The lag by live bounds and earlier samples."""
    if committed is None or bounds is None:
        return UNKNOWN if bounds is None else Lag(log_start=bounds.start, log_end=bounds.end)
    if sampled is None:
        return measure(committed, bounds, None, now_ms)
    sampled.ends.add(now_ms, bounds.end)
    return measure(committed, bounds, sampled.ends, now_ms)


T = TypeVar("T")

Group = ClassicGroup | AssignedGroup
Described = Callable[[Any], Iterable[api.DescribedMember]]
Awaited = Callable[[Any], Iterable[api.AwaitedMember]]
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
        """Why no member owns partitions until the next rebalance; None: the leader could assign."""
        return self.value.failure if isinstance(self.value, ClassicGroup) else None

    @cached_property
    def members(self) -> Mapping[str, api.DescribedMember]:
        """By member id, as DescribeGroup tells them."""
        if self.value is None:
            return {}
        described, _ = _DESCRIBES[self.kind]
        return {member.member: member for member in described(self.value)}

    @property
    def waits_for(self) -> tuple[api.AwaitedMember, ...]:
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
    #: Where its owner runs, in that client's own words.
    host: str | None = None
    #: The client's own time of the committed position, epoch milliseconds.
    timestamp_ms: int | None = None
    #: The oldest pending offset of this partition, by its key; None: none waits for a decision.
    pending: str | None = None
    #: Of the topic that the committed offset is of; None: it names none.
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """Everything about one group."""

    group: SeenGroup
    shard: int
    lines: tuple[PartitionLine, ...]
    as_of: AsOf | None
    #: Topics that members name, or of which offsets are committed, and that are not there; a
    #: misspelt one looks like an empty one.
    missing: tuple[str, ...] = ()
    #: Topics that have another id than offsets that were committed of them.
    replaced: tuple[str, ...] = ()


def read_groups(client: ClientOptions, topics: Mapping[str, Any], prefix: str) -> list[SeenGroup]:
    """Every group under a prefix, by name.

    Args:
        topics: metadata of all that the cluster has, by name.

    Raises:
        CannotReach, SetupError: the broker stopped answering, or there are no such topics.
    """
    shards, _ = read_shards(client, topics, prefix, GROUPS)
    found = [
        _group(key, value)
        for shard in range(shards)
        for key, value in newest_by_key(client, f"{prefix}.groups", shard).items()
    ]
    return sorted((g for g in found if g is not None), key=lambda g: g.group)


def read_group(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str, name: str
) -> GroupView:
    """One group, with its offsets and lag. `topics` and Raises as `read_groups`, and besides

    GroupError: GROUP_ID_NOT_FOUND.
    """
    shards, progress = read_shards(client, topics, prefix, GROUPS)
    shard = shard_of(name, shards)
    as_of = read_as_of(client, prefix, shard, progress)
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
    # A role that may not read the topic of pending offsets sees none.
    may_read = f"{prefix}.{TRANSACTIONS}" in topics
    waiting = _pending(client, prefix, shard, name) if may_read else {}
    places = sorted({*committed, *owners, *waiting})
    offsets = {place: _offset(committed.get(place)) for place in places}
    ids = ((place.topic, _topic_id(each)) for place, each in committed.items())
    replaced = TopicIdReader(client).replaced(ids)
    counted = {p: None if p.topic in replaced else each for p, each in offsets.items()}
    lags = read_lag(client, f"{prefix}.lag", shard, name, counted)
    times = {place: _timestamp(committed.get(place)) for place in offsets}
    lines = _lines(group, offsets, owners, lags, times)
    # Those of places come first, in the order of the places.
    of_places = [
        replace(line, pending=waiting.get(at), topic_id=_topic_id(committed.get(at)))
        for at, line in zip(places, lines, strict=False)
    ]
    named = _named(group) | {place.topic for place in places}
    missing = tuple(sorted(named - topics.keys()))
    return GroupView(group, shard, (*of_places, *lines[len(places) :]), as_of, missing, replaced)


def _named(group: SeenGroup) -> frozenset[str]:
    """The topics that members name, as far as their subscriptions can be read."""
    match group.value:
        case AssignedGroup(members=members):
            return frozenset().union(*(member.topics for member in members.values()))
        case ClassicGroup():
            return group.value.subscribed_topics or frozenset()
        case _:
            return frozenset()


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
    """The group of a record; None: another writer wrote it, and it is of no group."""
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
    known = REGISTRY.kinds.get(kind)
    if known is None or kind not in _DESCRIBES:
        return None
    try:
        group: Group = known.load(value)
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


def _pending(client: ClientOptions, prefix: str, shard: int, name: str) -> dict[Place, str]:
    """The oldest pending offset of each partition of a group, by its key."""
    found: dict[Place, tuple[int, str]] = {}
    for key, value in newest_by_key(client, f"{prefix}.{TRANSACTIONS}", shard).items():
        try:
            at = PENDING.place(key)
            rows = PENDING.load(value).offsets if at is not None and at[0] == name else ()
        except msgspec.MsgspecError:  # not ours
            continue
        for row in rows:
            place, waiting = Place(row.topic, row.partition), (row.record, at[1][0] if at else "")
            found[place] = min(found.get(place, waiting), waiting)
    return {place: key for place, (_, key) in found.items()}


def _offset(committed: CommittedValue | None) -> int | None:
    return None if committed is None else committed.offset


def _topic_id(committed: CommittedValue | None) -> str | None:
    return (committed.topic_id or None) if committed is not None else None


def _timestamp(committed: CommittedValue | None) -> int | None:
    time_ms = msgspec.UNSET if committed is None else committed.timestamp_ms
    return None if time_ms is msgspec.UNSET else time_ms


def host_of(member: api.DescribedMember) -> str | None:
    """Where it runs, in its own words; None: it named no host."""
    return None if member.host is msgspec.UNSET else member.host


def _owners(group: SeenGroup) -> dict[Place, str]:
    """Partition to member, as far as assignments are those of consumers."""
    return {
        Place(topic, partition): name
        for name, member in group.members.items()
        for topic, partitions in _assigned(group, member).items()
        for partition in partitions
    }


def _assigned(group: SeenGroup, member: api.DescribedMember) -> Mapping[str, Sequence[int]]:
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
    times: Mapping[Place, int | None],
) -> list[PartitionLine]:
    lines = []
    for place, committed in offsets.items():
        owner = _owner(group, owners.get(place))
        lines.append(PartitionLine(*place, committed, lags[place], *owner, times[place]))
    idle = sorted(set(group.members) - set(owners.values()))
    return lines + [PartitionLine(None, None, None, UNKNOWN, *_owner(group, name)) for name in idle]


def _owner(group: SeenGroup, name: str | None) -> tuple[str | None, str | None, str | None]:
    """Member id, client and host."""
    if name is None:
        return None, None, None
    member = group.members[name]
    return name, member.client, host_of(member)


def wants(group: SeenGroup, topic: str, own: Collection[str] = ()) -> bool:
    """Whether a member has asked for this topic. Of a group that cannot be read: no.

    Args:
        own: the coordinator's own topics, which no expression matches.
    """
    match group.value:
        case AssignedGroup(members=members):
            return any(topic in m.topics or _matches(m, topic, own) for m in members.values())
        case ClassicGroup(members=members, protocol_type=cp.CONSUMER):
            return any(_subscribes(member, topic) for member in members.values())
        case _:
            return False


def _matches(member: AssignedMember, topic: str, own: Collection[str]) -> bool:
    if member.pattern is None or topic in own:
        return False
    try:
        exclude = None if member.exclude is None else compile_pattern(member.exclude)
        return bool(resolve(compile_pattern(member.pattern), exclude, (topic,)))
    except BadPattern:  # the coordinator has another RE2
        return False


def _subscribes(member: ClassicMember, topic: str) -> bool:
    """Whether a subscription names it; one that cannot be read names nothing."""
    for offered in member.protocols:
        try:
            if topic in cp.decode_subscription(offered.metadata).topics:
                return True
        except cp.Unreadable:
            continue
    return False
