"""Faults of worlds of claims: of consumers, their networks, the log and the job."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from confluent_kafka import KafkaException

from coordlib.core.wire import claims as marshal
from coordlib.errors import CannotReach
from tests.tools.simulation.claims import logs
from tests.tools.simulation.claims.engine import ClaimsDriver
from tests.tools.simulation.claims.program import Program
from tests.tools.simulation.claims.transport import RETRY_MS
from tests.tools.simulation.claims.world import ClaimsWorld
from tests.tools.simulation.cluster import Partition
from tests.tools.simulation.engine import CRASH_POINTS, Engine
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.transport import Network

HOUR_MS: Final = 3_600_000
#: How often a fault that waits for its moment looks, and for how long at most, in HI.
LOOK_MS, PATIENCE = 10, 3


def somebody(world: ClaimsWorld, luck: Random) -> Program | None:
    return luck.choice(world.living) if world.living else None


def holder(world: ClaimsWorld, luck: Random) -> Program | None:
    """Rather somebody who holds something."""
    found = [each for each in world.living if each.held()]
    return luck.choice(found) if found else somebody(world, luck)


def _when(world: ClaimsWorld, holds: Callable[[], bool], action: Callable[[], None]) -> None:
    """Do it as soon as this holds; never, if it takes too long."""
    until_ms = world.scheduler.now_ms + PATIENCE * world.plan.interval_ms

    def look() -> bool:
        if world.is_healing or world.scheduler.now_ms > until_ms:
            return False
        if not holds():
            return True
        action()
        return False

    world.every(LOOK_MS, look)


# ---- consumers --------------------------------------------------------------------------------


def stopped_at_a_batch(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """SIGSTOP between the announcement of a batch and the reading of it, or of its Heartbeat."""
    program = holder(world, luck)
    if program is None:
        return

    def stop() -> None:
        program.stop()
        world.lasting("stopped-at-a-batch", for_ms, program.resume)

    def is_there() -> bool:
        return program.is_in and program.is_at_a_batch() and luck.random() < 0.2

    _when(world, is_there if world.plan.is_at_most_once else lambda: True, stop)


def killed(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    if (program := holder(world, luck)) is not None:
        program.kill()
        _replace(world, program, luck)


def closed(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    if (program := holder(world, luck)) is not None:
        program.close(releases=luck.random() < 0.6)
        _replace(world, program, luck)


def _replace(world: ClaimsWorld, program: Program, luck: Random) -> None:
    """Under its client id or another one: at once, or when its claims may have expired."""
    after = luck.choice([0, 0.2, 1.5, 3.0])
    client = program.client if luck.random() < 0.6 else None

    def start() -> None:
        if not world.is_healing:
            world.start_program(client, program.topics)

    world.scheduler.after(after * world.plan.interval_ms, start)


def joins(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    if len(world.living) < 6:
        world.start_program()


def twin(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """A second process under a client id that lives (F-23, Marshal's #8)."""
    program = holder(world, luck)
    if program is not None and len(world.living) < 6:
        world.start_program(program.client, program.topics)


def topics_grow(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    topic = luck.choice(world.topics)
    if world.cluster.count(topic) < 4:
        world.cluster.create(topic, world.cluster.count(topic) + 1)


# ---- the network between consumers and brokers ------------------------------------------------


def _set(network: Network, name: str) -> Callable[[], None]:
    """Until the returned function is called."""
    setattr(network, name, True)
    return partial(setattr, network, name, False)


def slow(world: ClaimsWorld, luck: Random, for_ms: int) -> Lasting:
    if (program := holder(world, luck)) is not None:
        between = program.transport.network
        slow_ms = int(luck.choice([0.02, 0.1, 0.3, 0.8]) * world.plan.interval_ms)
        between.extra_ms.append(slow_ms)
        yield
        between.extra_ms.remove(slow_ms)


def mute_at_a_win(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """Attempts are written, and their senders hear nothing for longer than an interval."""
    program = somebody(world, luck)
    if program is None:
        return
    name = luck.choice(["loses_acks", "is_deaf", "is_cut"])
    network = program.transport.network

    def begin() -> None:
        world.lasting("mute-at-a-win", for_ms, _set(network, name))

    _when(world, lambda: program.is_in and bool(program.life.me.attempts), begin)


# ---- brokers and the log ----------------------------------------------------------------------


def broker_away(world: ClaimsWorld, luck: Random, for_ms: int) -> Lasting:
    if world.cluster.is_up:
        world.cluster.is_up = False
        yield
        world.cluster.is_up = True


def _step(world: ClaimsWorld, by_ms: int) -> None:
    for clock in world.brokers:
        clock.jump(by_ms)


def clock_steps(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """Two steps within two intervals, which is what the bound allows, and some back."""
    interval_ms = world.plan.interval_ms
    by_ms = luck.choice([interval_ms // 2, 3 * interval_ms, HOUR_MS, -HOUR_MS])
    _step(world, by_ms)
    if luck.random() < 0.5:
        world.scheduler.after(luck.uniform(0, 2) * interval_ms, lambda: _step(world, abs(by_ms)))


def steps_at_a_fence(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """Just after an owner's last sign its clock steps twice, and the owner hears of nothing.

    Others wait: a partition whose owner is cut off is won as soon as the rules let it be. The two
    steps are what the bound of TIME-AND-FENCING allows; one CAP more, or a fence that closes
    later, gives two owners.
    """
    program = holder(world, luck)
    if program is None:
        return
    interval_ms, network = world.plan.interval_ms, program.transport.network
    is_slow = luck.random() < 0.4
    _wait_for(world, program)

    def cut() -> None:
        heal = _set(network, "is_cut")
        world.lasting("steps-at-a-fence", for_ms, heal)

    def step_twice(second: float) -> None:
        _step(world, HOUR_MS)
        world.scheduler.after(second * interval_ms, lambda: _step(world, HOUR_MS))

    def cut_and_step(second: float) -> None:
        cut()
        step_twice(second)

    def begin() -> None:
        if not is_slow:
            cut_and_step(luck.uniform(0.05, 0.9))
            return
        # A sign that is under way is written, and acknowledged just before the fence of the one
        # before it closes; the steps come behind that.
        held_ms = _left_ms(program) - interval_ms // 20 - RETRY_MS - 40
        again = _set(network, "loses_acks")
        world.lasting("steps-at-a-fence", held_ms, again)
        second = luck.uniform(0.02, 0.15)
        world.scheduler.after(held_ms + RETRY_MS + 40, lambda: cut_and_step(second))

    def is_due() -> bool:
        if is_slow:
            is_long = _left_ms(program) > 0.55 * interval_ms
            return is_long and program.is_in and bool(program.life._holding.signs)
        return _has_just_signed(program, interval_ms // 40)

    _when(world, is_due, begin)


def _wait_for(world: ClaimsWorld, program: Program) -> None:
    """Somebody else wants what it has."""
    others = [p for p in world.living if p is not program and p.covers]
    if not any(set(p.topics) >= set(program.topics) for p in others):
        world.start_program(topics=program.topics, covers=True)


def _has_just_signed(program: Program, within_ms: int) -> bool:
    now_ms = program.transport.now_ms()
    claims = [program.life.me.claims[place] for place in program.held()]
    return bool(claims) and all(now_ms - each.fence.sign_ms < within_ms for each in claims[:1])


def _left_ms(program: Program) -> int:
    """Until its first fence closes, if nothing else comes; 0: it has none."""
    now_ms = program.transport.now_ms()
    claims = [program.life.me.claims[place] for place in program.held()]
    return min((each.fence.closes_ms(None) - now_ms for each in claims), default=0)


def coordination_cut(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """Retention deletes records: perhaps such that the job has not judged yet. With delivery at
    most once none so young that its position may stand nowhere else (docs/reference/limits.md)."""
    for number in range(world.plan.partitions):
        log = world.cluster.partitions[world.plan.topic, number]
        intervals = luck.choice([0, 2, 8])
        keep_ms = (8 if world.plan.is_at_most_once else intervals) * world.plan.interval_ms
        before_ms = world.scheduler.now_ms - keep_ms
        first = next((r.offset for r in log.records if r.true_ms >= before_ms), log.end)
        logs.cut(log, min(first, _running_pause(world, log)))


def _running_pause(world: ClaimsWorld, log: Partition) -> int:
    """The offset of the first pause that goes on, else the end: retention outlasts pauses.

    A late reader could not know of it otherwise (docs/reference/limits.md, on claims).
    """
    for record in log.records:
        said = marshal.decode(record.value)
        if isinstance(said, marshal.ReleaseGroup) and said.expire_s > said.time_s:
            ends_ms = record.true_ms + 1_000 * (said.expire_s - said.time_s)
            if ends_ms + 2 * world.plan.interval_ms > world.scheduler.now_ms:
                return record.offset
    return log.end


def reader_begins(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """Somebody reads from now on, and only looks: from a snapshot, from the start, or late."""
    name = f"reader-{len(world.others)}"
    reader = Process(world.scheduler, name)
    transport = world.connect(reader, luck)
    try:
        transport.read(range(world.plan.partitions))
    except (CannotReach, KafkaException):
        reader.kill()
        return
    world.others.append(reader)


# ---- the job ----------------------------------------------------------------------------------


def crash(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    world.engine.crash_at = luck.choice(CRASH_POINTS)


def engine(world: ClaimsWorld, luck: Random) -> Engine:
    """All drivers share it."""
    return world.engine


def driver(world: ClaimsWorld, luck: Random) -> ClaimsDriver | None:
    """The newest one."""
    return world.driver


def away(world: ClaimsWorld, luck: Random, for_ms: int) -> Lasting:
    if world.is_supervised:
        world.kill_drivers()
        world.is_supervised = False
        yield
        world.is_supervised = True
        if world.driver is None:
            world.start_driver(0, world.checkpoint.identity() is None)


def second_driver(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    if world.is_supervised:
        world.start_driver(luck.uniform(0, 3_000), world.checkpoint.identity() is None)


def checkpoint_lost(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    if world.is_supervised:
        world.kill_drivers()
        world.rebuild(luck.uniform(0.1, 2) * world.plan.interval_ms)
