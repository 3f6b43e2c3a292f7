"""Which groups read a topic, by what their members have asked for.

Members of classic groups name their topics, as Kafka's consumers do. Members of server-assigned
groups name topics and expressions; the coordinator resolves those. The topic itself is not looked
at: a group may wait for one that does not exist yet.
"""

from collections.abc import Collection

from coordlib.cli.group_view import SeenGroup, SeenMember
from coordlib.records import consumer_protocol as cp
from coordlib.records.patterns import BadPattern, compile_pattern, resolve


def wants(group: SeenGroup, topic: str, own: Collection[str] = ()) -> bool:
    """Whether a member has asked for this topic.

    Args:
        own: the coordinator's own topics, which no expression matches.
    """
    members = group.members.values()
    if group.kind == "assigned":
        return any(_names(member, topic) or _matches(member, topic, own) for member in members)
    return group.protocol_type == cp.CONSUMER and any(_told(member, topic) for member in members)


def _names(member: SeenMember, topic: str) -> bool:
    return topic in member.topics


def _matches(member: SeenMember, topic: str, own: Collection[str]) -> bool:
    if member.pattern is None or topic in own:
        return False
    try:
        exclude = None if member.exclude is None else compile_pattern(member.exclude)
        return bool(resolve(compile_pattern(member.pattern), exclude, (topic,)))
    except BadPattern:  # the coordinator has another RE2
        return False


def _told(member: SeenMember, topic: str) -> bool:
    """Whether a subscription names it; one that cannot be read names nothing."""
    for offered in member.protocols:
        try:
            if topic in cp.decode_subscription(offered.metadata).topics:
                return True
        except cp.Unreadable:
            continue
    return False
