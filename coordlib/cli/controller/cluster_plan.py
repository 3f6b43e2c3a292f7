"""A plan of reassignments, in the form of Kafka's own tool (kafka-reassign-partitions)."""

from pathlib import Path
from typing import Final

import msgspec

from coordlib.client.kit.signals import TopicPartition
from coordlib.core.wire.envelope import Int32
from coordlib.errors import SetupError

PLAN_BYTES_MAX: Final = 16 * 1024 * 1024
_EXAMPLE: Final = (
    'For example {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
)


class _Row(msgspec.Struct):
    """A partition, and the brokers that it is to be on. Other fields of Kafka's are left alone."""

    topic: str
    partition: Int32
    replicas: tuple[Int32, ...]


class _Plan(msgspec.Struct):
    partitions: list[_Row]


def planned(file: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that each partition of a plan is to have, in its order.

    Raises:
        SetupError: the file cannot be read, or is no plan.
    """
    where = f"--plan {file[:200]!r}"
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(PLAN_BYTES_MAX + 1)
    except (OSError, ValueError) as problem:  # a name with a null byte is no OSError
        why = getattr(problem, "strerror", None) or str(problem)
        raise SetupError(f"The plan cannot be read: {why}.", where, _EXAMPLE) from problem
    if len(text) > PLAN_BYTES_MAX:
        raise SetupError("This is no plan: it is too large.", where, "Divide it into several.")
    try:
        plan = msgspec.json.decode(text, type=_Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise SetupError(f"This is no plan: {problem}.", where, _EXAMPLE) from problem
    if not plan.partitions:
        raise SetupError("The plan has no partitions.", where, _EXAMPLE)
    found = {TopicPartition(row.topic, row.partition): row.replicas for row in plan.partitions}
    if len(found) < len(plan.partitions):
        raise SetupError("The plan names a partition twice.", where, "Name each once.")
    return found
