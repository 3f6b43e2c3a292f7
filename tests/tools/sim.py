"""Simulated worlds: `python -m tests.tools.sim --help`."""

import os
import sys
import time
from collections.abc import Callable
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from coordlib.cli.kit.options import Count, Seed
from coordlib.cli.kit.output import LINE_LENGTH_MAX, counted, print_head, print_json, print_table
from coordlib.errors import SetupError
from tests.tools.checking.command import Choice

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
    worlds: Literal["all", "groups", "claims", "clusters"] = "all",
    format: Choice = "text",  # the option's name
) -> int:
    """Play simulated worlds: real core and client, virtual time, faults, every promise checked.

    There are worlds of groups, and worlds of claims, with seeds and faults of their own; what they
    have met is shown apart.

    A seed always gives the same run. A broken promise is told with its seed, with as few faults as
    break it, and with the last 60 things that happened. Exit code 1 if there is one, or if 200
    seeds and more have not met every situation that they should.

    Parameters
    ----------
    seeds
        How many of each; 100 unless told, one if --seed names one.
    seed
        The first one.
    fault
        Draw from these kinds only, in the worlds that have them; may be repeated. A wrong one
        lists them all.
    jobs
        Processes; one per core unless told.
    worlds
        Which ones are played: groups, claims, or both (all); or clusters, which are those seeds of
        groups that have a cluster of stores.
    format
        text: columns. json: one object, keys named as the columns.
    """
    count = seeds if seeds is not None else SEEDS if seed == 0 else 1
    played = [
        _play(of, (seed, count), kinds, jobs or os.cpu_count() or 1)
        for of, kinds in _kinds(fault, worlds).items()
    ]
    if format == "json":
        _print_object({each.summary.of: each for each in played})
    else:
        for each in played:
            _print_text(each)
    return 1 if any(p.summary.violations or p.summary.never_met for p in played) else 0


class _Played(NamedTuple):
    summary: "Summary"
    #: Violations, with few faults.
    broken: "list[Outcome]"
    seconds: float


def _play(of: str, first_and_count: tuple[int, int], kinds: tuple[str, ...], jobs: int) -> _Played:
    from tests.tools.simulation.campaign import WORLDS, campaign, shrink

    began = time.monotonic()
    chosen = WORLDS[of].seeds(*first_and_count, kinds)
    summary = campaign(chosen, kinds, jobs, _progress(first_and_count[1]), of)
    found = [WORLDS[of].draw(each.seed, kinds) for each in summary.violations[:SHRUNK_MAX]]
    broken = [shrink(each, of=of) for each in found]
    return _Played(summary, broken, round(time.monotonic() - began, 1))


def _kinds(fault: list[str] | None, worlds: str) -> dict[str, tuple[str, ...]]:
    """The kinds of faults to draw from, by worlds; worlds that have none of them are left out."""
    from tests.tools.simulation.campaign import CLAIMS, GROUPS, WORLDS

    names = (GROUPS, CLAIMS) if worlds == "all" else (worlds,)
    played = {name: WORLDS[name].kinds for name in names}
    for kind in fault or ():
        if not any(kind in kinds for kinds in played.values()):
            known = ", ".join(kind for kinds in played.values() for kind in kinds)
            # A line of more than LINE_LENGTH_MAX characters would be shown in part.
            there_are = wrap(f"There are: {known}", LINE_LENGTH_MAX, break_on_hyphens=False)
            raise SetupError(f"{kind} is no kind of fault.", "--fault", "\n".join(there_are))
    if not fault:
        return dict.fromkeys(played, ())
    asked = {name: tuple(k for k in fault if k in kinds) for name, kinds in played.items()}
    return {name: kinds for name, kinds in asked.items() if kinds}


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


def _print_object(played: dict[str, _Played]) -> None:
    """Figures of groups, or of clusters, as they always were; those of claims under `claims`."""
    claims = _object(played.pop("claims")) if "claims" in played else None
    groups = next(map(_object, played.values()), None)
    print_json("sim", None, **(groups or {}), claims=claims)


def _object(played: _Played) -> dict[str, Any]:
    summary = played.summary
    return {
        **_figures(summary, played.seconds),
        "faults": dict(summary.faults),
        "sometimes": dict(summary.sometimes),
        "never_met": summary.never_met,
        "broken": [
            {
                "seed": each.plan.seed,
                "violation": each.violation,
                "faults": [str(fault) for fault in each.plan.faults],
                "story": each.story,
            }
            for each in played.broken
        ],
    }


def _print_text(played: _Played) -> None:
    summary = played.summary
    print(f"Worlds of {summary.of}\n")
    print_head(_figures(summary, played.seconds))
    print()
    print_table(["FAULT", "TIMES"], sorted(summary.faults.items()))
    print()
    print_table(["SITUATION", "TIMES"], sorted(summary.sometimes.items()))
    for result in summary.violations:
        print(f"\nSeed {result.seed} of {summary.of}: {result.violation}")
    for each in played.broken:
        print(f"\nSeed {each.plan.seed}, {counted(len(each.plan.faults), 'fault')} enough:")
        for fault in each.plan.faults:
            print(f"  {fault}")
        for line in each.story:
            print(line)
        print(f"Broken: {each.violation}")
    if summary.never_met:
        print(f"\nToo weak, never met: {', '.join(summary.never_met)}")
    print()


if __name__ == "__main__":
    from tests.tools.commands import main

    sys.exit(main(["sim", *sys.argv[1:]]))
