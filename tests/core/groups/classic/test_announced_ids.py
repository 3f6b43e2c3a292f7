"""Announced ids (KIP-394): what they hold up, for how long, and how many there may be."""

from coordlib.core.groups.classic.group import State
from tests.core.engine.refusals import refused
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    Conversation,
    heartbeat,
    join,
    leave,
    settings,
    stable,
)


def announcing(talk: Conversation, **bounds: int) -> Conversation:
    talk.use(settings(requires_member_id=True, **bounds))
    return talk


def rejoin_all(talk: Conversation) -> list[str]:
    return talk.send_all(
        join("a", "j9", member=LEADER, generation=2), join("b", "j9", member=FOLLOWER, generation=2)
    )


def test_a_join_phase_waits_for_an_announced_id() -> None:
    """testJoinGroupCompletionWhenPendingMemberJoins: it was told an id and is about to come."""
    talk = announcing(stable())
    talk.send_all(join("x", "x1"), join("y", "y1"), join("y", "y2", member="y-t-0-9"))

    assert rejoin_all(talk) == []
    assert [line.split()[1] for line in talk.send(join("x", "x2", member="x-t-0-8"))] == [
        "MemberJoined",
        "a#j9",
        "b#j9",
        "y#y2",
        "x#x2",
        "GenerationStarted",
    ]


def test_its_time_begins_when_it_could_hear_its_id() -> None:
    """Rule 3: a job that is slow to publish must not forget whom it has just told an id."""
    talk = announcing(stable())
    talk.tick()
    talk.send(join("x", "x1"))
    for _ in range(8):
        talk.send_all(heartbeat("a", 2, LEADER), heartbeat("b", 2, FOLLOWER))
        talk.wait(2_000)

    assert list(talk.group().pending) == ["x-t-0-9"]
    talk.tick()
    for _ in range(5):
        talk.send_all(heartbeat("a", 2, LEADER), heartbeat("b", 2, FOLLOWER))
        talk.wait(2_000)
    assert talk.group().pending == {}
    assert talk.group().state is State.STABLE


def test_one_that_never_joins_does_not_cut_the_initial_delay_short() -> None:
    """Other than in Kafka, where the expiry of an announced id ends it: more may be about to come,
    and the delay is short."""
    talk = announcing(Conversation(), initial_rebalance_delay_ms=15_000)
    talk.send_all(join("x", "x1"), join("y", "y1"), join("y", "y2", member="y-t-0-1"))
    talk.tick()
    talk.wait(12_000)

    assert talk.group().pending == {}
    assert talk.group().state is State.PREPARING_REBALANCE
    talk.wait(4_000)
    assert talk.group().state is State.COMPLETING_REBALANCE


def test_a_repeat_has_its_full_time_again() -> None:
    """The answer to the first was lost; this one it must be able to hear too."""
    talk = announcing(stable())
    talk.tick()
    talk.send(join("x", "x1"))
    talk.tick()
    talk.send(join("x", "x1"), after_ms=1_000)

    assert [a.timer.due_ms for a in talk.group().pending.values()] == [None]
    assert talk.shard.status().owed == talk.next_offset - 1


def test_a_late_duplicate_of_the_announcing_join_announces_nobody() -> None:
    """Rule 12: x is a member by now; a second id would hold up the next join phase."""
    talk = announcing(Conversation())
    talk.send_all(join("x", "x1"), join("x", "x2", member="x-t-0-0"))

    assert talk.send(join("x", "x1")) == [
        "answer x#x1 JoinGroup generation=1 protocol_type=demo protocol=range "
        "leader=x-t-0-0 member=x-t-0-0 members=[x-t-0-0:m]"
    ]
    assert talk.group().pending == {}


def test_an_announced_id_stays_after_a_bad_offer() -> None:
    """testJoinGroupSecondJoinInconsistentProtocol: a client that fixes its offer need not ask for
    another id."""
    talk = announcing(Conversation())
    talk.send(join("x", "x1"))

    assert talk.send(join("x", "x2", member="x-t-0-0", protocols={})) == refused(
        "answer x#x2 JoinGroup INCONSISTENT_GROUP_PROTOCOL member=x-t-0-0",
        generation=0,
        cause="r0-1",
    )
    assert talk.send(join("x", "x3", member="x-t-0-0"))[2].startswith(
        "answer x#x3 JoinGroup generation=1 "
    )


def test_one_that_finds_the_group_full_holds_up_nobody() -> None:
    """Trap 2: ids are announced to a group that is full when they join. Then nobody waits."""
    talk = announcing(stable(), max_size=3)
    talk.send_all(join("x", "x1"), join("y", "y1"), join("y", "y2", member="y-t-0-9"))
    rejoin_all(talk)

    lines = talk.send(join("x", "x2", member="x-t-0-8"))

    assert lines[:2] == refused(
        "answer x#x2 JoinGroup GROUP_MAX_SIZE_REACHED member=x-t-0-8", cause="r0-13"
    )
    assert [line.split()[1] for line in lines[2:]] == ["a#j9", "b#j9", "y#y2", "GenerationStarted"]


def test_a_leave_frees_the_join_phase() -> None:
    """testPendingMembersLeavesGroup: the process was closed before it joined."""
    talk = announcing(stable())
    talk.send_all(join("x", "x1"), join("y", "y1"), join("y", "y2", member="y-t-0-9"))
    rejoin_all(talk)

    assert [line.split()[1] for line in talk.send(leave("x", "x-t-0-8"))] == [
        "x#l",
        "a#j9",
        "b#j9",
        "y#y2",
        "GenerationStarted",
    ]


def test_announced_and_member_leave_in_one_batch() -> None:
    """testJoinedMemberPendingMemberBatchLeaveGroup: one rebalance, for the member's sake."""
    talk = announcing(stable())
    talk.send(join("x", "x1"))

    assert talk.send(leave("b", "x-t-0-8", FOLLOWER, "nobody")) == [
        "event MemberRemoved generation=2 member=b-t-0-3 cause=r0-9 reason=left client=b",
        "notify MemberRemoved member=b-t-0-3 reason=left",
        "assign b-t-0-3 gone",
        "answer b#l LeaveGroup members=[(member=x-t-0-8 error=NONE), "
        "(member=b-t-0-3 error=NONE), (member=nobody error=UNKNOWN_MEMBER_ID)]",
        'event RebalanceStarted generation=2 cause=r0-9 reason="member left" client=b',
        "notify RebalanceInProgress generation=2",
    ]


def test_announced_ids_are_bounded() -> None:
    """A client that takes ids and never joins must not make a group too large to write."""
    talk = announcing(Conversation(), max_size=3)
    for number in range(3):
        talk.send(join("x", f"x{number}"))

    assert talk.send(join("x", "x9")) == refused(
        "answer x#x9 JoinGroup GROUP_MAX_SIZE_REACHED", generation=0, cause="r0-3"
    )
    assert talk.send(join("x", "x1")) == ["answer x#x1 JoinGroup MEMBER_ID_REQUIRED member=x-t-0-1"]


def test_a_static_member_is_not_announced() -> None:
    """Its instance id already keeps a retry from making a second member."""
    talk = announcing(Conversation())
    talk.send(join("x", "x1", instance="i"))

    assert list(talk.group().members) == ["x-t-0-0"]
