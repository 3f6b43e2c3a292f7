"""What becomes of the job, of its checkpoint, and of the brokers and topics that it works with.

Drivers look at what they find by the job's own code; an operator accepts every loss that a start
names.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from coordlib import limits
from tests.tools.simulation.engine import CRASH_POINTS, Driver, Engine
from tests.tools.simulation.evidence import newest_marker
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.strangers import GARBAGE
from tests.tools.simulation.world import PREFIX, World

HOUR_MS: Final = 3_600_000
INPUTS: Final = ("requests", "offsets")
#: Outputs that a driver with little memory may collect.
MEMORY_BYTES: Final = (4 * limits.KIB, 8 * limits.KIB)
#: Records that a log loses at its end.
CUT_MAX: Final = 40


# ---- the driver ----------------------------------------------------------------------------------


def engine(world: World, luck: Random) -> Engine:
    """Nobody notices what becomes of it."""
    return world.engine


def engine_of_all(world: World, luck: Random) -> Engine:
    """After it is slowed, groups may rebalance."""
    world.perturbations += 1
    return world.engine


def driver(world: World, luck: Random) -> Driver | None:
    """The newest one; groups may rebalance when it fails."""
    world.perturbations += 1 if world.driver is not None else 0
    return world.driver


def crash(world: World, luck: Random, for_ms: int) -> None:
    world.perturbations += 1
    world.engine.crash_at = luck.choice(CRASH_POINTS)


def crash_twice(world: World, luck: Random, for_ms: int) -> None:
    """The second while the batch runs again."""
    crash(world, luck, for_ms)

    def again() -> bool:
        if world.engine.crash_at is not None and not world.is_healing:
            return True
        world.engine.crash_at = None if world.is_healing else luck.choice(CRASH_POINTS[1:])
        return False

    world.every(50, again)


def away(world: World, luck: Random, for_ms: int) -> Lasting:
    if world.is_supervised:
        world.perturbations += 1
        world.is_supervised = False
        if world.driver is not None:
            world.driver.kill()
        yield
        world.is_supervised = True
        world.require_driver(0)


def _job_away(world: World, then: Callable[[], None] = lambda: None) -> Lasting:
    """All drivers end, and no other starts until it is healed; `then` happens before that."""
    world.kill_drivers()
    world.is_supervised = False
    yield
    then()
    world.is_supervised = True
    world.require_driver(0)


def ticks_lost(world: World, luck: Random, for_ms: int) -> Lasting:
    world.are_ticks_lost = True
    for each in world.drivers:
        each.control.is_mute = True
    yield
    world.are_ticks_lost = False
    for each in world.drivers:
        each.control.is_mute = False


def second(world: World, luck: Random, for_ms: int) -> None:
    """Somebody starts the job once more, on the same checkpoint (F-24)."""
    world.perturbations += 1
    world.start_driver(luck.uniform(0, 3_000))


def memory_short(world: World, luck: Random, for_ms: int) -> Lasting:
    """The job is away for a while, and comes back with little memory: what waits is too much."""
    if world.is_supervised and world.has_history():
        world.perturbations += 3
        world.engine.memory_bytes = luck.choice(MEMORY_BYTES)
        yield from _job_away(world)


# ---- the checkpoint ------------------------------------------------------------------------------


def checkpoint_lost(world: World, luck: Random, for_ms: int) -> None:
    """The folder is gone, and the job with it (F-25)."""
    if world.is_supervised and world.has_history():
        world.perturbations += 1
        rebuild(world)


def rebuild(world: World) -> None:
    """The job is killed, and its checkpoint made anew from the topics."""
    world.kill_drivers()
    world.rebuild_into_new_checkpoint()


def old_checkpoint(world: World, luck: Random, for_ms: int) -> None:
    """Somebody copies a backup over the folder while the job is down (F-25)."""
    backup = world.checkpoint.copy()
    world.perturbations += 1

    def put_back() -> None:
        is_other = world.checkpoint.path != backup.path
        if world.is_healing or not world.is_supervised or is_other:
            return
        world.kill_drivers()
        world.checkpoint = backup
        world.restart_driver(1_000)

    world.scheduler.after(luck.choice([1_000, 5_000, 15_000]), put_back)


def corrupt(world: World, luck: Random, for_ms: int) -> None:
    """A disk gives back other bytes than it was given (F-26)."""
    states = world.checkpoint.states
    if states:
        world.perturbations += 1
        newest = states[max(states)]
        for shard in list(newest)[:1]:
            half = newest[shard][: len(newest[shard]) // 2]
            newest[shard] = luck.choice([b"\x00", half, b"zzzz", b""])


# ---- brokers -------------------------------------------------------------------------------------


def broker_away(world: World, luck: Random, for_ms: int) -> Lasting:
    if world.cluster.is_up:
        world.perturbations += 1
        world.cluster.is_up = False
        yield
        world.cluster.is_up = True


def clock_jumps(world: World, luck: Random, for_ms: int) -> None:
    by_ms = luck.choice([-HOUR_MS, -5_000, 5_000, HOUR_MS])
    for clock in world.cluster.brokers:
        clock.jump(by_ms)


def leaders_move(world: World, luck: Random, for_ms: int) -> None:
    world.cluster.move_leaders()


def end_comes_late(world: World, luck: Random, for_ms: int) -> Lasting:
    """Half of the job's transactions have an end that is sent twice. No member notices anything.

    The job's clients lose the connection after they have sent EndTxn, and send it once more. The
    second is answered. The first arrives while the next transaction is open, and would end it
    half-way (INV-99).
    """
    world.engine.resends.luck = luck
    yield
    world.engine.resends.luck = None


# ---- the job's inputs ----------------------------------------------------------------------------


def partition_added(world: World, luck: Random, for_ms: int) -> None:
    """An operator adds a partition to one of the job's topics, and some client writes there: one
    that counts the topic's partitions. Nobody answers it, and nothing else changes (INV-115)."""
    topic = f"{PREFIX}.{luck.choice(INPUTS)}"
    place = (topic, world.cluster.grow(topic))
    for _ in range(luck.randint(1, 3)):
        world.cluster.append(place, None, luck.choice(GARBAGE))


def requests_removed(world: World, luck: Random, for_ms: int) -> Lasting:
    """The job is away, and for longer than the topics keep what members write."""
    if world.is_supervised and world.has_history():
        world.perturbations += 3
        yield from _job_away(world, partial(_remove, world, luck))


def _judged(world: World, topic: str, shard: int) -> int:
    """The next offset that is judged, by a batch that is committed and perhaps not yet visible."""
    world.cluster.write_markers()
    marker = newest_marker(world.cluster)
    return marker.next_offsets.get(topic, {}).get(str(shard), 0) if marker else 0


def _remove(world: World, luck: Random) -> None:
    for name in INPUTS:
        for shard in range(world.plan.shards):
            place = (f"{PREFIX}.{name}", shard)
            log, first = world.cluster.partitions[place], _judged(world, *place)
            if log.end > first and luck.random() < 0.8:
                log.remove(luck.randint(first + 1, log.end), first)


def log_cut(world: World, luck: Random, for_ms: int) -> Lasting:
    """An unclean election: another broker leads, which lacks the end of the log.

    The driver may be away, asleep until the log has grown again, or at work.
    """
    if not world.is_supervised or not world.has_history():
        return
    world.perturbations += 4
    place = (f"{PREFIX}.requests", luck.randrange(world.plan.shards))
    log, how = world.cluster.partitions[place], luck.choice(["away", "asleep", "at work"])

    def cut(end: int) -> None:
        log.cut(max(log.start, end - luck.randint(1, CUT_MAX)), _judged(world, *place))

    if how == "away":
        # What members write while nobody reads it goes as well.
        yield from _job_away(world, lambda: cut(min(log.end, _judged(world, *place))))
        return
    cut(log.end)
    found = world.driver
    if how == "asleep" and found is not None:
        found.stop()
        yield
        found.resume()
