"""Who comes back, who does not, and who dies meanwhile: what Kafka's suites tell of join phases."""

import pytest

from coordlib.core.groups.classic.group import State
from tests.tools import static_groups
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    NEWCOMER,
    SHARES,
    Conversation,
    commit,
    completing,
    heartbeat,
    join,
    leave,
    preparing,
    settings,
    settled,
    sync,
)

WHEN_ASKED = {"rebalance_timeout_ms": 6_000, "session_timeout_ms": 60_000}


# -- what a rejoin changes --------------------------------------------------------------------


def test_a_rejoin_changes_what_the_member_asks_for() -> None:
    """testUpdateMember: timeouts, too, are those of the newest JoinGroup."""
    talk = preparing()
    talk.send(
        join("b", "j3", member=FOLLOWER, generation=2, protocols={"range": b"2"}, **WHEN_ASKED)
    )

    member = talk.group().members[FOLLOWER]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (60_000, 6_000)
    assert member.metadata_for("range") == b"2"


def test_other_preferences_are_a_change() -> None:
    """testMatchesSupportedProtocols: the same offers in another order vote for another one."""
    both = {"range": b"m", "sticky": b"s"}
    talk = Conversation()
    talk.send_all(join("a", protocols=both), sync("a", 1, LEADER))
    talk.tick()
    talk.send(join("b", protocols=both))
    talk.send(join("a", "j2", member=LEADER, generation=1, protocols=both))
    talk.send_all(sync("a", 2, LEADER, assignments=SHARES), sync("b", 2, FOLLOWER))

    same = talk.send(join("b", "j8", member=FOLLOWER, generation=2, protocols=both))
    other = dict(reversed(both.items()))
    lines = talk.send(join("b", "j9", member=FOLLOWER, generation=2, protocols=other))

    assert [line.split()[:3] for line in same] == [["answer", "b#j8", "JoinGroup"]]
    assert lines[0].startswith('event RebalanceStarted generation=2 cause=r0-8 reason="metadata')


def test_a_static_restart_with_other_metadata_bothers_nobody() -> None:
    """…ChangeOfProtocolWhileSelectProtocolUnchanged, …WithUpdatedSessionAndRebalanceTimeouts…: a
    new release says more about itself. The next generation will know it; this one stays."""
    talk = static_groups.stable()
    talk.tick()

    lines = talk.send(
        join("d", instance="k", protocols={"range": b"more", "sticky": b"s"}, **WHEN_ASKED)
    )

    assert not any("RebalanceStarted" in line for line in lines)
    assert talk.group().state is State.STABLE
    (member,) = [m for m in talk.group().members.values() if m.instance == "k"]
    assert member.metadata_for("range") == b"more"
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (60_000, 6_000)
    assert member.assignment == b"p1"


def test_a_static_restart_while_others_begin_takes_its_own_place() -> None:
    """testJoinGroupReplaceStaticMember: twice within the initial delay. The older one is told, and
    one member stands in the first generation."""
    talk = Conversation(settings(initial_rebalance_delay_ms=3_000))
    talk.send(join("a", instance="i"))

    lines = talk.send(join("b", instance="i"), after_ms=1_000)
    for _ in range(4):
        lines += talk.tick(after_ms=1_000)

    assert lines[1] == "answer a#j1 JoinGroup FENCED_INSTANCE_ID member=a-t-0-0"
    assert list(talk.group().members) == ["b-t-0-1"]
    assert [line for line in lines if line.startswith("answer b#j1")] == [
        "answer b#j1 JoinGroup generation=1 protocol_type=demo protocol=range leader=b-t-0-1 "
        "member=b-t-0-1 members=[b-t-0-1:m]"
    ]


# -- who does not come back -------------------------------------------------------------------


def static_pair() -> Conversation:
    """a leads, b follows, both static, and patient with each other's silence."""
    talk = Conversation()
    talk.send_all(join("a", instance="i", **WHEN_ASKED), sync("a", 1, LEADER))
    talk.tick()
    rejoin = join("a", "j2", member=LEADER, generation=1, instance="i", **WHEN_ASKED)
    talk.send_all(join("b", instance="k", **WHEN_ASKED), rejoin)
    talk.send_all(sync("a", 2, LEADER, assignments=SHARES), sync("b", 2, FOLLOWER))
    talk.tick()
    return talk


def absent_follower() -> Conversation:
    """c has come and a has rejoined; b has not, and the rebalance timeout is over."""
    talk = static_pair()
    talk.send(join("c", **WHEN_ASKED))
    talk.send(join("a", "j3", member=LEADER, generation=2, instance="i", **WHEN_ASKED))
    talk.tick()
    talk.wait(6_000)
    return talk


def test_an_absent_static_follower_stays_and_has_its_share() -> None:
    """testStaticMemberFollowerFailToRejoinBeforeRebalanceTimeout: the leader assigns to it, and
    it fetches its share when it is back under its id."""
    talk = absent_follower()

    assert talk.group().state is State.COMPLETING_REBALANCE
    assert list(talk.group().members) == [LEADER, FOLLOWER, "c-t-0-8"]
    assert talk.group().leader == LEADER
    talk.send(sync("a", 3, LEADER, assignments=SHARES))
    assert talk.send(sync("b", 3, FOLLOWER, instance="k"))[0].startswith(
        "answer b#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 "
    )


def test_a_static_follower_that_stays_away_is_out_when_the_others_have_synced() -> None:
    """KAFKA-9752: an absent static member must not hold its partitions for a session that may be
    very long, when a rebalance timeout has shown that it does not come."""
    talk = absent_follower()
    talk.send_all(sync("a", 3, LEADER, assignments=SHARES), sync("c", 3, "c-t-0-8"))
    talk.tick()

    lines = talk.wait(6_000)

    assert lines[0] == (
        "event MemberRemoved generation=3 member=b-t-0-3 cause=deadline:sync "
        'reason="did not sync in time" client=b'
    )
    assert list(talk.group().members) == [LEADER, "c-t-0-8"]
    assert talk.group().state is State.PREPARING_REBALANCE


def test_the_session_of_an_absent_static_member_goes_on() -> None:
    """Other than in Kafka, where every generation starts it anew: b was last heard when it synced,
    and a dead host is found a session later, however often others rebalance."""
    talk = static_pair()
    heard_ms = talk.shard.clock_ms
    talk.send(join("c", **WHEN_ASKED))
    talk.send(join("a", "j3", member=LEADER, generation=2, instance="i", **WHEN_ASKED))
    talk.tick()
    talk.wait(6_000)
    talk.tick()

    assert talk.group().state is State.COMPLETING_REBALANCE
    assert talk.group().members[FOLLOWER].awaits_cover is None
    assert talk.shard.groups["g"].heard[FOLLOWER] == heard_ms


def test_a_leader_that_rejoins_in_time_leads_on() -> None:
    """testLeaderRejoinBeforeFinalRebalanceTimeoutWithLongSessionTimeout: also as the last."""
    talk = preparing()
    talk.send(join("b", "j3", member=FOLLOWER, generation=2))
    talk.wait(9_000)

    lines = talk.send(join("a", "j3", member=LEADER, generation=2))

    assert "GenerationStarted" in lines[-1]
    assert talk.group().leader == LEADER


# -- who dies meanwhile -----------------------------------------------------------------------


def test_a_member_that_dies_during_a_rebalance_is_not_waited_for() -> None:
    """testSessionTimeoutDuringRebalance: its session is shorter than the time to rejoin."""
    talk = preparing()
    talk.send(join("b", "j3", member=FOLLOWER, generation=2))

    lines = talk.wait(10_000)

    assert lines == [
        "event MemberRemoved generation=2 member=a-t-0-0 cause=deadline:session:a-t-0-0 "
        'reason="session expired" client=a',
        'notify MemberRemoved member=a-t-0-0 reason="session expired"',
        "assign a-t-0-0 gone",
        "answer b#j3 JoinGroup generation=3 protocol_type=demo protocol=range leader=b-t-0-3 "
        "member=b-t-0-3 members=[b-t-0-3:m, c-t-0-8:m]",
        "answer c#j1 JoinGroup generation=3 protocol_type=demo protocol=range leader=b-t-0-3 "
        "member=c-t-0-8",
        "event GenerationStarted generation=3 cause=deadline:session:a-t-0-0 "
        'reason="member joined" protocol_type=demo protocol=range leader=b-t-0-3 '
        "members=[b-t-0-3, c-t-0-8] duration_ms=10000",
    ]


def test_a_newcomer_that_dies_before_it_syncs_starts_the_group_over() -> None:
    """testNewMemberFailureAfterJoinGroupCompletion: it was answered, and then it crashed."""
    talk = completing()
    lines: list[str] = []
    for _ in range(10):
        lines += talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)

    assert lines == [
        "event MemberRemoved generation=2 member=b-t-0-3 cause=deadline:session:b-t-0-3 "
        'reason="session expired" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="session expired"',
        "assign b-t-0-3 gone",
        "event RebalanceStarted generation=2 cause=deadline:session:b-t-0-3 "
        'reason="session expired" member=b-t-0-3 client=b',
        "notify RebalanceInProgress generation=2",
        "answer a#h Heartbeat REBALANCE_IN_PROGRESS",
    ]


def test_when_nobody_syncs_the_group_empties() -> None:
    """testRebalanceTimesOutWhenSyncRequestIsNotReceived: heartbeats alone keep nobody in."""
    talk = completing()
    for _ in range(20):
        talk.send(heartbeat("a", 2, LEADER), after_ms=500)
        talk.send(heartbeat("b", 2, FOLLOWER), after_ms=500)

    assert talk.group().state is State.EMPTY
    assert (talk.group().generation, talk.group().members) == (3, {})


def test_a_commit_keeps_the_session() -> None:
    """testCommitMaintainsSession: who commits lives."""
    talk = settled()
    for _ in range(15):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
        talk.send(commit("b", 2, FOLLOWER))

    assert list(talk.group().members) == [LEADER, FOLLOWER]
    for _ in range(10):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
    assert list(talk.group().members) == [LEADER]


def test_a_commit_during_a_rebalance_keeps_the_session_too() -> None:
    """Trap 16: a member commits what it has finished, before it lets go."""
    talk = preparing()
    for _ in range(15):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
        assert talk.send(commit("b", 2, FOLLOWER))[1] == "answer b#c OffsetCommit"

    assert list(talk.group().members) == [LEADER, FOLLOWER, NEWCOMER]


def test_a_refused_commit_keeps_nobody() -> None:
    """Of an older generation, or while the newer one waits for its leader."""
    for talk, generation in ((settled(), 1), (completing(), 2)):
        for _ in range(10):
            talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
            talk.send(commit("b", generation, FOLLOWER))

        assert list(talk.group().members) == [LEADER]


# -- the initial delay ------------------------------------------------------------------------


@pytest.mark.parametrize("leaver", ["a-t-0-0", "b-t-0-1"])
def test_a_leave_does_not_cut_the_initial_delay_short(leaver: str) -> None:
    """Trap 6: all who are left have joined, but more may come."""
    talk = Conversation(settings(initial_rebalance_delay_ms=3_000))
    talk.send_all(join("a"), join("b"))
    talk.send(leave(leaver[0], leaver), after_ms=500)

    assert talk.group().state is State.PREPARING_REBALANCE
    talk.wait(6_000)
    assert talk.group().state is State.COMPLETING_REBALANCE
    assert len(talk.group().members) == 1


def test_a_group_whose_first_members_left_again_is_empty_after_the_delay() -> None:
    """A deployment that was taken back at once: nobody is left to be answered."""
    talk = Conversation(settings(initial_rebalance_delay_ms=3_000))
    talk.send_all(join("a"), leave("a", LEADER))

    assert talk.group().state is State.PREPARING_REBALANCE
    talk.wait(6_000)
    assert (talk.group().state, talk.group().generation) == (State.EMPTY, 1)
