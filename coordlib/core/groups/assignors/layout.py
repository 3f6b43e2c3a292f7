"""All partitions of a group's topics in one row: sticky assignors count places instead of pairs.

Topics stand by name and partitions by number, so that the order of places is the order by topic
and partition.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from coordlib.core.groups.assignors.model import Subscriber, topics_in_order


class Layout:
    """Where each partition stands."""

    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> None:
        wanted = (member.topics for member in members.values())
        self.topics = topics_in_order(wanted, partitions)
        #: Topic -> place of its partition 0.
        self.start: dict[str, int] = {}
        #: Place -> number of its topic in `topics`.
        self.topic_at: list[int] = []
        for number, topic in enumerate(self.topics):
            self.start[topic] = len(self.topic_at)
            self.topic_at += [number] * partitions[topic]
        self._ends = [self.start[topic] + partitions[topic] for topic in self.topics]

    @property
    def total(self) -> int:
        """How many partitions there are."""
        return len(self.topic_at)

    def count(self, topic: str) -> int:
        """How many partitions a topic has; 0 for one that is not in the layout."""
        return len(self.places(topic))

    def places(self, topic: str) -> range:
        """Where a topic's partitions stand."""
        start = self.start.get(topic)
        return range(0) if start is None else range(start, self._ends[self.topic_at[start]])

    def partition(self, place: int) -> int:
        """A place's partition number."""
        return place - self.start[self.topics[self.topic_at[place]]]

    def rows(self, places: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """The same as partitions by topic, ascending."""
        ordered, at = sorted(places), 0
        rows: dict[str, tuple[int, ...]] = {}
        while at < len(ordered):
            number = self.topic_at[ordered[at]]
            topic = self.topics[number]
            start, after = self.start[topic], bisect_left(ordered, self._ends[number], at)
            rows[topic] = tuple([place - start for place in ordered[at:after]])
            at = after
        return rows
