"""One append to a Delta table, without asking Delta which appends it has had.

Spark's writer takes the number of an append (txnAppId, txnVersion), too. But it looks up first
whether that number was committed, and Delta answers that by computing the whole state of the table
in Spark jobs: more than half of a commit of a hundred rows. The archive knows the answer: it has
read every commit of the table up to the snapshot that it appends to. So this does what the writer
does after that look, with the writer's own parts.
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
    metadata: str


def append(
    spark: "SparkSession",
    snapshot: Any,
    rows: "DataFrame",
    partitioned_by: Sequence[str],
    what: Append,
) -> None:
    """Append rows in one commit.

    Args:
        snapshot: Delta's, of which it is known that it has no append of this number.

    Raises:
        OvertakenByAnother: another append under this app id came after the snapshot. Nothing was
            appended.
    """
    # Delta's package makes its conflicts exceptions of Python, from its import on.
    from delta.exceptions import ConcurrentTransactionException

    jvm: Any = spark._jvm
    delta, some = jvm.org.apache.spark.sql.delta, jvm.scala.Option.apply
    none = jvm.scala.Option.empty()
    session, mode = rows._jdf.sparkSession(), jvm.org.apache.spark.sql.SaveMode.Append
    columns, log = jvm.PythonUtils.toSeq(list(partitioned_by)), snapshot.deltaLog()
    options = jvm.PythonUtils.toScalaMap({"txnAppId": what.app_id, "txnVersion": str(what.number)})
    writer = delta.commands.WriteIntoDelta(
        log,
        mode,
        delta.DeltaOptions(options, session.sessionState().conf()),
        columns,
        jvm.PythonUtils.toScalaMap({}),  # no properties: the table has its own
        rows._jdf,
        *(none, none, False),
    )
    transaction = log.startTransaction(none, some(snapshot))
    # As if it had looked the number up: a commit in between under this id is a conflict then.
    transaction.readTxn().addOne(what.app_id)
    data = writer.writeAndReturnCommitData(transaction, session, none, False)
    operation = getattr(delta, "DeltaOperations$Write")(
        mode, some(columns), none, some(what.metadata), none, none, none, none, none
    )
    try:
        transaction.commit(data.actions(), operation, data.stringTags())
    except ConcurrentTransactionException as problem:
        raise OvertakenByAnother("Another append was committed first.") from problem
