"""Each rule of the fence, with the race that it closes. S = 8 s, RT = 12 s, so margin = 2 s."""

import pytest

from coordlib.client.kit.fence import Fence, Stop, margin_of


def working(at_ms: int = 0) -> Fence:
    """A member whose SyncGroup was answered at once, and who has just read everything."""
    fence = Fence(session_ms=8_000, rebalance_ms=12_000)
    fence.read_to_end(at_ms, asked_ms=at_ms)
    fence.start(at_ms, sign_ms=at_ms)
    return fence


@pytest.mark.parametrize(
    ("session_ms", "rebalance_ms", "margin_ms"),
    [
        (45_000, 300_000, 11_250),
        (6_000, 300_000, 1_500),
        (45_000, 6_000, 1_500),
        (2_000, 900, 1_000),
    ],
)
def test_margin_is_a_quarter_of_the_shorter_timeout_and_a_second_at_least(
    session_ms: int, rebalance_ms: int, margin_ms: int
) -> None:
    assert margin_of(session_ms, rebalance_ms) == margin_ms


def test_one_who_was_given_nothing_may_not_work() -> None:
    fence = Fence(8_000, 12_000)
    fence.read_to_end(0, asked_ms=0)
    fence.acknowledged(1, produced_ms=0, offset=5)

    assert not fence.may_work(2)
    assert fence.stopped_by(2) is None


def test_rule_8_stops_when_the_newest_acknowledged_heartbeat_is_too_old() -> None:
    """The coordinator hears nothing since then; at S it gives the partitions to somebody else."""
    fence = working()
    fence.acknowledged(3_100, produced_ms=3_000, offset=7)
    fence.read_to_end(5_000, asked_ms=5_000)

    assert fence.may_work(9_000)
    assert not fence.may_work(9_001)
    assert fence.stopped_by(9_001) is Stop.NO_SIGN_OF_LIFE


def test_rule_8_counts_from_produce_and_not_from_the_acknowledgement() -> None:
    """A broker may take a record and let its producer wait; the log's time is the earlier one."""
    fence = working()
    fence.acknowledged(5_900, produced_ms=1_000, offset=7)
    fence.read_to_end(5_900, asked_ms=5_900)

    assert fence.may_work(7_000)
    assert not fence.may_work(7_001)


def test_rule_9_stops_when_the_responses_stay_unread() -> None:
    """Heartbeats are taken, but the question to let go cannot be heard."""
    fence = working()
    for second in range(3, 12, 3):
        fence.acknowledged(second * 1_000, produced_ms=second * 1_000, offset=second)

    assert fence.may_work(10_000)
    assert fence.may_heartbeat(10_000)
    assert not fence.may_work(10_001)
    assert not fence.may_heartbeat(10_001)
    assert fence.stopped_by(10_001) is Stop.UNREAD


def test_rule_9_counts_from_the_asking_for_the_end() -> None:
    """What was written after the asking may be unread, however long the reading took."""
    fence = working()
    fence.read_to_end(8_000, asked_ms=1_000)
    fence.acknowledged(9_000, produced_ms=6_000, offset=7)

    assert fence.may_heartbeat(11_000)
    assert not fence.may_heartbeat(11_001)


def kept_alive(fence: Fence, from_ms: int, to_ms: int) -> None:
    for now_ms in range(from_ms, to_ms + 1, 1_000):
        fence.acknowledged(now_ms, produced_ms=now_ms, offset=now_ms)
        fence.read_to_end(now_ms, asked_ms=now_ms)


def test_rule_10_a_notice_is_not_renewed_by_reading_on() -> None:
    """The user's thread hangs in a slow handler while the background thread reads happily."""
    fence = working()
    kept_alive(fence, 1_000, 4_000)
    fence.demanded(4_500)
    kept_alive(fence, 5_000, 13_000)

    assert fence.may_work(14_000)
    kept_alive(fence, 14_000, 14_000)
    assert not fence.may_work(14_001)
    assert fence.stopped_by(14_001) is Stop.NO_REACTION


def test_rule_10_a_second_notice_buys_no_time() -> None:
    """Every heartbeat during a rebalance is answered with the same demand again."""
    fence = working()
    fence.demanded(100)
    kept_alive(fence, 1_000, 9_000)
    fence.demanded(9_500)
    kept_alive(fence, 10_000, 10_000)

    assert fence.may_work(10_000)
    assert not fence.may_work(10_001)


def test_rule_10_an_acknowledged_reaction_ends_the_demand() -> None:
    fence = working()
    fence.demanded(100)
    fence.reacted(10_000 - 1)

    kept_alive(fence, 5_000, 12_000)
    assert fence.stopped_by(12_000) is Stop.NO_SIGN_OF_LIFE  # The row broke: no sign until 9,999.


def test_rule_11_a_late_acknowledgement_revives_nothing() -> None:
    """The machine slept for a minute; its last heartbeat's acknowledgement waits in a socket."""
    fence = working()
    fence.acknowledged(60_000, produced_ms=2_000, offset=7)
    fence.acknowledged(60_010, produced_ms=60_005, offset=8)

    assert not fence.may_work(60_020)


def stopped() -> Fence:
    fence = working()
    assert not fence.may_work(20_000)
    return fence


def test_rule_11_works_again_after_a_judged_heartbeat_and_a_complete_reading() -> None:
    """Kafka was away for 20 s and the group is unchanged: no rebalance is needed."""
    fence = stopped()
    fence.read_to_end(20_500, asked_ms=20_400)
    fence.acknowledged(21_100, produced_ms=21_000, offset=40)
    fence.progressed(21_500, offset=40)
    assert not fence.may_work(21_600)

    fence.read_to_end(21_800, asked_ms=21_700)

    assert fence.may_work(21_800)
    assert fence.may_work(27_000)
    assert not fence.may_work(27_001)


@pytest.mark.parametrize(
    ("produced_ms", "judged_to", "asked_ms"),
    [(19_999, 40, 22_000), (21_000, 39, 22_000), (21_000, 40, 21_499)],
    ids=["heartbeat before the stop", "not judged yet", "read before it was judged"],
)
def test_rule_11_stays_stopped_while_one_thing_is_missing(
    produced_ms: int, judged_to: int, asked_ms: int
) -> None:
    fence = stopped()
    fence.acknowledged(21_100, produced_ms=produced_ms, offset=40)
    fence.progressed(21_500, offset=judged_to)
    fence.read_to_end(22_000, asked_ms=asked_ms)

    assert not fence.may_work(22_000)


def test_rule_11_a_broken_row_begins_anew() -> None:
    """A judged heartbeat is no news any more when the next one came a session later."""
    fence = stopped()
    fence.acknowledged(21_100, produced_ms=21_000, offset=40)
    fence.progressed(21_500, offset=40)
    fence.acknowledged(30_000, produced_ms=30_000, offset=50)
    fence.read_to_end(30_100, asked_ms=30_050)

    assert not fence.may_work(30_100)


def test_rule_11_an_owed_reaction_keeps_it_stopped() -> None:
    fence = working()
    fence.demanded(100)
    assert not fence.may_work(20_000)
    fence.acknowledged(21_100, produced_ms=21_000, offset=40)
    fence.progressed(21_500, offset=40)
    fence.read_to_end(22_000, asked_ms=21_900)
    assert not fence.may_work(22_000)

    fence.reacted(22_100)
    fence.read_to_end(22_200, asked_ms=22_150)

    assert fence.may_work(22_200)


def test_nothing_that_comes_late_hides_a_stop_that_nobody_looked_at() -> None:
    """No thread ran between the stop and the news: the first method called latches it."""
    fence = working()
    fence.read_to_end(30_000, asked_ms=30_000)

    assert fence.stopped_by(30_000) is Stop.NO_SIGN_OF_LIFE


def joining(at_ms: int = 1_000) -> Fence:
    """It keeps what it owns and has sent its JoinGroup."""
    fence = working()
    fence.acknowledged(at_ms, produced_ms=at_ms, offset=1)
    fence.read_to_end(at_ms, asked_ms=at_ms)
    fence.joining(at_ms)
    return fence


def test_joining_heartbeats_alone_prove_too_little() -> None:
    """The answer may be out: then the coordinator refuses heartbeats of the old generation, and the
    session runs from the moment when the answer could first be read."""
    fence = joining()
    for second in range(2, 8):
        fence.acknowledged(second * 1_000, produced_ms=second * 1_000, offset=second)

    assert fence.may_work(7_000)
    assert not fence.may_work(7_001)
    assert fence.stopped_by(7_001) is Stop.JOIN_UNHEARD


def test_joining_a_complete_reading_without_an_answer_proves_enough() -> None:
    """A slow member holds the others up for longer than their sessions."""
    fence = joining()
    kept_alive(fence, 2_000, 60_000)

    assert fence.may_work(60_000)


def test_joining_rule_8_holds_too() -> None:
    """The JoinGroup may not be in the log yet, so nobody is parked."""
    fence = joining()
    for second in range(2, 8):
        fence.read_to_end(second * 1_000, asked_ms=second * 1_000)

    assert fence.may_work(7_000)
    assert fence.stopped_by(7_001) is Stop.NO_SIGN_OF_LIFE


def test_an_answered_join_makes_old_heartbeats_worthless() -> None:
    """Deaf for five seconds, then the answer, and cut off at once: the session began when the
    answer was written, not at the last heartbeat that was acknowledged."""
    fence = joining()
    for second in range(2, 7):
        fence.acknowledged(second * 1_000, produced_ms=second * 1_000, offset=second)
    fence.join_answered(6_500)
    fence.read_to_end(6_500, asked_ms=6_400)

    assert fence.may_work(7_000)
    assert fence.stopped_by(7_001) is Stop.NO_SIGN_OF_LIFE


def test_an_answered_join_demands_the_sync_within_the_rebalance_timeout() -> None:
    """A leader whose assignor hangs heartbeats happily, and is dropped by the sync timer."""
    fence = joining()
    kept_alive(fence, 2_000, 3_000)
    fence.join_answered(3_500)
    kept_alive(fence, 4_000, 13_000)

    assert fence.may_work(13_000)
    assert fence.stopped_by(13_001) is Stop.NO_REACTION


def test_between_a_join_and_its_assignment_nothing_revives_but_the_assignment() -> None:
    fence = joining()
    assert not fence.may_work(20_000)
    fence.read_to_end(20_500, asked_ms=20_400)
    fence.acknowledged(21_100, produced_ms=21_000, offset=40)
    fence.progressed(21_500, offset=40)
    fence.read_to_end(21_800, asked_ms=21_700)
    assert not fence.may_work(21_800)

    fence.start(22_000, sign_ms=21_900)
    assert fence.may_work(22_000)


def test_who_holds_nothing_has_nothing_to_guard_while_it_joins() -> None:
    fence = Fence(8_000, 12_000)
    fence.read_to_end(0, asked_ms=0)
    fence.joining(0)

    assert fence.stopped_by(60_000) is None


def test_rule_10_of_several_demands_the_earliest_counts() -> None:
    """A third member joins while the user still lets go of what the second one is to get."""
    fence = working()
    fence.demanded(100, cause=40)
    kept_alive(fence, 1_000, 4_000)
    fence.demanded(4_500, cause=44)
    kept_alive(fence, 5_000, 10_000)

    assert fence.may_work(10_000)
    assert not fence.may_work(10_001)
    assert fence.stopped_by(10_001) is Stop.NO_REACTION


def test_rule_10_a_reaction_ends_its_own_demand_only() -> None:
    """The quick one is done, the slow one is not: that one's date stands."""
    fence = working()
    fence.demanded(100, cause=40)
    kept_alive(fence, 1_000, 4_000)
    fence.demanded(4_500, cause=44)
    fence.reacted(4_600, cause=40)
    kept_alive(fence, 5_000, 14_000)

    assert fence.may_work(14_000)
    assert not fence.may_work(14_001)


def test_rule_10_a_reaction_that_was_refused_buys_no_time() -> None:
    """The group was quarantined for a moment: the coordinator still waits for what it asked."""
    fence = working()
    fence.demanded(100, cause=40)
    due_ms = fence.reacted(200, cause=40)
    kept_alive(fence, 1_000, 9_000)
    assert due_ms == 10_000
    fence.not_accepted(9_500, 40, due_ms)
    kept_alive(fence, 10_000, 10_000)

    assert fence.may_work(10_000)
    assert not fence.may_work(10_001)


def test_rule_11_nothing_revives_while_one_of_several_demands_is_open() -> None:
    """It comes back with two demands, and has let go of what one of them asks for."""
    fence = working()
    fence.demanded(100, cause=40)
    fence.demanded(100, cause=44)
    assert not fence.may_work(10_500)
    fence.acknowledged(10_600, produced_ms=10_600, offset=50)
    fence.reacted(10_700, cause=40)
    fence.progressed(10_800, offset=50)
    fence.read_to_end(10_900, asked_ms=10_850)
    assert not fence.may_work(10_900)

    fence.reacted(11_000, cause=44)
    fence.read_to_end(11_100, asked_ms=11_050)

    assert fence.may_work(11_100)
