"""Job instances: jobs of one prefix, each with a range of its shards, and their records.

A job instance has a marker, keys and a registration of its own in `coord.progress`. Their keys end
with its range: `marker-0-7`. The keys of a job over all shards have no such end. Registrations
are ordered by their places in that log: of two whose ranges overlap the later one holds, and its
job has fenced the other. Where a shard stands is in the marker that has judged most of it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple, Self, TypeVar

import msgspec

from coordlib.core.wire.envelope import WIRE_VERSION
from coordlib.core.wire.stored import Marker
from coordlib.errors import SetupError

_Value = TypeVar("_Value")
#: How keys of `coord.progress` begin.
MARKER: Final = "marker"
KEYS: Final = "keys"
CELL: Final = "cell"
SET_ASIDE: Final = "set-aside"
_KEY: Final = re.compile(rb"(marker|keys|cell|set-aside)(?:-([0-9]+)-([0-9]+))?")
_RANGE: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


class ShardRange(NamedTuple):
    """The shards of a job instance, from the first to the last."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def overlaps(self, other: "ShardRange") -> bool:
        """Whether both have a shard."""
        return self.first <= other.last and other.first <= self.last

    @property
    def shards(self) -> range:
        """Their numbers."""
        return range(self.first, self.last + 1)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `0-7`. Raises SetupError."""
        found = _RANGE.fullmatch(text.strip())
        if found is None or int(found[1]) > int(found[2]):
            raise SetupError(
                "This is no range of shards.",
                f"--shards {text[:100]!r}",
                "Name the first and the last one, and not how many: --shards 0-7; a single one: "
                "--shards 3-3.",
            )
        return cls(int(found[1]), int(found[2]))


#: The shards of a job; None: all.
Owned = ShardRange | None


class CellValue(msgspec.Struct, frozen=True, kw_only=True):
    """A job that takes part with others. Key `cell-0-7`; `cell`: one over all shards."""

    v: int = 1
    #: Clients may write what all job instances read.
    wire_version: int = WIRE_VERSION
    #: When it started, by its driver's clock, epoch milliseconds.
    since_ms: int


#: The jobs that have registered, in the order of the log.
Cells = Mapping[Owned, CellValue]


def require_within(owned: Owned, shards: int) -> None:
    """Raises SetupError: the prefix has fewer shards."""
    if owned is not None and owned.last >= shards:
        raise SetupError(
            f"The prefix has {shards} shards, 0 to {shards - 1}, and others are named.",
            f"--shards {owned}",
            "Name shards that there are; their number is fixed for the life of the topics.",
        )


def shards_of(owned: Owned, shards: int) -> range:
    """The numbers of a job's shards; `shards`: of the prefix."""
    return range(shards) if owned is None else owned.shards


def named(base: str, owned: Owned) -> str:
    """A name of this job's: the base itself for a job over all shards."""
    return base if owned is None else f"{base}-{owned}"


def key_of(what: str, owned: Owned) -> bytes:
    """A key of `coord.progress`."""
    return named(what, owned).encode()


def read_key(key: bytes) -> tuple[str, Owned] | None:
    """What a key of `coord.progress` names, and of which job; None: neither."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    owned = None if found[2] is None else ShardRange(int(found[2]), int(found[3]))
    return found[1].decode(), owned


def words(owned: Owned) -> str:
    """A job's shards, for people."""
    if owned is None:
        return "all shards"
    return f"shard {owned.first}" if owned.first == owned.last else f"shards {owned}"


# -- which job has which shards ------------------------------------------------------------


def is_shared(one: Owned, other: Owned) -> bool:
    """Whether two jobs have a shard in common."""
    return one is None or other is None or one.overlaps(other)


def later_than(cells: Cells, owned: Owned) -> list[Owned]:
    """The jobs that have registered behind this one and have a shard of it.

    Of one that has not registered all are meant.
    """
    order = list(cells)
    behind = order[order.index(owned) + 1 :] if owned in cells else order
    return [each for each in behind if is_shared(each, owned)]


def standing(cells: Cells) -> list[Owned]:
    """The jobs that no later one has fenced."""
    return [each for each in cells if not later_than(cells, each)]


def gaps(cells: Cells, shards: int) -> list[ShardRange]:
    """Shards that no job has; where no job instance ever was, one job has all."""
    if not cells:
        return []
    covered = {shard for each in standing(cells) for shard in shards_of(each, shards)}
    return as_ranges(shard for shard in range(shards) if shard not in covered)


def as_ranges(shards: Iterable[int]) -> list[ShardRange]:
    """The fewest ranges that have just these shards."""
    ordered = sorted(shards)
    if not ordered:
        return []
    cuts = [i for i, (one, next_) in enumerate(pairwise(ordered), 1) if next_ != one + 1]
    return [
        ShardRange(ordered[begin], ordered[end - 1])
        for begin, end in pairwise([0, *cuts, len(ordered)])
    ]


def read_by_all(cells: Cells, owned: Owned, own: int) -> int:
    """The lowest wire version of this job and all other job instances."""
    return min([own, *(cells[each].wire_version for each in standing(cells) if each != owned)])


# -- where shards stand --------------------------------------------------------------------


def composed(markers: Mapping[Owned, Marker], owned: Owned, shards: int) -> Marker | None:
    """Where a job's shards stand, by the furthest marker of each; None: nothing was judged.

    A job's own marker is given as it is, when it is the furthest of all of them. One that is
    composed is named by those that it is made of: it changes when one of these does.

    Args:
        markers: in the order of the log.
        shards: of the prefix.
    """
    if markers.keys() == {owned}:
        return markers[owned]
    covering = {
        shard: [whose for whose in markers if shard in shards_of(whose, shards)]
        for shard in shards_of(owned, shards)
    }
    furthest = {
        shard: max(found, key=lambda whose: _how_far(markers, whose, shard))
        for shard, found in covering.items()
        if found
    }
    whose_all = sorted(set(furthest.values()), key=lambda each: each or (-1, -1))
    if not whose_all:
        return None
    if whose_all == [owned]:
        return markers[owned]
    parts = [markers[each] for each in whose_all]
    names = [f"{part.checkpoint}@{part.batch}" for part in parts]
    return Marker(
        checkpoint=parts[0].checkpoint if len(parts) == 1 else "+".join(names),
        batch=max(part.batch for part in parts),
        ranges={},
        digest="",
        next_offsets=_of_shards(markers, furthest, lambda marker: marker.next_offsets),
        judged=_of_shards(markers, furthest, lambda marker: marker.judged),
        saved=_of_shards(markers, furthest, lambda marker: marker.saved),
        shards={
            str(shard): markers[whose].shards[str(shard)]
            for shard, whose in sorted(furthest.items())
            if str(shard) in markers[whose].shards
        },
    )


def _how_far(markers: Mapping[Owned, Marker], whose: Owned, shard: int) -> tuple[int, int]:
    """How much of a shard's inputs a marker has. Each of them only grows, so equal sums are equal
    states; of these the later one counts."""
    judged = (each.get(str(shard), 0) for each in markers[whose].next_offsets.values())
    return sum(judged), list(markers).index(whose)


def _of_shards(
    markers: Mapping[Owned, Marker],
    furthest: Mapping[int, Owned],
    of: Callable[[Marker], Mapping[str, Mapping[str, _Value]]],
) -> dict[str, dict[str, _Value]]:
    """topic -> partition -> value, each of the marker that has judged most of that shard."""
    found: dict[str, dict[str, _Value]] = {}
    for shard, whose in sorted(furthest.items()):
        for topic, partitions in of(markers[whose]).items():
            if (value := partitions.get(str(shard))) is not None:
                found.setdefault(topic, {})[str(shard)] = value
    return found
