"""Situations that worlds of claims must have met, or they have shown nothing about them."""

from typing import Final

from tests.tools.simulation.claims.world import ClaimsWorld

#: What the ledger counts -> the situation.
_BY_VERDICT: Final = {
    "won": "partition won",
    "reclaimed": "claim taken over by a newer process",
    "released": "partition released",
    "taken over": "Marshal's heartbeat took a partition over",
    "proposed": "batch announced",
    "paused": "group paused",
    "ignored": "attempt on a live claim",
    "refused": "message of another epoch refused",
    "rejected": "foreign bytes",
}
#: What programs count -> the situation.
_BY_PROGRAM: Final = {
    "lost": "claim lost",
    "revoked": "claim let go of",
    "commit after a loss": "commit after a loss",
    "stopped before it worked": "stopped before it worked on a message",
    "failed": "consumer failed, and began again",
}
#: Counted, and not demanded: too rare for a campaign of two hundred seeds.
RARE: Final = (
    "late reader was not sure",
    "stopped before it worked on a message",
)
SITUATIONS: Final = (
    *_BY_VERDICT.values(),
    *(name for name in _BY_PROGRAM.values() if name not in RARE),
    "claim expired",
    "twin worked until it could have read of its successor",
    "late reader agreed",
    "a state of the job agreed",
    "positions set by an admin",
    "admin died at its work",
    "record processed twice",
    "record never handed out",
    "claims rebuilt from the topics",
    "claims began late behind a cut",
    "claims driver fenced",
    "claims batch ran again after its commit",
    "world without a job",
    "snapshot written",
)


def count_sometimes(world: ClaimsWorld) -> dict[str, int]:
    """What a run has met."""
    found = dict.fromkeys((*SITUATIONS, *RARE), 0)
    counts = world.ledger.counts
    for verdict, name in _BY_VERDICT.items():
        found[name] += counts[verdict]
    for program in world.programs:
        for what, name in _BY_PROGRAM.items():
            found[name] += program.counts[what]
    found["claim expired"] += counts["expired"]
    found["twin worked until it could have read of its successor"] += counts["twins overlap"]
    found["late reader agreed"] += counts["late readers agree"]
    found["late reader was not sure"] += counts["late reader is not sure"]
    found["a state of the job agreed"] += counts["states agree"]
    found["positions set by an admin"] += counts["positions set"]
    for line in world.history:
        found["admin died at its work"] += line.what == "admin ended" and line.detail != "done"
    acts = [(line.partitions, line.offset) for line in world.history if line.what == "act"]
    found["record processed twice"] += len(acts) - len(set(acts))
    if world.plan.is_at_most_once:
        found["record never handed out"] += world.ledger.never_handed_out(world.places())
    rebuilt = {each.checkpoint.path for each in world.drivers if each.was_rebuilt}
    found["claims rebuilt from the topics"] += len(rebuilt)
    found["claims began late behind a cut"] += sum(bool(d.late) for d in world.drivers)
    found["claims driver fenced"] += sum(d.was_fenced for d in world.drivers)
    again = world.engine.crashes
    found["claims batch ran again after its commit"] += again.get("P6", 0)
    found["claims batch ran again after its commit"] += again.get("unheard-commit", 0)
    found["world without a job"] += not world.plan.has_job
    snapshots = (p for (t, _), p in world.cluster.partitions.items() if t.endswith(".snapshots"))
    found["snapshot written"] += sum(len(each.records) for each in snapshots)
    return found
