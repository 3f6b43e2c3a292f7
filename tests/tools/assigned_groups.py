"""Server-assigned groups that have come so far, and what their members write.

talk = settled()                     a and b share t/0 to t/3
talk.send(let_go("a", 2, A, cause=2))
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import UNSET

from coordlib.core.groups.assigned.group import Group, Member, Partitions
from coordlib.core.groups.assignors.server_model import Strategy
from coordlib.core.wire import api
from tests.tools.core import ShardSettings
from tests.tools.driving import SETTINGS, Conversation, leave, settings

#: The members of the groups below, in the order in which they subscribe.
A, B, C = "a-t-0-1", "b-t-0-3", "c-t-0-6"


# -- requests, with what rarely matters left out ---------------------------------------------


def subscribe(client: str, id: str = "j1", **fields: Any) -> api.Subscribe:
    """A Subscribe to the topic t, unless other topics or a pattern are named."""
    if "pattern" not in fields:
        fields.setdefault("topics", ("t",))
    defaults = {"group": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000}
    return api.Subscribe(v=1, id=id, client=client, **{**defaults, **fields})


def let_go(
    client: str, generation: int, member: str, cause: int, id: str = "r", **fields: Any
) -> api.Release:
    fields.setdefault("group", "g")
    return api.Release(
        v=1, id=id, client=client, generation=generation, member=member, cause=cause, **fields
    )


def topic_id(number: int) -> str:
    """An id as Kafka gives to topics."""
    return f"{number:022d}"


def topics(counts: Mapping[str, int], ids: Any = UNSET, **fields: Any) -> api.TopicMetadata:
    """What the driver tells: topics by partition count; others in the range do not exist.

    Args:
        ids: of all of them, by name.
    """
    told = dict.fromkeys(counts, UNSET) if ids is UNSET else ids
    rows = tuple(api.Topic(name, counts[name], told[name]) for name in sorted(counts))
    return api.TopicMetadata(v=1, topics=rows, **fields)


# -- groups that have come so far ------------------------------------------------------------


def told(how: ShardSettings = SETTINGS, **counts: int) -> Conversation:
    """No group; the topic t has four partitions."""
    talk = Conversation(how)
    talk.send(topics(counts or {"t": 4}))
    return talk


def empty(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 2 has no members: a was alone, and left."""
    talk = told(how)
    talk.send(subscribe("a"))
    talk.tick()
    talk.send(leave("a", A))
    talk.tick()
    return talk


def halved(how: ShardSettings = SETTINGS) -> Conversation:
    """a has all; b has subscribed (record 3), and a is asked for two partitions."""
    talk = told(how)
    talk.send(subscribe("a"))
    talk.tick()
    talk.send(subscribe("b"))
    return talk


def stable(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 2: a has t/0 and t/1, b has t/2 and t/3; a tick has covered all of it."""
    talk = halved(how)
    talk.send(let_go("a", 2, A, cause=3))
    talk.tick()
    return talk


def reconciling(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 3: c has subscribed (record 6); one of the others must let go, and knows."""
    talk = stable(how)
    talk.send(subscribe("c"))
    talk.tick()
    return talk


def guarded(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 3: an operator removed b, who had half, and may be at it still; a waits for it."""
    talk = stable(how)
    talk.send(leave("ops", B))
    talk.tick()
    return talk


def deserted(how: ShardSettings = SETTINGS) -> Conversation:
    """As `guarded`, and a has left: nobody is in the group, and one is waited for."""
    talk = guarded(how)
    talk.send(leave("a", A))
    talk.tick()
    return talk


#: How a group gets into each state; two of them are Reconciling for reasons of their own.
STATES: dict[str, Callable[[], Conversation]] = {
    "absent": told,
    "Empty": empty,
    "Stable": stable,
    "Reconciling": reconciling,
    "guarded": guarded,
    "deserted": deserted,
}


def group_of(talk: Conversation, name: str = "g") -> Group:
    """The hard state of a server-assigned group. Raises LookupError when there is none."""
    group: Any = talk.group(name)
    if not isinstance(group, Group):
        raise LookupError(name)
    return group


def owned_in(talk: Conversation, name: str = "g") -> dict[str, Partitions]:
    """What each member owns, by client."""
    return {m.client: m.owned for m in group_of(talk, name).members.values()}


def answer_demands(talk: Conversation, member: Member) -> None:
    """Let go of all that this member is asked for, as it does when it has read of it."""
    generation = group_of(talk).generation
    for demand in member.demands:
        talk.send(let_go(member.client, generation, member.member, demand.timer.cause))


def with_strategies(**own: Strategy) -> ShardSettings:
    """The settings of tests, with strategies of a user's."""
    return settings(strategies=own)


def shown(group: Group) -> Iterator[str]:
    """A server-assigned group: who owns what, and what is on its way."""
    yield f"group {group.group} {group.state.value} generation={group.generation}"
    for member in group.members.values():
        asked = f" must let go of {_places(member.asked_back)}" if member.demands else ""
        yield f"member {member.member} owns {_places(member.owned) or 'nothing'}{asked}"
    for name, guard in group.guards.items():
        yield f"guard {name} of {_places(guard.partitions)}"


def _places(partitions: Partitions) -> str:
    return " ".join(f"{topic}/{each}" for topic, some in partitions.items() for each in some)
