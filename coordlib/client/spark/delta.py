"""A Delta table over Spark, as one application sees it.

Delta skips a commit whose `txnVersion` is not above the application's, and of two commits of one
application at the same moment one fails.

To say which version an application has, Delta computes the table's whole state, in Spark jobs that
take longer than a small batch. So a writer reads it from the files of commits where they have it.

A table may be away for a moment (a mount that is lost, a folder that is renamed), or another one
may have come to its place. So a table is made only where the group has written to none, and one
that is away is waited for.  # INV-120
"""

import json
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import structlog

from coordlib.client.transactions.delta_commits import (
    DECIDE,
    RETENTION,
    Unreadable,
    Written,
    refuse_another,
    retention_ms,
    takes_back,
)
from coordlib.errors import AnotherTable, CannotReach, SetupError
from coordlib.history.delta_append import (
    Append,
    ChangedMeanwhile,
    OvertakenByAnother,
    Staged,
    hadoop_file,
    id_of,
    newest_snapshot,
    number_in,
    read_text,
)
from coordlib.history.plan import digest_of, number_in_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
_log = structlog.get_logger()
_LOCAL: Final = "file:/"
#: How long a table that is away is waited for, and how often one looks.
AWAY_S: Final = 30.0
_AGAIN_S: Final = 0.5
#: How often a batch is written anew because somebody has changed the table beside its commit.
CHANGES_MAX: Final = 10
#: Options of Delta's writer that this module sets itself, and those that make a write no append.
_OWN_OPTIONS: Final = frozenset({"txnappid", "txnversion", "overwriteschema", "replacewhere"})


class How(NamedTuple):
    """How a batch is to be written: the options of the user."""

    #: Of Delta's writer, such as `mergeSchema`.
    options: Mapping[str, str] = MappingProxyType({})
    #: Columns of partitions, of a table that is made; of one that is there they must be its own.
    partition_by: tuple[str, ...] = ()
    #: Id of a table that is gone for ever, and that another one may take the place of.
    replaces: str = ""

    def checked(self) -> "How":
        """Raises SetupError: an option is none of an append's."""
        for name in self.options:
            if name.lower() in _OWN_OPTIONS:
                hint = "Leave it out: a batch is appended, under a number of the reader's own."
                raise SetupError("There is no such option of an append.", name, hint)
        return self


_PLAIN: Final = How()


class _Known(NamedTuple):
    """What an application's version was."""

    #: Delta's id of the table: another one may have come to its place.
    table: str
    #: Of the table.
    version: int
    number: int | None


class StagedBatch:
    """A batch whose rows are in the table's folder, and not in the table."""

    def __init__(self, table: "SparkTable", rows: "DataFrame", how: How) -> None:
        self._table, self._rows, self._how = table, rows, how
        self._staged = table.write_files(rows, how)

    def commit(self, token: int) -> bool:
        """Have the rows in the table; False: the application has this version, or a higher one.

        The rows' files are written anew where the table's columns or properties were changed at the
        same moment: nothing was committed then.

        Raises what Spark raises: then it is in doubt. CannotReach: the table is gone, and nothing
        is committed. AnotherTable: another one is in its place.
        """
        try:
            return self.append(token)
        except OvertakenByAnother:
            return False

    def append(self, token: int) -> bool:
        """The same, and raises OvertakenByAnother: another one was first at the same moment."""
        for _ in range(CHANGES_MAX):
            try:
                return self._table.wait_for(lambda: self._table.commit_staged(self._staged, token))
            except ChangedMeanwhile:
                self._table.wait_for(self._table.look_again)
                self._staged = self._table.write_files(self._rows, self._how)
        return self._table.wait_for(lambda: self._table.commit_staged(self._staged, token))


class SparkTable:
    """A Delta table as one application sees it (`delta_commits.Table`), and its writer.

    Args:
        path: of any kind that Spark takes.
        app: the `txnAppId`.
    """

    def __init__(self, spark: "SparkSession", path: str, app: str) -> None:
        self._spark, self._app = spark, app
        #: Whether one that is away may be waited for on.
        self.may_wait: Callable[[], bool] = lambda: True
        #: The table's name for all who can reach its store.
        self.uri = uri_of(spark, path)
        #: What must be there; None: the group has written to none at this place.
        self.written: Written | None = None
        #: The same by a new question, for who has found a table where there was to be none yet.
        self.ask_again: Callable[[], Written | None] = lambda: None
        #: Delta's newest snapshot when it was last asked for.
        self._seen: Any = None
        self._known: _Known | None = None

    # ---- looking --------------------------------------------------------------------------------

    def retention(self) -> str | None:
        found = self._snapshot().metadata().configuration().get(RETENTION)
        return str(found.get()) if found.isDefined() else None

    def newest(self) -> int:
        return int(self.look().version())

    def id(self) -> str:
        return id_of(self._snapshot())

    def app_version(self, version: int) -> int | None:
        snapshot = self._snapshot()
        if version != int(snapshot.version()):
            snapshot = self._snapshot_at(version)
        return number_in(snapshot, self._app)

    def commit_file(self, version: int) -> str | None:
        return read_text(self._spark, f"{self.uri}/_delta_log/{version:020d}.json")

    def taken_back(self, after: int) -> str:
        from delta.tables import DeltaTable

        table = DeltaTable.forPath(self._spark, self.uri)
        rows = table.history(self._version() - after)
        for row in rows.select("version", "operation", "operationParameters").collect():
            if row["version"] > after and takes_back(row["operation"], row["operationParameters"]):
                return str(row["operation"])
        return ""

    # ---- writing --------------------------------------------------------------------------------

    def prepare(self, rows: "DataFrame", how: How = _PLAIN) -> None:
        """Make the table, if the group has written to none there: whoever looks must find one.

        Raises:
            SetupError: it does not keep long enough which batches it has.
            CannotReach: the table that the group has written to is gone.
            AnotherTable: another one is in its place.
        """
        known = self.written
        is_replaced = known is not None and known.id == how.replaces
        if known is None or is_replaced:
            if not self._is_there():
                self._make(rows, how)
        else:
            self.wait_for(self.look)
        self._take(known, is_replaced)
        if known is None and (known := self.ask_again()) is not None:
            # Another member was first, and this may not be the table that was there then.
            self._take(known, known.id == how.replaces)
        retention_ms(self.retention())

    def stage(self, rows: "DataFrame", how: How = _PLAIN) -> StagedBatch:
        """Write the rows' files, which nobody sees before their commit. After `prepare`."""
        return StagedBatch(self, rows, how)

    def write(self, rows: "DataFrame", token: int, how: How = _PLAIN) -> bool:
        """Append rows in one commit, or nothing, if the application's version is not below.

        Raises as `prepare` and `StagedBatch.append`.
        """
        self.prepare(rows, how)
        return self.stage(rows, how).append(token)

    def claim(self, token: int) -> None:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self._snapshot().schema().json()))
        empty = self._spark.createDataFrame([], schema)
        try:
            self.commit_staged(self.write_files(empty, _PLAIN), token)
        except (ChangedMeanwhile, OvertakenByAnother):
            return  # the next look shows what has come first

    # ---- parts of a write -----------------------------------------------------------------------

    def write_files(self, rows: "DataFrame", how: How) -> Staged:
        """See `stage`."""
        snapshot, digest = self._snapshot(), "" if self.written is None else self.written.digest
        return Staged(self._spark, snapshot, rows, how.partition_by, how.options, digest)

    def commit_staged(self, staged: Staged, token: int) -> bool:
        """See `StagedBatch.append`. Raises ChangedMeanwhile, too."""
        number = self._newest_number(staged.snapshot)
        if number is not None and number >= token:
            return False
        version = staged.commit(Append(self._app, token))
        assert self._known is not None
        self._known = self._known._replace(version=version, number=token)
        if self.written is not None:
            self.written = self.written._replace(version=version, digest=self._digest(version))
        return True

    def look_again(self) -> None:
        """A new look at the table that was there. Raises CannotReach, AnotherTable."""
        self.look()
        self._take(self.written, is_replaced=False)

    def wait_for(self, step: Callable[[], T]) -> T:
        """Try again while there is no table. Raises CannotReach: it does not come back."""
        until = time.monotonic() + AWAY_S
        while True:
            try:
                return step()
            except AnotherTable:
                raise
            except CannotReach:
                if self.written is None or time.monotonic() >= until or not self.may_wait():
                    raise
                _log.warning("a table is away", table=self.uri)
                time.sleep(_AGAIN_S)

    def _make(self, rows: "DataFrame", how: How) -> None:
        """Another writer may make it at the same moment."""
        writer = self._spark.createDataFrame([], rows.schema).write.format("delta")
        try:
            writer.options(**how.options).partitionBy(*how.partition_by).mode("append").save(
                self.uri
            )
        except Exception:
            if not self._is_there():
                raise
        self.look()

    def _take(self, known: Written | None, is_replaced: bool) -> None:
        """Know the table that is there from now on. Raises AnotherTable."""
        found, version = self.id(), self._version()
        if known is None:
            turn = 0
        elif is_replaced and found != known.id:
            turn = known.turn + 1
        else:
            refuse_another(self, known, version, _begin_anew(known))
            turn = known.turn
            if version == known.version and known.digest:
                return
        self.written = Written(found, version, turn, self._digest(version))

    def _digest(self, version: int) -> str:
        text = self.commit_file(version)
        return "" if text is None else digest_of(text)

    # ---- Delta's own log ------------------------------------------------------------------------

    def look(self) -> Any:
        """The newest snapshot. Raises CannotReach: there is no table."""
        if not self._is_there():
            hint = DECIDE if self.written is None else _begin_anew(self.written)
            raise CannotReach("There is no Delta table.", self.uri, hint)
        return self._seen

    def _is_there(self) -> bool:
        """Whether there is a table now, by a new look."""
        self._seen = newest_snapshot(self._spark, self.uri)
        return int(self._seen.version()) >= 0

    def _version(self) -> int:
        return int(self._snapshot().version())

    def _snapshot(self) -> Any:
        return self.look() if self._seen is None else self._seen

    def _newest_number(self, snapshot: Any) -> int | None:
        """The application's version there; with few questions, where this one wrote before."""
        known, table, at = self._known, id_of(snapshot), int(snapshot.version())
        if known is None or known.table != table or known.version > at:
            number = number_in(snapshot, self._app)
        else:
            number = known.number
            for version in range(known.version + 1, at + 1):
                text = self.commit_file(version)
                if text is None:  # Delta has removed it by now
                    number = number_in(snapshot, self._app)
                    break
                found = number_in_commit(text, self._app)
                number = number if found is None else found
        self._known = _Known(table, at, number)
        return number

    def _snapshot_at(self, version: int) -> Any:
        """Raises Unreadable: that part of the log is removed."""
        from py4j.protocol import Py4JJavaError

        assert self._seen is not None
        log = self._seen.deltaLog()
        usual = [getattr(log, f"getSnapshotAt$default${number}")() for number in (2, 3, 4)]
        try:
            return log.getSnapshotAt(version, *usual)
        except Py4JJavaError as problem:
            raise Unreadable(str(problem.java_exception)) from problem


def _begin_anew(known: Written) -> str:
    return (
        "Put it back, then start the reader again. If it is gone for ever: write with "
        f'replaces="{known.id}" to go on in a new one, or delete the group\'s offsets (coord '
        "offsets delete) to read all again."
    )


def uri_of(spark: "SparkSession", path: str) -> str:
    """A path with the file system that Spark takes it for, as other programs read it, too."""
    files, found = hadoop_file(spark, path)
    uri = str(files.makeQualified(found).toString())
    is_short = uri.startswith(_LOCAL) and not uri.startswith(f"{_LOCAL}//")
    return uri.replace(_LOCAL, f"{_LOCAL}//", 1) if is_short else uri
