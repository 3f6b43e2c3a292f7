"""What a program with Spark imports: `from coordlib.spark import group_batches`."""

from coordlib.client.spark.batch import Batch
from coordlib.client.spark.batches import GroupBatches, group_batches
from coordlib.client.spark.positions import starting_offsets
from coordlib.client.spark.progress import Publication, publish_progress

__all__ = [
    "Batch",
    "GroupBatches",
    "Publication",
    "group_batches",
    "publish_progress",
    "starting_offsets",
]
