"""Who owned what before: the input of the sticky assignors' stickiness.

A partition that two members claim goes to the one of the higher generation; with equal generations
nobody keeps it. Members are read in the order of Java's maps, since with three claims that order
decides. Source: `allSubscriptionsEqual` and `prepopulateCurrentAssignments` in
`AbstractStickyAssignor.java`. Three differences, all of them where Kafka's answer would be
wrong: partitions with numbers that their topic does not have are dropped (Kafka may give others
away twice); a partition that one member names twice is named once; a member without topics makes
subscriptions unequal, wherever it stands in the map (Kafka may give it partitions).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordlib.core.groups.assignors.java_maps import in_map_order
from coordlib.core.groups.assignors.layout import Layout
from coordlib.core.groups.assignors.model import NO_GENERATION, Member
from coordlib.core.groups.assignors.sticky_data import Said


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
    members: Mapping[str, Member], say: Callable[[Member], Said], layout: Layout
) -> Ownership:
    """Compare all claims."""
    ordered = in_map_order(members)
    said = {name: say(members[name]) for name in ordered}
    found = Ownership(ordered, {name: {} for name in ordered})
    holder: list[str | None] = [None] * layout.total
    for name in ordered:
        mine, generation = found.owned[name], _known(said[name])
        for place in _places(said[name], layout):
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
    found.earlier = _earlier(ordered, said, layout)
    return found


def del_claim(claims: dict[int, None], place: int) -> None:
    """Take a claim away; a disputed one is gone already."""
    claims.pop(place, None)


def _known(said: Said) -> int:
    return NO_GENERATION if said.generation is None else said.generation


def _places(said: Said, layout: Layout) -> list[int]:
    """Where the partitions stand that a member names, as far as they exist."""
    places: list[int] = []
    for topic, partitions in said.owned.items():
        start, count = layout.start.get(topic, 0), layout.count(topic)
        places += [start + partition for partition in partitions if 0 <= partition < count]
    return places


def _earlier(ordered: list[str], said: Mapping[str, Said], layout: Layout) -> dict[int, str]:
    newest = max(map(_known, said.values()))
    earlier: dict[int, tuple[int, str]] = {}
    for name in ordered:
        generation = _known(said[name])
        if generation >= newest:
            continue
        for place in _places(said[name], layout):
            if place not in earlier or generation > earlier[place][0]:
                earlier[place] = generation, name
    return {place: name for place, (_, name) in earlier.items()}
