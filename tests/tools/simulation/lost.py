"""Inputs that are not the logs that were judged: removed unread, or cut, perhaps grown again.

Drivers look at them by the job's own code. An operator accepts every loss that a start names.
"""

from random import Random
from typing import Final

from coordlib.core.wire.stored import EVENT_REQUESTS_LOST
from coordlib.kafka.logs import Why
from tests.tools.simulation.evidence import Evidence, newest_marker
from tests.tools.simulation.late import Heal, job_away
from tests.tools.simulation.world import PREFIX, World

#: What is counted of a run.
SITUATIONS: Final = (
    "requests removed before they were read",
    "log shorter than what was judged",
    "log cut and grown again",
    "member stopped by a cut of its log",
    "join asked again that was cut from its log",
    "join asked again for want of an answer",
)
INPUTS: Final = ("requests", "offsets")
#: Records that a log loses at its end.
CUT_MAX: Final = 40


# ---- faults -----------------------------------------------------------------------------------


def requests_removed(world: World, luck: Random, for_ms: int) -> Heal | None:
    """The job is away, and for longer than the topics keep what members write."""
    if not world.is_supervised or not world.has_history():
        return None
    world.perturbations += 3
    return job_away(world, lambda: _remove(world, luck))


def _judged(world: World, topic: str, shard: int) -> int:
    """The next offset that is judged, by a batch that is committed and perhaps not yet visible."""
    world.cluster.write_markers()
    marker = newest_marker(world.cluster)
    return marker.next_offsets.get(topic, {}).get(str(shard), 0) if marker else 0


def _remove(world: World, luck: Random) -> None:
    for name in INPUTS:
        for shard in range(world.plan.shards):
            place = (f"{PREFIX}.{name}", shard)
            log, first = world.cluster.partitions[place], _judged(world, *place)
            if log.end > first and luck.random() < 0.8:
                log.remove(luck.randint(first + 1, log.end), first)


def log_cut(world: World, luck: Random, for_ms: int) -> Heal | None:
    """An unclean election: another broker leads, which lacks the end of the log.

    The driver may be away, asleep until the log has grown again, or at work.
    """
    if not world.is_supervised or not world.has_history():
        return None
    world.perturbations += 4
    place = (f"{PREFIX}.requests", luck.randrange(world.plan.shards))
    log, how = world.cluster.partitions[place], luck.choice(["away", "asleep", "at work"])

    def cut(end: int) -> None:
        log.cut(max(log.start, end - luck.randint(1, CUT_MAX)), _judged(world, *place))

    if how == "away":
        # What members write while nobody reads it goes as well.
        return job_away(world, lambda: cut(min(log.end, _judged(world, *place))))
    cut(log.end)
    driver = world.driver
    if how == "asleep" and driver is not None:
        driver.stop()
        return driver.resume
    return None


FAULTS: Final = {"requests-removed": requests_removed, "log-cut": log_cut}


# ---- what was reached -------------------------------------------------------------------------


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    names = dict(zip((Why.REMOVED, Why.SHORTER, Why.OTHER), SITUATIONS, strict=False))
    for event in evidence.told:
        if event.type == EVENT_REQUESTS_LOST:
            found[names[Why(event.reason)]] += 1
    found[SITUATIONS[3]] += world.cluster.cuts_noticed
    found[SITUATIONS[4]] += world.cluster.joins_cut
    found[SITUATIONS[5]] += world.cluster.joins_unanswered
