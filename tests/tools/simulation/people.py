"""Whom a fault of members meets, and where requests to their group stand."""

from random import Random

from coordlib.core.wire.envelope import shard_of
from tests.tools.simulation.cluster import Place
from tests.tools.simulation.program import Program
from tests.tools.simulation.world import GROUP, MEMBERS_MAX, PREFIX, World


def somebody(world: World, luck: Random) -> Program | None:
    """One of those that run."""
    alive = [each for each in world.living if not each.is_stopped]
    return luck.choice(alive) if alive else None


def disturbed(world: World, luck: Random, by: int = 1) -> Program | None:
    """Somebody, after whom the group may rebalance so many times."""
    program = somebody(world, luck)
    world.perturbations += by if program is not None else 0
    return program


def join(world: World, luck: Random, for_ms: int) -> None:
    """One member more."""
    if len(world.living) < MEMBERS_MAX:
        world.perturbations += 1
        world.start_program()


def instance_of(program: Program) -> str | None:
    """`group.instance.id`, under which it may be started again."""
    name: str | None = program.habits.config.get("group.instance.id")
    return name


def place_of(world: World) -> Place:
    """The requests of the group's shard."""
    return (f"{PREFIX}.requests", shard_of(GROUP, world.plan.shards))
