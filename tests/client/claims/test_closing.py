"""A consumer that is closed while an attempt is under way: whatever it wins is let go of, too.

Found by a simulated seed: the slot stayed with the closed consumer until it expired.
"""

from typing import Any

import pytest

from coordlib.client.claims.options import ConsumerOptions
from tests.client.claims.world import CLAIM, GROUP, HEARTBEAT, HI_MS, RELEASE, User, World, t

SOON_MS = HI_MS // 10


def attempting(world: World, **more: Any) -> User:
    """A consumer whose attempt is in the log, and which has not heard that it is."""
    user = world.enter("a", **more)
    user.transport.is_unacknowledged = True
    before = len(world.kinds())
    world.run(SOON_MS)
    assert world.kinds()[before:] == ["ClaimingPartition"]
    assert user.claims == ()
    return user


def test_an_attempt_that_wins_after_its_consumer_was_closed_is_released() -> None:
    """Others waited two intervals for somebody who had left."""
    world = World({"t": 1})
    world.log.put("t", 0, 9)
    world.log.committed[GROUP, t(0)[0]] = 4
    a = attempting(world)
    world.close(a)
    b = world.enter("b")
    a.transport.is_unacknowledged = False
    world.run(SOON_MS)

    assert a.told == []
    assert b.claims == t(0)
    assert b.offsets(0) == [4, 5, 6, 7, 8]


def test_the_release_has_the_position_as_judged() -> None:
    """A former owner's position stays: nothing is looked up, and nothing is invented."""
    world = World({"t": 1})
    world.marshals(CLAIM, "go", 0)
    world.marshals(HEARTBEAT, "go", 0, 7)
    world.marshals(RELEASE, "go", 0, 7)
    a = attempting(world)
    world.close(a)
    a.transport.is_unacknowledged = False
    world.run(SOON_MS)

    slot = world.log.world("t").slots[GROUP, "t", 0]
    assert (slot.client, slot.is_released, slot.position) == ("a", True, 7)


def test_an_attempt_that_has_lost_ends_it() -> None:
    """Nothing is written after it, and nothing waits any more."""
    world = World({"t": 1})
    a, b = world.enter("a"), world.enter("b")
    b.transport.is_unacknowledged = True
    world.run(SOON_MS)
    assert world.kinds()[:2] == ["ClaimingPartition", "ClaimingPartition"]
    assert a.claims == t(0)
    world.close(b)
    assert b.transport._handlers != []
    before = world.kinds()
    b.transport.is_unacknowledged = False
    world.log.pump()

    assert b.transport._handlers == []
    assert world.kinds() == before


def test_nobody_waits_longer_than_an_interval_for_an_attempt() -> None:
    """No broker answers: the attempt is given up, as it is by those who are not closed."""
    world = World({"t": 1})
    a = attempting(world)
    a.transport.is_cut = True
    world.close(a)
    world.run(HI_MS - 2 * SOON_MS)
    assert a.transport._handlers != []
    world.run(2 * SOON_MS)

    assert a.transport._handlers == []


def test_a_reclaim_of_one_that_leaves_stays_for_the_next_process() -> None:
    """`close(release=False)` right after the start: what the client id holds, it keeps."""
    world = World({"t": 1})
    first = world.enter("a")
    world.run(HI_MS // 2)
    world.close(first, release=False)
    second = world.enter("a")
    second.transport.is_unacknowledged = True
    world.run(SOON_MS)
    world.close(second, release=False)
    second.transport.is_unacknowledged = False
    world.run(SOON_MS)
    third = world.enter("a")
    world.run(SOON_MS)

    assert third.claims == t(0)
    assert "ReleasingPartition" not in world.kinds()


def test_what_the_same_program_has_claimed_anew_is_left_alone() -> None:
    """One process, one instance: what its next consumer wins is not the closed one's to release."""
    world = World({"t": 2})
    a = attempting(world, maximum_claims=1)
    world.close(a)
    again = a.marshaler.consumer(["t"], ConsumerOptions(greedy_claims=True))
    world.log.advance(SOON_MS, lambda: again.poll(0))
    a.transport.is_unacknowledged = False
    world.log.advance(HI_MS // 2, lambda: again.poll(0))

    assert again.claims() == t(0, 1)
    assert "ReleasingPartition" not in world.kinds()


@pytest.mark.parametrize("fails_first", [False, True])
def test_a_closed_consumer_that_fails_leaves_the_transport(fails_first: bool) -> None:
    """It was told of every record from then on, and did nothing with them."""
    world = World({"t": 1})
    a = attempting(world)
    member = a.consumer._member
    if fails_first:
        member.fail(KeyError("odd"))
        assert a.transport._handlers == [member], "its user is to be told"
    world.close(a)
    member.fail(KeyError("odd"))

    assert a.transport._handlers == []
