"""The arguments and the result of a strategy.

A strategy is a pure function `assign(members, partitions) -> shares`: no clock, no randomness, no
set whose order shows. The same members and partitions in the same order give the same shares, on
every machine and when a batch runs again. It must be total: every partition of a wanted topic goes
to exactly one member that wants it, and no member gets any other partition; `registry.check_total`
checks that.

Members are weighted: where possible, a member's share is in proportion to its capacity. Each
strategy's module defines that for itself.
Source: seed 000 (`partition.assignment.strategies`); KIP-848's server-side assignors.

Quotas, by largest remainder in whole numbers: a member's ideal share is `count * capacity /
capacities of all`. Everybody gets the floor of it; what is left goes, one each, to those with a
remainder. So everybody has the floor or the ceiling of its ideal share, and with equal capacities
no member has two more than another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from coordlib.core.groups.assignors.model import Member, topics_in_order

#: Topic to partitions, in ascending order; no topic without partitions.
Share = dict[str, tuple[int, ...]]
#: By member id; names every member, also one that gets nothing.
Shares = dict[str, Share]


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """One member, with the fields that a strategy may read."""

    #: Topics that it wants and that exist, in ascending order, none twice.
    topics: tuple[str, ...]
    #: Its share of the last target assignment; may name what is not wanted or is no more.
    share: Mapping[str, tuple[int, ...]] = {}
    #: At least 1; its share is to be in proportion to it.
    capacity: int = 1


#: Members by id in the order in which they joined; partitions: topic to how many it has.
Strategy = Callable[[Mapping[str, Subscriber], Mapping[str, int]], Shares]

DEFAULT: Final = "sticky"


def in_assignors_terms(members: Mapping[str, Subscriber]) -> dict[str, Member]:
    """The same members, in the same order, dynamic and in no rack: so they stand by member id."""
    return {
        name: Member(topics=member.topics, owned=member.share) for name, member in members.items()
    }


def wanted_by(members: Mapping[str, Subscriber]) -> Iterator[frozenset[str]]:
    """What each member wants, in their order; to be asked for single topics, and never iterated.

    Those who want the same share one set: a thousand members may want ten thousand topics each.
    """
    known: dict[tuple[str, ...], frozenset[str]] = {}
    for member in members.values():
        if member.topics not in known:
            known[member.topics] = frozenset(member.topics)
        yield known[member.topics]


def alike(members: Mapping[str, Subscriber]) -> dict[str, Subscriber] | None:
    """Those who want anything, if all of them want the same topics; None if they do not.

    Who wants nothing, say since its pattern matches no topic yet, gets nothing either way, and
    does not make the others' subscriptions differ.
    """
    wanting = {name: member for name, member in members.items() if member.topics}
    topics = [member.topics for member in wanting.values()]
    return None if any(some != topics[0] for some in topics) else wanting


def quotas(count: int, capacities: Sequence[int], held: Sequence[int] | None = None) -> list[int]:
    """Divide `count` in proportion to the capacities, each at least 1.

    Args:
        held: how many each holds already. Who holds more than its floor is served first when the
            rest is given out: it keeps one that would have to move. None: no member holds any.

    Returns:
        As many numbers as there are capacities; their sum is `count`. Among equals the largest
        remainder comes first, then who stands first.
    """
    total = sum(capacities)
    due = [count * capacity // total for capacity in capacities]
    remainders = [count * capacity % total for capacity in capacities]
    rest = count - sum(due)

    def rank(number: int) -> tuple[bool, int]:
        return held is None or held[number] <= due[number], -remainders[number]

    may_have_more = [number for number, remainder in enumerate(remainders) if remainder]
    for number in sorted(may_have_more, key=rank)[:rest]:
        due[number] += 1
    return due


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
