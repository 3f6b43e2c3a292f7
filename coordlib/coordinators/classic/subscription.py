"""Which topics a group's members want: those whose offsets must neither be deleted nor expire."""

from coordlib.coordinators.classic.group import Group
from coordlib.records import consumer_protocol as cp


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members; none for other kinds of groups, whose bytes are their own.

    None: it cannot be known, because a consumer's metadata cannot be read or no protocol has been
    chosen yet. Then every topic counts as subscribed, as in Kafka: an offset that was kept in vain
    costs nothing.
    """
    if group.protocol_type != cp.CONSUMER or not group.members:
        return frozenset()
    try:
        return frozenset(
            topic
            for member in group.members.values()
            for topic in cp.decode_topics(member.metadata_for(group.protocol))
        )
    except cp.Unreadable:
        return None


def is_subscribed(topics: frozenset[str] | None, topic: str) -> bool:
    """Whether a topic is among the subscribed ones, or may be."""
    return topics is None or topic in topics
