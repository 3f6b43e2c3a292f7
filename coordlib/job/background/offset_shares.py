"""Which offsets are followed where there are too many. Pure, and the same in any order of records.

All groups may have equally many. A group with fewer keeps all of them, and the rest of its share
goes to groups with more. So a client that invents offsets takes no room from groups that have few.
Offsets of existing partitions come first; others get the remaining room, by the same rule. Within a
group, offsets go by topic and partition, the first ones first.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from coordlib.kafka.places import Place

Exists = Callable[[Place], bool]


class Cut(NamedTuple):
    """The offsets of a group that are not followed."""

    group: str
    places: list[Place]


def shares(counts: Mapping[str, int], room: int) -> dict[str, int]:
    """The number for each group; the smallest share of a cut group is as large as possible.

    The remainder goes to the first groups by name.
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
    """The offsets that are not to be followed; none while there is room for all."""
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
