"""Faults of copiers, and of what the driver does for their transactions."""

from random import Random
from typing import Final

from tests.tools.defects import DEADLINE, Defect
from tests.tools.simulation.job_faults import rebuild
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.poison import release
from tests.tools.simulation.transactions import beside
from tests.tools.simulation.transactions.copier import Copier
from tests.tools.simulation.transactions.copying import GROUP, Copying
from tests.tools.simulation.transactions.producer import POINTS
from tests.tools.simulation.transactions.teller import Teller
from tests.tools.simulation.world import PREFIX, World

#: How often one looks for the moment at which something hurts.
LOOKS_MS: Final = 20
STEPS: Final = ("PendingCommit", "OffsetFetch", "JoinGroup", DEADLINE)


def crew(world: World, luck: Random | None = None) -> Copying:
    """All copiers, and what the driver does for them."""
    assert world.copying is not None
    return world.copying


def somebody(world: World, luck: Random) -> Copier | None:
    """One of those that run."""
    return crew(world).somebody(luck)


def teller(world: World, luck: Random) -> Teller | None:
    """One of those that run."""
    running = crew(world).tellers.running()
    return luck.choice(running) if running else None


def dies_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next copier to reach a point of its unit dies there."""
    crew(world).traps[luck.choice(POINTS)] = Copier.kill


def stalls_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next copier to reach a point stands still there; its transaction may be over then."""

    def stall(copier: Copier) -> None:
        copier.stop()
        world.lasting("copier-stalls-inside", for_ms, copier.resume)

    crew(world).traps[luck.choice(POINTS)] = stall


def twin(world: World, luck: Random, for_ms: int) -> Lasting:
    """A second process with the same transactional id: each fences the other in turn."""
    if (copier := somebody(world, luck)) is not None:
        crew(world).start(copier.name.split("-")[0])
        yield
        copier.kill()


def joins(world: World, luck: Random, for_ms: int) -> Lasting:
    """One more, for a while: the group rebalances, perhaps between acceptance and decision."""
    copying = crew(world)
    return copying.one_more(f"k{len(copying.processes)}x")


def aside(world: World, luck: Random, for_ms: int) -> Lasting:
    """A step of the copiers' group raises while offsets wait; decisions are noted meanwhile."""
    copying = crew(world)
    records = world.cluster.partitions[f"{PREFIX}.requests", copying.shard]
    defect = Defect(GROUP, luck.choice(STEPS), records.end)
    world.engine.defects.append(defect)
    yield
    defect.end = records.end
    release(world, luck, GROUP, copying.shard)


def driver_dies_beside(world: World, luck: Random, for_ms: int) -> None:
    """Before or behind a look, or a message that is fed."""
    world.engine.crash_at = luck.choice(beside.CRASH_POINTS)
    world.perturbations += 1


def rebuilt_while_pending(world: World, luck: Random, for_ms: int) -> None:
    """The checkpoint is lost when offsets wait: what waits is in the topics."""
    copying = crew(world)

    def look() -> bool:
        if world.is_healing:
            return False
        if not (copying.has_pending() and world.is_supervised and world.has_history()):
            return True
        copying.met["rebuilt while offsets wait"] += 1
        rebuild(world)
        return False

    world.perturbations += 1
    world.every(LOOKS_MS, look)


def teller_twin(world: World, luck: Random, for_ms: int) -> Lasting:
    """A second process of its id starts while it stands still, and then it goes on."""
    if (found := teller(world, luck)) is not None:
        found.stop()
        crew(world).tellers.start(found.id)
        yield
        found.resume()


def words_again(world: World, luck: Random, for_ms: int) -> Lasting:
    """Requests of tellers come once more: commits, and ends of transactions that are over."""
    return repeated(world, 400, lambda: crew(world).tellers.words_again(luck))
