"""How many partitions each member has, and who of a topic's members has fewest.

Members are numbers in the order of their names, which is the order among members with equally
many. Members that want the same topics from the same rack stand in one heap; a topic knows the
heaps of those who want it. A heap's entry is outdated as soon as its member's load changes, and
dropped when it comes up.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from coordlib.core.groups.assignors.racks import Racks


class _Peers:
    """Members with the same topics and the same rack."""

    def __init__(self, rack: str | None) -> None:
        self.rack = rack
        self.heap: list[int] = []


class Loads:
    """The loads of all members; they change by `add` alone."""

    def __init__(
        self, topics: Sequence[Sequence[str]], racks: Sequence[str | None], loads: Sequence[int]
    ) -> None:
        self.of = list(loads)
        self._members = len(self.of)
        #: Load and number in one: load * members + number, whose order is the order of members.
        self._key = [load * self._members + number for number, load in enumerate(self.of)]
        self._peers: list[_Peers] = []
        self._peers_of_topic: dict[str, list[_Peers]] = {}
        kinds: dict[tuple[frozenset[str], str | None], _Peers] = {}
        for number, rack in enumerate(racks):
            kind = frozenset(topics[number]), rack
            if kind not in kinds:
                kinds[kind] = _Peers(rack)
                for topic in dict.fromkeys(topics[number]):
                    self._peers_of_topic.setdefault(topic, []).append(kinds[kind])
            self._peers.append(kinds[kind])
            kinds[kind].heap.append(self._key[number])
        for peers in kinds.values():
            heapify(peers.heap)

    def least(self, topic: str) -> int:
        """Who of those who want a topic has fewest partitions."""
        return (
            min([self._head(peers.heap) for peers in self._peers_of_topic[topic]]) % self._members
        )

    def least_near(self, topic: str, racks: Racks) -> int | None:
        """The same among those who are in one of the racks, or in none that is known."""
        heads = [
            self._head(peers.heap)
            for peers in self._peers_of_topic[topic]
            if peers.rack is None or peers.rack in racks
        ]
        return min(heads) % self._members if heads else None

    def add(self, number: int, partitions: int) -> None:
        """A member's load rises, or falls."""
        self.of[number] += partitions
        self._key[number] += partitions * self._members
        heappush(self._peers[number].heap, self._key[number])

    def _head(self, heap: list[int]) -> int:
        while heap[0] != self._key[heap[0] % self._members]:
            heappop(heap)
        return heap[0]


def spread(loads: Sequence[int]) -> int:
    """Kafka's balance score: the differences of all pairs of members, added up; 0 is best."""
    ordered = sorted(loads)
    return sum(load * (2 * place - len(ordered) + 1) for place, load in enumerate(ordered))
