"""The fault of a step that breaks: a group is set aside, an operator lets it go on (F-33)."""

from random import Random

from coordlib.core.wire import api, codec
from tests.tools.defects import DEADLINE, Defect
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.people import disturbed, instance_of, join, place_of
from tests.tools.simulation.plan import CLASSIC
from tests.tools.simulation.strangers import name_in, neighbour
from tests.tools.simulation.world import GROUP, PREFIX, World

ASSIGNED_STEPS = (
    "Subscribe",
    "Release",
    "OffsetCommit",
    "OffsetFetch",
    "LeaveGroup",
    DEADLINE,
    DEADLINE,
)
STEPS = ("JoinGroup", "SyncGroup", "OffsetCommit", "OffsetFetch", "LeaveGroup", DEADLINE, DEADLINE)
OPERATOR = "operator"


def poison_step(world: World, luck: Random, for_ms: int) -> Lasting:
    """One kind of step of a group raises; when the job is healed, the group is released.

    Mostly it is the members' group, else a neighbour in its shard, which may stay set aside for
    good. Sometimes the operator is too early: the group goes on, and breaks once more.
    """
    world.perturbations += 2
    place, is_on = place_of(world), True
    shard, records = place[1], world.cluster.partitions[place]
    beside = name_in(world, shard, f"neighbours-{len(world.engine.defects)}")
    is_theirs = luck.random() < 0.7
    steps = STEPS if world.protocol == CLASSIC else ASSIGNED_STEPS
    step = luck.choice(steps) if is_theirs else "OffsetCommit"
    neighbour(world, luck, beside, lambda: is_on)
    defect = Defect(GROUP if is_theirs else beside, step, records.end)
    world.engine.defects.append(defect)
    if is_theirs:
        _provoke(world, luck, step, for_ms)
    if luck.random() < 0.5:
        world.scheduler.after(for_ms / 2, lambda: release(world, luck, defect.group, shard))
    is_released = is_theirs or luck.random() < 0.5
    yield
    is_on = False
    defect.end = records.end
    if is_released:
        release(world, luck, defect.group, shard)


def release(world: World, luck: Random, group: str, shard: int) -> None:
    """An operator's word; it is refused if the group is not set aside."""
    request = api.ReleaseQuarantine(
        v=1, id=f"{luck.getrandbits(48)}", client=OPERATOR, group=group, reply=0
    )
    world.cluster.append((f"{PREFIX}.requests", shard), None, codec.encode(request))


def _provoke(world: World, luck: Random, step: str, for_ms: int) -> None:
    """Let the step come soon that is to break."""
    if step in ("JoinGroup", "SyncGroup", "OffsetFetch", "Subscribe", "Release"):
        join(world, luck, for_ms)
        return
    if step not in ("LeaveGroup", DEADLINE) or (program := disturbed(world, luck, by=2)) is None:
        return
    if step == DEADLINE:
        program.kill()
    else:
        program.close()
    world.start_program_after(luck.choice([500, 5_000, 30_000]), instance_of(program))
