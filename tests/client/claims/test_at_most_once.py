"""INV-63: delivery at most once: nothing is handed out twice, whatever pauses or dies."""

from random import Random

import pytest

from coordlib.core.claims.slots import NO_EPOCH, Slot
from coordlib.core.wire import claims
from coordlib.errors import CannotReach
from tests.client.claims.world import GROUP, HI_MS, User, World, t

AMO = {"delivery": "at-most-once"}


def test_a_batch_is_announced_judged_committed_and_signed_before_it_is_handed_out() -> None:
    """Seed 003, steps 1 to 9, with the Heartbeat read back too."""
    world = World({"t": 1})
    world.log.put("t", 0, 5)
    a = world.enter("a", **AMO)
    world.run(2_000)

    told = [m for m in world.log.messages_of("t") if not isinstance(m, claims.ClaimingPartition)]
    steps = [(type(each).__name__, each.offset) for each in told]  # type: ignore[union-attr]
    assert steps[:3] == [("Heartbeat", 0), ("ClaimingMessages", 5), ("Heartbeat", 5)]
    assert world.log.committed[GROUP, t(0)[0]] == 5
    assert a.offsets(0) == [0, 1, 2, 3, 4]


def test_a_batch_has_a_bound() -> None:
    """What is announced and not handed out by a crash is lost: no more than the user has said."""
    world = World({"t": 1})
    world.log.put("t", 0, 5)
    a = world.enter("a", **AMO, max_message_queue=2)
    world.run(3_000)

    announced = [m for m in world.log.messages_of("t") if isinstance(m, claims.ClaimingMessages)]
    assert [each.offset for each in announced] == [2, 4, 5]
    assert a.offsets(0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fault", ["is_unacknowledged", "is_deaf"])
def test_nothing_is_handed_out_before_both_are_judged(fault: str) -> None:
    world = World({"t": 1})
    a = world.enter("a", **AMO)
    world.run(1_000)
    setattr(a.transport, fault, True)
    world.log.put("t", 0, 5)
    world.run(HI_MS // 2)

    assert a.read == []


def test_nothing_is_handed_out_before_kafkas_group_has_the_end() -> None:
    """A reader that begins late may have no other position. It is tried again, at a pace."""
    world = World({"t": 1})
    a = world.enter("a", **AMO)
    world.run(1_000)
    tries = _fail_commits(a)
    world.log.put("t", 0, 5)
    world.run(2_000)
    assert world.kinds().count("ClaimingMessages") == 1
    assert a.read == []
    assert 5 <= len(tries) <= 15
    del a.transport.commit  # type: ignore[misc]
    world.run(1_000)

    assert a.offsets(0) == [0, 1, 2, 3, 4]


def _fail_commits(user: User) -> list[int]:
    tries: list[int] = []

    def commit(group: str, offsets: object, is_awaited: bool) -> None:
        tries.append(1)
        raise CannotReach("Kafka took no commit.")

    user.transport.commit = commit  # type: ignore[method-assign]
    return tries


def test_nothing_is_handed_out_before_the_heartbeat_itself_is_judged() -> None:
    """The seed leaves this out: ClaimingMessages is judged, and the Heartbeat only written."""
    world = World({"t": 1})
    a = world.enter("a", **AMO)
    world.run(1_000)
    commit = a.transport.commit

    def deafen(*arguments: object, **named: object) -> None:
        commit(*arguments, **named)  # type: ignore[arg-type]
        a.transport.is_deaf = True

    a.transport.commit = deafen  # type: ignore[method-assign,assignment]
    world.log.put("t", 0, 5)
    world.run(2_000)
    assert world.position(0) == 5
    assert a.read == []
    a.transport.is_deaf = False
    world.run(500)

    assert a.offsets(0) == [0, 1, 2, 3, 4]


def test_what_a_sleeper_has_announced_its_successor_does_not_hand_out_again() -> None:
    """It slept between its Heartbeat and the reading of it: the seed would let it process."""
    world = World({"t": 1})
    a = world.enter("a", **AMO)
    world.run(1_000)
    world.log.put("t", 0, 5)
    a.is_busy = True
    for _ in range(100):
        world.log.advance(20, step_ms=20)
        a.consumer.consume(0, 0)
        a.consumer._fetch(0)
        if world.position(0) == 5:
            break
    a.transport.is_stopped = True
    b = world.enter("b", **AMO)
    world.run(4 * HI_MS)
    assert b.claims == t(0)
    a.transport.is_stopped = a.is_busy = False
    world.run(2_000)

    assert (a.read, b.read) == ([], [])


def test_a_release_gives_back_what_was_announced_and_not_handed_out() -> None:
    world = World({"t": 1})
    world.log.put("t", 0, 8)
    a = world.enter("a", **AMO)
    a.reads_per_poll = 1
    while len(a.read) < 3:
        world.run(100)
    world.close(a)
    b = world.enter("b", **AMO)
    world.run(3_000)

    assert b.offsets(0) == list(range(len(a.read), 8))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_handed_out_twice_under_kills_and_stops(seed: int) -> None:
    """Processes are killed, stopped and continued at any moment; new ones come."""
    luck, world, gone = Random(seed), World({"t": 2}), []
    for number in range(3):
        world.enter(f"c{number}", **AMO)
    for round_ in range(40):
        for partition in (0, 1):
            world.log.put("t", partition, luck.randint(0, 5))
        world.run(luck.choice([200, 700, 1_500]))
        user = luck.choice(world.users)
        _harm(luck, world, user, gone, round_)
    for user in world.users:
        user.transport.is_stopped = user.transport.is_deaf = False
    world.run(6 * HI_MS)

    read = [(place, at) for user in (*world.users, *gone) for place, at, _ in user.read]
    assert len(read) == len(set(read))
    ends = {place: len(log) for place, log in world.log.messages.items()}
    assert sum(ends.values()) - len(read) >= 0
    assert all(world.position(p.partition) == end for p, end in ends.items())


def _harm(luck: Random, world: World, user: User, gone: list[User], number: int) -> None:
    match luck.randrange(5):
        case 0:
            user.die()
            world.users.remove(user)
            gone.append(user)
            world.enter(luck.choice([user.client, f"n{number}"]), **AMO)
        case 1:
            user.transport.is_stopped = not user.transport.is_stopped
        case 2:
            user.transport.is_deaf = not user.transport.is_deaf
        case _:
            pass


@pytest.mark.parametrize(("committed", "begins"), [(11, 11), (None, 7)])
def test_kafkas_position_is_newer_than_that_of_an_old_snapshot(
    committed: int | None, begins: int
) -> None:
    """The job has saved 7 and gone away; consumers went on to 11, and retention has cut the log.

    A process that begins late knows 7 by the snapshot alone: it was handed out 7 to 10 again.
    """
    world = World({"t": 1})
    world.log.put("t", 0, 15)
    place = t(0)[0]
    for _ in range(3):
        world.log.say(claims.ClaimingMessages(2, 1, "0badc0de", "x", GROUP, "t", 0, 1))
    if committed is not None:
        world.log.committed[GROUP, place] = committed
    a = world.enter("a", begins={0: 2, 1: 2}, **AMO)
    known = a.transport.view_of("t").world.slots
    known[GROUP, "t", 0] = Slot("", "", NO_EPOCH, 0, 7, is_released=True)
    world.run(8 * HI_MS)

    assert a.offsets(0) == list(range(begins, 15))


@pytest.mark.parametrize(("committed", "begins"), [(11, 11), (None, 0)])
def test_a_snapshot_of_the_topic_of_before_does_not_void_kafkas_position(
    committed: int | None, begins: int
) -> None:
    """INV-63, INV-146: Kafka deletes its offsets with the topic, so what it has is of this one."""
    world = World({"t": 1})
    former = world.log.id_of("t")
    world.log.make_anew("t")
    world.log.put("t", 0, 15)
    for _ in range(3):
        world.log.say(claims.ClaimingMessages(2, 1, "0badc0de", "x", GROUP, "t", 0, 1))
    if committed is not None:
        world.log.committed[GROUP, t(0)[0]] = committed
    a = world.enter("a", begins={0: 2, 1: 2}, **AMO)
    saved = Slot("", "", NO_EPOCH, 0, 7, is_released=True, topic_id=former)
    a.transport.view_of("t").world.slots[GROUP, "t", 0] = saved
    world.run(8 * HI_MS)

    assert a.offsets(0) == list(range(begins, 15))
