"""How long a dead consumer's partitions wait at Marshal's interval, in simulated worlds.

Real consumers in the simulator's cluster, in virtual time: nothing breaks but that one is killed at
a moment of its own in each world, beside another one that wants all that it had. A real stack says
the same of an interval of 6 s (`claims`), and would take minutes for each of these.
"""

from dataclasses import replace
from random import Random
from typing import Final

from coordlib.demo.history import Happened
from tests.tools.bench.figures import percentile, tell, tell_machine
from tests.tools.simulation.claims import checks
from tests.tools.simulation.claims.plan import Plan, draw
from tests.tools.simulation.claims.run import mourning_ms
from tests.tools.simulation.claims.world import ClaimsWorld, beginnings_of

BENCH: Final = "claims"
#: Intervals until all is claimed and quiet.
SETTLED: Final = 3


def run(*, kills: int, interval_s: int) -> int:
    """So many worlds with a death each; what their partitions waited."""
    tell_machine(BENCH)
    waited_s = [
        each_ms / 1_000 for seed in range(kills) for each_ms in waited_ms(plan_of(seed, interval_s))
    ]
    found = {
        f"p{share * 100:g}": round(percentile(waited_s, share), 1) for share in (0.5, 0.9, 0.99)
    }
    most, least = round(max(waited_s), 1), round(min(waited_s), 1)
    partitions = len(waited_s)
    tell(
        BENCH,
        "killed_simulated",
        kills=kills,
        partitions=partitions,
        interval_s=interval_s,
        unit="s",
        least=least,
        **found,
        most=most,
    )
    return 0


def plan_of(seed: int, interval_s: int) -> Plan:
    """A world of this interval in which nothing breaks; the rest is as the seed draws it."""
    drawn = draw(
        seed,
        interval_ms=interval_s * 1_000,
        length_ms=8 * interval_s * 1_000,
        has_job=False,
        entire_topic=False,
        maximum=0,
        releases_if_behind=False,
        from_start_max=5_000_000,
    )
    return replace(drawn, faults=())


def waited_ms(plan: Plan) -> list[int]:
    """Of each partition that a killed consumer had: until another one was told that it has it."""
    world = ClaimsWorld(plan)
    with beginnings_of(plan):
        world.heal_all()
        moment = SETTLED + Random(f"killed {plan.seed}").random()
        until_ms = round(moment * plan.interval_ms)
        world.scheduler.run(until_ms, world.check)
        checks.check_peace(world)
        victim = checks.victim(world)
        assert victim is not None, "somebody has something, and another one would take it"
        had = {f"{place.topic}-{place.partition}" for place in victim.told()}
        killed_ms = world.scheduler.now_ms
        victim.kill()
        world.scheduler.run(until_ms + mourning_ms(world), world.check)
        checks.check_mourned(world)
    return claimed_after(world.history, had, killed_ms)


def claimed_after(history: list[Happened], partitions: set[str], since_ms: int) -> list[int]:
    """How long after this moment each of these partitions was assigned."""
    found: dict[str, int] = {}
    for line in history:
        if line.what == "assigned" and line.t_ms >= since_ms:
            for partition in partitions.intersection(line.partitions):
                found.setdefault(partition, line.t_ms - since_ms)
    assert found.keys() == partitions, "all of them were claimed"
    return sorted(found.values())
