"""One append to a Delta table without asking Delta which it has had; small files beside it."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import structlog

from coordlib.errors import AnotherTable, CannotReach, CoordError, StartRefused
from coordlib.history.plan import digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID_FILE: Final = "coord-archive-id"
_log = structlog.get_logger("coordlib.archive")


def hadoop_file(spark: "SparkSession", uri: str) -> tuple[Any, Any]:
    """Hadoop's file system of a URI, and its path there: a local folder, HDFS, an object store."""
    path: Any = spark._jvm.org.apache.hadoop.fs.Path(uri)  # type: ignore[union-attr]
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path


def read_text(spark: "SparkSession", uri: str) -> str | None:
    """A small file's text; None if it is not there."""
    files, path = hadoop_file(spark, uri)
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def write_text(spark: "SparkSession", uri: str, text: str) -> None:
    """Write a small file, with its folders, over what is there."""
    files, path = hadoop_file(spark, uri)
    stream = files.create(path, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def delete(spark: "SparkSession", uri: str) -> None:
    """Delete a file, if it is there."""
    files, path = hadoop_file(spark, uri)
    files.delete(path, False)


def names_in(spark: "SparkSession", folder: str) -> list[str]:
    """The names in a folder; none where there is no folder."""
    files, path = hadoop_file(spark, folder)
    if not files.exists(path):
        return []
    return [str(each.getPath().getName()) for each in files.listStatus(path)]


def checkpoint_id(spark: "SparkSession", checkpoint: str) -> str:
    """The id of an archive checkpoint, drawn when it is first used.

    Raises:
        StartRefused: the folder is the checkpoint of another query.
    """
    known = (read_text(spark, f"{checkpoint}/{ID_FILE}") or "").strip()
    if known:
        return known
    files, _ = hadoop_file(spark, checkpoint)
    if files.exists(hadoop_file(spark, f"{checkpoint}/offsets")[1]):
        raise StartRefused(
            "This checkpoint was not made by the archive.",
            f"{checkpoint} has no {ID_FILE}",
            "Name another folder; an empty one is filled from the topics, without duplicates.",
        )
    drawn = uuid.uuid4().hex
    write_text(spark, f"{checkpoint}/{ID_FILE}", drawn)
    return drawn


def keep_id(spark: "SparkSession", checkpoint: str, identity: str) -> None:
    """Write the id again where the folder was removed under the archive: it is all that is in it.

    The next start would draw another, and leave the reader of a commit to guess whose it was.
    """
    if read_text(spark, f"{checkpoint}/{ID_FILE}") is None:
        _log.warning("the archive's checkpoint was removed; it is written again", folder=checkpoint)
        write_text(spark, f"{checkpoint}/{ID_FILE}", identity)


_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


class OvertakenByAnother(CoordError):
    """Of two appends under one app id the other one was first."""


class ChangedMeanwhile(CoordError):
    """The table's properties or columns were changed beside the append: Delta says "try again"."""


@dataclass(frozen=True, slots=True)
class Append:
    """What the commit of an append says of itself."""

    #: Delta's txnAppId, under which appends are numbered.
    app_id: str
    #: Delta's txnVersion.
    number: int
    #: For whoever reads the table's history; None: nothing.
    metadata: str | None = None


def newest_snapshot(spark: "SparkSession", path: str) -> Any:
    """Delta's snapshot of what lies there now; of version -1: there is no table.

    `DeltaTable.isDeltaTable` goes by the last look of this JVM, which is older than a table that
    another one has made meanwhile.
    """
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    return log.forTableWithSnapshot(spark._jsparkSession, path)._2()


def id_of(snapshot: Any) -> str:
    """Delta's id of a table; each table that is made has another one."""
    return str(snapshot.metadata().id())


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
        options: of Delta's writer.
        digest: of the file of the snapshot's commit when the snapshot was taken; "": it is asked
            for now, and a table that has come to the place meanwhile may pass for this one.
    """

    def __init__(
        self,
        spark: "SparkSession",
        snapshot: Any,
        rows: "DataFrame",
        partitioned_by: Sequence[str] = (),
        options: Mapping[str, str] = _NO_OPTIONS,
        digest: str = "",
    ) -> None:
        self._spark, self.snapshot = spark, snapshot
        self._path = str(snapshot.deltaLog().dataPath().toString())
        #: Of the file of the version before the append.
        self._before = digest or self._digest()
        jvm: Any = spark._jvm
        delta, some = jvm.org.apache.spark.sql.delta, jvm.scala.Option.apply
        none = jvm.scala.Option.empty()
        session, mode = rows._jdf.sparkSession(), jvm.org.apache.spark.sql.SaveMode.Append
        columns, log = jvm.PythonUtils.toSeq(list(partitioned_by)), snapshot.deltaLog()
        writer = delta.commands.WriteIntoDelta(
            log,
            mode,
            delta.DeltaOptions(
                jvm.PythonUtils.toScalaMap(dict(options)), session.sessionState().conf()
            ),
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

        Of what it raises itself, nothing was appended.

        Raises:
            OvertakenByAnother: another append under this app id came after the snapshot.
            ChangedMeanwhile: the table was changed since: write the rows' files anew.
            CannotReach: there is no table any more.
            AnotherTable: another one, or an old copy, has come to its place.
        """
        # Delta's package makes its conflicts exceptions of Python, from its import on.
        from delta import exceptions as conflicts

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
        self._refuse_another()
        try:
            return int(self._transaction.commit(actions, operation, tags))
        except conflicts.ConcurrentTransactionException as problem:
            raise OvertakenByAnother("Another append was committed first.") from problem
        except (  # none of them is a subclass of the first, as in Java
            conflicts.DeltaConcurrentModificationException,
            conflicts.ConcurrentWriteException,
            conflicts.MetadataChangedException,
            conflicts.ProtocolChangedException,
        ) as problem:
            what_happened = "The table was changed at the same moment."
            raise ChangedMeanwhile(what_happened, self._path, "Try again.") from problem

    def _refuse_another(self) -> None:
        """Delta would write its commit's file behind whatever lies there by now.

        The rows' files are in the folder of the table that was looked at. In the log of another
        one, or behind a version that is not there, a commit leaves a table that cannot be read.
        # INV-120
        """
        known, found = self.snapshot, newest_snapshot(self._spark, self._path)
        if int(found.version()) < 0:
            raise CannotReach("There is no Delta table any more.", self._path, "Put it back.")
        is_it = id_of(found) == id_of(known) and int(found.version()) >= int(known.version())
        if not is_it or self._before is None or self._digest() != self._before:
            what = "Another Delta table has come to the place of the one that was written to."
            where = f"{self._path}: table {id_of(found)}, and it was {id_of(known)}"
            raise AnotherTable(what, where, "Nothing was committed. Put the table back.")

    def _digest(self) -> str | None:
        """Of the file of the snapshot's commit as it is now; None: it is not there."""
        name = f"{self._path}/_delta_log/{int(self.snapshot.version()):020d}.json"
        text = read_text(self._spark, name)
        return None if text is None else digest_of(text)


def append(
    spark: "SparkSession",
    snapshot: Any,
    rows: "DataFrame",
    partitioned_by: Sequence[str],
    what: Append,
    digest: str,
) -> None:
    """Append rows in one commit; see `Staged`."""
    Staged(spark, snapshot, rows, partitioned_by, digest=digest).commit(what)
