"""Faults of copiers, and of what the driver does for their transactions."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from tests.tools.defects import DEADLINE, Defect
from tests.tools.simulation.late import Heal
from tests.tools.simulation.poison import release
from tests.tools.simulation.transactions import beside
from tests.tools.simulation.transactions.copier import Copier
from tests.tools.simulation.transactions.copying import GROUP, Copying
from tests.tools.simulation.transactions.producer import POINTS
from tests.tools.simulation.world import PREFIX, World

#: How often one looks for the moment at which something hurts.
LOOKS_MS: Final = 20
STEPS: Final = ("PendingCommit", "OffsetFetch", "JoinGroup", DEADLINE)


def _copying(world: World) -> Copying:
    assert world.copying is not None
    return world.copying


def _somebody(copying: Copying, luck: Random) -> Copier | None:
    running = [each for each in copying.living if not each.is_stopped]
    return luck.choice(running) if running else None


def killed(world: World, luck: Random, for_ms: int) -> None:
    """Wherever it is; a supervisor starts it again."""
    copier = _somebody(_copying(world), luck)
    if copier is not None:
        copier.kill()


def dies_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next copier to reach a point of its unit dies there."""
    _copying(world).traps[luck.choice(POINTS)] = Copier.kill


def stalls_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next copier to reach a point stands still there; its transaction may be over then."""

    def stall(copier: Copier) -> None:
        copier.stop()
        world.lasting("copier-stalls-inside", for_ms, copier.resume)

    _copying(world).traps[luck.choice(POINTS)] = stall


def paused(world: World, luck: Random, for_ms: int) -> Heal | None:
    """Wherever it is."""
    copier = _somebody(_copying(world), luck)
    if copier is None:
        return None
    copier.stop()
    return copier.resume


def _switch(name: str) -> Callable[[World, Random, int], Heal | None]:
    def bring(world: World, luck: Random, for_ms: int) -> Heal | None:
        copier = _somebody(_copying(world), luck)
        if copier is None:
            return None
        setattr(copier.network, name, True)
        return partial(setattr, copier.network, name, False)

    return bring


def twin(world: World, luck: Random, for_ms: int) -> Heal | None:
    """A second process with the same transactional id: each fences the other in turn."""
    copying = _copying(world)
    copier = _somebody(copying, luck)
    if copier is None:
        return None
    copying.start(copier.name.split("-")[0])
    return copier.kill


def joins(world: World, luck: Random, for_ms: int) -> Heal:
    """One more, for a while: the group rebalances, perhaps between acceptance and decision."""
    copying = _copying(world)
    return copying.one_more(f"k{len(copying.processes)}x")


def ends_late(world: World, luck: Random, for_ms: int) -> Heal:
    """Half of all ends are sent twice, and the first of the two arrives in the next transaction."""
    habits = _copying(world).habits
    habits.resends = True
    return lambda: setattr(habits, "resends", False)


def aside(world: World, luck: Random, for_ms: int) -> Heal:
    """A step of the copiers' group raises while offsets wait; decisions are noted meanwhile."""
    copying = _copying(world)
    records = world.cluster.partitions[f"{PREFIX}.requests", copying.shard]
    defect = Defect(GROUP, luck.choice(STEPS), records.end)
    world.engine.defects.append(defect)

    def heal() -> None:
        defect.end = records.end
        release(world, luck, GROUP, copying.shard)

    return heal


def _looks(name: str) -> Callable[[World, Random, int], Heal]:
    def bring(world: World, luck: Random, for_ms: int) -> Heal:
        faults = _copying(world).faults
        setattr(faults, name, True)
        return lambda: setattr(faults, name, False)

    return bring


def driver_dies_beside(world: World, luck: Random, for_ms: int) -> None:
    """Before or behind a look, or a message that is fed."""
    world.engine.crash_at = luck.choice(beside.CRASH_POINTS)
    world.perturbations += 1


def rebuilt_while_pending(world: World, luck: Random, for_ms: int) -> None:
    """The checkpoint is lost when offsets wait: what waits is in the topics."""
    copying = _copying(world)

    def look() -> bool:
        if world.is_healing:
            return False
        if not (copying.has_pending() and world.is_supervised and world.has_history()):
            return True
        copying.met["rebuilt while offsets wait"] += 1
        world.kill_drivers()
        world.rebuild_into_new_checkpoint()
        return False

    world.perturbations += 1
    world.every(LOOKS_MS, look)


def teller_killed(world: World, luck: Random, for_ms: int) -> None:
    """Wherever it is: the next process of its id, or its timeout, ends what it has left open."""
    running = _copying(world).tellers.running()
    if running:
        luck.choice(running).kill()


def teller_twin(world: World, luck: Random, for_ms: int) -> Heal | None:
    """A second process of its id starts while it stands still, and then it goes on."""
    tellers = _copying(world).tellers
    running = tellers.running()
    if not running:
        return None
    teller = luck.choice(running)
    teller.stop()
    tellers.start(teller.id)
    return teller.resume


def words_again(world: World, luck: Random, for_ms: int) -> Heal:
    """Requests of tellers come once more: commits, and ends of transactions that are over."""
    is_on = [True]

    def again() -> bool:
        _copying(world).tellers.words_again(luck)
        return is_on[0]

    world.every(400, again)
    return lambda: is_on.__setitem__(0, False)


FAULTS: Final[dict[str, Callable[[World, Random, int], Heal | None]]] = {
    "copier-killed": killed,
    "copier-dies-inside": dies_inside,
    "copier-stalls-inside": stalls_inside,
    "copier-paused": paused,
    "copier-cut-off": _switch("is_cut"),
    "copier-acks-lost": _switch("loses_acks"),
    "copier-twin": twin,
    "copier-joins": joins,
    "copier-ends-late": ends_late,
    "copiers-aside": aside,
    "looks-fail": _looks("looks_fail"),
    "looks-are-short": _looks("looks_are_short"),
    "driver-dies-beside": driver_dies_beside,
    "rebuilt-while-pending": rebuilt_while_pending,
    "teller-killed": teller_killed,
    "teller-twin": teller_twin,
    "teller-words-again": words_again,
}
