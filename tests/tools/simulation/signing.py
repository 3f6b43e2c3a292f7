"""Which control records must count, by what the world knows, and when drivers begin to sign."""

from coordlib.core.wire import api, codec
from tests.tools.simulation.signed_worlds import signatures_of
from tests.tools.simulation.world import PREFIX, World


def begin(world: World) -> None:
    """Drivers sign from the beginning on, or, of before, from an upgrade on."""
    if world.plan.unsigned_ms:
        world.scheduler.after(world.plan.unsigned_ms, lambda: _upgrade(world))
    else:
        world.engine.signatures = signatures_of(world.plan.seed)


def _upgrade(world: World) -> None:
    world.engine.signatures = signatures_of(world.plan.seed)
    world.perturbations += 1
    world.note("job upgraded")
    if world.is_supervised:
        world.kill_drivers()
        world.restart_driver(world.stream("upgrade").uniform(500, 5_000))


def first_signed(world: World, shard: int) -> int:
    """From which offset on a record of this shard must be signed."""
    since = [key.since[str(shard)] for key in world.engine.settings.keys]
    return min(since, default=world.cluster.partitions[(f"{PREFIX}.requests", shard)].end)


def genuine(world: World, shard: int) -> set[int]:
    """Offsets of what drivers have told this shard; of before they signed, of what anybody has."""
    since, written = first_signed(world, shard), world.engine.written
    return {
        offset for offset in controls(world, shard) if offset < since or (shard, offset) in written
    }


def effective(world: World, shard: int) -> set[int]:
    """Of those the ones that must count: numbers rise."""
    since, written = first_signed(world, shard), world.engine.written
    newest, found = (0, 0), set()
    for offset in sorted(genuine(world, shard)):
        number = written.get((shard, offset))
        if offset >= since and number is not None:
            if number <= newest:
                continue
            newest = number
        found.add(offset)
    return found


def controls(world: World, shard: int) -> dict[int, api.Control]:
    """Everything in the log of a shard that only drivers may write, whoever has written it."""
    records = world.cluster.partitions[(f"{PREFIX}.requests", shard)].records
    read = {record.offset: codec.decode_request(record.value) for record in records}
    return {offset: each for offset, each in read.items() if isinstance(each, api.Control)}
