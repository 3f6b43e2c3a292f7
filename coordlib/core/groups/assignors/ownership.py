"""The input of the sticky assignors' stickiness: what members report, and the former owners.

User data of a subscription, byte for byte as Kafka's:

sticky, version 0: an array of {string topic, array of int32 partitions}: what the member owned.
sticky, version 1: the same, then the int32 generation in which it owned them.
cooperative-sticky: an int32 generation alone; partitions stand in the subscription.
All big-endian, and the version is not named: what is too short for 1 is 0. Source:
`StickyAssignor.java`, `CooperativeStickyAssignor.java`.

A partition that two members claim goes to the one of the higher generation; with equal generations
no member keeps it. Members are read in the order of Java's maps, since with three claims that order
decides. Source: `allSubscriptionsEqual` and `prepopulateCurrentAssignments` in
`AbstractStickyAssignor.java`. Three differences, all of them where Kafka's answer would be
wrong: partitions with numbers that their topic does not have are dropped (Kafka may give others
away twice); a partition that one member names twice is named once; a member without topics makes
subscriptions unequal, wherever it stands in the map (Kafka may give it partitions).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coordlib.core.groups.assignors.model import NO_GENERATION, Layout, Member, in_map_order
from coordlib.core.wire import consumer_protocol as cp


@dataclass(frozen=True, slots=True)
class Report:
    """What a member says that it owned, and in which generation; None: it does not say."""

    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation: int | None = None


def encode_sticky(
    owned: Mapping[str, Sequence[int]] | None, generation: int | None = NO_GENERATION
) -> bytes | None:
    """User data of a member of a sticky group.

    Args:
        owned: the last assignment; None before the first one, which needs no user data.
        generation: its generation (version 1), or None to write version 0.
    """
    if owned is None:
        return None
    body = cp.encode_topic_partitions({topic: owned[topic] for topic in sorted(owned)})
    return body if generation is None else body + struct.pack(">i", generation)


def decode_sticky(value: bytes | None) -> Report:
    """Read user data of a sticky member; what cannot be read counts as nothing owned."""
    if not value:
        return Report()
    reader = cp.Reader(value)
    try:
        owned = reader.topic_partitions()
    except cp.Unreadable:
        return Report(generation=NO_GENERATION)
    try:
        return Report(owned, reader.int32())
    except cp.Unreadable:
        return Report(owned)


def encode_cooperative(generation: int) -> bytes:
    """User data of a member of a cooperative-sticky group."""
    return struct.pack(">i", generation)


def decode_cooperative(value: bytes | None) -> int | None:
    """The generation in such user data; None if there is none, -1 if it cannot be read."""
    if value is None:
        return None
    return int(struct.unpack(">i", value[:4])[0]) if len(value) >= 4 else NO_GENERATION


def sticky_report(member: Member) -> Report:
    """Sticky reads user data alone: its members own nothing any more when they join."""
    return decode_sticky(member.user_data)


def cooperative_report(member: Member) -> Report:
    """Cooperative-sticky reads the subscription, and user data where that has no generation."""
    if member.generation >= 0:
        return Report(member.owned, member.generation)
    return Report(member.owned, decode_cooperative(member.user_data))


@dataclass(slots=True)
class Ownership:
    """Claims after they were compared, by place in the layout."""

    #: Members in the order of Java's maps.
    members: list[str]
    #: What each may keep, in its own order. A dict of None is a set that keeps an order.
    owned: dict[str, dict[int, None]]
    #: What more than one claimed in one generation.
    disputed: set[int] = field(default_factory=set)
    #: Who owned a partition in the newest generation before the group's newest one.
    earlier: dict[int, str] = field(default_factory=dict)


def subscriptions_are_equal(members: Mapping[str, Member]) -> bool:
    """Whether everybody wants the same topics. A topic named twice is unequal, as in Kafka.

    Other than Kafka, one topic named as often as another member has topics is unequal too: Kafka
    compares counts and containment only, and gives such a member what it does not want.
    """
    ordered = in_map_order(members)
    first = frozenset(members[ordered[0]].topics)
    return all(
        len(members[name].topics) == len(first) and first == frozenset(members[name].topics)
        for name in ordered[1:]
    )


def ownership(
    members: Mapping[str, Member], report_of: Callable[[Member], Report], layout: Layout
) -> Ownership:
    """Compare all claims."""
    ordered = in_map_order(members)
    reports = {name: report_of(members[name]) for name in ordered}
    found = Ownership(ordered, {name: {} for name in ordered})
    holder: list[str | None] = [None] * layout.total
    for name in ordered:
        mine, generation = found.owned[name], _known(reports[name])
        for place in _places(reports[name], layout):
            other = holder[place]
            if other is None:
                mine[place] = None
                holder[place] = name
            elif other != name:
                # Kafka compares with the generation that stands in the other's subscription, also
                # where it takes this one's from its user data.
                older = members[other].generation
                if generation >= older:
                    del_claim(found.owned[other], place)
                    holder[place] = name
                if generation > older:
                    mine[place] = None
                elif generation == older:
                    found.disputed.add(place)
    found.earlier = _earlier(ordered, reports, layout)
    return found


def del_claim(claims: dict[int, None], place: int) -> None:
    """Take a claim away; a disputed one is gone already."""
    claims.pop(place, None)


def _known(reports: Report) -> int:
    return NO_GENERATION if reports.generation is None else reports.generation


def _places(reports: Report, layout: Layout) -> list[int]:
    """Where the partitions stand that a member names, as far as they exist."""
    places: list[int] = []
    for topic, partitions in reports.owned.items():
        start, count = layout.start.get(topic, 0), layout.count(topic)
        places += [start + partition for partition in partitions if 0 <= partition < count]
    return places


def _earlier(ordered: list[str], reports: Mapping[str, Report], layout: Layout) -> dict[int, str]:
    newest = max(map(_known, reports.values()))
    earlier: dict[int, tuple[int, str]] = {}
    for name in ordered:
        generation = _known(reports[name])
        if generation >= newest:
            continue
        for place in _places(reports[name], layout):
            if place not in earlier or generation > earlier[place][0]:
                earlier[place] = generation, name
    return {place: name for place, (_, name) in earlier.items()}
