"""A Delta table over Spark, as one application sees it.

Delta skips a commit whose `txnVersion` is not above the application's, and of two commits of one
application at the same moment one fails.

To say which version an application has, Delta computes the table's whole state, in Spark jobs that
take longer than a small batch. So a writer reads it from the files of commits where they have it.
"""

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordlib.client.transactions.in_doubt import (
    RETENTION,
    Unreadable,
    retention_ms,
    takes_back,
)
from coordlib.errors import CannotReach, CoordError
from coordlib.history.delta_append import Append, OvertakenByAnother, Staged, number_in
from coordlib.history.files import hadoop_file, read_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCAL: Final = "file:/"
#: A batch may wait for the job. One that has waited so long looks whether its table is there still.
LOOK_AGAIN_S: Final = 1.0


class _Known(NamedTuple):
    """What an application's version was."""

    #: Delta's id of the table: another one may have come to its place.
    table: str
    #: Of the table.
    version: int
    number: int | None


class StagedBatch:
    """A batch whose rows are in the table's folder, and not in the table."""

    def __init__(self, table: "SparkTable", snapshot: Any, staged: Staged) -> None:
        self._table, self._snapshot, self._staged = table, snapshot, staged
        self._staged_s = time.monotonic()

    def commit(self, token: int) -> bool:
        """Have the rows in the table; False: the application has this version, or a higher one.

        Raises what Spark raises: then it is in doubt. CoordError: the table is another one by now.
        """
        if time.monotonic() - self._staged_s >= LOOK_AGAIN_S:
            self._table.refuse_another(self._snapshot)
        return self._table.commit_staged(self._staged, self._snapshot, token)


class SparkTable:
    """A Delta table as one application sees it (`in_doubt.Table`), and its writer.

    Args:
        path: of any kind that Spark takes.
        app: the `txnAppId`.
    """

    def __init__(self, spark: "SparkSession", path: str, app: str) -> None:
        self._spark, self._app = spark, app
        #: The table's name for all who can reach its store.
        self.uri = uri_of(spark, path)
        #: Delta's log of the table, and its newest snapshot when it was last asked for.
        self._seen: tuple[Any, Any] | None = None
        self._known: _Known | None = None

    # ---- looking --------------------------------------------------------------------------------

    def retention(self) -> str | None:
        found = self._snapshot().metadata().configuration().get(RETENTION)
        return str(found.get()) if found.isDefined() else None

    def newest(self) -> int:
        return int(self._look().version())

    def app_version(self, version: int) -> int | None:
        snapshot = self._snapshot()
        if version != int(snapshot.version()):
            snapshot = self._snapshot_at(version)
        return number_in(snapshot, self._app)

    def taken_back(self, after: int) -> str:
        from delta.tables import DeltaTable

        table = DeltaTable.forPath(self._spark, self.uri)
        rows = table.history(int(self._snapshot().version()) - after)
        for row in rows.select("version", "operation", "operationParameters").collect():
            if row["version"] > after and takes_back(row["operation"], row["operationParameters"]):
                return str(row["operation"])
        return ""

    # ---- writing --------------------------------------------------------------------------------

    def prepare(self, rows: "DataFrame") -> None:
        """Make the table, if there is none: whoever looks into it must find one.

        Raises SetupError: it does not keep long enough which batches it has.
        """
        if not self._is_there():
            empty = self._spark.createDataFrame([], rows.schema)
            try:
                empty.write.format("delta").mode("append").save(self.uri)
            except Exception:
                if not self._is_there():
                    raise  # else another writer has just made it
            self._look()
        retention_ms(self.retention())

    def stage(self, rows: "DataFrame") -> StagedBatch:
        """Write the rows' files, which nobody sees before their commit. After `prepare`."""
        snapshot = self._snapshot()
        return StagedBatch(self, snapshot, Staged(self._spark, snapshot, rows))

    def commit_staged(self, staged: Staged, snapshot: Any, token: int) -> bool:
        """See `StagedBatch.commit`."""
        number = self._newest_number(snapshot)
        if number is not None and number >= token:
            return False
        try:
            version = staged.commit(Append(self._app, token))
        except OvertakenByAnother:
            return False
        assert self._known is not None
        self._known = self._known._replace(version=version, number=token)
        return True

    def refuse_another(self, snapshot: Any) -> None:
        """Raises CoordError: the table of this snapshot was deleted, and is gone or was made anew.

        The files of a staged batch went with it. A commit that names them would leave the new table
        unreadable.
        """
        if _id_of(self._look()) != _id_of(snapshot):
            what = "The table was deleted and made anew while this batch waited."
            raise CoordError(what, self.uri, "Start the reader again: it reads the batch again.")

    def append(self, rows: "DataFrame", token: int) -> None:
        """Append rows in one commit, or nothing, if the application's version is not below."""
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._app)
            .option("txnVersion", token)
            .save(self.uri)
        )

    def claim(self, token: int) -> None:
        from delta.exceptions import DeltaConcurrentModificationException

        schema = self._spark.read.format("delta").load(self.uri).schema
        try:
            self.append(self._spark.createDataFrame([], schema), token)
        except DeltaConcurrentModificationException:
            return  # the next look shows what has come first

    # ---- Delta's own log ------------------------------------------------------------------------

    def _look(self) -> Any:
        """The newest snapshot. Raises CannotReach: there is no table."""
        if not self._is_there():
            mend = "If it is gone for ever: coord transactions decide"
            raise CannotReach("There is no Delta table.", self.uri, mend)
        assert self._seen is not None
        return self._seen[1]

    def _is_there(self) -> bool:
        """Whether there is a table now, by a new look.

        `DeltaTable.isDeltaTable` goes by the last look of this JVM, which is older than a table
        that another one has made meanwhile.
        """
        jvm: Any = self._spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog
        found = log.forTableWithSnapshot(self._spark._jsparkSession, self.uri)
        self._seen = found._1(), found._2()
        return int(found._2().version()) >= 0

    def _snapshot(self) -> Any:
        return self._look() if self._seen is None else self._seen[1]

    def _newest_number(self, snapshot: Any) -> int | None:
        """The application's version there; with few questions, where this one wrote before."""
        known, table, at = self._known, _id_of(snapshot), int(snapshot.version())
        if known is None or known.table != table or known.version > at:
            number = number_in(snapshot, self._app)
        else:
            number = known.number
            for version in range(known.version + 1, at + 1):
                text = read_text(self._spark, f"{self.uri}/_delta_log/{version:020d}.json")
                if text is None:  # Delta has removed it by now
                    number = number_in(snapshot, self._app)
                    break
                number = _number_in_commit(text, self._app, number)
        self._known = _Known(table, at, number)
        return number

    def _snapshot_at(self, version: int) -> Any:
        """Raises Unreadable: that part of the log is removed."""
        from py4j.protocol import Py4JJavaError

        assert self._seen is not None
        log = self._seen[0]
        usual = [getattr(log, f"getSnapshotAt$default${number}")() for number in (2, 3, 4)]
        try:
            return log.getSnapshotAt(version, *usual)
        except Py4JJavaError as problem:
            raise Unreadable(str(problem.java_exception)) from problem


def _id_of(snapshot: Any) -> str:
    return str(snapshot.metadata().id())


def _number_in_commit(text: str, app: str, before: int | None) -> int | None:
    """The application's version after a commit, which is its file's text."""
    for line in filter(None, text.splitlines()):
        said = json.loads(line).get("txn") if '"txn"' in line else None
        if said is not None and said["appId"] == app:
            return int(said["version"])
    return before


def uri_of(spark: "SparkSession", path: str) -> str:
    """A path with the file system that Spark takes it for, as other programs read it, too."""
    files, found = hadoop_file(spark, path)
    uri = str(files.makeQualified(found).toString())
    is_short = uri.startswith(_LOCAL) and not uri.startswith(f"{_LOCAL}//")
    return uri.replace(_LOCAL, f"{_LOCAL}//", 1) if is_short else uri
