"""The sticky assignment of a group whose members want different topics.

1. Everybody keeps what it owned and still wants; where racks matter, only what is near.
2. Each free partition goes to the member with fewest of those who want its topic; topics that few
   want come first. Where racks matter, near members come first.
3. Partitions move from members to others with at least two fewer, until none can: to the owner of
   an earlier generation if that helps, else to the member with fewest. If that leaves the group no
   better balanced than after 2, it is undone.
Source: `GeneralAssignmentBuilder` in `AbstractStickyAssignor.java`, whose search for a better owner
is done here with heaps. Two differences: partitions never return to an earlier owner who does not
want their topic any more; and step 3 ends after `ROUNDS_MAX` rounds that did not improve the
balance, where Kafka would go on for ever.

Two members should not swap partitions of one topic: when a partition is about to return the way on
which another one of its topic came, that other one is sent back instead. Source:
`PartitionMovements` in `AbstractStickyAssignor.java`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from coordlib.core.groups.assignors.model import (
    Layout,
    Member,
    PartitionSet,
    java_order,
    string_hash,
)
from coordlib.core.groups.assignors.ownership import Ownership
from coordlib.core.groups.assignors.racks import Loads, RackInfo, spread

Move = tuple[int, int]  # from member, to member


class Movements:
    """Members are numbers, partitions places of the layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._hashes = [string_hash(topic) for topic in layout.topics]
        #: Place -> from whom it came at first, and who has it now.
        self._move_of: dict[int, Move] = {}
        #: Number of topic -> way -> partitions that went it.
        self._moved: dict[int, dict[Move, PartitionSet]] = {}

    def instead_of(self, place: int, old: int, new: int) -> int:
        """Which place should go to `new` so that `place` need not."""
        number = self._layout.topic_at[place]
        moves = self._moved.get(number)
        if not moves:
            return place
        origin = self._move_of[place][0] if place in self._move_of else old
        back = moves.get((new, origin))
        if back is None:
            return place
        return self._layout.start[self._layout.topics[number]] + back.first()

    def record(self, place: int, old: int, new: int) -> None:
        """A place went from `old` to `new`; one that came home has not moved at all."""
        origin = self._forget(place) if place in self._move_of else old
        if origin == new:
            return
        number, move = self._layout.topic_at[place], (origin, new)
        self._move_of[place] = move
        moves = self._moved.setdefault(number, {})
        if move not in moves:
            moves[move] = PartitionSet(self._hashes[number])
        moves[move].add(self._layout.partition(place))

    def _forget(self, place: int) -> int:
        """Forget how a place came; answer where it was at first."""
        move = self._move_of.pop(place)
        moves = self._moved[self._layout.topic_at[place]]
        moves[move].remove(self._layout.partition(place))
        if not moves[move]:
            del moves[move]
        return move[0]


ROUNDS_MAX: Final = 16
FREE: Final = -1

_PlacesByTopic = Sequence[tuple[str, Sequence[int]]]


class General:
    """One assignment. After `run`, `given()` has the outcome."""

    def __init__(
        self,
        members: Mapping[str, Member],
        layout: Layout,
        before: Ownership,
        racks: RackInfo | None,
    ) -> None:
        self._layout, self._before, self._racks = layout, before, racks
        self._names = sorted(members, key=java_order)
        self._number = {name: number for number, name in enumerate(self._names)}
        # A topic that a member names twice counts twice, as in Kafka.
        self._topics = [
            [topic for topic in members[name].topics if topic in layout.start]
            for name in self._names
        ]
        self._wanted = [frozenset(topics) for topics in self._topics]
        self._wanting = dict.fromkeys(layout.topics, 0)
        for topics in self._topics:
            for topic in topics:
                self._wanting[topic] += 1
        #: Place -> number of its member, or FREE.
        self._owner = [FREE] * layout.total
        self._movements = Movements(layout)
        #: A member could not keep all that it owned.
        self._has_revoked = False

    def given(self) -> dict[str, list[int]]:
        """Member -> its places."""
        given: list[list[int]] = [[] for _ in self._names]
        for place, number in enumerate(self._owner):
            given[number].append(place)
        return dict(zip(self._names, given, strict=True))

    def run(self) -> None:
        """Divide all partitions."""
        loads = self._keep()
        is_first = not any(loads)
        racks = [self._racks.rack_of.get(name) if self._racks else None for name in self._names]
        self._loads = Loads(self._topics, racks, loads)
        order = sorted(self._layout.topics, key=lambda t: (self._wanting[t], java_order(t)))
        free = [
            (topic, [at for at in self._layout.places(topic) if self._owner[at] == FREE])
            for topic in order
        ]
        self._fill(free)
        taking_part = self._taking_part()
        owner, loads = list(self._owner), list(self._loads.of)
        if not self._has_revoked:
            self._balance([row for row in free if self._wanting[row[0]] > 1])
        has_moved = self._balance(
            [(topic, self._layout.places(topic)) for topic in order if self._wanting[topic] > 1]
        )
        if has_moved and not is_first:
            now = spread([self._loads.of[number] for number in taking_part])
            if now >= spread([loads[number] for number in taking_part]):
                self._owner = owner

    def _keep(self) -> list[int]:
        """Leave members what they owned, and answer how many that is for each."""
        loads = [0] * len(self._names)
        for name, owned in self._before.owned.items():
            number = self._number[name]
            for place in owned:
                topic = self._layout.topics[self._layout.topic_at[place]]
                is_far = self._racks is not None and self._racks.mismatch(name, place)
                if is_far or topic not in self._wanted[number]:
                    self._has_revoked = True
                else:
                    self._owner[place] = number
                    loads[number] += 1
        return loads

    def _fill(self, free: _PlacesByTopic) -> None:
        """Give free partitions away: in a first round, where racks matter, to near members only."""
        if self._racks is not None:
            for topic, places in free:
                for place in places:
                    near = self._loads.least_near(topic, self._racks.racks[place])
                    if near is not None:
                        self._give(place, near)
        for topic, places in free:
            for place in places:
                if self._owner[place] == FREE:
                    self._give(place, self._loads.least(topic))

    def _give(self, place: int, number: int) -> None:
        self._owner[place] = number
        self._loads.add(number, 1)

    def _taking_part(self) -> list[int]:
        """Members who lack something, or have partitions that others want too."""
        sharing = set()
        for place, number in enumerate(self._owner):
            if self._wanting[self._layout.topics[self._layout.topic_at[place]]] > 1:
                sharing.add(number)
        return [
            number
            for number, load in enumerate(self._loads.of)
            if load < self._most(number) or number in sharing
        ]

    def _most(self, number: int) -> int:
        topics = self._topics[number]
        if len(topics) == len(self._layout.topics):
            return self._layout.total
        return sum(self._layout.count(topic) for topic in topics)

    def _balance(self, rows: _PlacesByTopic) -> bool:
        """Go through these partitions again and again until none moves; whether any did."""
        has_moved, rounds, best = False, 0, _squares(self._loads.of)
        while rounds < ROUNDS_MAX and self._balance_once(rows):
            has_moved = True
            now = _squares(self._loads.of)
            rounds, best = (0, now) if now < best else (rounds + 1, best)
        return has_moved

    def _balance_once(self, rows: _PlacesByTopic) -> bool:
        loads, owner, has_moved = self._loads.of, self._owner, False
        for topic, places in rows:
            enough = loads[self._loads.least(topic)] + 1
            for place in places:
                if loads[owner[place]] > enough:
                    self._improve(topic, place)
                    has_moved = True
                    enough = loads[self._loads.least(topic)] + 1
        return has_moved

    def _improve(self, topic: str, place: int) -> None:
        """Its member has at least two more than another who wants it: it goes there."""
        old, new = self._owner[place], self._loads.least(topic)
        earlier = self._before.earlier.get(place)
        if earlier is not None:
            number = self._number[earlier]
            if topic in self._wanted[number] and self._loads.of[old] > self._loads.of[number] + 1:
                new = number
        place = self._movements.instead_of(place, old, new)
        old = self._owner[place]
        self._movements.record(place, old, new)
        self._owner[place] = new
        self._loads.add(old, -1)
        self._loads.add(new, 1)


def _squares(loads: Sequence[int]) -> int:
    """What falls with every partition that goes from a member to one with two or more fewer."""
    return sum(load * load for load in loads)
