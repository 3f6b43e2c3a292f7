"""Faults of members whose batches a Delta table decides, and of the table's store."""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.tools.simulation.lake import query, table
from tests.tools.simulation.lake.checks import committed_of
from tests.tools.simulation.lake.member import LakeMember
from tests.tools.simulation.lake.members import Lake
from tests.tools.simulation.lake.table import DeltaLog, Store
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.world import World

#: Points of a batch, in its order.
OF_A_BATCH: Final = (
    query.READ,
    query.ASKED,
    table.STAGED,
    table.ACCEPTED,
    table.APPENDING,
    table.APPENDED,
    query.WRITTEN,
    query.SAID,
)
#: Points of a look at somebody else's batch.
OF_A_LOOK: Final = (table.CLAIMING, table.CLAIMED)
#: How often one looks for the moment at which something hurts.
LOOKS_MS: Final = 200
POINTS: Final = (*OF_A_BATCH, *OF_A_LOOK)


def _lake(world: World) -> Lake:
    assert world.lake is not None
    return world.lake


def _set_traps(world: World, luck: Random, spring: Callable[[LakeMember], None]) -> None:
    """Two at points of a batch; and one for whoever looks what became of it."""
    for point in (*luck.sample(OF_A_BATCH, 2), luck.choice(OF_A_LOOK)):
        _lake(world).traps.at[point] = spring


def dies_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next member to reach a point dies there."""
    _set_traps(world, luck, LakeMember.kill)


def stalls_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next member to reach a point stands still there; others may have its part meanwhile."""

    def stall(member: LakeMember) -> None:
        member.stop()
        world.lasting("lake-stalls-inside", for_ms, member.resume)

    _set_traps(world, luck, stall)


def acts_late(world: World, luck: Random, for_ms: int) -> None:
    """A writer, or one that looks, stands still before its commit until somebody else has claimed.

    Then it goes on: its commit comes too late, and the table has to say so.
    """
    lake = _lake(world)
    commits = lake.store.log.commits

    def stall(member: LakeMember) -> None:
        if lake.living == [member]:
            return  # nobody would take over
        known = len(commits)
        member.stop()
        world.lasting("lake-acts-late", for_ms, member.resume)

        def look() -> bool:
            is_late = any(not each.rows for each in commits[known:])
            if is_late and member.is_stopped:
                member.resume()
            return member.is_stopped

        world.every(LOOKS_MS, look)

    if luck.random() < 0.7:
        lake.traps.at[luck.choice((table.ACCEPTED, table.ACCEPTED, table.APPENDING))] = stall
    else:
        lake.traps.at[table.ACCEPTED] = LakeMember.kill
        lake.traps.at[table.CLAIMING] = stall


def anybody(world: World, luck: Random) -> LakeMember | None:
    """One of those that live, who may stand still."""
    living = _lake(world).living
    return luck.choice(living) if living else None


def joins(world: World, luck: Random, for_ms: int) -> Lasting:
    """One more, for a while: partitions are asked back in the middle of batches."""
    lake = _lake(world)
    return lake.one_more(f"d{len(lake.processes)}x")


def store(world: World, luck: Random) -> Store:
    """Half of all calls of it may fail, some of them behind what they have done."""
    return _lake(world).store


def table_goes(world: World, luck: Random, for_ms: int) -> None:
    """The table is away from its place for a while, once the group has written to it: a lost mount,
    a folder that is renamed. Another one may lie there meanwhile, or an old copy that has grown."""
    lake = _lake(world)
    store = lake.store

    def put_back() -> None:
        store.place = store.log

    def look() -> bool:
        if world.scheduler.now_ms >= world.plan.length_ms:
            return False  # faults are over: the world could end before it is back
        if not world.cluster.is_up or store.place is not store.log or not committed_of(lake):
            return True  # a member that is the first to write may make a table
        drawn, may_be_a_copy = luck.random(), all(each.knows_commits for each in lake.living)
        if drawn < 0.25 and may_be_a_copy and store.log.newest > 0:
            store.place = store.log.old_copy()
        else:
            store.place = DeltaLog("another") if drawn < 0.5 else None
        world.lasting("lake-table-goes", for_ms, put_back)
        return False

    world.every(LOOKS_MS, look)
