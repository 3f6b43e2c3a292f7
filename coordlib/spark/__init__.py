"""What a program with Spark imports: `from coordlib.spark import register`."""

from coordlib.client.spark.batch import Batch
from coordlib.client.spark.batches import GroupBatches, group_batches
from coordlib.client.spark.positions import starting_offsets
from coordlib.client.spark.progress import Publication, publish_progress
from coordlib.client.spark.source import register

__all__ = [
    "Batch",
    "GroupBatches",
    "Publication",
    "group_batches",
    "publish_progress",
    "register",
    "starting_offsets",
]
