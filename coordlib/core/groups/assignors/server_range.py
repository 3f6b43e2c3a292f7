"""The strategies `range` and `roundrobin` of server-assigned groups, with weights.

Range: every topic for itself, consecutive partitions per member, as Kafka's range assignor.
Members stand by id. Weights: a topic's partitions are divided among those who want it by largest
remainder of their ideal shares, ties by id; then each gets so many consecutive ones. With equal
capacities this is Kafka's division: the first P mod M members have one more. Topics with equal
partition counts and the same members are co-partitioned: partition i of each goes to one member.
Nothing is kept on purpose: what members had does not matter. Source: `RangeAssignor.java`.

Round-robin: all partitions are dealt around one circle of members, as by Kafka's assignor.
Topics by name, partitions by number. Weights: a member has as many turns in the circle as it has
capacity, spread evenly: its turn j of c stands at (2 j + 1) / (2 c) of the way around, and turns at
one place go by member id. So a member with double the capacity is dealt about two for each of the
others', and none waits for a whole circle. Members that do not want a topic are skipped, and the
next topic is dealt on from where the last one ended. With equal capacities this is Kafka's circle.
Nothing is kept on purpose: what members had does not matter. Source: `RoundRobinAssignor.java`.

Places are floats, and yet exact: two turns at different places differ by far more than rounding,
as capacities and a group's partitions are at most a million; those at one place are equal,
since a quotient of two whole numbers is rounded correctly.
"""

from collections.abc import Mapping
from heapq import heapify, heapreplace
from typing import Final

from coordlib.core.groups.assignors.model import in_member_order
from coordlib.core.groups.assignors.range_roundrobin import takers_of
from coordlib.core.groups.assignors.server_model import (
    Shares,
    Subscriber,
    in_assignors_terms,
    quotas,
)

NAME = "range"


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    given: Shares = {member: {} for member in members}
    # Most topics are like the one before: as many partitions, and the same members.
    due: list[int] = []
    before: tuple[int, list[str]] = (0, [])
    for topic, takers in takers_of(in_assignors_terms(members), partitions).items():
        if (case := (count := partitions[topic], takers)) != before:
            due = quotas(count, [members[member].capacity for member in takers])
            before = case
        first = 0
        for member, size in zip(takers, due, strict=True):
            if first == count:
                break
            if size:
                given[member][topic] = tuple(range(first, first + size))
            first += size
    return given


ROUNDROBIN = "roundrobin"


#: Its place on the way around, the member's number, which turn of its own this is, its capacity.
#: Turns are taken in this order.
_Turn = tuple[float, int, int, int]
#: Before all turns.
_START: Final[_Turn] = (0.0, -1, -1, 1)


def assign_roundrobin(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    known = in_assignors_terms(members)
    circle = in_member_order(known)
    number = {member: at for at, member in enumerate(circle)}
    dealt: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    last, turns = _START, list[_Turn]()
    before: list[str] = []
    for topic, takers in takers_of(known, partitions).items():
        if takers is not before:  # else the same ones, in one list, go on with their next turns
            if before:  # circles are all alike: counted within one, numbers stay small
                last = _turn(last[1], last[2] % last[3], last[3])
            turns = [_first_after(last, number[each], members[each].capacity) for each in takers]
            heapify(turns)
            before = takers
        for partition in range(partitions[topic]):
            last = turns[0]
            _, member, turn, capacity = last
            dealt[circle[member]].setdefault(topic, []).append(partition)
            heapreplace(turns, _turn(member, turn + 1, capacity))
    return {
        member: {topic: tuple(some) for topic, some in rows.items()}
        for member, rows in dealt.items()
    }


def _turn(member: int, turn: int, capacity: int) -> _Turn:
    return (2 * turn + 1) / (2 * capacity), member, turn, capacity


def _first_after(last: _Turn, member: int, capacity: int) -> _Turn:
    """A member's first turn after the one that was taken last."""
    place, last_member, last_turn, last_capacity = last
    # The first one at the same place or later: (2 t + 1) / (2 c) >= (2 t' + 1) / (2 c').
    behind = (2 * last_turn + 1) * capacity - last_capacity
    found = _turn(member, max(0, -(-behind // (2 * last_capacity))), capacity)
    is_taken = found[:2] <= (place, last_member)
    return _turn(member, found[2] + 1, capacity) if is_taken else found
