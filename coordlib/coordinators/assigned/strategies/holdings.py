"""Who holds what while a strategy divides: members and their partitions, as numbers."""

from collections.abc import Mapping
from typing import Final

from coordlib.coordinators.assigned.strategies.model import Shares, Subscriber
from coordlib.coordinators.assignors.model import topics_in_order

FREE: Final = -1


class Holdings:
    """At first what members had, as far as they want it and it exists; then as it is divided.

    Members are numbers in the order in which they joined. In a target no partition stands twice; if
    one does, the member that joined first keeps it.
    """

    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> None:
        self.names = list(members)
        #: Topics that somebody wants and that have partitions, by name.
        self.topics = topics_in_order((member.topics for member in members.values()), partitions)
        #: Topic -> partition -> number of its member, or FREE.
        self.owners = {topic: [FREE] * partitions[topic] for topic in self.topics}
        #: Member -> topic -> its partitions: those that it had, ascending, then what it was given.
        self.rows: list[dict[str, list[int]]] = []
        #: Member -> how many partitions it has.
        self.loads: list[int] = []
        for number, member in enumerate(members.values()):
            self._keep(number, member)

    @property
    def total(self) -> int:
        """How many partitions there are to divide."""
        return sum(map(len, self.owners.values()))

    def _keep(self, number: int, member: Subscriber) -> None:
        rows: dict[str, list[int]] = {}
        load = 0
        for topic in member.topics:
            if topic in member.share and topic in self.owners:
                owners, row = self.owners[topic], []
                for partition in sorted(member.share[topic]):
                    if 0 <= partition < len(owners) and owners[partition] == FREE:
                        owners[partition] = number
                        row.append(partition)
                rows[topic] = row
                load += len(row)
        self.rows.append(rows)
        self.loads.append(load)

    def free(self, topic: str) -> list[int]:
        """The partitions of a topic that nobody has, ascending."""
        return [each for each, owner in enumerate(self.owners[topic]) if owner == FREE]

    def give(self, number: int, topic: str, partition: int) -> None:
        """A free partition gets a member."""
        self.owners[topic][partition] = number
        self.rows[number].setdefault(topic, []).append(partition)
        self.loads[number] += 1

    def take(self, number: int, topic: str) -> int:
        """A member loses what it was given last; else, of what it had, the last partition."""
        partition = self.rows[number][topic].pop()
        self.owners[topic][partition] = FREE
        self.loads[number] -= 1
        return partition

    def shares(self) -> Shares:
        """The same as it is answered."""
        return {
            name: {topic: tuple(sorted(rows[topic])) for topic in sorted(rows) if rows[topic]}
            for name, rows in zip(self.names, self.rows, strict=True)
        }
