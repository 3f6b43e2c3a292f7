"""Groups in each state to which an id is announced (KIP-394): x has its id and has not joined."""

from collections.abc import Callable, Mapping

from tests.tools import driving
from tests.tools.driving import Conversation, join, settings


def _announced(before: Callable[[], Conversation]) -> Conversation:
    talk = before()
    talk.use(settings(requires_member_id=True))
    talk.send(join("x", "x1"))
    talk.tick()
    return talk


def _after(before: Callable[[], Conversation]) -> Callable[[], Conversation]:
    return lambda: _announced(before)


STATES: Mapping[str, Callable[[], Conversation]] = {
    state: _after(before) for state, before in driving.STATES.items()
}


def names(talk: Conversation) -> Mapping[str, str]:
    """The id of x."""
    (member_id,) = talk.group().pending
    return {"ANNOUNCED": member_id}
