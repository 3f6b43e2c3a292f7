"""The share of one run of a query: its partitions, and the tokens that fence its writes.

The recipe for writing into Delta. Delta keeps, per `txnAppId`, the highest `txnVersion` that was
written, in the same atomic commit as the rows, and skips a write whose version is not higher. Here
a partition is an application, and the version is

    fence of the partition << 24 | number of the batch, counted over all runs of this reader

A new owner's fence is higher than any former owner's, also after the group was deleted and made
anew: it is an offset of the log. (Of a log that was itself made anew offsets begin at 0 again; so
the application names the log.) Once the new owner has written, or has claimed the partition with a
write of no rows, Delta skips all late writes of a former owner. Rows that a former owner wrote
before that and had not committed stay in the table, and their records are read again: at least
once, as everywhere. `write_once` is for those who want each record once; see `writes.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from coordlib.client.kit.errors import MemberFenced
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.spark.delta import How, SparkTable
from coordlib.errors import CoordError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from coordlib.client.spark.tables import Tables
    from coordlib.client.spark.writes import Writes

BATCH_BITS: Final = 24
#: Over half a year of a batch a second, in one life of a reader.
BATCHES_MAX: Final = 2**BATCH_BITS - 1


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions of one run of a reader's query."""

    group: str
    #: The member's id: names one membership, never used twice.
    member: str
    generation: int
    #: The log whose offsets the fences are: its incarnation, and the group's shard.
    log: str
    #: Partition to its fencing token: the log offset of the record that gave it.
    fences: Mapping[TopicPartition, int]
    #: Where this run keeps its offsets; no other run ever uses it.
    checkpoint: str
    #: Numbers that batches of this reader's earlier runs may have used.
    batches_before: int
    #: Whether this run may act on its partitions at this moment. May be asked from any thread.
    may_work: Callable[[], bool]
    #: Of a reader that commits with its writes.
    writes: "Writes | None" = None
    #: What the group has written to; None: that is not known, and a table is made where none is.
    tables: "Tables | None" = None

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.fences))

    def txn_app_id(self, partition: TopicPartition) -> str:
        """The `txnAppId` of a partition, the same for all its owners in this group."""
        return f"coordlib/{self.log}/{self.group}/{partition.topic}/{partition.partition}"

    def txn_version(self, partition: TopicPartition, batch: int) -> int:
        """The `txnVersion`, higher for every batch and for every later owner.

        Raises CoordError: more batches than a version can count.
        """
        number = self.batches_before + batch + 1
        if not 0 <= number <= BATCHES_MAX:
            what = f"Batch {number} of this reader has no version left."
            raise CoordError(what, self.where, "Start the reader anew.")
        return self.fences[partition] << BATCH_BITS | number

    def claim(
        self,
        empty: "DataFrame",
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Fence former owners before the first batch, by a write of no rows per partition.

        Args:
            empty: a frame of no rows with the table's columns.
            path: the Delta table's folder or URI.
            options, partition_by, replaces: as for `write_once`.

        Raises as `write`.
        """
        how = How(options or {}, tuple(partition_by), replaces).checked()
        for partition in self.partitions:
            self._write(empty, path, partition, -1, how)

    def write(
        self,
        frame: "DataFrame",
        path: str,
        batch: int,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Append a batch to a Delta table, one commit for each partition that has rows in it.

        Call it in foreachBatch. The frame needs the source's columns `topic` and `partition`. It is
        kept in memory (or on disk) meanwhile, so that nothing is computed twice.

        Args:
            batch: its number, as Spark gives it to foreachBatch.
            options, partition_by, replaces: as for `write_once`.

        Raises:
            MemberFenced: the run may not act any more; nothing more is written.
            CannotReach: the table that the group has written to is gone, or not known.
            AnotherTable: another one is in its place.
            CoordError: rows of partitions that are not this share's.
        """
        how = How(options or {}, tuple(partition_by), replaces).checked()
        is_kept_by_user = frame.is_cached
        if not is_kept_by_user:
            frame.persist()
        try:
            for partition in self._present(frame):
                is_its = (frame["topic"] == partition.topic) & (
                    frame["partition"] == partition.partition
                )
                self._write(frame.where(is_its), path, partition, batch, how)
        finally:
            if not is_kept_by_user:
                frame.unpersist()

    def write_once(
        self,
        source: "DataFrame",
        rows: "DataFrame",
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Append a batch to a Delta table, each record once over all hand-overs and kills.

        Rows and offsets are one unit: the one commit of the table decides both. Call it in
        foreachBatch, once a batch; a batch without records writes nothing. Needs a reader with
        `commits="with-writes"`. The table is made if the group has written to none there; one that
        is away is waited for, for half a minute. `source` is kept in memory (or on disk) meanwhile.

        Args:
            source: the batch as it came, with its columns `topic`, `partition` and `offset`.
            rows: what is to be appended, computed from `source`.
            path: the table's folder or URI, which all members of the group can reach.
            options: of Delta's writer, such as `mergeSchema`.
            partition_by: columns by which a table that is made is partitioned.
            replaces: id of a table that is gone for ever, as the error names it: another one, or
                a new one, may take its place, and has no row of what was committed before.

        Raises:
            CannotReach: the table that the group has written to is gone, or not known.
            AnotherTable: another one is in its place.
            MemberFenced: others have these partitions, or will. They decide whether this batch
                counts, which may be in the table.
            SetupError: the reader commits its progress, or the table forgets too soon which
                batches it has.
            GroupError: the group refused the offsets.
            CoordError: the batch is in a table already, or has rows of other partitions.
        """
        if self.writes is None:
            mend = 'Make the reader with commits="with-writes".'
            raise SetupError("This reader commits its progress by itself.", self.where, mend)
        how = How(options or {}, tuple(partition_by), replaces).checked()
        is_kept_by_user = source.is_cached
        if not is_kept_by_user:
            source.persist()
        try:
            self.writes.write(self, source, rows, path, how)
        finally:
            if not is_kept_by_user:
                source.unpersist()

    @property
    def where(self) -> str:
        """For errors."""
        return f"group {self.group}, member {self.member}"

    def _present(self, frame: "DataFrame") -> list[TopicPartition]:
        rows = frame.select("topic", "partition").distinct().collect()
        found = {TopicPartition(row["topic"], row["partition"]) for row in rows}
        self.refuse_strange(found)
        return sorted(found)

    def refuse_strange(self, found: Iterable[TopicPartition]) -> None:
        """Raises CoordError: these partitions are not all of this share."""
        if strange := set(found) - self.fences.keys():
            names = ", ".join(sorted(f"{each.topic}-{each.partition}" for each in strange))
            what = f"Rows of partitions that this share does not have: {names}"
            mend = "Leave the source's columns topic and partition as they are."
            raise CoordError(what, self.where, mend)

    def _write(
        self, rows: "DataFrame", path: str, partition: TopicPartition, batch: int, how: How
    ) -> None:
        if not self.may_work():
            raise MemberFenced(self.where, None)
        table = SparkTable(rows.sparkSession, path, self.txn_app_id(partition))
        table.may_wait = self.may_work
        if self.tables is not None:
            table.ask_again = partial(self.tables.of, table.uri, self.may_work)
            table.written = table.ask_again()
        table.write(rows, self.txn_version(partition, batch), how)
        if self.tables is not None and table.written is not None:
            self.tables.saw(table.uri, table.written)
