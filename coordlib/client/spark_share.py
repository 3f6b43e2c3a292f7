"""What one run of a query was given: its partitions, and the tokens that fence its writes.

The recipe for an idempotent Delta write. Delta keeps, per `txnAppId`, the highest `txnVersion` that
was written, in the same atomic commit as the rows, and skips a write whose version is not higher.
Here a partition is an application, and the version is

    fence of the partition << 24 | number of the batch, counted over all runs of this reader

A new owner's fence is higher than any former owner's, also after the group was deleted and made
anew (it is an offset of the log). So once the new owner has written, or has claimed the partition
with a write of no rows, everything that a former owner writes late is skipped; and a batch that
runs again by the same owner is skipped, too. What a former owner wrote before that, and had not
committed yet when it went, is in the table and is read once more: at least once, as everywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coordlib.client.errors import MemberFenced
from coordlib.client.signals import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_BITS: Final = 24
#: About sixteen days of a batch a second, in one run of a reader.
BATCHES_MAX: Final = 2**BATCH_BITS - 1


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions of one run of a reader's query."""

    group: str
    #: The member's id: names one membership, never used twice.
    member: str
    generation: int
    #: Partition to its fencing token: the log offset of the record that gave it.
    fences: Mapping[TopicPartition, int]
    #: Where this run keeps its offsets; no other run ever uses it.
    checkpoint: str
    #: Batches of this reader's earlier runs.
    batches_before: int
    #: Whether acting on the partitions is safe at this moment.
    may_work: Callable[[], bool]

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.fences))

    def txn_app_id(self, partition: TopicPartition) -> str:
        """The same for all owners of a partition in this group."""
        return f"coordlib/{self.group}/{partition.topic}/{partition.partition}"

    def txn_version(self, partition: TopicPartition, batch: int) -> int:
        """Higher for every batch, and for every later owner.

        Raises ValueError: more batches than a version can count.
        """
        number = self.batches_before + batch + 1
        if not 0 <= number <= BATCHES_MAX:
            raise ValueError(f"Batch {number} of this reader: start it anew before it runs on.")
        return self.fences[partition] << BATCH_BITS | number

    def claim(self, empty: "DataFrame", path: str) -> None:
        """Shut former owners out before the first batch, by a write of no rows per partition.

        Args:
            empty: a frame of no rows with the table's columns.
            path: the Delta table's folder or URI.
        """
        for partition in self.partitions:
            self._write(empty, path, partition, batch=-1)

    def write(self, frame: "DataFrame", path: str, batch: int) -> None:
        """Append a batch to a Delta table, partition by partition, each at most once.

        Call it in foreachBatch. The frame needs the source's columns `topic` and `partition`.

        Raises MemberFenced: the member may not act any more; nothing more is written.
        """
        frame.persist()
        try:
            for partition in self.partitions:
                if not self.may_work():
                    raise MemberFenced(f"group {self.group}, member {self.member}", None)
                is_its = (frame["topic"] == partition.topic) & (
                    frame["partition"] == partition.partition
                )
                self._write(frame.where(is_its), path, partition, batch)
        finally:
            frame.unpersist()

    def _write(self, rows: "DataFrame", path: str, partition: TopicPartition, batch: int) -> None:
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self.txn_app_id(partition))
            .option("txnVersion", self.txn_version(partition, batch))
            .save(path)
        )
