"""Time is in the log: time-and-fencing.md, rules 1 to 3."""

from collections.abc import Callable

import pytest

from coordlib import limits
from coordlib.core.engine import fold
from coordlib.core.wire import api
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    NEWCOMER,
    SHARES,
    START_MS,
    Conversation,
    commit,
    completing,
    empty,
    heartbeat,
    join,
    leave,
    preparing,
    settings,
    settled,
    stable,
    sync,
)

LATER = "c-t-0-9"  # who joins a settled group next
CAP_MS = 2_000  # a fifth of the 10 s session of these members


# -- rule 1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("previous_ms", "timestamp_ms", "expected"),
    [(100, 100, 50), (100, 107, 57), (100, 99, 50), (100, 900, 70), (100, -1, 50)],
)
def test_the_clock_moves_by_the_clipped_step(
    previous_ms: int, timestamp_ms: int, expected: int
) -> None:
    """INV-06. A broker's clock jumps, or another broker's clock takes over."""
    assert fold.advance(50, previous_ms, timestamp_ms, cap_ms=20) == expected


def test_the_first_record_sets_the_clock() -> None:
    """A new shard has no step to take: it begins with the time that the log gives it."""
    talk = Conversation()
    talk.tick()

    assert talk.shard.clock_ms == START_MS


def test_without_members_the_cap_is_ten_minutes() -> None:
    """Nobody can be judged too early, but offsets shall expire some day."""
    assert empty().shard.status().cap_ms == limits.CLOCK_CAP_IDLE_MS


def test_the_cap_is_a_fifth_of_the_shortest_timeout_of_any_member() -> None:
    """Session or rebalance timeout, parked members included: all may be waiting on this clock."""
    talk = settled()
    assert talk.shard.status().cap_ms == CAP_MS

    talk.send(join("c", session_timeout_ms=45_000, rebalance_timeout_ms=6_000))
    assert talk.shard.status().cap_ms == 1_200

    talk.send(leave("c", LATER))
    assert talk.shard.status().cap_ms == CAP_MS


def test_an_hour_of_outage_costs_one_cap() -> None:
    """The log was silent because the broker was down: nobody could have heartbeaten."""
    talk = settled()
    before_ms = talk.shard.clock_ms

    lines = talk.send(heartbeat("b", 2, FOLLOWER), after_ms=3_600_000)

    assert lines == []
    assert talk.shard.clock_ms == before_ms + CAP_MS


def test_time_that_went_back_is_not_counted_twice() -> None:
    """The next step counts from the newest record, also when its time went back."""
    talk = settled()
    before_ms = talk.shard.clock_ms

    talk.tick(after_ms=-60_000)
    talk.tick(after_ms=500)

    assert talk.shard.clock_ms == before_ms + 500


def test_positions_of_non_members_do_not_move_the_clock() -> None:
    """They have no fixed place among the requests: which comes first depends on the cut."""
    talk = settled()
    before_ms = talk.shard.clock_ms

    talk.send(commit("tool", group="other"), after_ms=5_000, topic="o")

    assert talk.shard.clock_ms == before_ms


# -- rule 2 ----------------------------------------------------------------------------------


def test_what_is_due_happens_before_the_record_is_judged() -> None:
    """INV-33. A heartbeat that comes after its session ran out comes too late."""
    talk = settled()
    for _ in range(4):
        talk.send(heartbeat("a", 2, LEADER), after_ms=2_000)

    lines = talk.send(heartbeat("b", 2, FOLLOWER), after_ms=2_000)

    assert lines == [
        "event MemberRemoved generation=2 member=b-t-0-3 cause=deadline:session:b-t-0-3 "
        'reason="session expired" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="session expired"',
        "assign b-t-0-3 gone",
        "event RebalanceStarted generation=2 cause=deadline:session:b-t-0-3 "
        'reason="session expired" member=b-t-0-3 client=b',
        "notify RebalanceInProgress generation=2",
        "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
    ]


def test_a_heartbeat_a_millisecond_early_keeps_the_member() -> None:
    """INV-30. Gaps below the session timeout never expel anybody."""
    talk = settled()
    for _ in range(4):
        talk.send(heartbeat("a", 2, LEADER), after_ms=2_000)

    assert talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_999) == []
    assert talk.send(heartbeat("a", 2, LEADER), after_ms=1) == []


def test_deadlines_of_several_groups_fire_by_time_then_by_name() -> None:
    """One late record makes many due at once; their order must not depend on memory."""
    talk = Conversation()
    for group, session_ms in (("z", 10_000), ("m", 10_000), ("k", 10_500)):
        talk.send(join("a", group=group, session_timeout_ms=session_ms))
    talk.tick()

    lines = talk.wait(12_000)

    assert [line for line in lines if "MemberRemoved" in line and "event" in line] == [
        "event[m] MemberRemoved generation=1 member=a-t-0-1 cause=deadline:session:a-t-0-1 "
        'reason="session expired" client=a',
        "event[z] MemberRemoved generation=1 member=a-t-0-0 cause=deadline:session:a-t-0-0 "
        'reason="session expired" client=a',
        "event[k] MemberRemoved generation=1 member=a-t-0-2 cause=deadline:session:a-t-0-2 "
        'reason="session expired" client=a',
    ]


def test_a_deadline_that_is_set_while_others_fire_counts_from_the_clock() -> None:
    """The initial delay ends late by a step; its extension must not end at the same record."""
    talk = Conversation(settings(initial_rebalance_delay_ms=1_000))
    talk.send(join("a"))
    talk.send(join("b"), after_ms=500)

    assert talk.tick(after_ms=1_900) == []  # due at 1,000, fires at 2,400, extended to 3,400
    assert talk.tick(after_ms=900) == []
    assert talk.tick(after_ms=100) != []


# -- rule 3 ----------------------------------------------------------------------------------


def test_a_rejoin_is_not_awaited_before_it_could_be_heard_of() -> None:
    """The job wrote RebalanceInProgress, and was away before anybody could read it."""
    talk = settled()
    talk.send(join("c"))
    for _ in range(30):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
        talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_000)

    assert list(talk.group().members) == [LEADER, FOLLOWER, LATER]
    assert talk.shard.status().owed == 9


def test_a_rejoin_that_was_heard_of_is_awaited_for_the_rebalance_timeout() -> None:
    """b heartbeats but never joins again: after 20 s the others go on without it."""
    talk = preparing()
    talk.send(join("a", "j3", member=LEADER, generation=2))
    for _ in range(19):
        assert talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_000) == [
            "answer b#h Heartbeat REBALANCE_IN_PROGRESS"
        ]

    lines = talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_000)

    assert lines == [
        "event MemberRemoved generation=2 member=b-t-0-3 cause=deadline:join "
        'reason="did not rejoin in time" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="did not rejoin in time"',
        "assign b-t-0-3 gone",
        "answer a#j3 JoinGroup generation=3 protocol_type=demo protocol=range leader=a-t-0-0 "
        "member=a-t-0-0 members=[a-t-0-0:m, c-t-0-8:m]",
        "answer c#j1 JoinGroup generation=3 protocol_type=demo protocol=range leader=a-t-0-0 "
        "member=c-t-0-8",
        'event GenerationStarted generation=3 cause=deadline:join reason="member joined" '
        "protocol_type=demo protocol=range leader=a-t-0-0 members=[a-t-0-0, c-t-0-8] "
        "duration_ms=20000",
        "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
    ]


def test_a_leader_that_does_not_rejoin_loses_its_place() -> None:
    """The leader is stuck in its callback; the first who has joined leads."""
    talk = preparing()
    talk.send(join("b", "j3", member=FOLLOWER, generation=2))
    for _ in range(20):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)

    assert talk.group().leader == FOLLOWER
    assert list(talk.group().members) == [FOLLOWER, NEWCOMER]


def test_a_session_starts_with_the_tick_that_covers_the_answer() -> None:
    """Members that were answered by a job that then was away cannot heartbeat yet."""
    talk = Conversation()
    talk.send(join("a"))

    assert talk.wait(60_000) == []
    assert talk.tick() == []
    assert talk.wait(9_000) == []
    assert talk.wait(1_000) == [
        "event MemberRemoved generation=1 member=a-t-0-0 cause=deadline:session:a-t-0-0 "
        'reason="session expired" client=a',
        'notify MemberRemoved member=a-t-0-0 reason="session expired"',
        "assign a-t-0-0 gone",
        "event RebalanceStarted generation=1 cause=deadline:session:a-t-0-0 "
        'reason="session expired" member=a-t-0-0 client=a',
        'event GroupEmptied generation=2 cause=deadline:session:a-t-0-0 reason="session expired"',
    ]


def test_a_tick_that_covers_less_starts_nothing() -> None:
    """Markers of a transaction reach partitions one by one: committed is not yet visible."""
    talk = completing()
    talk.send(sync("a", 2, LEADER, assignments=SHARES))
    at = talk.next_offset - 1

    talk.tick(published=at - 1)
    assert talk.group().members[LEADER].awaits_cover == at
    talk.tick(published=at)
    assert talk.group().members[LEADER].awaits_cover is None


def test_a_tick_cannot_cover_itself_or_the_future() -> None:
    """Anybody who can write the topic can write a Tick."""
    talk = Conversation()
    talk.send(join("a"))
    talk.tick(published=10**18)

    assert talk.shard.published == 0
    talk.send(join("a", "j2", group="h"))
    assert talk.shard.status().owed == 2


def test_an_answer_to_who_asks_again_is_awaited_too() -> None:
    """A follower asks for its generation again, and waits; others' heartbeats move the clock
    through an outage of the job that answers it."""
    talk = settled()
    talk.send(join("b", "j9", member=FOLLOWER, generation=2))
    for _ in range(20):
        assert talk.send(heartbeat("a", 2, LEADER), after_ms=1_000) == []

    talk.tick()
    for _ in range(9):
        assert talk.send(heartbeat("a", 2, LEADER), after_ms=1_000) == []
    assert talk.send(heartbeat("a", 2, LEADER), after_ms=1_000) != []


def test_a_parked_sync_that_is_dropped_gives_a_new_session() -> None:
    """b waits for the leader and does not heartbeat; c's join ends the wait."""
    talk = completing()
    talk.send(sync("b", 2, FOLLOWER))
    for _ in range(12):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
    talk.send(join("c"))

    assert talk.group().members[FOLLOWER].awaits_cover == talk.next_offset - 1
    talk.tick()
    for _ in range(9):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
    assert FOLLOWER in talk.group().members
    talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
    assert FOLLOWER not in talk.group().members


# -- who never answers -----------------------------------------------------------------------


def test_a_newcomer_that_waits_in_vain_is_dropped_after_five_minutes() -> None:
    """KAFKA-7610: its client died while it was parked; its place must not be kept for ever."""
    long = {"rebalance_timeout_ms": 1_800_000, "session_timeout_ms": 600_000}
    talk = Conversation()
    talk.send(join("a", **long))
    talk.send(sync("a", 1, LEADER))
    talk.tick()
    talk.send(join("b", **long))
    talk.tick()

    assert talk.wait(299_000) == []
    assert talk.wait(1_000) == [
        "answer b#j1 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3",
        "event MemberRemoved generation=1 member=b-t-0-3 cause=deadline:newcomer:b-t-0-3 "
        'reason="never answered while joining" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="never answered while joining"',
        "assign b-t-0-3 gone",
    ]


def test_a_job_that_was_away_drops_no_newcomer() -> None:
    """It waits since the outage began, and nobody could have answered it."""
    talk = settled()
    talk.send(join("c"))
    for _ in range(400):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)
        talk.send(heartbeat("b", 2, FOLLOWER))

    assert LATER in talk.group().members


def test_followers_that_never_sync_are_dropped() -> None:
    """KAFKA-9752: b heartbeats, but its application hangs before it asks for its share."""
    talk = completing()
    talk.send(sync("a", 2, LEADER, assignments=SHARES))
    talk.tick()
    for _ in range(19):
        talk.send(heartbeat("a", 2, LEADER), after_ms=500)
        assert talk.send(heartbeat("b", 2, FOLLOWER), after_ms=500) == []
    talk.send(heartbeat("a", 2, LEADER), after_ms=500)

    lines = talk.send(heartbeat("b", 2, FOLLOWER), after_ms=500)

    assert lines == [
        "event MemberRemoved generation=2 member=b-t-0-3 cause=deadline:sync "
        'reason="did not sync in time" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="did not sync in time"',
        "assign b-t-0-3 gone",
        "event RebalanceStarted generation=2 cause=deadline:sync "
        'reason="member did not sync in time"',
        "notify RebalanceInProgress generation=2",
        "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
    ]


def test_a_leader_that_never_syncs_is_dropped() -> None:
    """INV-31: followers that wait for a dead assignment are told to start over."""
    talk = completing()
    talk.send(sync("b", 2, FOLLOWER))
    for _ in range(19):
        assert talk.send(heartbeat("a", 2, LEADER), after_ms=1_000) == []

    lines = talk.send(heartbeat("a", 2, LEADER), after_ms=1_000)

    assert lines == [
        "event MemberRemoved generation=2 member=a-t-0-0 cause=deadline:sync "
        'reason="did not sync in time" client=a',
        'notify MemberRemoved member=a-t-0-0 reason="did not sync in time"',
        "assign a-t-0-0 gone",
        "answer b#s1 SyncGroup REBALANCE_IN_PROGRESS",
        "event RebalanceStarted generation=2 cause=deadline:sync "
        'reason="member did not sync in time"',
        "notify RebalanceInProgress generation=2",
        "answer a#h Heartbeat UNKNOWN_MEMBER_ID",
    ]
    assert talk.group().leader == FOLLOWER


def test_once_all_have_synced_no_sync_timer_is_left() -> None:
    """testRebalanceDoesNotTimeOutWhenAllSyncAreReceived."""
    talk = settled()
    for _ in range(30):
        assert talk.send(heartbeat("a", 2, LEADER), after_ms=1_000) == []
        assert talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_000) == []

    assert talk.group().sync_timer is None


@pytest.mark.parametrize(
    ("make", "follows"), [(completing, FOLLOWER), (stable, FOLLOWER), (preparing, NEWCOMER)]
)
def test_a_leader_that_leaves_is_followed_by_who_has_joined_or_the_oldest(
    make: Callable[[], Conversation], follows: str
) -> None:
    """testLeaderFailureInSyncGroup, and in every other phase: who has joined again surely lives."""
    talk = make()
    talk.send(leave("a", LEADER))

    assert talk.group().leader == follows


def test_the_initial_delay_ends_at_the_rebalance_timeout_at_the_latest() -> None:
    """KIP-134, testDelayRebalanceUptoRebalanceTimeout: members keep coming."""
    talk = Conversation(settings(initial_rebalance_delay_ms=5_000))
    for number in range(10):
        talk.send(join(f"m{number}", rebalance_timeout_ms=10_000), after_ms=1_000)
    assert talk.tick(after_ms=999) == []

    lines = talk.tick(after_ms=1)

    assert len(lines) == 11
    assert lines[-1].startswith("event GenerationStarted generation=1 cause=deadline:initial")


def test_an_expiry_ends_the_initial_delay_of_an_empty_house() -> None:
    """The only one who came has gone: nothing is left to wait for."""
    talk = Conversation(settings(initial_rebalance_delay_ms=600_000))
    long = {"rebalance_timeout_ms": 1_800_000, "session_timeout_ms": 600_000}
    talk.send(join("a", **long))
    talk.tick()
    talk.wait(300_000)

    assert talk.group().state == "Empty"


def test_an_unread_tick_is_no_request() -> None:
    """Ticks belong to the job: nobody is answered, and history does not fill with them."""
    talk = Conversation()

    assert talk.send(api.Tick(v=1, published=-1)) == []
