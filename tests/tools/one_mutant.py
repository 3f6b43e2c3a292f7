"""Runs seeds of the simulation until one breaks a promise; a JSON line for each.

    python -m tests.tools.one_mutant --seeds 0-40 [--kinds a,b] [--world batch_ms=50,statics=2]

The group is classic, unless the world says `kind=assigned`; `kind=claims` has no group, and
`kind=claimants` is a world of claims with consumers, whose fields are those of its own plan.

Started by `tests.tools.mutants` with another copy of the package in front of the path, so that
the code that is mutated and the checks that are to find it are loaded together.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from tests.tools.claims import worlds as claims_worlds
from tests.tools.simulation import drawing, plan, run, world
from tests.tools.simulation.claims import kinds as claims_kinds
from tests.tools.simulation.claims import run as claims_run
from tests.tools.simulation.claims.world import ClaimsWorld
from tests.tools.simulation.quiet import quiet_logs

#: Of a world without groups: claims alone (tests/tools/claims/worlds.py).
CLAIMS = "claims"
#: Of a world of claims with consumers and the job (tests/tools/simulation/claims).
CLAIMANTS = "claimants"


def digest_of(played: "world.World | ClaimsWorld") -> str:
    """Everything that a run has left: what members saw, and every record of every topic."""
    digest = hashlib.sha256()
    for line in played.history:
        digest.update(msgspec.json.encode(line))
    for place, partition in sorted(played.cluster.partitions.items()):
        digest.update(repr(place).encode())
        for each in partition.records:
            digest.update(repr((each.offset, each.timestamp_ms, each.key, each.value)).encode())
    return digest.hexdigest()


def traits_of(text: str) -> dict[str, Any]:
    """`batch_ms=50,strategies=range` -> what the world is to be like, whatever the seed says."""
    rows = dict(row.split("=") for row in text.split(",") if row)
    return {name: _trait(name, value) for name, value in rows.items()}


def _trait(name: str, value: str) -> Any:
    if name in ("kind", "delivery"):
        return value
    if name == "strategies":
        return (value,)
    if name in ("more_topics", "topics"):  # 3+2; nothing: there are no others
        return tuple(int(count) for count in value.split("+") if count)
    return int(value)


def outcomes(
    seeds: range, kinds: tuple[str, ...], traits: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """One for each seed, ending with the first that breaks a promise."""
    violation: str | None
    for seed in seeds:
        started_s = time.monotonic()
        if traits.get("kind") == CLAIMS:
            violation, digest = claims_worlds.play(seed)
            seconds = round(time.monotonic() - started_s, 3)
            yield {"seed": seed, "violation": violation, "digest": digest, "seconds": seconds}
            if violation is not None:
                return
            continue
        played, violation = _played(seed, kinds, traits)
        yield {
            "seed": seed,
            "violation": violation,
            "digest": digest_of(played),
            "seconds": round(time.monotonic() - started_s, 3),
        }
        if violation is not None:
            return


def _played(
    seed: int, kinds: tuple[str, ...], traits: dict[str, Any]
) -> "tuple[world.World | ClaimsWorld, str | None]":
    """A world after its end, and the promise that was broken, if any."""
    if traits.get("kind") == CLAIMANTS:
        own = {name: value for name, value in traits.items() if name != "kind"}
        claimants = ClaimsWorld(claims_kinds.draw(seed, kinds, **own))
        return claimants, _violation(lambda: claims_run.run_in(claimants))
    drawn = drawing.draw(seed, kinds, traits.get("kind", plan.CLASSIC))
    played = world.World(replace(drawn, **traits))
    return played, _violation(lambda: run.run_in(played))


def _violation(play: Callable[[], run.Outcome]) -> str | None:
    try:
        return play().violation
    except Exception as problem:  # noqa: BLE001  # whatever escapes is a defect that was found
        return f"{type(problem).__name__}: {problem}"


@quiet_logs()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", required=True, help="first-last, both included")
    parser.add_argument("--kinds", default="", help="names of faults, by comma; none: a swarm")
    parser.add_argument("--world", default="", help="fields of the plan, by comma: batch_ms=50")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    kinds = tuple(kind for kind in options.kinds.split(",") if kind)
    for outcome in outcomes(range(first, last + 1), kinds, traits_of(options.world)):
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
