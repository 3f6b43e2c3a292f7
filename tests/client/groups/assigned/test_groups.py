"""Several members whose coordinator divides, against the real core, with virtual time.

S = 8 s, RT = 12 s, a heartbeat every 2 s. `World.check` refuses two owners at every step.
"""

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import Stop
from coordlib.core.wire import api
from coordlib.testing.fake_log import INCARNATION
from tests.client.groups.assigned.world import AssignedWorld, t

T1 = TopicPartition("t", 1)


def test_a_newcomer_gets_its_share_and_nobody_else_stops() -> None:
    """a works on t-0 while t-1 changes hands; it is told of nothing else."""
    world = AssignedWorld({"t": 2})
    (a,) = world.join("a")
    assert a.owns == t(0, 1)
    (b,) = world.join("b")

    (gone,) = [some for what, some in a.told if what == "revoked"]
    assert len(gone) == 1
    assert a.told == [("assigned", t(0, 1)), ("revoked", gone)]
    assert b.told == [("assigned", ()), ("assigned", gone)]
    assert sorted(a.owns + b.owns) == list(t(0, 1))
    assert a.member.member_id == f"a-{INCARNATION}-0-1"


def test_a_hand_over_is_commit_and_letting_go_in_one_record() -> None:
    """The newcomer reads what was done, and its fence is higher."""
    world = AssignedWorld({"t": 2})
    (a,) = world.join("a")
    a.position = {TopicPartition("t", 0): 40, T1: 41}
    fences = {each: a.member.fence_of(*each) for each in t(0, 1)}
    (b,) = world.join("b")
    (moved,) = b.owns

    (released,) = world.releases("a")
    assert [(row.partition, row.offset) for row in released.offsets] == [
        (moved.partition, 40 + moved.partition)
    ]
    assert world.of("a", api.OffsetCommit) == []
    asked = b.member.committed_async([moved])
    world.log.pump()
    assert [row.offset for row in asked.result(0).offsets] == [40 + moved.partition]
    token, former = b.member.fence_of(*moved), fences[moved]
    assert token is not None
    assert former is not None
    assert token > former
    assert a.member.fence_of(*moved) is None


def test_members_come_one_after_the_other_and_share_evenly() -> None:
    world = AssignedWorld({"t": 6})
    users = world.join("a", "b", "c")
    world.run(3_000)

    assert [len(user.owns) for user in users] == [2, 2, 2]
    assert all(what != "lost" for user in users for what, _ in user.told)


def test_a_member_that_closes_hands_over_at_once() -> None:
    world = AssignedWorld({"t": 2})
    a, b = world.join("a", "b")
    a.position = dict.fromkeys(a.owns, 7)
    world.close(a)
    world.run(1_000)

    assert b.owns == t(0, 1)
    (left,) = world.of("a", api.LeaveGroup)
    (committed,) = world.of("a", api.OffsetCommit)
    assert world.requests.index(committed) < world.requests.index(left)


def test_a_dead_members_partitions_go_to_the_others_after_its_session() -> None:
    world = AssignedWorld({"t": 2})
    a, b = world.join("a", "b")
    a.transport.is_cut = a.is_busy = True  # as kill -9: nothing is written or read any more
    world.run(5_000)
    assert len(b.owns) == 1

    world.run(25_000)

    assert a.owns == ()
    assert b.owns == t(0, 1)


def test_one_that_lets_go_too_slowly_is_removed_and_stops_before() -> None:
    """Its handler takes half a minute: everything it has goes to others, so it stops with all."""
    world = AssignedWorld({"t": 4})
    (a,) = world.join("a")
    a.is_busy = True
    (b,) = world.join("b")
    assert (a.owns, b.owns) == (t(0, 1, 2, 3), ())
    world.run(7_500)
    assert a.owns == ()
    assert a.member.stopped_by() is Stop.NO_REACTION
    world.run(20_000)
    assert b.owns == t(0, 1, 2, 3)
    before = a.member.member_id

    a.is_busy = False
    world.run(5_000)

    assert ("lost", t(0, 1, 2, 3)) in a.told
    assert a.member.member_id != before
    assert sorted(a.owns + b.owns) == list(t(0, 1, 2, 3))
    assert len(a.owns) == 2


def test_who_was_stopped_by_its_fence_with_an_open_demand_comes_back_to_the_rest() -> None:
    """The network was away for a moment, just when a newcomer asked for a share."""
    world = AssignedWorld({"t": 4})
    (a,) = world.join("a")
    a.is_busy = True
    before = a.member.member_id
    (b,) = world.join("b")
    a.transport.is_cut = True
    world.run(7_000, step_ms=100)
    assert a.owns == ()
    assert b.owns == ()

    a.is_busy = a.transport.is_cut = False
    world.run(3_000, step_ms=100)

    assert a.member.member_id == before
    assert [what for what, _ in a.told] == ["assigned", "lost", "assigned"]
    assert len(world.releases("a")) == 1
    assert sorted(a.owns + b.owns) == list(t(0, 1, 2, 3))
    assert len(b.owns) == 2


def test_kafka_away_for_everybody_changes_nobodys_share() -> None:
    """Rule 11: all stop, and all go on with what they had, since the log's clock hardly moved."""
    world = AssignedWorld({"t": 2})
    a, b = world.join("a", "b")
    shares = a.owns, b.owns
    for user in (a, b):
        user.transport.is_cut = True
    world.run(7_000)
    assert (a.owns, b.owns) == ((), ())

    for user in (a, b):
        user.transport.is_cut = False
    world.run(10_000)

    assert (a.owns, b.owns) == shares


def test_a_job_that_was_away_expels_nobody() -> None:
    world = AssignedWorld({"t": 2})
    a, b = world.join("a", "b")
    shares = a.owns, b.owns
    world.log.job_is_up = False
    world.run(120_000)
    assert (a.owns, b.owns) == shares

    world.log.job_is_up = True
    world.run(30_000)

    assert (a.owns, b.owns) == shares
    assert all(what != "lost" for user in (a, b) for what, _ in user.told)


def test_a_removed_member_says_that_it_stopped_and_is_not_waited_for() -> None:
    """An operator removes it while it works; b has it all as soon as a's user has let go."""
    world = AssignedWorld({"t": 2})
    a, b = world.join("a", "b")
    leaver = api.Leaver(a.member.member_id)
    a.is_busy = True
    world.log.append(
        0, api.LeaveGroup(v=1, id="l", client="ops", group="orders", members=(leaver,))
    )
    world.run(2_000)
    assert len(b.owns) == 1

    a.is_busy = False
    world.run(1_000, step_ms=100)

    assert len(world.of("a", api.LeaveGroup)) == 1
    assert sorted(a.owns + b.owns) == list(t(0, 1))
    assert a.owns


def test_another_subscription_takes_only_what_it_leaves_out() -> None:
    world = AssignedWorld({"t": 2, "u": 2})
    (a,) = world.join("a", topics=["t", "u"])
    assert len(a.owns) == 4

    a.member.subscribe(["u"])
    world.run(1_000)

    assert a.owns == tuple(TopicPartition("u", number) for number in (0, 1))
    assert a.told[1:] == [("revoked", t(0, 1))]


def test_new_partitions_are_given_without_anybodys_question() -> None:
    world = AssignedWorld({"t": 2})
    (a,) = world.join("a")
    world.log.topics["t"] = 3
    world.log.tell_topics()
    world.run(1_000)

    assert a.owns == t(0, 1, 2)
    assert a.told[-1] == ("assigned", t(2))


def test_topics_by_expression_are_found_by_the_coordinator() -> None:
    world = AssignedWorld({"clicks-eu": 1, "clicks-test": 1, "orders": 1})
    (a,) = world.join("a", topics=["^clicks"])

    assert [each.topic for each in a.owns] == ["clicks-eu", "clicks-test"]


def test_what_was_demanded_for_one_who_left_comes_back_by_the_very_release() -> None:
    """A demand is never taken back, and what it frees is meant for its former owner again."""
    world = AssignedWorld({"t": 2})
    (a,) = world.join("a")
    a.is_busy = True
    (b,) = world.join("b")
    world.close(b)
    world.run(500)

    a.is_busy = False
    world.run(1_000)

    (gone,) = [some for what, some in a.told if what == "revoked"]
    assert a.told == [("assigned", t(0, 1)), ("revoked", gone), ("assigned", gone)]
    assert a.owns == t(0, 1)
    assert a.member.fence_of(*gone[0]) == a.member.fence_token


def test_two_who_die_at_once_ask_for_no_more_than_a_release_can_name() -> None:
    """Two divisions by one record: each would demand something of b, under one and the same cause.

    A Release names the cause alone; it would let go of the one and be taken for the other.
    """
    world = AssignedWorld({"t": 10}, strategy="range")
    users = world.join("a", "b", "c", "d", "e")
    world.run(5_000)
    assert [len(user.owns) for user in users] == [2] * 5
    for user in users[3:]:
        user.transport.is_cut = user.is_busy = True

    world.run(30_000)

    assert [user.owns for user in users] == [t(0, 1, 2, 3), t(4, 5, 6), t(7, 8, 9), (), ()]
    for user in users[:3]:
        assert all(what != "lost" for what, _ in user.told)
        causes = [each.cause for each in world.releases(user.member.identity.client)]
        assert len(set(causes)) == len(causes)
