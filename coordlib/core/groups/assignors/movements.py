"""Which partitions went from whom to whom while a group is balanced.

Two members should not swap partitions of one topic: when a partition is about to go back over a
way that another one of its topic came, that other one is sent back instead. Source:
`PartitionMovements` in `AbstractStickyAssignor.java`.
"""

from coordlib.core.groups.assignors.java_maps import PartitionSet, string_hash
from coordlib.core.groups.assignors.layout import Layout

Way = tuple[int, int]  # from member, to member


class Movements:
    """Members are numbers, partitions places of the layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._hashes = [string_hash(topic) for topic in layout.topics]
        #: Place -> from whom it came at first, and who has it now.
        self._way_of: dict[int, Way] = {}
        #: Number of topic -> way -> partitions that went it.
        self._moved: dict[int, dict[Way, PartitionSet]] = {}

    def instead_of(self, place: int, old: int, new: int) -> int:
        """Which place should go to `new` so that `place` need not."""
        number = self._layout.topic_at[place]
        ways = self._moved.get(number)
        if not ways:
            return place
        origin = self._way_of[place][0] if place in self._way_of else old
        back = ways.get((new, origin))
        if back is None:
            return place
        return self._layout.start[self._layout.topics[number]] + back.first()

    def record(self, place: int, old: int, new: int) -> None:
        """A place went from `old` to `new`; one that came home has not moved at all."""
        origin = self._forget(place) if place in self._way_of else old
        if origin == new:
            return
        number, way = self._layout.topic_at[place], (origin, new)
        self._way_of[place] = way
        ways = self._moved.setdefault(number, {})
        if way not in ways:
            ways[way] = PartitionSet(self._hashes[number])
        ways[way].add(self._layout.partition(place))

    def _forget(self, place: int) -> int:
        """Forget how a place came; answer where it was at first."""
        way = self._way_of.pop(place)
        ways = self._moved[self._layout.topic_at[place]]
        ways[way].remove(self._layout.partition(place))
        if not ways[way]:
            del ways[way]
        return way[0]
