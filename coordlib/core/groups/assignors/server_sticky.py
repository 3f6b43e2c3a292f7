"""As balanced as can be, and then as few partitions moved as can be: the default.

With equal subscriptions an assignment is balanced if everybody has the floor or the ceiling of its
ideal share of all partitions together, which is in proportion to its capacity. Of all balanced
assignments this is one that takes away the fewest partitions from members that have them: who has
more than its floor is the first to get the ceiling; the rest of them go by largest remainder, then
to who joined first. Then everybody keeps as many as it is due, the lowest by number.

So with equal capacities a member that joins takes from the others and no other gains, and if one
leaves, only its partitions move. With weights that holds as far as balance allows: a member's ideal
share may rise beyond the next whole number when another member comes or goes.

With different subscriptions see `different`.
"""

from collections.abc import Mapping

from coordlib.core.groups.assignors import different
from coordlib.core.groups.assignors.holdings import Holdings
from coordlib.core.groups.assignors.quotas import quotas
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.core.groups.assignors.terms import alike

NAME = "sticky"


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    wanting = alike(members)
    if wanting is None:
        return different.assign(members, partitions)
    given: Shares = {member: {} for member in members}
    if wanting:
        given |= _divide(Holdings(wanting, partitions), [m.capacity for m in wanting.values()])
    return given


def _divide(holdings: Holdings, capacities: list[int]) -> Shares:
    due = quotas(holdings.total, capacities, holdings.loads)
    for number, load in enumerate(holdings.loads):
        if load > due[number]:
            _take_highest(holdings, number, load - due[number])
    free = ((topic, each) for topic in holdings.topics for each in holdings.free(topic))
    # Around the members that are short, so that none gets a whole topic where there are many.
    short = [number for number, load in enumerate(holdings.loads) if load < due[number]]
    while short:
        for number in short:
            holdings.give(number, *next(free))
        short = [number for number in short if holdings.loads[number] < due[number]]
    return holdings.shares()


def _take_highest(holdings: Holdings, number: int, count: int) -> None:
    """Free a member's last partitions by number, of whatever topic: not all of one topic."""
    for _, topic in reversed(holdings.places(number)[-count:]):
        holdings.take(number, topic)
