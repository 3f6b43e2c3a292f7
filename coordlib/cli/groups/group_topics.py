"""Which groups read a topic, by what their members have asked for.

Members of classic groups name their topics, as Kafka's consumers do. Members of server-assigned
groups name topics and expressions; the coordinator resolves those. The topic itself is not looked
at: a group may wait for one that does not exist yet.
"""

from collections.abc import Collection

from coordlib.cli.groups.view import SeenGroup
from coordlib.core.groups.assigned.group import Group as AssignedGroup
from coordlib.core.groups.assigned.group import Member as AssignedMember
from coordlib.core.groups.classic.group import Group as ClassicGroup
from coordlib.core.groups.classic.group import Member as ClassicMember
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.topics import BadPattern, compile_pattern, resolve


def wants(group: SeenGroup, topic: str, own: Collection[str] = ()) -> bool:
    """Whether a member has asked for this topic. Of a group that cannot be read: no.

    Args:
        own: the coordinator's own topics, which no expression matches.
    """
    match group.value:
        case AssignedGroup(members=members):
            return any(topic in m.topics or _matches(m, topic, own) for m in members.values())
        case ClassicGroup(members=members, protocol_type=cp.CONSUMER):
            return any(_subscribes(member, topic) for member in members.values())
        case _:
            return False


def _matches(member: AssignedMember, topic: str, own: Collection[str]) -> bool:
    if member.pattern is None or topic in own:
        return False
    try:
        exclude = None if member.exclude is None else compile_pattern(member.exclude)
        return bool(resolve(compile_pattern(member.pattern), exclude, (topic,)))
    except BadPattern:  # the coordinator has another RE2
        return False


def _subscribes(member: ClassicMember, topic: str) -> bool:
    """Whether a subscription names it; one that cannot be read names nothing."""
    for offered in member.protocols:
        try:
            if topic in cp.decode_subscription(offered.metadata).topics:
                return True
        except cp.Unreadable:
            continue
    return False
