"""Balanced totals first, what members have second, as the broker's uniform assignor (KIP-848).

Weights: with equal subscriptions everybody is due the floor or the ceiling of its ideal share of
all partitions together; who has the larger one is settled by largest remainder and then by id, and
not by what anybody has. So the sizes follow from the members alone, and partitions move for it:
that is the difference to `sticky`. Within its size everybody keeps what it had. With equal
capacities this is Kafka's division. With different subscriptions no sizes can be told beforehand,
and members are divided as `different` says. Source: `UniformAssignor.java`.
"""

from collections.abc import Mapping

from coordlib.coordinators.groups.dividing.assignors import uniform
from coordlib.coordinators.groups.dividing.assignors.model import topics_in_order
from coordlib.coordinators.groups.dividing.assignors.targets import Targets
from coordlib.coordinators.groups.dividing.strategies import different
from coordlib.coordinators.groups.dividing.strategies.model import Shares, Subscriber
from coordlib.coordinators.groups.dividing.strategies.quotas import quotas
from coordlib.coordinators.groups.dividing.strategies.terms import alike, in_assignors_terms

NAME = uniform.NAME


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
        given |= uniform.divide_alike(targets, topics, due)
    return given
