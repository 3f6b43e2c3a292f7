"""Which offsets are followed where there are too many. Pure, and the same in any order of records.

Each group may have as many as each other: who has fewer than that has all of them, and what is over
is divided among those who have more. So whoever invents offsets takes no room from groups that have
few. Offsets of partitions that exist come first; of others only what is left is filled, by the same
rule. Within a group the first by topic and partition count.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from coordlib.kafka.places import Place

Exists = Callable[[Place], bool]


class Cut(NamedTuple):
    """What of a group is not followed."""

    group: str
    places: list[Place]


def shares(counts: Mapping[str, int], room: int) -> dict[str, int]:
    """How many each group has, so that the least of those who have not all is as high as can be.

    What does not divide evenly goes to the first groups by name.
    """
    found: dict[str, int] = {}
    waiting = sorted(counts, key=lambda group: (counts[group], group))
    for number, group in enumerate(waiting):
        level = room // (len(waiting) - number)
        if counts[group] > level:
            over = sorted(waiting[number:])
            more = room - level * len(over)
            return found | {each: level + (n < more) for n, each in enumerate(over)}
        found[group] = counts[group]
        room -= counts[group]
    return found


def cut(
    groups: Mapping[str, Mapping[Place, int]], offsets_max: int, exists: Exists
) -> Iterator[Cut]:
    """What is not to be followed; nothing while there is room for all."""
    here = {name: sum(map(exists, mine)) for name, mine in groups.items()}
    first = shares(here, offsets_max)
    rest = {name: len(mine) - here[name] for name, mine in groups.items()}
    second = shares(rest, offsets_max - sum(first.values()))
    for name, mine in groups.items():
        kept = first[name], second[name]
        if sum(kept) < len(mine):
            yield Cut(name, _beyond(mine, kept, exists))


def _beyond(mine: Mapping[Place, int], kept: tuple[int, int], exists: Exists) -> list[Place]:
    places = sorted(mine)
    here = [place for place in places if exists(place)]
    absent = [place for place in places if not exists(place)]
    return here[kept[0] :] + absent[kept[1] :]
