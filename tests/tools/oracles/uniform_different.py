"""The uniform assignor for members who want different topics.

Members keep what they had and still want. Topics with many partitions per member go first, then
those that few want, then by name (Kafka: by topic id). Each topic's free partitions go to those
with fewest partitions; then, topic by topic, from those with most to those with fewest, until no
two who want a topic differ by more than one, or `ROUNDS_MAX` rounds are over. Source:
`UniformHeterogeneousAssignmentBuilder.java`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordlib.core.groups.assignors.model import Assignments, Member, java_order
from coordlib.core.groups.assignors.server_sticky import Targets
from tests.tools.oracles.scales import Scales
from tests.tools.oracles.server_range import refuse_unknown

#: As in Kafka: every round about halves what is left of the imbalance.
ROUNDS_MAX: Final = 16


def assign(members: Mapping[str, Member], partitions: Mapping[str, int]) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription; `owned` is its share of the last target.
        partitions: topic -> number of partitions.

    Raises:
        NotAssignable: a member wants a topic that is not in `partitions`.
    """
    refuse_unknown(members, partitions)
    build = _Build(members, Targets(members, partitions))
    build.fill()
    build.balance()
    return build.targets.answer()


class _Build:
    """Members are numbers, in order of their ids."""

    def __init__(self, members: Mapping[str, Member], targets: Targets) -> None:
        self.targets = targets
        self._takers: dict[str, list[int]] = {}
        for number, name in enumerate(targets.order):
            for topic in dict.fromkeys(members[name].topics):
                self._takers.setdefault(topic, []).append(number)
        self._loads = [
            sum(len(some) for some in targets.owned[name].values()) for name in targets.order
        ]

    def _in_order(self, topics: Iterable[str]) -> list[str]:
        def rank(topic: str) -> tuple[float, int, bytes]:
            takers = len(self._takers[topic])
            return -self.targets.partitions[topic] / takers, takers, java_order(topic)

        return sorted(topics, key=rank)

    def fill(self) -> None:
        """Assign the partitions that had no owner."""
        for topic in self._in_order(self._takers):
            free = self.targets.free(topic)
            scales = Scales(self._takers[topic], self._loads)
            for partition in free:
                self._give(topic, partition, scales.next_least())

    def balance(self) -> None:
        """Go around the topics until one round changed nothing."""
        topics = self._in_order(topic for topic, takers in self._takers.items() if len(takers) > 1)
        last = None
        for _ in range(ROUNDS_MAX):
            for topic in topics:
                if topic == last:
                    return
                if self._balance_topic(topic) or last is None:
                    last = topic

    def _balance_topic(self, topic: str) -> bool:
        """Move a topic's partitions from those with most to those with fewest; whether any did."""
        scales, has_moved = Scales(self._takers[topic], self._loads), False
        if scales.imbalance <= 1:
            return False
        to_give = {
            number: sorted(self.targets.owned[self.targets.order[number]].get(topic, ()))
            for number in self._takers[topic]
        }
        while not scales.is_balanced():
            most = scales.next_most()
            while most is not None and not to_give[most]:
                scales.leave_out_most()
                most = scales.next_most()
            if most is None:
                break
            partition, least = to_give[most].pop(), scales.next_least()
            if scales.is_balanced():
                break
            self.targets.owned[self.targets.order[most]][topic].remove(partition)
            self._loads[most] -= 1
            self._give(topic, partition, least)
            has_moved = True
        return has_moved

    def _give(self, topic: str, partition: int, number: int) -> None:
        some = self.targets.owned[self.targets.order[number]].setdefault(topic, [])
        some.append(partition)
        self._loads[number] += 1
