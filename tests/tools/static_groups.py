"""Static members (KIP-345) in every state of a group.

a leads under the instance id "i", b follows under "k". In Guarded, d has taken b's place, and
waits until b's own fence has stopped it; a has not noticed.
"""

from collections.abc import Callable

from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SHARES,
    Conversation,
    empty,
    join,
    sync,
)


def completing() -> Conversation:
    talk = Conversation()
    talk.send_all(join("a", instance="i"), sync("a", 1, LEADER))
    talk.tick()
    rejoin = join("a", "j2", member=LEADER, generation=1, instance="i")
    talk.send_all(join("b", instance="k"), rejoin)
    talk.tick()
    return talk


def stable() -> Conversation:
    talk = completing()
    talk.send_all(sync("a", 2, LEADER, assignments=SHARES), sync("b", 2, FOLLOWER))
    return talk


def preparing() -> Conversation:
    talk = stable()
    talk.send(join("c"))
    talk.tick()
    return talk


def guarded() -> Conversation:
    talk = stable()
    talk.tick()
    talk.send(join("d", "d1", instance="k"))
    talk.tick()
    return talk


STATES: dict[str, Callable[[], Conversation]] = {
    "absent": Conversation,
    "Empty": empty,
    "Preparing": preparing,
    "Completing": completing,
    "Stable": stable,
    "Guarded": guarded,
}
