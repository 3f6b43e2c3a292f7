"""How soon a join is answered while thousands of heartbeats a second arrive, and how many can.

All members join first. While they heartbeat, probes join and leave groups of their own. A rate is
sustained when the job judges all of it without falling back, and nobody is refused or removed.
The archive runs, as it does in a deployment.
"""

import time
from typing import Any, Final

from coordlib.cli.kit.where import Where
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.generator import Generator
from tests.tools.bench.stand import Stand, standing

#: Heartbeats per second that are tried one after the other.
STEPS: Final = (5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 60_000)
DRAIN_LIMIT_S: Final = 40.0
#: A job that keeps up is done with the rest within a few batches.
DRAIN_MAX_S: Final = 3.0
SENT_SHARE_MIN: Final = 0.98
WARM_SLICE_S: Final = 5.0


def measure(
    generator: Generator, costs: Costs, seconds: float, rate: float, probes_per_second: float
) -> dict[str, Any]:
    """One rate, for so long; what came of it."""
    generator.probes.forget()
    generator.pace.begin()
    generator.crowd.refused.clear()
    generator.lateness_s, sent_before = 0.0, generator.sent
    committed_before = generator.commits
    judged_before = generator.pace.judged
    costs.begin()
    began = time.monotonic()
    generator.load(seconds, rate, probes_per_second)
    spent_s = time.monotonic() - began
    sent, judged = generator.sent - sent_before, generator.pace.judged - judged_before
    found: dict[str, Any] = {
        "target_per_s": round(rate),
        "sent_per_s": round(sent / spent_s),
        "judged_per_s": round(judged / spent_s),
        "commits_per_s": round((generator.commits - committed_before) / spent_s),
        "join_s": spread(generator.probes.took_s, 0.5, 0.9, 0.99),
        "probes": len(generator.probes.took_s),
        **generator.pace.figures(),
        "lag_grew": generator.pace.lag_grew(),
        **costs.figures(),
    }
    drained_s = generator.drain(DRAIN_LIMIT_S)
    return found | {
        "drained_s": None if drained_s is None else round(drained_s, 2),
        "unanswered": generator.probes.unanswered + generator.probes.refused,
        "refused": dict(generator.crowd.refused),
        "write_errors": dict(generator.write_errors),
        "generator_late_s": round(generator.lateness_s, 3),
    }


def is_sustained(found: dict[str, Any]) -> bool:
    """Whether the job kept up with a rate, and the generator reached it."""
    return (
        found["sent_per_s"] >= SENT_SHARE_MIN * found["target_per_s"]
        and not found["lag_grew"]
        and found["drained_s"] is not None
        and found["drained_s"] <= DRAIN_MAX_S
        and not (found["unanswered"] or found["refused"] or found["write_errors"])
    )


def sweep(generator: Generator, costs: Costs, seconds: float, probes_per_second: float) -> None:
    """Raise the rate until it is not sustained; tell the highest that was."""
    highest = 0
    for rate in STEPS:
        to_stderr(f"{rate:,} heartbeats a second for {seconds:.0f} s")
        found = measure(generator, costs, seconds, rate, probes_per_second)
        is_held = is_sustained(found)
        tell("load", "step", sustained=is_held, **found)
        if not is_held:
            break
        highest = rate
    tell("load", "highest", sustained_per_s=highest)


def warm_up(generator: Generator, stand: Stand, rate: float) -> None:
    """Load that is not counted, until the job's code is compiled."""
    with phase(to_stderr, "Warming up the job"):
        generator.load(WARM_SLICE_S, rate, probes_per_second=2)
        while not stand.is_warm():
            generator.load(WARM_SLICE_S, rate, probes_per_second=2)


def run(
    *,
    where: Where,
    groups: int,
    members: int,
    heartbeat_ms: int,
    seconds: int,
    probes_per_second: float,
    is_sweep: bool,
    commit_ms: int,
) -> int:
    """One rate, or a sweep over many."""
    tell_machine("load")
    # All groups come at once: a rate of new ones would be measured instead of the load.
    with standing(where, "--set", "group.new_groups_per_second_max=1000000") as stand:
        generator = Generator(stand.config, stand.prefix, groups, members)
        costs = Costs(stand.stack)
        rate = groups * members * 1000 / heartbeat_ms
        if commit_ms:
            generator.commits_per_second = groups * members * 1000 / commit_ms
        try:
            with phase(to_stderr, f"{groups:,} groups of {members} join"):
                settled_s = generator.settle()
            tell("load", "joined", groups=groups, members=members, settled_s=round(settled_s, 2))
            warm_up(generator, stand, rate)
            if is_sweep:
                sweep(generator, costs, seconds, probes_per_second)
            else:
                sizes = {"groups": groups, "members": members, "heartbeat_ms": heartbeat_ms}
                found = measure(generator, costs, seconds, rate, probes_per_second)
                tell("load", "load", sustained=is_sustained(found), **sizes, **found)
            tell("load", "state", bytes=stand.state_bytes())
        finally:
            generator.close()
    return 0
