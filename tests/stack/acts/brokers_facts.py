"""Facts of the act `brokers`: from `coord.metadata`, and from Delta by SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from coordlib.client.kit.process import boottime_ms
from coordlib.core.wire.stored import PartitionValue
from coordlib.demo.history import Happened
from coordlib.kafka.reading import newest_by_key
from tests.stack.acts.delta import archived

_LEADERS: Final = """
    SELECT partition, leader, incarnation, leader_epoch, fence, since, until, election
    FROM leaders WHERE group_id = ? AND topic = ? ORDER BY partition, leader_epoch"""
_ROWS: Final = """
    SELECT partition, leader, leader_epoch, partition_epoch, fence, replicas, isr
    FROM current_partitions WHERE group_id = ? AND topic = ?"""
_CHANGES: Final = """
    SELECT partition, leader, leader_epoch, partition_epoch, fence, replicas, isr, time
    FROM partition_changes WHERE group_id = ? AND topic = ? ORDER BY log_offset, n"""


@dataclass(frozen=True, slots=True)
class Led:
    """A leader epoch of a partition that had a leader, from Delta."""

    partition: int
    leader: int
    incarnation: int
    epoch: int
    fence: int
    since: datetime
    #: None: until now.
    until: datetime | None
    #: By which election; None: by none, a reassignment ended.
    election: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """A partition as the controller has it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    fence: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ClusterHistory:
    """One topic of a cluster in Delta; all is empty before the first archive batch."""

    def __init__(self, tables: Path, cluster: str, topic: str) -> None:
        self._tables, self._cluster, self._topic = tables, cluster, topic

    def leaders(self) -> list[Led]:
        return [Led(*row) for row in self._rows(_LEADERS)]

    def partitions(self) -> dict[int, Row]:
        """As the newest changes left them."""
        return {
            partition: Row(*row[:4], *map(tuple, row[4:])) for partition, *row in self._rows(_ROWS)
        }

    def changes(self) -> list[Happened]:
        """Every change of a partition, on the clock of the witnesses."""
        # Both clocks are this machine's; their difference does not change while an act is played.
        boot_ms = datetime.now(UTC).timestamp() * 1000 - boottime_ms()
        return [
            Happened(
                round(time.timestamp() * 1000 - boot_ms),
                "row",
                partitions=(f"{self._topic}-{partition}",),
                leader=leader,
                generation=leader_epoch,
                partition_epoch=partition_epoch,
                fence=fence,
                replicas=tuple(replicas),
                isr=tuple(isr),
            )
            for partition, leader, leader_epoch, partition_epoch, fence, replicas, isr, time in (
                self._rows(_CHANGES)
            )
        ]

    def _rows(self, sql: str) -> Sequence[Any]:
        return archived(self._tables, sql, self._cluster, self._topic)


def partitions_in_kafka(
    client: Mapping[str, Any], metadata_topic: str, shard: int, cluster: str, topic: str
) -> dict[int, Row]:
    """From the compacted topic. Raises CannotReach."""
    found = {}
    for key, value in newest_by_key(client, metadata_topic, shard).items():
        of_cluster, what, *place = msgspec.json.decode(key)
        if (of_cluster, what, *place[:1]) == (cluster, "partition", topic):
            row = msgspec.json.decode(value, type=PartitionValue)
            found[int(place[1])] = Row(
                *(row.leader, row.leader_epoch, row.partition_epoch, row.fence),
                *(row.replicas, row.isr),
            )
    return found
