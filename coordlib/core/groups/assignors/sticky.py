"""Kafka's StickyAssignor and CooperativeStickyAssignor: balanced, then few partitions moved.

With the StickyAssignor members let go of everything before they join, and tell the leader in their
user data what they had. With the cooperative one (KIP-429) they keep what they own while they join.
So a partition that changes hands is given to no member yet: its member sees that it is gone,
revokes it and joins again, and only then does it go to the next one.
Source: `StickyAssignor.java`, `CooperativeStickyAssignor.java`, `AbstractStickyAssignor.java`.
Equal subscriptions are divided by `Constrained`, different ones by `general.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from coordlib.core.groups.assignors.general import General
from coordlib.core.groups.assignors.model import (
    Assignments,
    Layout,
    Member,
    ReplicaRacks,
    java_order,
)
from coordlib.core.groups.assignors.ownership import (
    Ownership,
    Report,
    cooperative_report,
    ownership,
    sticky_report,
    subscriptions_are_equal,
)
from coordlib.core.groups.assignors.racks import RackInfo, Racks, rack_info


class Constrained:
    """One assignment. After `run`, `given` and `transferring` have the outcome."""

    def __init__(self, layout: Layout, before: Ownership, racks: RackInfo | None) -> None:
        self._layout, self._before, self._racks = layout, before, racks
        self._least, self._with_more = divmod(layout.total, len(before.members))
        self._most = self._least + (self._with_more > 0)
        #: Member -> its places.
        self.given: dict[str, list[int]] = {member: [] for member in before.members}
        #: Place -> its new member, for what another member may still hold.
        self.transferring: dict[int, str] = {}
        self._taken_from: dict[int, str] = {}
        #: Members below `_least`, and members at `_least` that may get one more.
        self._below: list[str] = []
        self._even: list[str] = []
        #: How many members are above `_least` already.
        self._above = 0

    def run(self) -> None:
        """Divide all partitions."""
        for member in self._before.members:
            self._keep(member)
        self._below.sort(key=java_order)
        self._even.sort(key=java_order)
        kept = bytearray(self._layout.total)
        for places in self.given.values():
            for place in places:
                kept[place] = 1
        free: Sequence[int] = [place for place, is_kept in enumerate(kept) if not is_kept]
        if self._racks is not None:
            free = self._deal_near(sorted(free, key=self._racks.members_near.__getitem__))
        self._deal(free)

    def _keep(self, member: str) -> None:
        """Leave a member what it owned, up to its share."""
        owned = self._keepable(member)
        size = len(owned)
        if size < self._least:
            self._below.append(member)
        elif size >= self._most and self._above < self._with_more:
            size = self._most
            self._rise()
        else:
            size = self._least
            if self._above < self._with_more:
                self._even.append(member)
        if size < len(owned):
            owned.sort(key=lambda place: (self._layout.partition(place), place))
        self.given[member] = owned[:size]
        for place in owned[size:]:
            self._taken_from[place] = member

    def _keepable(self, member: str) -> list[int]:
        """What it owned, without what others claim too and what is far away."""
        racks, disputed = self._racks, self._before.disputed
        owned = self._before.owned[member]
        if racks is not None:
            far = [place for place in owned if racks.mismatch(member, place)]
            self._taken_from.update(dict.fromkeys(far, member))
            owned = {place: None for place in owned if not racks.mismatch(member, place)}
        return [place for place in owned if place not in disputed]

    def _rise(self) -> None:
        """One more member is above `_least`; with the last of them no other may rise."""
        self._above += 1
        if self._above == self._with_more:
            self._even.clear()

    def _deal_near(self, free: list[int]) -> list[int]:
        """Assign free partitions to members near to them; return those that none near can take."""
        assert self._racks is not None
        left, turn = [], 0
        # Racks in which no member waits any more: members only ever stop waiting.
        served: set[Racks] = set()
        for place in free:
            if self._racks.racks[place] in served:
                left.append(place)
                continue
            at = self._next_near(place, self._below, turn)
            if at >= 0:
                member, turn = self._below[at], at + 1
                if len(self.given[member]) + 1 >= self._least:
                    del self._below[at]
                    turn = at
                    if self._least + 1 == self._most and self._above < self._with_more:
                        self._even.append(member)
                turn = turn % len(self._below) if self._below else 0
                self._give(place, member)
                continue
            at = self._next_near(place, self._even, 0)
            if at < 0:
                left.append(place)
                served.add(self._racks.racks[place])
                continue
            self._give(place, self._even.pop(at))
            self._rise()
        return left

    def _next_near(self, place: int, members: list[str], first: int) -> int:
        """Where in the list the next member stands that is in a rack of this place, or -1."""
        assert self._racks is not None
        racks, rack_of = self._racks.racks[place], self._racks.rack_of
        for at in chain(range(first, len(members)), range(first)):
            if rack_of.get(members[at]) in racks:
                return at
        return -1

    def _deal(self, free: Sequence[int]) -> None:
        """Give the rest: around those below `_least`, then one each to those who may rise."""
        rest, turn = iter(free), 0
        while self._below:
            # A member is below its share: then a partition is left for it.
            member = self._below[turn]
            self._give(next(rest), member)
            if len(self.given[member]) == self._least:
                del self._below[turn]
                self._even.append(member)
            else:
                turn += 1
            if turn >= len(self._below):
                turn = 0
        for place, member in zip(rest, self._even, strict=False):
            self._give(place, member)

    def _give(self, place: int, member: str) -> None:
        self.given[member].append(place)
        if self._taken_from.get(place, member) != member or place in self._before.disputed:
            self.transferring[place] = member


NAME = "sticky"


def assign(
    members: Mapping[str, Member],
    partitions: Mapping[str, int],
    racks: ReplicaRacks | None = None,
    *,
    always_racks: bool = False,
) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription; what it owned is in its user data.
        partitions: topic -> number of partitions; topics that are not in it do not exist.
        racks: topic -> the racks of each partition's replicas, where they are known.
        always_racks: look at racks also if every partition is in every rack.

    Returns:
        For every member, also one that gets nothing: topic -> its partitions, ascending.
    """
    if not members:
        return {}
    layout = Layout(members, partitions)
    given, _ = divide(members, layout, racks or {}, always_racks, sticky_report)
    return {member: layout.rows(given[member]) for member in members}


def divide(
    members: Mapping[str, Member],
    layout: Layout,
    racks: ReplicaRacks,
    always_racks: bool,
    report_of: Callable[[Member], Report],
) -> tuple[dict[str, list[int]], dict[int, str] | None]:
    """What both sticky assignors do: member -> its places, and which places change hands.

    The latter is None if subscriptions differ: then it has to be found by comparison.
    """
    before = ownership(members, report_of, layout)
    near = rack_info(members, layout, racks, always_racks)
    if subscriptions_are_equal(members):
        equal = Constrained(layout, before, near)
        equal.run()
        return equal.given, equal.transferring
    different = General(members, layout, before, near)
    different.run()
    return different.given(), None


COOPERATIVE = "cooperative-sticky"


def assign_cooperative(
    members: Mapping[str, Member],
    partitions: Mapping[str, int],
    racks: ReplicaRacks | None = None,
    *,
    always_racks: bool = False,
) -> Assignments:
    """Divide the partitions of all topics, and withhold those that others must revoke first.

    Args:
        members: member id -> its subscription with what it owns.
        partitions: topic -> number of partitions; topics that are not in it do not exist.
        racks: topic -> the racks of each partition's replicas, where they are known.
        always_racks: look at racks also if every partition is in every rack.

    Returns:
        For every member, also one that gets nothing: topic -> its partitions, ascending.
    """
    if not members:
        return {}
    layout = Layout(members, partitions)
    given, transferring = divide(members, layout, racks or {}, always_racks, cooperative_report)
    if transferring is None:
        transferring = _transferring(members, layout, given)
    return {
        member: layout.rows(at for at in given[member] if transferring.get(at) != member)
        for member in members
    }


def _transferring(
    members: Mapping[str, Member], layout: Layout, given: Mapping[str, list[int]]
) -> dict[int, str]:
    """Places that go to a member that is not their owner, and that their owner must revoke."""
    gained: dict[int, str] = {}
    revoked: set[int] = set()
    for member, places in given.items():
        owned = {
            layout.start[topic] + partition
            for topic, partitions in members[member].owned.items()
            for partition in partitions
            if 0 <= partition < layout.count(topic)
        }
        gained.update((place, member) for place in places if place not in owned)
        revoked |= owned.difference(places)
    return {place: member for place, member in gained.items() if place in revoked}
