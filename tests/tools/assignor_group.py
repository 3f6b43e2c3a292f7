"""A group of consumers that rebalances in memory, for whoever judges assignors.

It plays the members: they tell the leader what they hold as Kafka's clients do, and revoke and
take over what they are told. A cooperative rebalance goes on until nothing changes hands any more;
that nobody is ever given what another one still holds is checked on the way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from coordlib.core.groups.assignors import ownership, range_roundrobin, sticky
from coordlib.core.groups.assignors.model import NO_GENERATION, Assignments, Member, ReplicaRacks
from tests.tools.oracles import server_range, uniform, uniform_different

Partition = tuple[str, int]
Held = dict[str, frozenset[Partition]]

ROUNDS_MAX: Final = 5  # a cooperative rebalance needs two, and a third to see that it is over


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a leader knows besides its members."""

    partitions: Mapping[str, int]
    racks: ReplicaRacks = field(default_factory=dict)
    always_racks: bool = False
    topic_order: Sequence[str] | None = None


Assign = Callable[[Mapping[str, Member], Cluster], Assignments]

#: By the names in files of cases. The last three are oracles: no group runs them.
ASSIGNORS: Final[dict[str, Assign]] = {
    "range": lambda members, at: range_roundrobin.assign(
        members, at.partitions, at.racks, always_racks=at.always_racks
    ),
    "roundrobin": lambda members, at: range_roundrobin.assign_roundrobin(members, at.partitions),
    "sticky": lambda members, at: sticky.assign(
        members, at.partitions, at.racks, always_racks=at.always_racks
    ),
    "cooperative-sticky": lambda members, at: sticky.assign_cooperative(
        members, at.partitions, at.racks, always_racks=at.always_racks
    ),
    "range(server)": lambda members, at: server_range.assign(members, at.partitions),
    "uniform": lambda members, at: uniform.assign(members, at.partitions, at.topic_order),
    "uniform(heterogeneous)": lambda members, at: uniform_different.assign(members, at.partitions),
}


class TwoHolders(AssertionError):
    """Somebody was given what another member still holds."""


def described(
    assignor: str, member: Member, owned: Collection[Partition], generation: int
) -> Member:
    """A member that says it owns this, the way consumers with this assignor say it."""
    rows: dict[str, tuple[int, ...]] = {}
    for topic, partition in sorted(owned):
        rows[topic] = (*rows.get(topic, ()), partition)
    data = ownership.encode_sticky(rows, generation) if assignor == "sticky" else None
    return replace(member, owned=rows, generation=generation, user_data=data)


def pairs(given: Mapping[str, Mapping[str, Sequence[int]]]) -> Held:
    """The same with pairs of topic and partition."""
    return {
        member: frozenset((topic, each) for topic, some in rows.items() for each in some)
        for member, rows in given.items()
    }


class Group:
    """Members may be added and removed between rebalances."""

    def __init__(self, assignor: str, members: Mapping[str, Member], cluster: Cluster) -> None:
        self.assignor, self.cluster = assignor, cluster
        self.members = dict(members)
        self.generation = max([0, *(member.generation for member in members.values())])

    @property
    def held(self) -> Held:
        """Who holds what, as members say."""
        return pairs({name: member.owned for name, member in self.members.items()})

    def rebalance(self) -> Held:
        """Rebalance until nothing changes hands, and answer who holds what then."""
        for _ in range(ROUNDS_MAX):
            given = self.round()
            if self.assignor != "cooperative-sticky" or given == self.held:
                break
            self.hold(given)
        self.hold(given)
        return given

    def round(self) -> Held:
        """One assignment; members hold what they held."""
        given = pairs(ASSIGNORS[self.assignor](self.members, self.cluster))
        if self.assignor == "cooperative-sticky":
            self._refuse_two_holders(given)
        return given

    def hold(self, given: Held) -> None:
        """Members take this over, in the next generation."""
        self.generation += 1
        for name, some in given.items():
            member = self.members[name]
            self.members[name] = described(self.assignor, member, some, self.generation)

    def join(self, name: str, topics: Sequence[str]) -> None:
        """A member that has nothing yet."""
        self.members[name] = Member(tuple(topics), generation=NO_GENERATION)

    def _refuse_two_holders(self, given: Held) -> None:
        holders: dict[Partition, set[str]] = {}
        for name, some in self.held.items():
            for each in some:
                holders.setdefault(each, set()).add(name)
        for name, some in given.items():
            for each in sorted(some):
                # Of two who say that they hold it, the one of the newer generation may keep it.
                if name not in holders.get(each, {name}):
                    raise TwoHolders(f"{each} is given to {name}, {sorted(holders[each])} hold it")
