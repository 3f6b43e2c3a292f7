"""Facts of the act `transactions`: the copy, as readers of both kinds see it, and Delta by SQL."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from coordlib.kafka.clients import reaching
from coordlib.kafka.reading import read_to_end, read_uncommitted
from tests.stack.acts.delta import archived
from tests.stack.acts.transactions_verdict import Copied, Decision

#: Commits that wait for a decision, and what became of them.
_DECISIONS: Final = """
    SELECT detail, type, time FROM group_events
    WHERE group_id = ? AND type IN ('OffsetsPending', 'OffsetsCommitted', 'OffsetsDropped')
    ORDER BY log_offset"""
_PENDING: Final = "OffsetsPending"


def copies_in(
    client: Mapping[str, Any], topic: str, partitions: int, *, is_committed: bool
) -> list[Copied]:
    """The records of a copy, by partition and offset. Raises CannotReach, NotAllowed.

    Args:
        is_committed: False: those of aborted transactions, too.
    """
    read = read_to_end if is_committed else read_uncommitted
    with reaching("The copy cannot be read.", "Look into the broker's log."):
        return [
            _copied(message)
            for partition in range(partitions)
            for message in read(client, topic, partition)
        ]


def _copied(message: Any) -> Copied:
    value = json.loads(message.value())
    return Copied(
        message.partition(),
        message.offset(),
        value["number"],
        value["offset"],
        value["copier"],
        value["unit"],
    )


def decisions_in_delta(tables: Path, group: str) -> list[Decision]:
    """Every commit that waited for a decision, in the order of the log."""
    return list(_decisions(archived(tables, _DECISIONS, group)))


def _decisions(rows: Sequence[Any]) -> Iterator[Decision]:
    begun: dict[str, Decision] = {}
    for detail, kind, time in rows:
        told = json.loads(detail)
        if (key := told.get("transaction")) is None:
            continue
        if kind == _PENDING:
            offsets = {each["partition"]: each["offset"] for each in told["offsets"]}
            begun[key] = Decision(key, told["client"], offsets, time)
        elif key in begun:
            by = told.get("by", "")
            yield begun.pop(key)._replace(outcome=kind, decided=time, by=by)
    yield from begun.values()
