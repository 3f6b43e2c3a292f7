"""Other groups with members in the readers' shard, and what becomes of one that is set aside."""

from collections.abc import Callable
from random import Random

from coordlib.core.wire.envelope import shard_of
from tests.tools.defects import Defect
from tests.tools.simulation.job_faults import rebuild
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.people import place_of
from tests.tools.simulation.plan import ASSIGNED, CLASSIC, MODES, STRATEGIES
from tests.tools.simulation.poison import release
from tests.tools.simulation.strangers import name_in
from tests.tools.simulation.teams import Team
from tests.tools.simulation.wishes import Wish
from tests.tools.simulation.world import PREFIX, TOPICS, World

#: Groups with members beside the readers, at most.
COMPANY_MAX = 2
LETTERS = "abcdefgh"
EVERYTHING = "[a-z]*s"


def joins(world: World, luck: Random, for_ms: int) -> None:
    """A second group, or a third; where there are enough, one of their members goes."""
    if len(world.company) < COMPANY_MAX:
        others = (
            [CLASSIC, ASSIGNED, ASSIGNED] if world.plan.kind == CLASSIC else [CLASSIC, ASSIGNED]
        )
        team = new_team(world, luck, luck.choice(others))
        later_ms = luck.uniform(6_000, 30_000)
        world.scheduler.after(later_ms, unless_healing(world, lambda: _loses(world, luck, team)))
    else:
        _loses(world, luck, luck.choice(world.company))


def new_team(world: World, luck: Random, kind: str, wish: Wish | None = None) -> Team:
    """A group in the readers' shard that shares topics with them."""
    number = len(world.company)
    team = Team(
        name_in(world, place_of(world)[1], f"company-{number}"),
        kind,
        LETTERS[number],
        wish=wish or luck.choice([Wish(TOPICS), Wish(world.topics[:1]), Wish(pattern=EVERYTHING)]),
        strategy=luck.choice(MODES if kind == CLASSIC else STRATEGIES),
    )
    world.teams.append(team)
    for _ in range(2 if world.plan.group_size_max else luck.randint(2, 3)):
        team.perturbations += 1
        world.start_program_after(luck.uniform(0, 3_000), None, team)
    return team


def _loses(world: World, luck: Random, team: Team) -> None:
    """One of its members is killed or closed, and starts again."""
    alive = [each for each in team.living if not each.is_stopped and not each.is_blocked]
    if not alive:
        return
    program = luck.choice(alive)
    team.perturbations += 2
    if luck.random() < 0.5:
        program.kill()
    else:
        program.close()
    world.start_program_after(luck.choice([0, 5_000]), None, team)


def unless_healing(world: World, action: Callable[[], None]) -> Callable[[], None]:
    return lambda: None if world.is_healing else action()


def aside_and_rebuilt(world: World, luck: Random, for_ms: int) -> Lasting:
    """A server-assigned group is set aside, a topic of its grows, and the checkpoint is lost.

    The group that is set aside does not hear of the topic. What the rebuilt shard knows of it, it
    must have from somebody else, or not at all.
    """
    assigned = [team for team in world.company if team.protocol == ASSIGNED]
    if not assigned and len(world.company) >= COMPANY_MAX:
        return
    world.perturbations += 4
    topic = world.topics[0]
    team = assigned[0] if assigned else new_team(world, luck, ASSIGNED, Wish((topic,)))
    shard = shard_of(team.name, world.plan.shards)
    records = world.cluster.partitions[(f"{PREFIX}.requests", shard)]
    defect = Defect(team.name, "Subscribe", -1, -1)

    def break_it() -> None:
        team.perturbations += 4
        defect.first, defect.end = records.end, None
        world.start_program(team=team)

    def grow() -> None:
        world.cluster.create(topic, world.cluster.count(topic) + 1)

    def lose() -> None:
        if world.is_supervised and world.has_history():
            rebuild(world)

    world.engine.defects.append(defect)
    for at_ms, action in ((4_500, break_it), (6_500, grow), (11_500, lose)):
        world.scheduler.after(at_ms, unless_healing(world, action))
    yield
    if defect.end is None:
        defect.end = records.end
    release(world, luck, team.name, shard)
