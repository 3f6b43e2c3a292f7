"""What brokers, and those who run them, do to the job's topics."""

from random import Random
from typing import Final

from tests.tools.simulation import late_ends
from tests.tools.simulation.strangers import GARBAGE
from tests.tools.simulation.world import PREFIX, World

INPUTS: Final = ("requests", "offsets")


def partition_added(world: World, luck: Random, for_ms: int) -> None:
    """An operator adds a partition to one of the job's topics, and some client writes there: one
    that counts the topic's partitions. Nobody answers it, and nothing else changes (INV-115)."""
    topic = f"{PREFIX}.{luck.choice(INPUTS)}"
    place = (topic, world.cluster.grow(topic))
    for _ in range(luck.randint(1, 3)):
        world.cluster.append(place, None, luck.choice(GARBAGE))


FAULTS: Final = {"end-comes-late": late_ends.comes_late, "partition-added": partition_added}
