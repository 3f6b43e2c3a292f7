"""Members that want different topics: partitions go to those on whom they weigh least.

Members are compared by load / capacity. The imbalance is the sum of load * load / capacity over all
members, which is least where loads are in proportion to capacities. One partition more adds
(2 load + 1) / capacity to it, one less takes (2 load - 1) / capacity away.
1. Everybody keeps what it had and still wants.
2. Each free partition goes to the one of those who want it whom it adds least to; among equals, who
   joined first. Topics that few want come first, then by name.
3. Topic by topic, a partition moves from the member that sheds most to the one that it adds least
   to, while that lowers the imbalance; around all topics, until none moves. What was given in step
   2 moves before what a member had. Every move lowers the imbalance, so this ends; after
   `MOVES_PER_PARTITION_MAX` moves for each partition it ends anyhow.

If nothing changed since, nothing moves. Moves are of one partition each: a better balance that
needs two at once, say around by a third member, is not looked for.
Floats compare exactly here: they are quotients of whole numbers below a few millions.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from coordlib.core.groups.assignors.holdings import Holdings
from coordlib.core.groups.assignors.server_model import Shares, Subscriber

#: A partition may move on when the next topics are evened out; this often would be a defect's.
MOVES_PER_PARTITION_MAX: Final = 16

#: What a partition adds to the imbalance or takes away from it, its member, and that one's load
#: when this was so: with another load the entry is outdated.
_Entry = tuple[float, int, int]


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    division = _Division(members, partitions)
    division.fill()
    division.balance()
    return division.holdings.shares()


class _Division:
    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> None:
        self.holdings = Holdings(members, partitions)
        self._capacities = [member.capacity for member in members.values()]
        #: Topic -> who wants it, in the order in which they joined.
        self._takers: dict[str, list[int]] = {topic: [] for topic in self.holdings.topics}
        for number, member in enumerate(members.values()):
            for topic in member.topics:
                if topic in self._takers:
                    self._takers[topic].append(number)
        self._topics = sorted(self._takers, key=lambda topic: len(self._takers[topic]))

    def fill(self) -> None:
        """Assign the free partitions."""
        for topic in self._topics:
            if free := self.holdings.free(topic):
                takers = [self._adds(number) for number in self._takers[topic]]
                heapify(takers)
                for partition in free:
                    number = takers[0][1]
                    self.holdings.give(number, topic, partition)
                    heapreplace(takers, self._adds(number))

    def balance(self) -> None:
        """Move one partition at a time, around the topics, until none has to."""
        moves_left, moved = MOVES_PER_PARTITION_MAX * self.holdings.total, True
        while moved and moves_left:
            before = moves_left
            for topic in self._topics:
                moves_left = self._balance_topic(topic, moves_left)
            moved = moves_left < before

    def _balance_topic(self, topic: str, moves_left: int) -> int:
        """Even out those who want a topic; answer how many moves are left then."""
        has, wanting = self.holdings.has, self._takers[topic]
        givers = [self._sheds(number) for number in wanting if has(number, topic)]
        takers = [self._adds(number) for number in wanting]
        if -min(givers)[0] <= min(takers)[0]:
            return moves_left
        heapify(givers)
        heapify(takers)
        while moves_left:
            giver, taker = self._first(givers), self._first(takers)
            if giver is None or taker is None or -giver[0] <= taker[0]:
                break
            self.holdings.give(taker[1], topic, self.holdings.take(giver[1], topic))
            moves_left -= 1
            for number in (giver[1], taker[1]):
                heappush(takers, self._adds(number))
                if has(number, topic):
                    heappush(givers, self._sheds(number))
        return moves_left

    def _first(self, heap: list[_Entry]) -> _Entry | None:
        """The first entry that is not outdated."""
        while heap and heap[0][2] != self.holdings.loads[heap[0][1]]:
            heappop(heap)
        return heap[0] if heap else None

    def _adds(self, number: int) -> _Entry:
        load = self.holdings.loads[number]
        return (2 * load + 1) / self._capacities[number], number, load

    def _sheds(self, number: int) -> _Entry:
        """Who sheds most comes first."""
        load = self.holdings.loads[number]
        return -(2 * load - 1) / self._capacities[number], number, load
