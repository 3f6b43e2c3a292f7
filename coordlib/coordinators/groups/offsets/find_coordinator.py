"""FindCoordinator: which shard a group belongs to, whether or not it exists.

Any shard answers, as any Kafka broker does: who knew the right one would not have to ask.
"""

from typing import Any

from coordlib.coordinators.shard.step import Step
from coordlib.records import requests as rq
from coordlib.records.partitioner import shard_of


def find_coordinator(step: Step[Any], request: rq.FindCoordinator) -> None:
    """Answer with the shard."""
    shard = shard_of(step.name, step.at.shards)
    step.answer(request, shard=shard)
