"""A member comes back under its own id and names no generation: it has lost it, or was silent.

A static member does so when nobody polled it for its rebalance timeout, any member after
ILLEGAL_GENERATION, and one whose id was announced (KIP-394) when it joins. It holds nothing then,
so this is consent; but the same record may come a second time, late, when it works again.
"""

from collections.abc import Callable

import pytest

from coordlib.core.groups.classic.group import State
from tests.core.engine.refusals import JUDGED_BEFORE, refused
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SHARES,
    Conversation,
    heartbeat,
    join,
    settings,
    settled,
    sync,
)
from tests.tools.static_groups import guarded
from tests.tools.static_groups import stable as static_stable

NEWCOMER = "c-t-0-11"


def static_settled() -> Conversation:
    talk = static_stable()
    talk.tick()
    return talk


GROUPS = pytest.mark.parametrize(
    ("make", "instance"), [(settled, None), (static_settled, "k")], ids=["dynamic", "static"]
)


@GROUPS
def test_a_follower_gets_its_share_again(
    make: Callable[[], Conversation], instance: str | None
) -> None:
    """It was silent and is back before its session ended: nobody else has noticed anything."""
    talk = make()
    back = join("b", "j9", member=FOLLOWER, instance=instance)

    assert talk.send(back) == [
        "answer b#j9 JoinGroup generation=2 protocol_type=demo protocol=range "
        "leader=a-t-0-0 member=b-t-0-3"
    ]
    assert talk.send(sync("b", 2, FOLLOWER, "s9", instance=instance)) == [
        "answer b#s9 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=6"
    ]
    talk.tick()
    assert talk.send(heartbeat("b", 2, FOLLOWER, instance=instance)) == []
    assert [m.assignment for m in talk.group().members.values()] == [b"p0", b"p1"]


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_leader_divides_anew(instance: str | None) -> None:
    """It does not know any more what it divided."""
    talk = static_settled() if instance else settled()
    talk.send(join("a", "j9", member=LEADER, instance=instance))
    assert talk.group().state is State.PREPARING_REBALANCE

    other = "k" if instance else None
    talk.send(join("b", "j9", member=FOLLOWER, generation=2, instance=other))
    assert (talk.group().state, talk.group().generation) == (State.COMPLETING_REBALANCE, 3)


def test_it_does_not_stay_away_when_the_group_went_on_without_it() -> None:
    """Static members that do not rejoin stay in the group: this one's share is that of the newest
    assignment, whatever it had before it was silent."""
    talk = static_settled()
    talk.send(join("c"))
    talk.send(join("a", "j9", member=LEADER, generation=2, instance="i"))
    talk.tick()
    for _ in range(11):
        talk.send(heartbeat("b", 2, FOLLOWER, instance="k"), after_ms=1_900)
    assert talk.group().generation == 3
    shares = {LEADER: b"p1", FOLLOWER: b"p0", list(talk.group().members)[2]: b""}
    talk.send(sync("a", 3, LEADER, assignments=shares))

    talk.send(join("b", "j9", member=FOLLOWER, instance="k"))
    assert "assignment=p0 " in talk.send(sync("b", 3, FOLLOWER, instance="k"))[0]
    assert sorted(m.assignment for m in talk.group().members.values()) == [b"", b"p0", b"p1"]


def test_one_that_was_replaced_meanwhile_is_fenced() -> None:
    """Somebody started another process under its instance id while it was silent."""
    talk = guarded()
    before = talk.group()

    assert talk.send(join("b", "j9", member=FOLLOWER, instance="k")) == refused(
        "answer b#j9 JoinGroup FENCED_INSTANCE_ID member=b-t-0-3",
        cause=f"r0-{talk.next_offset - 1}",
    )
    assert talk.group() == before


@GROUPS
def test_its_late_duplicate_is_no_consent(
    make: Callable[[], Conversation], instance: str | None
) -> None:
    """Rule 12. It came back and works again; c joins, and b still works on p1 when its own earlier
    JoinGroup arrives a second time. Were that b's consent, c would get p1 too early."""
    talk = make()
    back = join("b", "j9", member=FOLLOWER, instance=instance)
    talk.send_all(back, sync("b", 2, FOLLOWER, "s9", instance=instance))
    talk.tick()
    talk.send(join("c"))
    before = talk.group()

    assert talk.send(back) == refused(
        "answer b#j9 JoinGroup REBALANCE_IN_PROGRESS member=b-t-0-3",
        reason=JUDGED_BEFORE,
        cause=f"r0-{talk.next_offset - 1}",
    )
    assert talk.group() == before
    talk.send(join("a", "j8", member=LEADER, generation=2, instance="i" if instance else None))
    assert talk.group().state is State.PREPARING_REBALANCE
    rejoin = join("b", "j10", member=FOLLOWER, generation=2, instance=instance)
    assert "GenerationStarted generation=3" in talk.send(rejoin)[-1]


def test_the_late_duplicate_of_an_announced_join_is_no_consent() -> None:
    """KIP-394: its JoinGroup with the announced id names no generation either."""
    talk = Conversation(settings(requires_member_id=True, initial_rebalance_delay_ms=0))
    talk.send_all(join("a", "a1"), join("a", "a2", member=LEADER))
    talk.send(sync("a", 1, LEADER, assignments={LEADER: b"p0"}))
    talk.tick()
    talk.send_all(join("c", "c1"), join("c", "c2", member="c-t-0-4"))
    before = talk.group()

    assert talk.send(join("a", "a2", member=LEADER)) == refused(
        "answer a#a2 JoinGroup REBALANCE_IN_PROGRESS member=a-t-0-0",
        generation=1,
        cause="r0-6",
        reason=JUDGED_BEFORE,
    )
    assert talk.group() == before


@GROUPS
def test_the_same_record_twice_in_a_row_is_one_rejoin(
    make: Callable[[], Conversation], instance: str | None
) -> None:
    """Its producer wrote it twice, as it could not know about the first: both are answered while
    nothing else happened, and parked it is answered once."""
    talk = make()
    back = join("b", "j9", member=FOLLOWER, instance=instance)
    assert talk.send(back)[0].partition(" ")[2] == talk.send(back)[0].partition(" ")[2]

    talk.send(join("c"))
    again = join("b", "j10", member=FOLLOWER, instance=instance)
    assert talk.send_all(again, again) == []
    lines = talk.send(
        join("a", "j8", member=LEADER, generation=2, instance="i" if instance else None)
    )
    assert [line.split()[1] for line in lines] == ["a#j8", "b#j10", "c#j1", "GenerationStarted"]


def test_another_rejoin_without_a_generation_is_a_new_one() -> None:
    """It was silent twice: the second time it is under another id."""
    talk = settled()
    talk.send(join("b", "j9", member=FOLLOWER))
    talk.send(sync("b", 2, FOLLOWER, assignments=SHARES))
    talk.send(join("c"))

    assert talk.send(join("b", "j10", member=FOLLOWER)) == []
    assert talk.group().members[FOLLOWER].is_joining
