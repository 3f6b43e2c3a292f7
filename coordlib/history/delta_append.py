"""One append to a Delta table, without asking Delta which appends it has had.

Spark's writer takes the number of an append (txnAppId, txnVersion), too. But it looks up first
whether that number was committed, and Delta answers that by computing the whole state of the table
in Spark jobs: more than half of a commit of a hundred rows. Who calls here knows the answer for
the snapshot that it appends to. So this does what the writer does after that look, with the
writer's own parts. And it does it in two steps: the files of the rows may be written before it is
known whether, and under which number, they are to count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordlib.errors import CoordError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class OvertakenByAnother(CoordError):
    """Of two appends under one app id the other one was first."""


@dataclass(frozen=True, slots=True)
class Append:
    """What the commit of an append says of itself."""

    #: Delta's txnAppId, under which appends are numbered.
    app_id: str
    #: Delta's txnVersion.
    number: int
    #: For whoever reads the table's history; None: nothing.
    metadata: str | None = None


def number_in(snapshot: Any, app_id: str) -> int | None:
    """The number of the newest append under an app id; None: there is none.

    Delta keeps it in its checkpoints, for ever, and as a rule in the checksum file that it writes
    beside each commit. Where that is missing, as behind a commit of another library, or lists no
    applications, since they are many, Delta computes the table's whole state in Spark jobs of
    seconds.
    """
    checksum = snapshot.checksumOpt()
    listed = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if listed.isDefined():
        numbers = (listed.get().apply(each) for each in range(listed.get().size()))
        return next((int(n.version()) for n in numbers if n.appId() == app_id), None)
    found = snapshot.transactions().get(app_id)
    return int(found.get()) if found.isDefined() else None


class Staged:
    """Rows whose files are written into a table's folder, and count from their commit on.

    Without a commit they are files that no version of the table names: VACUUM removes them.

    Args:
        snapshot: Delta's, of the table as it is appended to.
        partitioned_by: the table's columns of partitions; none: as the table is made.
    """

    def __init__(
        self,
        spark: "SparkSession",
        snapshot: Any,
        rows: "DataFrame",
        partitioned_by: Sequence[str] = (),
    ) -> None:
        jvm: Any = spark._jvm
        delta, some = jvm.org.apache.spark.sql.delta, jvm.scala.Option.apply
        none = jvm.scala.Option.empty()
        session, mode = rows._jdf.sparkSession(), jvm.org.apache.spark.sql.SaveMode.Append
        columns, log = jvm.PythonUtils.toSeq(list(partitioned_by)), snapshot.deltaLog()
        writer = delta.commands.WriteIntoDelta(
            log,
            mode,
            delta.DeltaOptions(jvm.PythonUtils.toScalaMap({}), session.sessionState().conf()),
            columns,
            jvm.PythonUtils.toScalaMap({}),  # no properties: the table has its own
            rows._jdf,
            *(none, none, False),
        )
        self._jvm, self._mode, self._columns = jvm, mode, columns
        self._transaction = log.startTransaction(none, some(snapshot))
        self._data = writer.writeAndReturnCommitData(self._transaction, session, none, False)

    def commit(self, what: Append) -> int:
        """Append the rows in one commit; returns the table's version that has them.

        It must be known that the snapshot has no append of this number, and of no higher one.

        Raises:
            OvertakenByAnother: another append under this app id came after the snapshot. Nothing
                was appended.
        """
        # Delta's package makes its conflicts exceptions of Python, from its import on.
        from delta.exceptions import ConcurrentTransactionException

        delta, some = self._jvm.org.apache.spark.sql.delta, self._jvm.scala.Option.apply
        none = self._jvm.scala.Option.empty()
        now_ms = self._jvm.java.lang.System.currentTimeMillis()
        number = delta.actions.SetTransaction(what.app_id, what.number, some(now_ms))
        # As if it had looked the number up: a commit in between under this id is a conflict then.
        self._transaction.readTxn().addOne(what.app_id)
        metadata = none if what.metadata is None else some(what.metadata)
        operation = getattr(delta, "DeltaOperations$Write")(
            self._mode, some(self._columns), none, metadata, none, none, none, none, none
        )
        actions, tags = self._data.actions().appended(number), self._data.stringTags()
        try:
            return int(self._transaction.commit(actions, operation, tags))
        except ConcurrentTransactionException as problem:
            raise OvertakenByAnother("Another append was committed first.") from problem


def append(
    spark: "SparkSession",
    snapshot: Any,
    rows: "DataFrame",
    partitioned_by: Sequence[str],
    what: Append,
) -> None:
    """Append rows in one commit; see `Staged`."""
    Staged(spark, snapshot, rows, partitioned_by).commit(what)
