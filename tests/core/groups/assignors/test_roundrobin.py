"""The circle of turns, where capacities differ."""

from fractions import Fraction

from hypothesis import given

from coordlib.core.groups.assignors import server_range as roundrobin
from tests.core.groups.assignors.groups import FEW, Drawn, Partition, groups, owners, subscribers


def by_the_book(drawn: Drawn) -> dict[Partition, str]:
    """Turn by turn in exact fractions, as the module's docstring tells it."""
    given_: dict[Partition, str] = {}
    last = (Fraction(-1), "")
    wanted = {topic for member in drawn.members.values() for topic in member.topics}
    for topic in sorted(wanted):
        for partition in range(drawn.partitions[topic]):
            turns = []
            for name, member in drawn.members.items():
                if topic in member.topics:
                    turn = max(0, int(last[0] * member.capacity) - 1)
                    while (place := Fraction(2 * turn + 1, 2 * member.capacity), name) <= last:
                        turn += 1
                    turns.append((place, name))
            last = min(turns)
            given_[topic, partition] = last[1]
    return given_


@given(drawn=groups(with_shares=False))
@FEW
def test_partitions_are_dealt_turn_by_turn(drawn: Drawn) -> None:
    """Floats, heaps and circles that are counted anew must not change whose turn it is."""
    shares = roundrobin.assign_roundrobin(drawn.members, drawn.partitions)

    assert owners(shares) == by_the_book(drawn)


def test_turns_of_the_larger_one_lie_between_those_of_the_others() -> None:
    """Not all at once: neighbouring partitions are often busy together."""
    members = subscribers({"big": ("t",), "m": ("t",)}, {"big": 3})

    shares = roundrobin.assign_roundrobin(members, {"t": 8})

    assert shares == {"big": {"t": (0, 1, 3, 4, 5, 7)}, "m": {"t": (2, 6)}}
