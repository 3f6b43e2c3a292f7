"""One batch of a loop over batches: its rows, and three ways to write or commit it.  # INV-159"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from coordlib.client.groups.member import AssignedMember
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.spark.delta import How
from coordlib.client.spark.delta_writes import Share, Tables, Writes
from coordlib.client.spark.group_offsets import Offsets
from coordlib.errors import CoordError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ONE_TABLE: Final = "Write into one table a batch, and derive others by a stream that reads it."


class Loop(Protocol):
    """What hands batches out."""

    spark: "SparkSession"
    member: AssignedMember
    writes: Writes
    tables: Tables

    def commit(self, batch: "Batch") -> None:
        """Commit its ends. Raises as `Batch.commit`."""

    def finish(self, batch: "Batch", why: CoordError) -> None:
        """The table has the batch, and so its ends are committed. `why` it is not written again."""

    def rewind(self, batch: "Batch") -> None:
        """Begin all held partitions again at what is committed; `batch` was not written."""


class Range(NamedTuple):
    """The offsets of one partition that a batch reads: from `begin` on, without `end`."""

    begin: int
    end: int


class Batch:
    """Records of partitions that this member owns.

    Attributes:
        rows: with the columns of Spark's Kafka source; read when an action asks for them, each
            time from the same offsets.
        number: counted from 1 within one loop.
        ranges: partition to the offsets that are read. There may be fewer records, since markers
            of transactions have offsets, too, and compaction leaves gaps.
        fences: partition to its fencing token, for systems that refuse older ones.
    """

    def __init__(
        self,
        loop: Loop,
        number: int,
        ranges: Mapping[TopicPartition, Range],
        fences: Mapping[TopicPartition, int],
        rows: "DataFrame",
    ) -> None:
        member = loop.member
        identity = member.identity
        self.rows, self.number, self.ranges = rows, number, ranges
        self.fences = fences
        self._loop = loop
        #: Why it may not be written or committed any more.
        self._ended: CoordError | None = None
        self.is_committed = False
        self._share = Share(
            group=identity.group,
            member=member.member_id,
            generation=member.generation,
            log=f"{identity.incarnation}-{identity.shard}",
            fences=fences,
            checkpoint=f"{member.member_id}-{number}",
            batches_before=number,
            may_work=self.may_work,
            writes=loop.writes,
            tables=loop.tables,
        )

    def may_work(self) -> bool:
        """Whether acting on these records is safe at this moment. May be asked from any thread."""
        return self._ended is None and self._loop.member.may_work()

    def commit(self) -> None:
        """Commit the ends of the ranges, and let demanded partitions go.

        The commit is written to the log before this returns. Its answer is not waited for: it is
        written again if it is refused for the moment. A second call does nothing.

        Raises:
            MemberFenced: others have some of these partitions, or will: nothing is committed.
            CoordError: a later batch was asked for, or a topic was deleted and created again.
        """
        if not self.is_committed:
            self._loop.commit(self)

    def write_once(
        self,
        rows: "DataFrame",
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Append the batch to a Delta table, each record once over all hand-overs and kills.

        Rows and offsets are one unit: the one commit of the table decides both, so `commit` has
        nothing left to do. The table is made if the group has written to none there; one that is
        away is waited for, for half a minute. A batch for which this has raised is read again.

        Args:
            rows: what is to be appended, computed from this batch's rows alone.
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
            SetupError: the table forgets too soon which batches it has.
            GroupError: the group refused the offsets.
            CoordError: the batch is committed or in a table already, a later one was asked for, or
                a topic was deleted and created again.
        """
        try:
            self.require()
            how, ends = How(options or {}, tuple(partition_by), replaces).checked(), self.ends
            self._loop.writes.write(self._share, self._loop.spark, lambda: ends, rows, path, how)
        except BaseException:
            self._loop.rewind(self)
            raise
        self._loop.finish(self, CoordError("It is in a table already.", self.where, _ONE_TABLE))

    def write(
        self,
        rows: "DataFrame",
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Append rows to a Delta table, one commit for each partition that has rows in them.

        At least once, so `commit` follows. Delta skips what a former owner of a partition writes
        once the new one has written, or has claimed the table. The rows need the source's columns
        `topic` and `partition`. They are kept in memory (or on disk) meanwhile.

        Args:
            options, partition_by, replaces: as for `write_once`.

        Raises:
            MemberFenced: others have some of these partitions, or will; nothing more is written.
            CannotReach: the table that the group has written to is gone, or not known.
            AnotherTable: another one is in its place.
            CoordError: rows of partitions that are not this batch's; or as `commit`.
        """
        self.require()
        more = {"options": options, "partition_by": partition_by, "replaces": replaces}
        self._share.write(rows, path, 0, **more)  # type: ignore[arg-type]

    def claim(self, empty: "DataFrame", path: str) -> None:
        """Fence former owners of these partitions at once, by a write of no rows for each.

        Args:
            empty: a frame of no rows with the table's columns.
            path: the Delta table's folder or URI.

        Raises as `write`.
        """
        self.require()
        self._share.claim(empty, path)

    # ---- of the loop ----------------------------------------------------------------------------

    @property
    def ends(self) -> Offsets:
        """The next offset to read of each partition."""
        return {each: at.end for each, at in self.ranges.items()}

    @property
    def where(self) -> str:
        """For errors."""
        return f"{self._share.where}, batch {self.number}"

    def reads_any(self, partitions: Iterable[TopicPartition]) -> bool:
        return not self.ranges.keys().isdisjoint(partitions)

    def end(self, why: CoordError, *, is_committed: bool = False) -> None:
        """It may not be written or committed from now on."""
        self._ended = self._ended or why
        self.is_committed = self.is_committed or is_committed

    def require(self) -> None:
        """Raises why it may not be written or committed."""
        if self._ended is not None:
            raise self._ended
        if not self._loop.member.may_work():
            raise MemberFenced(self.where, self._loop.member.stopped_by())


def share_out(
    behind: Mapping[TopicPartition, int],
    records_max: int | None,
    read_in: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """How many records of each partition the next batch reads.

    Short backlogs are read whole, and long ones share the rest evenly. Where there are more
    partitions than records, those are first that were read longest ago.

    Args:
        behind: the backlog of each partition, all above 0.
        records_max: of the batch; None: all.
        read_in: the number of the batch that has read a partition last.
    """
    if records_max is None:
        return dict(behind)
    if records_max < len(behind):
        oldest = sorted(behind, key=lambda each: (read_in.get(each, 0), each))
        return dict.fromkeys(oldest[:records_max], 1)
    sizes: dict[TopicPartition, int] = {}
    left = records_max
    for n, each in enumerate(sorted(behind, key=lambda each: (behind[each], each))):
        sizes[each] = min(behind[each], left // (len(behind) - n))
        left -= sizes[each]
    return sizes
