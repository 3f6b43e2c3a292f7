"""Balanced totals first, what members have second, as the broker's uniform assignor (KIP-848).

Weights: with equal subscriptions everybody is due the floor or the ceiling of its ideal share of
all partitions together; who has the larger one is settled by largest remainder and then by id, and
not by what anybody has. So the sizes follow from the members alone, and partitions move for it:
that is the difference to `sticky`. Within its size everybody keeps what it had. With equal
capacities this is Kafka's division. With different subscriptions no sizes can be told beforehand,
and members are divided as `different` says. Source: `UniformAssignor.java`.
"""

from collections.abc import Mapping, Sequence

from coordlib.core.groups.assignors import different
from coordlib.core.groups.assignors.model import Assignments, topics_in_order
from coordlib.core.groups.assignors.quotas import quotas
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.core.groups.assignors.targets import Targets
from coordlib.core.groups.assignors.terms import alike, in_assignors_terms

NAME = "uniform"


def assign(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Divide the partitions of all topics; `model` says what goes in and comes out."""
    wanting = alike(members)
    if wanting is None:
        return different.assign(members, partitions)
    given: Shares = {member: {} for member in members}
    if wanting:
        wanted = next(iter(wanting.values())).topics
        counts = {topic: partitions.get(topic, 0) for topic in wanted}
        topics, total = topics_in_order([wanted], counts), sum(counts.values())
        targets = Targets(in_assignors_terms(wanting), counts)
        due = quotas(total, [wanting[member].capacity for member in targets.order])
        given |= divide_alike(targets, topics, due)
    return given


def divide_alike(targets: Targets, topic_order: Sequence[str], due: Sequence[int]) -> Assignments:
    """Divide among members that want the same topics; `due`: how many each gets, by id."""
    free = [(topic, each) for topic in topic_order for each in targets.free(topic)]
    room: dict[str, int] = {}
    for member, quota in zip(targets.order, due, strict=True):
        for topic, owned in targets.owned[member].items():
            free += [(topic, partition) for partition in owned[quota:]]
            del owned[quota:]
            quota -= len(owned)
        room[member] = quota
    at = 0
    for member in targets.order:
        for topic, partition in free[at : at + room[member]]:
            targets.owned[member].setdefault(topic, []).append(partition)
        at += room[member]
    return targets.answer()
