"""What reads records, where a group, or a program, says which: a consumer that joins no group."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer


def open_reader(options: Mapping[str, Any]) -> Consumer:
    """A confluent-kafka Consumer that only reads the partitions assigned to it, and never commits.

    Args:
        options: its keys; those that would let it do more are overruled.
    """
    return Consumer(
        {
            **options,
            "group.id": f"coordlib-unused-{uuid4().hex}",  # the library wants one
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
    )
