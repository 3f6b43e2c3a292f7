"""How many partitions each member is due: largest remainder, in whole numbers throughout.

A member's ideal share is `count * capacity / capacities of all`. Everybody gets the floor of it;
what is left goes, one each, to those with a remainder. So everybody has the floor or the ceiling of
its ideal share, and with equal capacities no member has two more than another.
"""

from collections.abc import Sequence


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
