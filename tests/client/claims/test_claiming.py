"""Consumers that claim, release and take over, over a coordination topic in memory."""

import threading

import pytest

from coordlib.client.claims.events import ClaimLost, ForeignToken, UnseenOffset
from coordlib.client.claims.options import ConsumerOptions
from coordlib.core.wire import claims
from coordlib.errors import CoordError, SetupError
from tests.client.claims.fake_claims import FakeClaimsLog
from tests.client.claims.world import (
    CLAIM,
    GROUP,
    HEARTBEAT,
    HI_MS,
    RELEASE,
    World,
    marshaler_of,
    t,
)

#: A dead owner's partition is claimed within this (design, section 6; reading takes no time here).
TAKEN_OVER_MS = 2 * HI_MS + HI_MS // 5 + HI_MS // 20 + 500


def test_one_partition_is_claimed_in_each_pass() -> None:
    """V15, V3: consumers that start together share; each pass takes one partition."""
    world = World()
    a, b = world.enter("a"), world.enter("b")
    world.run(4_000)

    assert sorted(a.claims + b.claims) == list(t(0, 1, 2, 3))
    assert a.claims
    assert b.claims


def test_v15_greedy_and_maximum_claims() -> None:
    world = World({"t": 3})
    greedy = world.enter("a", greedy_claims=True, maximum_claims=2)
    world.run(200)
    assert len(greedy.claims) == 2
    world.run(5_000)
    assert len(greedy.claims) == 2
    other = world.enter("b", greedy_claims=True)
    world.run(300)

    assert len(other.claims) == 1


@pytest.mark.parametrize("name", ["poll", "consume"])
def test_a_second_thread_that_polls_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was handed what the first one was about to return."""
    log = FakeClaimsLog({"t": 1})
    marshaler = marshaler_of(log)
    consumer = marshaler.consumer(["t"], ConsumerOptions())
    inside, go_on = threading.Event(), threading.Event()
    run_calls = consumer._member.run_calls

    def wait() -> None:
        if threading.current_thread() is other:
            inside.set()
            go_on.wait()
        run_calls()

    monkeypatch.setattr(consumer._member, "run_calls", wait)
    other = threading.Thread(target=consumer.poll, args=(0,))
    other.start()
    inside.wait()
    call = {"poll": lambda: consumer.poll(0), "consume": lambda: consumer.consume(1, 0)}[name]
    try:
        with pytest.raises(CoordError, match="Another thread is polling"):
            call()
    finally:
        go_on.set()
        other.join()
    call()
    marshaler.close()


def test_what_is_live_is_left_alone() -> None:
    """V4: of two attempts the earlier one in the log wins, whatever else is written."""
    world = World({"t": 1})
    a, b = world.enter("a"), world.enter("b")
    world.run(5 * HI_MS)
    owner, other = (a, b) if a.claims else (b, a)

    assert owner.claims == t(0)
    assert other.told == []
    assert [kind for kind, _ in owner.told] == ["claimed"]


def test_a_released_partition_is_claimed_at_once_from_its_position() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 50)
    a = world.enter("a")
    world.run(1_000)
    b = world.enter("b")
    world.run(1_000)
    world.close(a)
    world.run(HI_MS // 20 + 200)

    assert b.claims == t(0)
    assert world.position(0) == 50
    assert a.offsets(0) == list(range(50))
    assert b.offsets(0) == []


def test_a_dead_owners_partition_is_claimed_in_time_and_read_again_from_the_newest_sign() -> None:
    """SIGKILL: what was done since the newest sign is done again, and nothing is left out."""
    world = World({"t": 1})
    world.log.put("t", 0, 20)
    a, b = world.enter("a"), None
    world.run(2 * HI_MS)
    b = world.enter("b")
    world.run(1_000)
    world.log.put("t", 0, 10)
    a.poll()
    a.die()
    died_ms = world.log.now_ms
    while not b.claims:
        world.run(100)
        assert world.log.now_ms - died_ms <= TAKEN_OVER_MS
    world.run(1_000)

    assert sorted(set(a.offsets(0)) | set(b.offsets(0))) == list(range(30))
    assert b.offsets(0)[0] >= 20
    # The token rises with each owner.
    assert a.read[0][2] < b.read[0][2]


def test_a_stopped_process_touches_nothing_afterwards() -> None:
    """SIGSTOP beyond two intervals, and SIGCONT: its signs are refused, its commit fails."""
    world = World({"t": 1})
    world.log.put("t", 0, 5)
    a, b = world.enter("a"), world.enter("b")
    world.run(3_000)
    owner, other = (a, b) if a.claims else (b, a)
    owner.transport.is_stopped = True
    world.run(TAKEN_OVER_MS)
    assert other.claims == t(0)
    before = world.log.world("t").slots[GROUP, "t", 0]
    message = owner.messages[-1]

    # SIGCONT: its user's thread goes on first, before anything is read.
    owner.transport.is_stopped = False
    assert not owner.consumer.may_work(message)
    with pytest.raises(ClaimLost):
        owner.consumer.commit(message)
    with pytest.raises(ClaimLost):
        owner.consumer.token(message)
    world.run(2_000)

    after = world.log.world("t").slots[GROUP, "t", 0]
    assert (after.epoch, after.client) == (before.epoch, other.client)
    assert owner.told[-1] == ("lost", t(0))
    assert owner.claims == ()


@pytest.mark.parametrize("fault", ["is_cut", "is_deaf", "is_unacknowledged"])
def test_an_owner_that_cannot_prove_its_claim_stops_before_it_is_given_away(fault: str) -> None:
    """Rules 8 and 9: it stops within one interval, the others wait for two."""
    world = World({"t": 1})
    a, b = world.enter("a"), world.enter("b")
    world.run(3_000)
    owner, other = (a, b) if a.claims else (b, a)
    setattr(owner.transport, fault, True)
    world.run(HI_MS)
    assert owner.claims == ()
    world.run(TAKEN_OVER_MS)

    assert other.claims == t(0)
    assert owner.told[-1] == ("lost", t(0))


def test_a_sign_counts_from_the_call_and_not_from_its_acknowledgement() -> None:
    """The log may have taken it at any moment after the call: others count from there."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(1_000)
    signs = world.kinds().count("Heartbeat")
    a.transport.is_unacknowledged = True
    while world.kinds().count("Heartbeat") == signs:
        world.run(100)
    signed_ms = world.log.now_ms
    world.run(1_000)
    a.transport.is_unacknowledged = False
    world.log.pump()
    a.transport.is_unacknowledged = True
    world.run(signed_ms + HI_MS - 200 - world.log.now_ms)
    assert a.claims == t(0)
    world.run(200)

    assert a.claims == ()


def test_an_acknowledgement_revives_nothing() -> None:
    """Held back for more than an interval, it proves nothing about the time since."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(3_000)
    epoch = world.log.world("t").slots[GROUP, "t", 0].epoch
    a.transport.is_unacknowledged = True
    world.run(HI_MS)
    a.transport.is_unacknowledged = False
    world.log.pump()

    assert a.told[-1] == ("lost", t(0))
    world.run(TAKEN_OVER_MS)
    assert world.log.world("t").slots[GROUP, "t", 0].epoch > epoch


def test_b4_an_attempt_without_an_answer_is_given_up_and_its_late_win_is_released() -> None:
    """Marshal waits for ever for a message that was never delivered."""
    world = World({"t": 1})
    world.log.put("t", 0, 9)
    world.marshals(HEARTBEAT, "old", 0, 7)
    world.marshals(RELEASE, "old", 0, 7)
    a = world.enter("a")
    a.transport.is_unacknowledged = True
    world.run(HI_MS + 1_000)
    assert a.claims == ()
    a.transport.is_unacknowledged = False
    world.run(2 * HI_MS)

    assert a.claims == t(0)
    assert a.offsets(0) == [7, 8]


def test_a_log_that_lost_its_end_is_not_read_before_it_has_grown_to_the_position() -> None:
    """What is read at a position beyond the end is whatever comes there; nobody claims to have it.
    The claim is released with its position, and not held by one who waits for nothing."""
    world = World({"t": 1})
    world.log.put("t", 0, 50)
    a = world.enter("a")
    world.run(1_000)
    world.close(a)
    world.log.cut("t", 0, 20)
    b = world.enter("b")
    world.run(2 * HI_MS)

    assert (b.claims, b.read, world.position(0)) == ((), [], 50)
    world.log.put("t", 0, 40)
    world.run(2 * HI_MS)
    assert b.offsets(0) == list(range(50, 60))


def test_b2_a_zombies_heartbeat_is_refused() -> None:
    world = World({"t": 1})
    a = world.enter("a")
    world.run(1_000)
    a.die()
    old = next(each for each in world.log.messages_of("t") if isinstance(each, HEARTBEAT))
    b = world.enter("b")
    world.run(TAKEN_OVER_MS + HI_MS)
    world.log.say(old)
    world.run(HI_MS)

    assert b.claims == t(0)
    assert b.told == [("claimed", t(0))]


def test_b9_the_start_is_the_position_as_judged_at_the_win() -> None:
    """INV-49: the former owner moves its position while the attempt is on its way."""
    world = World({"t": 1})
    world.log.put("t", 0, 30)
    world.marshals(HEARTBEAT, "go", 0, 5)
    b = world.enter("b")
    world.run(1_000)
    world.marshals(HEARTBEAT, "go", 0, 21)
    world.marshals(RELEASE, "go", 0, 24)
    world.run(1_000)

    assert b.offsets(0) == list(range(24, 30))


def test_v6_a_heartbeat_of_marshals_takes_over_and_the_owner_stops() -> None:
    """Marshal's clients believe every heartbeat, so their group cannot be fenced against them."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(1_000)
    world.marshals(HEARTBEAT, "go", 0, 0)
    world.run(200)

    assert a.claims == ()
    assert a.told[-1] == ("lost", t(0))


def test_v18_the_start_without_a_position_is_what_kafka_has_committed() -> None:
    world = World({"t": 2})
    world.log.put("t", 0, 10)
    world.log.put("t", 1, 10)
    world.log.committed[GROUP, t(0)[0]] = 2
    world.log.committed[GROUP, t(1)[0]] = 2
    world.marshals(HEARTBEAT, "go", 1, 3)
    world.marshals(RELEASE, "go", 1, 3)
    a = world.enter("a", greedy_claims=True)
    world.run(1_000)

    assert (a.offsets(0)[0], a.offsets(1)[0]) == (2, 3)


def test_position_zero_is_a_position() -> None:
    """Marshal has 0 for "unknown", so that a rewind to 0 would begin where Kafka committed."""
    world = World({"t": 1})
    world.log.put("t", 0, 10)
    world.log.committed[GROUP, t(0)[0]] = 8
    world.marshals(HEARTBEAT, "go", 0, 0)
    world.marshals(RELEASE, "go", 0, 0)
    a = world.enter("a")
    world.run(500)

    assert a.offsets(0)[0] == 0


def test_a_new_group_begins_where_it_is_configured_to() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 10)
    late = world.enter("a", config={"auto.offset.reset": "latest"})
    world.run(1_000)
    world.log.put("t", 0, 2)
    world.run(500)

    assert late.offsets(0) == [10, 11]


def test_a_position_before_the_logs_start_is_raised_and_counted() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 10)
    world.log.starts[t(0)[0]] = 4
    world.marshals(HEARTBEAT, "go", 0, 1)
    world.marshals(RELEASE, "go", 0, 1)
    a = world.enter("a")
    world.run(500)

    assert a.offsets(0)[0] == 4
    assert a.consumer.fast_forwards == 1


def test_a_position_beyond_the_end_is_released_and_left_alone_for_an_interval() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 10)
    world.marshals(HEARTBEAT, "go", 0, 99)
    world.marshals(RELEASE, "go", 0, 99)
    a = world.enter("a")
    world.run(HI_MS - 500)

    assert a.told == []
    assert world.kinds().count("ClaimingPartition") == 1
    assert world.position(0) == 99


def test_v14_cool_down() -> None:
    """What a consumer could not keep up with is for others first."""
    world = World({"t": 1})
    world.log.put("t", 0, 10)
    a = world.enter("a")
    a.is_busy = True
    world.run(300)
    a.is_busy = False
    a.poll()
    a.is_busy = True  # wedged: behind, and no further message
    world.log.put("t", 0, 10)
    while ("released", t(0)) not in a.told and ("lost", t(0)) not in a.told:
        world.run(500)
        a.consumer.consume(0, 0)
        assert world.log.now_ms < 10 * HI_MS
    released_ms, a.is_busy = world.log.now_ms, False
    world.run(HI_MS - 600)
    assert a.claims == ()
    world.run(2_000)

    assert a.claims == t(0)
    assert world.log.now_ms - released_ms <= HI_MS + 1_400


def test_a_release_that_the_user_does_not_take_closes_the_fence_after_an_interval() -> None:
    """A wedged program must not hold a partition for ever, and may not work on it afterwards."""
    world = World({"t": 1})
    world.log.put("t", 0, 30)
    a = world.enter("a")
    world.run(300)
    a.is_busy = True
    world.log.put("t", 0, 30)
    b = world.enter("b")
    world.run(6 * HI_MS)

    assert not a.consumer.may_work(a.messages[-1])
    assert b.claims == t(0)
    a.is_busy = False
    world.run(500)
    assert a.told[-1] == ("lost", t(0))


def test_a_restarted_process_reclaims_what_its_client_id_holds() -> None:
    """V16: heartbeats only, positions kept; a limit of claims does not count."""
    world = World({"t": 2})
    world.log.put("t", 0, 3)
    a = world.enter("a", greedy_claims=True)
    world.run(2 * HI_MS)
    attempts = world.kinds().count("ClaimingPartition")
    world.close(a, release=False)
    again = world.enter("a", maximum_claims=1)
    world.run(200)

    assert again.claims == t(0, 1)
    assert world.kinds().count("ClaimingPartition") == attempts
    assert (world.position(0), world.position(1)) == (3, 0)


def test_without_fast_reclaim_a_restarted_process_waits_as_others_do() -> None:
    world = World({"t": 1})
    a = world.enter("a")
    world.run(1_000)
    a.die()
    again = world.enter("a", fast_reclaim=False)
    world.run(HI_MS)
    assert again.claims == ()
    world.run(TAKEN_OVER_MS)

    assert again.claims == t(0)


def test_of_twins_the_newer_one_goes_on_and_the_older_one_stops() -> None:
    """dropbox#8: two processes of one client id both thought that they owned."""
    world = World()
    older = world.enter("a", greedy_claims=True)
    world.run(1_000)
    newer = world.enter("a", greedy_claims=True)
    # What each may work on overlaps until the older one has read the reclaim: tokens tell.
    world.log.pump()
    world.run(20 * HI_MS)

    assert newer.claims == t(0, 1, 2, 3)
    assert older.told[-1] == ("lost", t(0, 1, 2, 3))
    assert [kind for kind, _ in newer.told] == ["claimed"]


def test_partitions_come_and_go_with_their_topic() -> None:
    """Issue #51: partitions that were added were never claimed. And a topic made anew may have
    fewer."""
    world = World({"t": 2})
    a = world.enter("a", greedy_claims=True)
    world.run(1_000)
    world.log.topics["t"] = 4
    world.run(2_000)
    assert a.claims == t(0, 1, 2, 3)
    world.log.topics["t"] = 1
    world.run(2_000)

    assert a.claims == t(0)


def test_silence_is_filled_by_who_waits() -> None:
    """Time is in the log: without records a dead owner would stay for ever."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(1_000)
    a.die()
    world.run(10 * HI_MS)
    assert world.kinds()[-1] == "Heartbeat"  # nobody waits, so nothing is written
    b = world.enter("b")
    world.run(TAKEN_OVER_MS)

    assert b.claims == t(0)


def test_one_that_cannot_read_writes_no_attempts() -> None:
    """It would win what it cannot know to have won, and keep others out for two intervals."""
    world = World({"t": 2})
    a = world.enter("a", greedy_claims=True)
    world.run(1_000)
    a.transport.is_deaf = True
    world.run(HI_MS)
    assert a.claims == ()
    world.run(5 * HI_MS)

    attempts = [m for m in world.log.messages_of("t") if isinstance(m, CLAIM)]
    assert len(attempts) == 2  # those before it went deaf


def test_who_has_enough_writes_nothing_into_silence() -> None:
    world = World({"t": 2})
    a = world.enter("a", maximum_claims=1)
    world.run(5_000)
    written = len(world.kinds())
    world.run(2 * HI_MS)

    assert len(a.claims) == 1
    assert world.kinds()[written:].count("ClaimingPartition") == 0


def test_a_late_reader_waits_until_it_knows_all_owners() -> None:
    """Section 5: from 4 intervals of the log on; it fills silence by what means nothing."""
    world = World({"t": 2})
    a = world.enter("a", maximum_claims=1)
    world.run(HI_MS)
    partition = claims.partition_of("t", 2)
    begins = {partition: len(world.log.records[partition])}
    b = world.enter("b", begins=begins, greedy_claims=True)
    world.run(2 * HI_MS)
    assert b.claims == ()
    assert "ClaimingMessages" in world.kinds()
    world.run(3 * HI_MS)

    assert sorted(a.claims + b.claims) == list(t(0, 1))
    assert len(a.claims) == 1


def test_a_consumer_keeps_up_with_a_topic_that_grows() -> None:
    world = World({"t": 1})
    a = world.enter("a")
    for _ in range(60):
        world.log.put("t", 0, 30)
        world.run(1_000)

    assert a.told == [("claimed", t(0))]
    assert a.offsets(0) == list(range(1_800))


def test_a_consumer_that_falls_behind_releases_for_others() -> None:
    """TestUnhealthyPartition: three looks in a row."""
    world = World({"t": 1})
    a = world.enter("a")
    a.reads_per_poll = 1
    for _ in range(40):
        world.log.put("t", 0, 500)
        world.run(1_000)
        if ("released", t(0)) in a.told:
            break

    assert ("released", t(0)) in a.told
    assert world.position(0) == len(a.offsets(0))


def test_slow_consumers_may_keep_their_claims() -> None:
    """PR #98."""
    world = World({"t": 1})
    a = world.enter("a", release_claims_if_behind=False)
    a.reads_per_poll = 1
    for _ in range(40):
        world.log.put("t", 0, 500)
        world.run(1_000)

    assert a.told == [("claimed", t(0))]


# ---- whole topics -------------------------------------------------------------------------------


def test_v17_partition_0_is_the_key_to_a_topic() -> None:
    world = World({"t": 2})
    world.marshals(HEARTBEAT, "go", 0, 0)
    a = world.enter("a", claim_entire_topic=True)
    world.run(HI_MS)
    assert a.claims == ()
    world.marshals(RELEASE, "go", 0, 0)
    world.run(1_000)
    assert a.claims == t(0, 1)
    assert ("topics", ("t",)) in a.told

    # Losing one partition releases the topic.
    world.marshals(HEARTBEAT, "go", 1, 0)
    world.run(200)
    assert a.claims == ()
    assert a.told[-3:] == [("lost", t(1)), ("released", t(0)), ("topics", ())]


def test_several_topics_with_a_limit_of_topics() -> None:
    """TestMultiTopicClaimWithLimit; B8: without a limit fast reclaim stopped after one topic."""
    world = World({"t": 2, "u": 3, "v": 1})
    a = world.enter("a", ["t", "u", "v"], claim_entire_topic=True, maximum_claims=2)
    world.run(3_000)
    assert len(a.consumer.topic_claims()) == 2
    b = world.enter("b", ["t", "u", "v"], claim_entire_topic=True)
    world.run(3_000)
    assert len(b.consumer.topic_claims()) == 1
    taken = a.claims
    world.close(a, release=False)
    again = world.enter("a", ["t", "u", "v"], claim_entire_topic=True)
    world.run(300)

    assert again.claims == taken
    assert sorted((*again.claims, *b.claims)) == sorted(
        [*t(0, 1), *[("u", n) for n in range(3)], ("v", 0)]
    )


def test_pr_42_a_topic_whose_key_is_not_mine_is_not_reclaimed() -> None:
    world = World({"t": 2})
    a = world.enter("a", greedy_claims=True)
    world.run(1_000)
    world.marshals(HEARTBEAT, "go", 0, 0)
    world.run(200)
    a.die()
    again = world.enter("a", claim_entire_topic=True)
    world.run(1_000)

    assert again.claims == ()


# ---- commits ------------------------------------------------------------------------------------


def test_commits_of_unseen_messages_and_strange_tokens_are_errors() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 4)
    a = world.enter("a")
    a.commits = False
    world.run(1_000)
    consumer, (first, *_, last) = a.consumer, a.messages
    token = consumer.commit_token(first)

    with pytest.raises(UnseenOffset):
        consumer.commit_by_token(token._replace(offset=95))
    with pytest.raises(ForeignToken):
        consumer.commit_by_token(token._replace(instance="ffffffff"))
    with pytest.raises(ForeignToken):
        consumer.commit_by_token(token._replace(epoch=token.epoch + 1))
    with pytest.raises(ClaimLost):
        consumer.commit_by_token(token._replace(partition=3))
    consumer.commit(last)
    consumer.commit_by_token(token)
    world.run(4_600)  # by then a sign was due
    assert world.position(0) == 1
    assert consumer.may_work(a.messages[1])
    assert not consumer.may_work(first)


def test_strict_ordering_has_one_message_in_flight() -> None:
    world = World({"t": 2})
    world.log.put("t", 0, 3)
    world.log.put("t", 1, 3)
    a = world.enter("a", greedy_claims=True, strict_ordering=True)
    a.commits = False
    world.run(1_000)
    assert sorted(place for place, _, _ in a.read) == list(t(0, 1))
    a.consumer.commit(a.messages[0])
    world.run(200)

    assert len(a.read) == 3
    assert a.read[2][:2] == (a.read[0][0], 1)


def test_too_many_uncommitted_messages_stop_the_partition() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 30)
    a = world.enter("a", max_message_queue=5)
    a.commits = False
    world.run(1_000)
    assert a.offsets(0) == [0, 1, 2, 3, 4]
    for message in a.messages:
        a.consumer.commit(message)
    world.run(100)

    assert a.offsets(0) == list(range(10))


def test_positions_go_to_kafkas_group_too() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 7)
    world.enter("a")
    world.run(HI_MS)

    assert world.log.committed[GROUP, t(0)[0]] == 7


def test_they_do_not_if_told_not_to() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 7)
    world.enter("a", commit_to_kafka=False)
    world.run(HI_MS)

    assert world.log.committed == {}


def test_a_closed_consumer_gives_nothing_any_more() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 2)
    a = world.enter("a")
    world.run(500)
    world.close(a)

    assert a.told[-1] == ("released", t(0))
    assert not a.consumer.may_work(a.messages[0])
    with pytest.raises(ClaimLost):
        a.consumer.commit(a.messages[0])


def test_a_consumer_may_be_closed_inside_a_callback() -> None:
    world = World({"t": 1})
    a = world.enter("a")
    a.consumer.on_claimed = lambda some: a.consumer.close(timeout=0)
    world.log.advance(500, lambda: None if a.is_dead else _poll_once(a))

    assert world.log.world("t").slots[GROUP, "t", 0].is_released


def _poll_once(user: object) -> None:
    user.consumer.poll(0)  # type: ignore[attr-defined]
    user.is_dead = bool(user.consumer._is_closed)  # type: ignore[attr-defined]


def test_two_consumers_of_a_topic_in_one_marshaler_are_refused() -> None:
    """TestDoubleClaim: both would have one name in the log."""
    world = World()
    a = world.enter("a")

    with pytest.raises(SetupError, match="Another consumer"):
        a.marshaler.consumer(["t"], ConsumerOptions())


def test_marshals_own_clients_are_left_alone() -> None:
    """One by one: half of the group is Go, and its claims are respected."""
    world = World({"t": 2})
    world.marshals(CLAIM, "go", 0)
    world.marshals(HEARTBEAT, "go", 0, 0)
    a = world.enter("a", greedy_claims=True)
    for _ in range(10):
        world.run(HI_MS // 2)
        world.marshals(HEARTBEAT, "go", 0, 0)

    assert a.claims == t(1)


def test_silence_in_two_topics_is_filled_by_who_may_take_one() -> None:
    """The attempt that fills the silence of the first topic is all that it may take: of the second
    nothing is wanted any more, and the consumer failed."""
    world = World({"t": 1, "u": 1})
    a = world.enter("a", ["t", "u"], claim_entire_topic=True, greedy_claims=True)
    world.run(HI_MS)
    assert len(a.claims) == 2
    b = world.enter("b", ["t", "u"], claim_entire_topic=True, maximum_claims=1)
    world.run(HI_MS)
    a.die()
    world.run(3 * HI_MS)

    assert len(b.claims) == 1


def test_a_whole_topic_whose_user_was_never_told_is_lost_at_once() -> None:
    """It was suspended before its user had polled: the first partition that was lost took the
    others along, and the consumer failed at the next one."""
    world = World({"t": 3})
    a = world.enter("a", claim_entire_topic=True)
    a.is_busy = True
    world.run(HI_MS)
    assert world.log.world("t").owner((GROUP, "t", 2)) is not None
    a.transport.is_stopped = True
    world.run(2 * HI_MS)
    a.transport.is_stopped = a.is_busy = False
    world.run(4 * HI_MS)

    assert a.claims == t(0, 1, 2)
