"""Many seeds, in several processes, and what they add up to."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

from tests.tools.simulation import drawing, kinds, run, situations, situations_beside
from tests.tools.simulation.claims import kinds as claims_kinds
from tests.tools.simulation.claims import run as claims_run
from tests.tools.simulation.claims import situations as claims_situations
from tests.tools.simulation.kinds import STORE_KINDS
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import Outcome

#: Worlds of groups, and of claims: their seeds have nothing in common.
GROUPS: Final = "groups"
CLAIMS: Final = "claims"
#: Those worlds of groups that have a cluster of stores, a fifth of the seeds: of the same seeds.
CLUSTERS: Final = "clusters"

#: A campaign of so many seeds must have met every situation and every kind of fault.
STRONG_FROM_SEEDS = 200
#: How many seeds there are for each time that something must have been met: ten in a thousand.
SEEDS_PER_MEETING = 100
CHUNK = 4


@dataclass(frozen=True)
class Worlds:
    """What a campaign plays."""

    #: Seed and kinds of faults -> plan.
    draw: Callable[[int, tuple[str, ...]], Any]
    run: Callable[[Any], Outcome]
    kinds: tuple[str, ...]
    situations: tuple[str, ...]
    #: Whether a plan is one of these.
    has: Callable[[Any], bool] = lambda _: True

    def seeds(self, first: int, count: int, kinds: tuple[str, ...]) -> Iterator[int]:
        """So many seeds of such worlds, from this one on."""
        found = (n for n in itertools.count(first) if self.has(self.draw(n, kinds)))
        return itertools.islice(found, count)


WORLDS: Final = {
    GROUPS: Worlds(drawing.draw, run.run, tuple(kinds.KINDS), tuple(situations.SITUATIONS)),
    CLAIMS: Worlds(
        claims_kinds.draw,
        claims_run.run,
        tuple(claims_kinds.KINDS),
        tuple(claims_situations.SITUATIONS),
    ),
    CLUSTERS: Worlds(
        drawing.draw,
        run.run,
        tuple(STORE_KINDS),
        tuple(situations_beside.OF_STORES),
        lambda drawn: bool(drawn.brokers),
    ),
}


@dataclass
class Result:
    """One seed, without its history: what a worker sends back."""

    seed: int
    events: int
    simulated_ms: int
    batches: int
    acts: int
    faults: dict[str, int]
    sometimes: dict[str, int]
    violation: str | None


@dataclass
class Summary:
    """All seeds of a campaign."""

    seeds: int = 0
    events: int = 0
    simulated_ms: int = 0
    batches: int = 0
    acts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    violations: list[Result] = field(default_factory=list)
    #: Whether only some kinds of faults were asked for.
    is_partial: bool = False
    #: Name of the worlds.
    of: str = GROUPS

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.simulated_ms += result.simulated_ms
        self.batches += result.batches
        self.acts += result.acts
        self.faults.update(result.faults)
        self.sometimes.update(result.sometimes)
        if result.violation is not None:
            self.violations.append(result)

    @property
    def never_met(self) -> list[str]:
        """What a campaign of this length should have met, and has not."""
        if self.is_partial or self.seeds < STRONG_FROM_SEEDS:
            return []
        least, worlds = self.seeds // SEEDS_PER_MEETING, WORLDS[self.of]
        missed = [name for name in worlds.situations if self.sometimes[name] < least]
        return missed + [kind for kind in worlds.kinds if self.faults[kind] < least]


@quiet_logs()
def play(seed: int, kinds: tuple[str, ...] = (), of: str = GROUPS) -> Result:
    """One seed, in whatever process."""
    worlds = WORLDS[of]
    return _result(worlds.run(worlds.draw(seed, kinds)))


def campaign(
    seeds: Iterable[int],
    kinds: tuple[str, ...] = (),
    jobs: int = 2,
    each: Callable[[Result], None] = lambda _: None,
    of: str = GROUPS,
) -> Summary:
    """Play all seeds; `each` hears of every one as it is over, in their order."""
    summary = Summary(is_partial=bool(kinds), of=of)
    for result in _results(list(seeds), kinds, jobs, of):
        summary.add(result)
        each(result)
    return summary


def _results(seeds: list[int], kinds: tuple[str, ...], jobs: int, of: str) -> Iterator[Result]:
    if jobs == 1 or len(seeds) == 1:
        yield from (play(seed, kinds, of) for seed in seeds)
        return
    # Spawned, not forked: librdkafka does not survive a fork.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        yield from pool.map(partial(play, kinds=kinds, of=of), seeds, chunksize=CHUNK)
    except BaseException:
        _kill(pool)  # to wait for the other seeds would hide why
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _kill(pool: ProcessPoolExecutor) -> None:
    """Whatever its processes do: one that never ends must not keep the run that it broke."""
    for each in list((pool._processes or {}).values()):
        each.kill()


def _result(outcome: Outcome) -> Result:
    return Result(
        outcome.plan.seed,
        outcome.events,
        outcome.simulated_ms,
        outcome.batches,
        outcome.acts,
        outcome.faults,
        outcome.sometimes,
        outcome.violation,
    )


@quiet_logs()
def shrink(full: Any, tries: int = 200, of: str = GROUPS) -> Outcome:
    """The same violation with as few faults as can be found: halves first, then one by one.

    The promise that is broken must stay the same; when and by whom may change.
    """
    play_again = WORLDS[of].run
    smallest = play_again(full)
    promise = _promise(smallest)
    size = max(1, len(full.faults) // 2)
    while tries > 0 and smallest.violation is not None:
        known = smallest.plan
        for first in range(0, len(known.faults), size):
            tries -= 1
            fewer = play_again(known.without(first, size))
            if fewer.violation is not None and _promise(fewer) == promise:
                smallest = fewer
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return smallest


def _promise(outcome: Outcome) -> str:
    """`INV-21`, or whatever the sentence begins with."""
    return (outcome.violation or "").split(":", 1)[0]
