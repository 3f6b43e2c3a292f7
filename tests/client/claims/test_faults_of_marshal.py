"""Bugs of Marshal that are a client's own, each as a test named after it, and the like."""

import inspect

import pytest

from coordlib.client.claims import Marshaler
from coordlib.client.claims.consumer import MarshalConsumer
from coordlib.errors import CannotReach, CoordError
from tests.client.claims.world import GROUP, HEARTBEAT, HI_MS, World, t


def test_b11_a_lost_heartbeat_is_followed_by_another_one() -> None:
    """It wedged the loop: the claim was held, and no sign of it came any more."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(2_000)
    member = a.consumer._member
    for _ in range(4):
        a.transport.fail_next = 1
        world.run(HI_MS)

    assert a.told == [("claimed", t(0))]
    assert member.life.me.claims[t(0)[0]].fence.sign_ms > world.log.now_ms - HI_MS


def test_b12_a_double_claim_ends_in_a_loss_and_not_in_a_deadlock() -> None:
    world = World({"t": 1})
    a = world.enter("a")
    world.run(2_000)
    world.marshals(HEARTBEAT, "a", 0, 0)
    world.run(2_000)
    world.close(a)

    assert a.told[-1] == ("lost", t(0))


def test_b13_close_needs_no_argument() -> None:
    for each in (Marshaler, MarshalConsumer):
        assert inspect.signature(each.close).bind(None)


def test_an_empty_partition_is_claimed_and_kept() -> None:
    """It was a panic."""
    world = World({"t": 1})
    a = world.enter("a")
    world.run(10 * HI_MS)

    assert a.told == [("claimed", t(0))]


def test_a_first_record_that_is_no_message_holds_nothing_up() -> None:
    """zorkian PR 30: start-up hung when the first message was invalid."""
    world = World({"t": 1})
    for log in range(2):
        for value in (b"banana", None, b"\xff", b"Heartbeat/1/1/i/c/g/t/-1/0", b"x" * 3_000):
            world.log.append(log, value)
    a = world.enter("a")
    world.run(1_000)

    assert a.claims == t(0)


def test_a_lone_consumer_claims_again_what_it_dropped() -> None:
    """PR #61: "one of the major cases where Marshal users get confused and angsty"."""
    world = World({"t": 1})
    world.log.put("t", 0, 100)
    a = world.enter("a")
    world.run(500)
    world.marshals(HEARTBEAT, "go", 0, 3)
    world.run(3 * HI_MS)

    assert a.claims == t(0)


def test_flush_writes_what_has_moved_and_waits_for_the_log() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 3)
    a = world.enter("a")
    world.run(500)
    member = a.consumer._member
    member.feed(_flush(world, 1))
    world.log.pump()
    assert world.position(0) == 3
    assert member._answers == {1: None}
    # Nothing has moved: nothing is written.
    written = len(world.kinds())
    a.consumer.flush(0.1)
    assert len(world.kinds()) == written
    a.transport.is_unacknowledged = True
    world.log.put("t", 0, 1)
    world.run(200)
    with pytest.raises(CannotReach, match="has not taken"):
        a.consumer.flush(0.01)


def test_a_flush_hears_of_the_sign_that_follows_a_lost_one() -> None:
    """A broker was away for a moment: the next sign had the position in the log, and the flush said
    that the log has not taken it."""
    world = World({"t": 1})
    world.log.put("t", 0, 3)
    a = world.enter("a")
    world.run(500)
    member, a.transport.fail_next = a.consumer._member, 1
    member.feed(_flush(world, 1))
    world.log.pump()
    assert (member._answers, world.position(0)) == ({}, 0)

    world.run(500)
    assert (member._answers, world.position(0)) == ({1: None}, 3)


def test_a_flush_whose_time_was_up_leaves_nothing_behind() -> None:
    """A program that flushes after each message, and a broker that is away for an hour."""
    world = World({"t": 1})
    world.log.put("t", 0, 3)
    a = world.enter("a")
    world.run(500)
    member, a.transport.is_unacknowledged = a.consumer._member, True
    with pytest.raises(CannotReach):
        a.consumer.flush(0.01)
    a.transport.is_unacknowledged = False
    world.run(500)

    assert member._answers == {}
    assert member.life._holding.flushes._open == {}


def _flush(world: World, ticket: int) -> object:
    from coordlib.client.claims import events as sg

    return sg.Flush(world.log.now_ms, ticket)  # type: ignore[return-value]


def test_a_late_reader_gives_up_what_somebody_else_says_to_have() -> None:
    """Section 5: below 8 intervals it may be the reader who is wrong."""
    from coordlib.core.wire import claims

    world = World({"t": 1})
    for _ in range(3):
        world.log.append(0, b"banana")
        world.log.append(1, b"banana")
    a = world.enter("a", begins={0: 3, 1: 3})
    while not a.claims:
        world.run(500)
    epoch = world.log.world("t").slots[GROUP, "t", 0].epoch
    sign = claims.Heartbeat(2, 1, f"ffffffff-{epoch - 1}", "other", GROUP, "t", 0, 0)
    world.log.say(sign)
    world.run(200)
    assert a.told[-1] == ("lost", t(0))


def test_one_that_began_exactly_does_not() -> None:
    from coordlib.core.wire import claims

    world = World({"t": 1})
    a = world.enter("a")
    world.run(2_000)
    world.log.say(claims.Heartbeat(2, 1, "ffffffff-0", "other", GROUP, "t", 0, 0))
    world.run(2_000)

    assert a.told == [("claimed", t(0))]


def test_an_exception_of_one_consumer_fails_that_one_alone() -> None:
    """INV-70: its poll raises it, and its claims end by themselves."""
    world = World({"t": 2})
    a = world.enter("a", maximum_claims=1)
    world.run(1_000)
    a.consumer._member.fail(RuntimeError("boom"))

    with pytest.raises(CoordError, match="boom"):
        a.consumer.poll(0)
    assert a.claims == ()
    a.is_dead = True
    b = world.enter("b", greedy_claims=True)
    world.run(4 * HI_MS)
    assert b.claims == t(0, 1)
