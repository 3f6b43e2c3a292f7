"""Who holds what while a strategy divides: members and their partitions, as numbers."""

from collections.abc import Mapping, Sequence
from typing import Final

from coordlib.core.groups.assignors.model import topics_in_order
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.core.groups.assignors.terms import wanted_by

FREE: Final = -1


class Holdings:
    """At first what members had, as far as they want it and it exists; then as it is divided.

    Members are numbers in the order in which they joined. In a target no partition stands twice; if
    one does, the member that joined first keeps it.
    """

    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> None:
        self.names = list(members)
        #: Topics that a member wants and that have partitions, by name.
        self.topics = topics_in_order((member.topics for member in members.values()), partitions)
        #: Topic -> partition -> number of its member, or FREE.
        self.owners = {topic: [FREE] * partitions[topic] for topic in self.topics}
        #: Member -> topic -> its partitions: those that it had, ascending, then what it was given.
        #: A tuple has not been changed.
        self._rows: list[dict[str, Sequence[int]]] = []
        #: Member -> how many partitions it has.
        self.loads: list[int] = []
        each = zip(members.values(), wanted_by(members), strict=True)
        for number, (member, wanted) in enumerate(each):
            self._keep(number, member.share, wanted)

    @property
    def total(self) -> int:
        """How many partitions there are to divide."""
        return sum(map(len, self.owners.values()))

    def _keep(
        self, number: int, share: Mapping[str, tuple[int, ...]], wanted: frozenset[str]
    ) -> None:
        rows: dict[str, Sequence[int]] = {}
        load = 0
        for topic, some in share.items():
            owners = self.owners.get(topic)
            if owners is None or topic not in wanted:
                continue
            row, last = [], -1
            for partition in some:
                if last < partition < len(owners) and owners[partition] == FREE:
                    owners[partition] = number
                    row.append(partition)
                    last = partition
            load += len(row)
            rows[topic] = tuple(some) if len(row) == len(some) else row
        self._rows.append(rows)
        self.loads.append(load)

    def free(self, topic: str) -> list[int]:
        """The free partitions of a topic, ascending."""
        return [each for each, owner in enumerate(self.owners[topic]) if owner == FREE]

    def has(self, number: int, topic: str) -> bool:
        """Whether a member has anything of a topic."""
        return bool(self._rows[number].get(topic))

    def places(self, number: int) -> list[tuple[int, str]]:
        """All partitions of a member, by partition and then by topic."""
        return sorted((each, topic) for topic, row in self._rows[number].items() for each in row)

    def give(self, number: int, topic: str, partition: int) -> None:
        """A free partition gets a member."""
        self.owners[topic][partition] = number
        self._changing(number, topic).append(partition)
        self.loads[number] += 1

    def take(self, number: int, topic: str) -> int:
        """A member loses what it was given last; else, of what it had, the last partition."""
        partition = self._changing(number, topic).pop()
        self.owners[topic][partition] = FREE
        self.loads[number] -= 1
        return partition

    def _changing(self, number: int, topic: str) -> list[int]:
        row = self._rows[number].get(topic, ())
        if not isinstance(row, list):
            self._rows[number][topic] = row = list(row)
        return row

    def shares(self) -> Shares:
        """The same as it is answered."""
        return {
            name: {topic: _ascending(rows[topic]) for topic in sorted(rows) if rows[topic]}
            for name, rows in zip(self.names, self._rows, strict=True)
        }


def _ascending(row: Sequence[int]) -> tuple[int, ...]:
    return row if isinstance(row, tuple) else tuple(sorted(row))
