"""Simulated worlds: `python -m tests.tools.sim --help`."""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from coordlib.cli.log import Choice
from coordlib.cli.numbers import Count, Seed
from coordlib.cli.output import counted, print_head, print_json, print_table
from coordlib.errors import SetupError

if TYPE_CHECKING:
    from tests.tools.simulation.campaign import Summary
    from tests.tools.simulation.run import Outcome

MS_PER_HOUR = 3_600_000
PROGRESS_EVERY_S = 10.0
SEEDS = 100
SHRUNK_MAX = 3  # violations that are made small: each takes many runs


def sim(
    *,
    seeds: Count | None = None,
    seed: Seed = 0,
    fault: Annotated[list[str] | None, Parameter(negative="")] = None,
    jobs: Count | None = None,
    format: Choice = "text",  # the option's name
) -> int:
    """Play simulated worlds: real core and client, virtual time, faults, every promise checked.

    A seed always gives the same run. A broken promise is told with its seed, with as few faults as
    break it, and with the last 60 things that happened. Exit code 1 if there is one, or if 200
    seeds and more have not met every situation that they should.

    Parameters
    ----------
    seeds
        How many; 100 unless told, one if --seed names one.
    seed
        The first one.
    fault
        Draw from these kinds only; may be repeated. A wrong one lists them all.
    jobs
        Processes; one per core unless told.
    format
        text: columns. json: one object, keys named as the columns.
    """
    from tests.tools.simulation.campaign import campaign, shrink
    from tests.tools.simulation.plan import draw

    kinds = _kinds(fault)
    count = seeds if seeds is not None else SEEDS if seed == 0 else 1
    began = time.monotonic()
    chosen = range(seed, seed + count)
    summary = campaign(chosen, kinds, jobs or os.cpu_count() or 1, _progress(count))
    broken = [shrink(draw(each.seed, kinds)) for each in summary.violations[:SHRUNK_MAX]]
    seconds = round(time.monotonic() - began, 1)
    if format == "json":
        _print_object(summary, broken, seconds)
    else:
        _print_text(summary, broken, seconds)
    return 1 if summary.violations or summary.never_met else 0


def _kinds(fault: list[str] | None) -> tuple[str, ...]:
    from tests.tools.simulation.plan import KINDS

    for kind in fault or ():
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise SetupError(f"{kind} is no kind of fault.", "--fault", f"There are: {known}")
    return tuple(fault or ())


def _progress(count: int) -> Callable[[object], None]:
    """Says from time to time how many are over: a campaign may take hours."""
    told, done = time.monotonic(), 0

    def tell(_: object) -> None:
        nonlocal told, done
        done += 1
        if time.monotonic() - told >= PROGRESS_EVERY_S:
            told = time.monotonic()
            print(f"{done} of {counted(count, 'seed')} ...", file=sys.stderr, flush=True)

    return tell


def _figures(summary: "Summary", seconds: float) -> dict[str, Any]:
    return {
        "seeds": summary.seeds,
        "events": summary.events,
        "batches": summary.batches,
        "records_processed": summary.acts,
        "simulated_hours": round(summary.simulated_ms / MS_PER_HOUR, 1),
        "seconds": seconds,
        "violations": len(summary.violations),
    }


def _print_object(summary: "Summary", broken: list["Outcome"], seconds: float) -> None:
    print_json(
        "sim",
        None,
        **_figures(summary, seconds),
        faults=dict(summary.faults),
        sometimes=dict(summary.sometimes),
        never_met=summary.never_met,
        broken=[
            {
                "seed": each.plan.seed,
                "violation": each.violation,
                "faults": [str(fault) for fault in each.plan.faults],
                "story": each.story,
            }
            for each in broken
        ],
    )


def _print_text(summary: "Summary", broken: list["Outcome"], seconds: float) -> None:
    print_head(_figures(summary, seconds))
    print()
    print_table(["FAULT", "TIMES"], sorted(summary.faults.items()))
    print()
    print_table(["SITUATION", "TIMES"], sorted(summary.sometimes.items()))
    for result in summary.violations:
        print(f"\nSeed {result.seed}: {result.violation}")
    for each in broken:
        print(f"\nSeed {each.plan.seed}, {counted(len(each.plan.faults), 'fault')} enough:")
        for fault in each.plan.faults:
            print(f"  {fault}")
        for line in each.story:
            print(line)
        print(f"Broken: {each.violation}")
    if summary.never_met:
        print(f"\nToo weak, never met: {', '.join(summary.never_met)}")


if __name__ == "__main__":
    from tests.tools.commands import main

    sys.exit(main(["sim", *sys.argv[1:]]))
