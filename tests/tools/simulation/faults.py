"""How each kind of fault is brought about, and healed. F numbers are those of reliability."""

from collections.abc import Callable
from random import Random

from coordlib.core.wire import api, codec
from coordlib.core.wire.offsets import KAFKA
from tests.tools.simulation import (
    assignors,
    broker_faults,
    company,
    crowds,
    forgeries,
    late,
    lost,
    memory,
    poison,
    positions,
    reassigned,
    store_faults,
    strangers,
    user_faults,
)
from tests.tools.simulation.engine import CRASH_POINTS
from tests.tools.simulation.lake import faults as lake_faults
from tests.tools.simulation.late import Heal, join, somebody
from tests.tools.simulation.plan import CLASSIC, Fault
from tests.tools.simulation.program import Program
from tests.tools.simulation.transactions import courier_faults
from tests.tools.simulation.transactions import faults as copier_faults
from tests.tools.simulation.world import PREFIX, World

HOUR_MS = 3_600_000


def bring(world: World, fault: Fault) -> None:
    """Break it now; what lasts is healed after its time."""
    world.note("fault", fault.kind, str(fault.for_ms))
    heal = _FAULTS[fault.kind](world, Random(f"{world.plan.seed} {fault.dice}"), fault.for_ms)
    if heal is not None:
        world.lasting(fault.kind, fault.for_ms, heal)


# ---- members ----------------------------------------------------------------------------------


def _pause(world: World, luck: Random, for_ms: int) -> Heal | None:
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 1
    program.stop()
    return program.resume


def _busy(world: World, luck: Random, for_ms: int) -> Heal | None:
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 1
    program.habits.is_busy = True

    def heal() -> None:
        program.habits.is_busy = False

    return heal


def _kill(world: World, luck: Random, for_ms: int) -> None:
    program = somebody(world, luck)
    if program is not None:
        world.perturbations += 2
        program.kill()
        _replace(world, program, luck)


def _close(world: World, luck: Random, for_ms: int) -> None:
    program = somebody(world, luck)
    if program is not None:
        world.perturbations += 2
        program.close()
        _replace(world, program, luck)


def _all_leave(world: World, luck: Random, for_ms: int) -> None:
    """A deployment that stops everybody before it starts anybody."""
    pause_ms = luck.choice([2_000, 5_000, 15_000])
    for program in world.living:
        world.perturbations += 2
        program.close()
        instance = program.habits.config.get("group.instance.id")
        world.start_program_after(pause_ms + luck.uniform(0, 3_000), instance)


def _replace(world: World, program: Program, luck: Random) -> None:
    """Somebody starts it again: at once, or when its session may be over."""
    instance = program.habits.config.get("group.instance.id")
    after_ms = luck.choice([0, 500, 5_000, 30_000])
    world.start_program_after(after_ms, instance)


def _twin(world: World, luck: Random, for_ms: int) -> None:
    """A second process with an instance id that lives already (F-23)."""
    names = [each.habits.config.get("group.instance.id") for each in world.living]
    known = [name for name in names if name]
    if known:
        world.perturbations += 2
        world.start_program(luck.choice(known))


# ---- the network between members and brokers --------------------------------------------------


def _switch(name: str) -> Callable[[World, Random, int], Heal | None]:
    def bring(world: World, luck: Random, for_ms: int) -> Heal | None:
        program = somebody(world, luck)
        if program is None:
            return None
        world.perturbations += 1
        network = world.networks[program.name]
        setattr(network, name, True)
        return lambda: setattr(network, name, False)

    return bring


def _slow(world: World, luck: Random, for_ms: int) -> Heal | None:
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 1
    network = world.networks[program.name]
    slow_ms = luck.choice([300, 1_000, 4_000])
    network.extra_ms.append(slow_ms)
    return lambda: network.extra_ms.remove(slow_ms)


def _duplicate(world: World, luck: Random, for_ms: int) -> None:
    """A producer without idempotence tries again: the same bytes at a later offset (F-01)."""
    shard = luck.randrange(world.plan.shards)
    place = (f"{PREFIX}.requests", shard)
    records = world.cluster.partitions[place].records
    if records:
        again = luck.choice(records[-50:])
        request = codec.decode_request(again.value)
        # Who writes in a transaction has idempotence.
        is_in_transaction = isinstance(request, api.PendingCommit) and request.decided_by == KAFKA
        if not is_in_transaction and not isinstance(request, api.Tick):
            world.perturbations += 1
            world.cluster.append(place, again.key, again.value)


def _late_commits(world: World, luck: Random, for_ms: int) -> Heal:
    """Commits of earlier generations come once more, from wherever they were held up (F-04)."""
    place, is_on = reassigned.place_of(world), [True]
    pick = late.commit_of_old if world.plan.kind == CLASSIC else reassigned.late_commit

    def again() -> bool:
        found = pick(world, world.cluster.partitions[place].records[-500:], luck)
        if found is not None:
            world.cluster.append(place, found.key, found.value)
        return is_on[0]

    world.every(1_000, again)
    return lambda: is_on.__setitem__(0, False)


# ---- topics --------------------------------------------------------------------------------------


def _topic_grows(world: World, luck: Random, for_ms: int) -> None:
    topic = luck.choice(world.topics)
    count = world.cluster.count(topic)
    if count < 12:
        world.perturbations += 2  # noticed by a leader, perhaps by two after each other
        world.cluster.create(topic, count + 1)


# ---- the job ----------------------------------------------------------------------------------


def _crash(world: World, luck: Random, for_ms: int) -> None:
    world.perturbations += 1
    world.engine.crash_at = luck.choice(CRASH_POINTS)


def _crash_twice(world: World, luck: Random, for_ms: int) -> None:
    """The second while the batch runs again."""
    _crash(world, luck, for_ms)

    def again() -> bool:
        if world.engine.crash_at is not None and not world.is_healing:
            return True
        world.engine.crash_at = None if world.is_healing else luck.choice(CRASH_POINTS[1:])
        return False

    world.every(50, again)


def _away(world: World, luck: Random, for_ms: int) -> Heal | None:
    if not world.is_supervised:
        return None
    world.perturbations += 1
    world.is_supervised = False
    if world.driver is not None:
        world.driver.kill()

    def heal() -> None:
        world.is_supervised = True
        world.require_driver(0)

    return heal


def _driver_paused(world: World, luck: Random, for_ms: int) -> Heal | None:
    driver = world.driver
    if driver is None:
        return None
    world.perturbations += 1
    driver.stop()
    return driver.resume


def _slow_batches(world: World, luck: Random, for_ms: int) -> Heal:
    engine = world.engine
    slow_ms = luck.choice([2_000, 5_000, 9_000])
    world.perturbations += 1
    engine.extra_ms.append(slow_ms)
    return lambda: engine.extra_ms.remove(slow_ms)


def _ticks_lost(world: World, luck: Random, for_ms: int) -> Heal:
    world.are_ticks_lost = True
    for driver in world.drivers:
        driver.control.is_mute = True

    def heal() -> None:
        world.are_ticks_lost = False
        for driver in world.drivers:
            driver.control.is_mute = False

    return heal


def _switch_engine(name: str) -> Callable[[World, Random, int], Heal]:
    def bring(world: World, luck: Random, for_ms: int) -> Heal:
        setattr(world.engine, name, True)
        return lambda: setattr(world.engine, name, False)

    return bring


def _second_driver(world: World, luck: Random, for_ms: int) -> None:
    """Somebody starts the job once more, on the same checkpoint (F-24)."""
    world.perturbations += 1
    world.start_driver(luck.uniform(0, 3_000))


def _checkpoint_lost(world: World, luck: Random, for_ms: int) -> None:
    """The folder is gone, and the job with it (F-25)."""
    if not world.is_supervised or not world.has_history():
        return
    world.perturbations += 1
    world.kill_drivers()
    world.rebuild_into_new_checkpoint()


def _old_checkpoint(world: World, luck: Random, for_ms: int) -> None:
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


def _corrupt(world: World, luck: Random, for_ms: int) -> None:
    """A disk gives back other bytes than it was given (F-26)."""
    states = world.checkpoint.states
    if states:
        world.perturbations += 1
        newest = states[max(states)]
        for shard in list(newest)[:1]:
            half = newest[shard][: len(newest[shard]) // 2]
            newest[shard] = luck.choice([b"\x00", half, b"zzzz", b""])


# ---- brokers ----------------------------------------------------------------------------------


def _broker_away(world: World, luck: Random, for_ms: int) -> Heal | None:
    if not world.cluster.is_up:
        return None
    world.perturbations += 1
    world.cluster.is_up = False

    def heal() -> None:
        world.cluster.is_up = True

    return heal


def _clock_jumps(world: World, luck: Random, for_ms: int) -> None:
    by_ms = luck.choice([-HOUR_MS, -5_000, 5_000, HOUR_MS])
    for clock in world.cluster.brokers:
        clock.jump(by_ms)


def _leaders_move(world: World, luck: Random, for_ms: int) -> None:
    world.cluster.move_leaders()


_FAULTS: dict[str, Callable[[World, Random, int], Heal | None]] = {
    "duplicate-request": _duplicate,
    "late-consent": late.late_consent,
    "late-commits": _late_commits,
    "slow-network": _slow,
    "member-paused": _pause,
    "member-busy": _busy,
    "member-killed": _kill,
    "member-closed": _close,
    "member-joins": join,
    "all-leave": _all_leave,
    "member-cut-off": _switch("is_cut"),
    "member-deaf": _switch("is_deaf"),
    "deaf-while-joining": late.deaf_while_joining,
    "late-and-mute": late.late_and_mute,
    "acks-lost": _switch("loses_acks"),
    "rows-again": _switch_engine("repeats_rows"),
    "driver-crashes": _crash,
    "driver-crashes-twice": _crash_twice,
    "driver-away": _away,
    "driver-paused": _driver_paused,
    "slow-batches": _slow_batches,
    "broker-clock-jumps": _clock_jumps,
    "leaders-move": _leaders_move,
    "ticks-lost": _ticks_lost,
    "broker-away": _broker_away,
    "garbage": strangers.garbage,
    "flood-of-joins": strangers.flood,
    "stranger-commits": strangers.commits,
    "poison-step": poison.poison_step,
    "twin-starts": _twin,
    "member-removed": late.removed,
    "second-driver": _second_driver,
    "checkpoint-lost": _checkpoint_lost,
    "old-checkpoint": _old_checkpoint,
    "state-corrupt": _corrupt,
    "task-recomputed": _switch_engine("recomputes"),
    "topic-grows": _topic_grows,
    "topic-appears": reassigned.topic_appears,
    "topic-vanishes": reassigned.topic_vanishes,
    "stale-listing": reassigned.stale_listing,
    "wish-changes": reassigned.wish_changes,
    "late-words": reassigned.late_words,
    "never-lets-go": reassigned.never_lets_go,
    "kind-changes": reassigned.kind_changes,
    "forged-ticks": forgeries.forged_ticks,
    "forged-listings": forgeries.forged_listings,
    "copied-control": forgeries.copied_control,
    assignors.KIND: assignors.raises,
    "bulk-reader": user_faults.bulk_reader,
    "user-seeks": user_faults.seeks,
    "user-pauses": user_faults.pauses,
    "user-unsubscribes": user_faults.unsubscribes,
    "subscription-changes": user_faults.subscription_changes,
    "topic-created": user_faults.topic_created,
    "commit-waits": user_faults.commit_waits,
    "commit-cancelled": user_faults.commit_cancelled,
    "callback-raises": user_faults.callback_raises,
    "callback-closes": user_faults.callback_closes,
    "patient-close": user_faults.patient_close,
    "members-share": user_faults.members_share,
    "odd-answers": user_faults.odd_answers,
    "release-refused": user_faults.release_refused,
    "company-joins": company.joins,
    "query-positions": positions.query_positions,
    "query-deleted": positions.query_deleted,
    "positions-of-members": positions.of_members,
    "group-deleted": positions.group_deleted,
    "offsets-deleted": positions.offsets_deleted,
    "group-described": positions.group_described,
    "aside-and-rebuilt": company.aside_and_rebuilt,
    "new-groups": crowds.new_groups,
    "shard-fills": crowds.shard_fills,
    "hoarder": crowds.hoarder,
    "greedy-fetch": crowds.greedy_fetch,
    **broker_faults.FAULTS,
    **lost.FAULTS,
    **memory.FAULTS,
    **store_faults.FAULTS,
    **copier_faults.FAULTS,
    **courier_faults.FAULTS,
    **lake_faults.FAULTS,
}
