"""The table of situations that worlds of claims must have met."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.tools.simulation.claims.world import ClaimsWorld

Situations = Mapping[str, Callable[[ClaimsWorld], int]]


def _judged(verdict: str) -> Callable[[ClaimsWorld], int]:
    """What the ledger counts."""
    return lambda world: world.ledger.counts[verdict]


def _by_programs(what: str) -> Callable[[ClaimsWorld], int]:
    return lambda world: sum(program.counts[what] for program in world.programs)


def _processed_twice(world: ClaimsWorld) -> int:
    acts = [(line.partitions, line.offset) for line in world.history if line.what == "act"]
    return len(acts) - len(set(acts))


def _never_handed_out(world: ClaimsWorld) -> int:
    places = world.places()
    return world.ledger.never_handed_out(places) if world.plan.is_at_most_once else 0


def _ran_again(world: ClaimsWorld) -> int:
    again = Counter(world.engine.crashes)
    return again["P6"] + again["unheard-commit"]


#: Counted, and not demanded: too rare for a campaign of two hundred seeds.
RARE: Final[Situations] = {
    "late reader was not sure": _judged("late reader is not sure"),
    "stopped before it worked on a message": _by_programs("stopped before it worked"),
}
SITUATIONS: Final[Situations] = {
    "partition won": _judged("won"),
    "claim taken over by a newer process": _judged("reclaimed"),
    "partition released": _judged("released"),
    "Marshal's heartbeat took a partition over": _judged("taken over"),
    "batch announced": _judged("proposed"),
    "group paused": _judged("paused"),
    "attempt on a live claim": _judged("ignored"),
    "message of another epoch refused": _judged("refused"),
    "foreign bytes": _judged("rejected"),
    "claim lost": _by_programs("lost"),
    "claim let go of": _by_programs("revoked"),
    "commit after a loss": _by_programs("commit after a loss"),
    "consumer failed, and began again": _by_programs("failed"),
    "claim expired": _judged("expired"),
    "twin worked until it could have read of its successor": _judged("twins overlap"),
    "late reader agreed": _judged("late readers agree"),
    "a state of the job agreed": _judged("states agree"),
    "positions set by an admin": _judged("positions set"),
    "admin died at its work": lambda world: sum(
        line.what == "admin ended" and line.detail != "done" for line in world.history
    ),
    "record processed twice": _processed_twice,
    "record never handed out": _never_handed_out,
    "claims rebuilt from the topics": lambda world: len(
        {driver.checkpoint.path for driver in world.drivers if driver.was_rebuilt}
    ),
    "claims began late behind a cut": lambda world: sum(bool(d.late) for d in world.drivers),
    "claims driver fenced": lambda world: sum(d.was_fenced for d in world.drivers),
    "claims batch ran again after its commit": _ran_again,
    "world without a job": lambda world: not world.plan.has_job,
    "snapshot written": lambda world: sum(
        len(log.records)
        for (topic, _), log in world.cluster.partitions.items()
        if topic.endswith(".snapshots")
    ),
}


def count_sometimes(world: ClaimsWorld) -> dict[str, int]:
    """What a run has met."""
    return {name: int(count(world)) for name, count in (*SITUATIONS.items(), *RARE.items())}
