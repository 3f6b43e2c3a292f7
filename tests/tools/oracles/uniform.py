"""The broker's uniform assignor (KIP-848's default): balanced first, sticky second.

The strategy of that name divides equal subscriptions with the same `divide_alike`, by capacities.

What members own is their target assignment, not what they hold at the moment. With equal
subscriptions P partitions and M members give everybody P div M, and the first P mod M members one
more: who owns more than that loses the rest by topic and number, and who has less is filled up in
turn. Kafka visits members and topics in the order of hash maps, which for topic ids says nothing;
here both go by name. Different subscriptions: see `uniform_different`. Source:
`UniformAssignor.java`, `UniformHomogeneousAssignmentBuilder.java` as of version 4.0.
"""

from collections.abc import Mapping, Sequence

from coordlib.core.groups.assignors.model import Assignments, Member, java_order
from coordlib.core.groups.assignors.server_sticky import Targets, divide_alike
from tests.tools.oracles import uniform_different
from tests.tools.oracles.server_range import refuse_unknown


def assign(
    members: Mapping[str, Member],
    partitions: Mapping[str, int],
    topic_order: Sequence[str] | None = None,
) -> Assignments:
    """Divide the partitions of all topics.

    Args:
        members: member id -> its subscription; `owned` is its share of the last target.
        partitions: topic -> number of partitions.
        topic_order: names all topics in the order in which they are given away; None: by name.

    Raises:
        NotAssignable: a member wants a topic that is not in `partitions`.
    """
    wanted = [frozenset(member.topics) for member in members.values()]
    if any(topics != wanted[0] for topics in wanted):
        return uniform_different.assign(members, partitions)
    refuse_unknown(members, partitions)
    if not members:
        return {}
    targets = Targets(members, partitions)
    if topic_order is None:
        topic_order = sorted(wanted[0], key=java_order)
    topic_order = [topic for topic in topic_order if topic in wanted[0]]
    total = sum(partitions[topic] for topic in topic_order)
    each, extra = divmod(total, len(members))
    return divide_alike(targets, topic_order, [each + (n < extra) for n in range(len(members))])
