"""Cooperative members that are put out while they join go on with what they named as owned.

Their JoinGroup or SyncGroup is parked, and they have not read yet that they are out. Nobody may be
given their partitions before they let go, or their fence has stopped them. `World` refuses two
owners at any time. S = 8 s, RT = 12 s.
"""

from coordlib.client.groups.state import State
from coordlib.errors import GroupError
from tests.client.world import User, World, remove, t
from tests.tools.core import with_groups

ALL = t(0, 1, 2, 3)
COOPERATIVE = ("cooperative-sticky",)


def newcomer(world: World, name: str, **more: str) -> User:
    user = User(world.log, name, COOPERATIVE, ("t",), **more)
    world.users.append(user)
    return user


def joining_beside_one_that_is_cut_off(world: World) -> tuple[User, User, User]:
    """a and c have joined and are parked, since b does not hear of it."""
    a, b = world.join("a", "b")
    b.transport.is_cut = True
    c = newcomer(world, "c")
    world.log.pump()
    assert a.member._machine.state is State.JOINING
    assert len(a.owns) == 2
    return a, b, c


def everything_is_owned_in_the_end(world: World) -> None:
    world.run(60_000)
    held = [each for user in world.users for each in user.owns]
    assert sorted(held) == list(ALL)


def test_an_operator_removes_a_member_that_is_parked_and_deaf() -> None:
    """It keeps its partitions until its fence closes; then the others have them."""
    world = World(assignors=COOPERATIVE)
    a, b, c = joining_beside_one_that_is_cut_off(world)
    kept = a.owns
    a.transport.is_deaf = True
    remove(world, a)
    b.transport.is_cut = False

    world.run(2_000)
    assert a.owns == kept
    assert not set(kept) & set(b.owns + c.owns)
    a.transport.is_deaf = False
    everything_is_owned_in_the_end(world)


def test_an_operator_removes_a_member_that_is_parked_and_busy() -> None:
    """It knows, and its user is in the middle of a record."""
    world = World(assignors=COOPERATIVE)
    a, b, c = joining_beside_one_that_is_cut_off(world)
    had = set(a.works_on)
    a.is_busy = True
    remove(world, a)
    b.transport.is_cut = False

    world.run(2_000)
    assert not had & (b.works_on | c.works_on)
    a.is_busy = False
    everything_is_owned_in_the_end(world)


def test_an_operator_removes_a_member_whose_sync_is_parked() -> None:
    """The leader has not divided yet; what the member named as owned in its join is its own."""
    world = World(assignors=COOPERATIVE)
    (leader,) = world.join("leader")
    (a,) = world.join("a")
    c = newcomer(world, "c")
    c.transport.write()
    world.log._judge()
    for transport in (leader.transport, a.transport):
        transport.read()
        transport.write()
    world.log._judge()
    leader.transport.is_cut = True
    world.log.pump()
    assert a.member._machine.state is State.SYNCING
    kept = a.owns
    a.transport.is_deaf = True
    remove(world, a)
    leader.transport.is_cut = False

    world.run(2_000)
    assert a.owns == kept != ()
    assert not set(kept) & set(leader.owns + c.owns)
    a.transport.is_deaf = False
    everything_is_owned_in_the_end(world)


def test_a_twin_takes_the_place_of_one_that_is_parked() -> None:
    """Its older process keeps working on what it named, and hears nothing."""
    world = World(assignors=COOPERATIVE)
    (a,) = world.join("a", instance="i")
    (b,) = world.join("b")
    b.transport.is_cut = True
    c = newcomer(world, "c")
    world.log.pump()
    kept = a.owns
    a.transport.is_deaf = True
    a2 = newcomer(world, "a2", instance="i")
    world.log.pump()
    b.transport.is_cut = False

    world.run(2_000)
    assert a.owns == kept != ()
    assert not set(kept) & set(b.owns + c.owns + a2.owns)
    a.transport.is_deaf = False
    world.users.remove(a)
    everything_is_owned_in_the_end(world)


def test_the_last_to_join_a_group_whose_limit_was_lowered_is_turned_away() -> None:
    """Its JoinGroup named what it owns, and it goes on with that until it reads the refusal."""
    world = World({"t": 6}, assignors=COOPERATIVE)
    a, b, c = world.join("a", "b", "c")
    shard = world.log._shards[0]
    shard._settings = with_groups(shard._settings, max_size=2)
    c.transport.is_cut = True
    a.member.subscribe(["t", "z"])
    world.log.pump()
    c.transport.is_cut = False
    c.transport.read()
    c.transport.write()
    c.transport.is_deaf = True
    world.log.pump()
    kept = c.owns

    world.run(2_000)
    assert c.owns == kept != ()
    assert not set(kept) & set(a.owns + b.owns)
    c.transport.is_deaf = False
    world.run(60_000)
    assert {type(error) for error in c.errors} == {GroupError}
    assert sorted(a.owns + b.owns) == list(t(0, 1, 2, 3, 4, 5))
