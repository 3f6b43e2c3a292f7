"""The strategies `sticky`, the default, and `uniform` of server-assigned groups.

Sticky is as balanced as can be, and then moves as few partitions as can be.
With equal subscriptions an assignment is balanced if everybody has the floor or the ceiling of its
ideal share of all partitions together, which is in proportion to its capacity. Of all balanced
assignments this is one that takes away the fewest partitions from members that have them: who has
more than its floor is the first to get the ceiling; the rest of them go by largest remainder, then
to who joined first. Then everybody keeps as many as it is due, the lowest by number.

So with equal capacities a member that joins takes from the others and no other gains, and if one
leaves, only its partitions move. With weights that holds as far as balance allows: a member's ideal
share may rise beyond the next whole number when another member comes or goes.

Uniform balances totals first, and keeps what members have second, as the broker's uniform assignor
(KIP-848). Weights: with equal subscriptions everybody is due the floor or the ceiling of its ideal
share of all partitions together; who has the larger one is settled by largest remainder and then by
id, and not by what anybody has. So the sizes follow from the members alone, and partitions move for
it: that is the difference to `sticky`. Within its size everybody keeps what it had. With equal
capacities this is Kafka's division. With different subscriptions no sizes are known beforehand, and
members are divided as below. Source: `UniformAssignor.java`.

With different subscriptions partitions go to those on whom they weigh least. Members are compared
by load / capacity. The imbalance is the sum of load * load / capacity over all members, which is
least where loads are in proportion to capacities. One partition more adds (2 load + 1) / capacity
to it, one less takes (2 load - 1) / capacity away.
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

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from coordlib.core.groups.assignors.model import Assignments, Member, java_order, topics_in_order
from coordlib.core.groups.assignors.server_model import (
    Holdings,
    Shares,
    Subscriber,
    alike,
    in_assignors_terms,
    quotas,
)

#: A partition may move on when the next topics are evened out; this often would be a defect's.
MOVES_PER_PARTITION_MAX: Final = 16

#: What a partition adds to the imbalance or takes away from it, its member, and that one's load
#: when this was so: with another load the entry is outdated.
_Entry = tuple[float, int, int]


def assign_different(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
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


NAME = "sticky"


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    wanting = alike(members)
    if wanting is None:
        return assign_different(members, partitions)
    given: Shares = {member: {} for member in members}
    if wanting:
        given |= _divide(Holdings(wanting, partitions), [m.capacity for m in wanting.values()])
    return given


def _divide(holdings: Holdings, capacities: list[int]) -> Shares:
    due = quotas(holdings.total, capacities, holdings.loads)
    for number, load in enumerate(holdings.loads):
        if load > due[number]:
            _take_highest(holdings, number, load - due[number])
    free = ((topic, each) for topic in holdings.topics for each in holdings.free(topic))
    # StepContext the members that are short, so that none gets a whole topic where there are many.
    short = [number for number, load in enumerate(holdings.loads) if load < due[number]]
    while short:
        for number in short:
            holdings.give(number, *next(free))
        short = [number for number in short if holdings.loads[number] < due[number]]
    return holdings.shares()


def _take_highest(holdings: Holdings, number: int, count: int) -> None:
    """Free a member's last partitions by number, of whatever topic: not all of one topic."""
    for _, topic in reversed(holdings.places(number)[-count:]):
        holdings.take(number, topic)


class Targets:
    """The last target assignment, without what is not wanted any more or does not exist."""

    def __init__(self, members: Mapping[str, Member], partitions: Mapping[str, int]) -> None:
        self.partitions, self._members = partitions, members
        #: Members by id, dynamic or not.
        self.order = sorted(members, key=java_order)
        #: Member -> topic by name -> its partitions, ascending.
        self.owned: dict[str, dict[str, list[int]]] = {}
        self._held: dict[str, set[int]] = {}
        for name in self.order:
            member = members[name]
            topics = sorted(frozenset(member.topics).intersection(member.owned), key=java_order)
            self.owned[name] = {t: self._claim(t, frozenset(member.owned[t])) for t in topics}

    def _claim(self, topic: str, owned: frozenset[int]) -> list[int]:
        """What of this exists and is not held yet. In a target nothing stands twice."""
        held, count = self._held.setdefault(topic, set()), self.partitions[topic]
        claimed = sorted(each for each in owned - held if 0 <= each < count)
        held.update(claimed)
        return claimed

    def free(self, topic: str) -> list[int]:
        """The partitions that had no owner, ascending."""
        held = self._held.get(topic, set())
        return [each for each in range(self.partitions[topic]) if each not in held]

    def answer(self) -> Assignments:
        """The new target."""
        return {
            name: {t: tuple(sorted(some)) for t, some in sorted(self.owned[name].items()) if some}
            for name in self._members
        }


UNIFORM = "uniform"


def assign_uniform(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    wanting = alike(members)
    if wanting is None:
        return assign_different(members, partitions)
    given: Shares = {member: {} for member in members}
    if wanting:
        wanted = next(iter(wanting.values())).topics
        counts = {topic: partitions.get(topic, 0) for topic in wanted}
        topics, total = topics_in_order([wanted], counts), sum(counts.values())
        targets = Targets(in_assignors_terms(wanting), counts)
        due = quotas(total, [wanting[member].capacity for member in targets.order])
        given |= divide_alike(targets, topics, due)
    return given


def divide_alike(targets: Targets, topic_order: Sequence[str], due: Sequence[int]) -> Assignments:
    """Divide among members that want the same topics; `due`: how many each gets, by id."""
    free = [(topic, each) for topic in topic_order for each in targets.free(topic)]
    room: dict[str, int] = {}
    for member, quota in zip(targets.order, due, strict=True):
        for topic, owned in targets.owned[member].items():
            free += [(topic, partition) for partition in owned[quota:]]
            del owned[quota:]
            quota -= len(owned)
        room[member] = quota
    at = 0
    for member in targets.order:
        for topic, partition in free[at : at + room[member]]:
            targets.owned[member].setdefault(topic, []).append(partition)
        at += room[member]
    return targets.answer()
