"""A job with less memory than a batch's outputs need: it ends with the batch, and plans less.

How the driver plans, ends and begins anew is the job's own code; here is how much memory it has.
"""

from random import Random
from typing import Final

from coordlib import limits
from tests.tools.simulation.late import Heal, job_away
from tests.tools.simulation.world import World

#: What is counted of a run.
SITUATIONS: Final = (
    "driver ended by a batch that was too much",
    "driver ended by one without a word",
    "began anew with fewer records",
)
#: Outputs that the driver may collect.
MEMORY_BYTES: Final = (4 * limits.KIB, 8 * limits.KIB)


def memory_short(world: World, luck: Random, for_ms: int) -> Heal | None:
    """The job is away for a while, and comes back with little memory: what waits is too much."""
    if not world.is_supervised or not world.has_history():
        return None
    world.perturbations += 3
    world.engine.memory_bytes = luck.choice(MEMORY_BYTES)
    return job_away(world)


FAULTS: Final = {"memory-short": memory_short}


def count(found: dict[str, int], world: World) -> None:
    for name, times in zip(SITUATIONS, world.engine.memory_ends, strict=True):
        found[name] += times
