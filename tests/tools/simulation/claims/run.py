"""One seed of claims, from its plan to its verdict: faults, a time of peace, then the checks."""

from functools import partial

from coordlib.client.kit.events import TopicPartition
from tests.tools.simulation.claims import checks, strangers
from tests.tools.simulation.claims.kinds import KINDS, draw
from tests.tools.simulation.claims.plan import Plan
from tests.tools.simulation.claims.situations import count_sometimes
from tests.tools.simulation.claims.story import tell
from tests.tools.simulation.claims.world import ClaimsWorld, beginnings_of
from tests.tools.simulation.lasting import bring
from tests.tools.simulation.run import Outcome, watched
from tests.tools.simulation.violation import Violation

#: A user polls every half second at the latest, and his client's timers are 50 ms apart.
USER_LOOKS_MS = 2_000
#: A user commits at each look, or with a chance of 0.3 (`Habits.commits_later`): that none of so
#: many looks of 0.8 s brings a commit happens once in 10^12 times.
STANDS_STILL_MS = 80 * 800


def run(chosen: Plan) -> Outcome:
    """Play a plan to its end. Violations are in the outcome; other exceptions are defects."""
    return run_in(ClaimsWorld(chosen))


def run_in(world: ClaimsWorld) -> Outcome:
    """As `run`, for who wants to look at the world afterwards."""
    with beginnings_of(world.plan):
        outcome = watched(world, play)
    if outcome.violation is not None:
        outcome.story = tell(world)
    outcome.acts = sum(line.what == "act" for line in world.history)
    outcome.sometimes = count_sometimes(world)
    return outcome


def play(world: ClaimsWorld) -> None:
    """Faults, peace, a death, all is read to its end, and everybody leaves. Raises Violation."""
    until_ms = world.plan.length_ms
    _begin(world)
    world.scheduler.run(until_ms, world.check)
    world.heal_all()
    strangers.pause(world, 0)
    until_ms += peace_ms(world)
    world.scheduler.run(until_ms, world.check)
    checks.check_peace(world)
    victim = checks.victim(world)
    if victim is not None:
        victim.kill()
        until_ms += mourning_ms(world)
        world.scheduler.run(until_ms, world.check)
        checks.check_mourned(world)
    until_ms += 2 * world.plan.interval_ms  # starts are looked up, and what was left is read
    world.scheduler.run(until_ms, world.check)
    until_ms = _read_to_the_ends(world, until_ms)
    for program in world.living:
        program.close()
    until_ms += 2 * world.plan.interval_ms + 5 * world.plan.batch_ms
    world.scheduler.run(until_ms, world.check)
    checks.check_end(world)


def _begin(world: ClaimsWorld) -> None:
    plan, luck = world.plan, world.stream("beginning")
    if plan.has_job:
        world.start_driver(luck.uniform(0, 2_000))
    for _ in range(plan.consumers):
        world.scheduler.after(luck.uniform(0, 0.5) * plan.interval_ms, world.start_program)
    for fault in plan.faults:
        world.scheduler.after(fault.at_ms, partial(bring, world, fault, KINDS[fault.kind].begin))
    data = world.stream("data")
    for _ in range(plan.messages):
        at_ms = data.uniform(0, plan.length_ms)
        world.scheduler.after(at_ms, partial(_append, world, data.random()))


def _read_to_the_ends(world: ClaimsWorld, until_ms: int) -> int:
    """Until all is processed, however slow the users are, and the log says so; returns when.

    With strict ordering a user who commits by luck gets a message every few seconds. Raises
    Violation where a partition stands still.
    """
    moved_ms = dict[TopicPartition, int]()
    before = dict[TopicPartition, int | None]()
    while behind := checks.behind(world):
        for place, position in behind.items():
            if place not in before or position != before[place]:
                moved_ms[place] = until_ms
            elif until_ms - moved_ms[place] > STANDS_STILL_MS + 2 * world.plan.interval_ms:
                raise Violation(f"INV-49: {place} is read no further than {position}")
        before = behind
        until_ms += world.plan.interval_ms
        world.scheduler.run(until_ms, world.check)
    return until_ms


def _append(world: ClaimsWorld, dice: float) -> None:
    places = world.places()
    world.cluster.append(places[int(dice * len(places))], None, b"")


def peace_ms(world: ClaimsWorld) -> int:
    """By when every partition has an owner, and all that is there is processed.

    A late reader acts after 4·HI of the log's clock, which runs true to CAP/2 and a jitter where
    somebody waits. What was released or lost last is left alone for one HI, and whoever waited for
    what it had claimed begins again. The rest is that of `mourning_ms`.
    """
    waits = 4 if checks.may_begin_late(world) else 0
    return (3 + waits) * world.plan.interval_ms + mourning_ms(world)


def mourning_ms(world: ClaimsWorld) -> int:
    """By when others have claimed what a dead consumer had (time-and-fencing.md, claims).

    2·HI + CAP/2 + HI/20 + 2L, and a pass of the loop for each partition that it takes.
    """
    plan = world.plan
    interval_ms, latency_ms = plan.interval_ms, 2 * plan.latency_ms
    passes = len(world.places()) * (2 if plan.entire_topic else 1)
    return (
        2 * interval_ms
        + interval_ms // 5
        + interval_ms // 20
        + passes * (interval_ms // 20 + 2 * latency_ms)
        + 8 * latency_ms
        + USER_LOOKS_MS
    )


def run_seed(seed: int, kinds: tuple[str, ...] = ()) -> Outcome:
    return run(draw(seed, kinds))
