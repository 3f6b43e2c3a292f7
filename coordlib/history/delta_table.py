"""A Delta table that one archive at a time appends to, each record once.

The table's position is in the newest commit of an archive. Others commit too (OPTIMIZE, VACUUM),
and Delta removes the files of old commits: so the position also lies in a file of its own,
`_coord_archive/<number>-<identity>.json` below the table. It is written before its commit; the
number of the newest commit, which Delta keeps for ever, tells which file holds. VACUUM leaves
folders alone whose names begin with an underscore.

Both name the topics whose records the table has. A table of others is refused before anything is
written.  # INV-39
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import functions as F  # noqa: N812  # its usual name

from coordlib.errors import AnotherTable, CannotReach, StartRefused
from coordlib.history.delta_append import (
    Append,
    OvertakenByAnother,
    append,
    delete,
    id_of,
    names_in,
    newest_snapshot,
    number_in,
    read_text,
    write_text,
)
from coordlib.history.plan import (
    BEGIN_ANEW,
    ArchiveOptions,
    Commit,
    Hole,
    NewestRead,
    Positions,
    Source,
    commit_in,
    digest_of,
    moved,
)
from coordlib.history.tables import COLUMNS, PARTITIONED_BY, PROPERTIES, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


POSITIONS_FOLDER: Final = "_coord_archive"
TABLE_FILE: Final = "coord-archive-table"

_log = structlog.get_logger("coordlib.archive")


class ArchivedTable:
    """One Delta table, as the archive writes it.

    Args:
        source: the topics whose records it is to have.

    Raises:
        StartRefused: how far the table is complete is unknown, it has records of other topics, or
            it lacks a column.
        CannotReach: there is no table, and this archive has written to one.
        AnotherTable: it is not the one that this archive has written to.
    """

    def __init__(
        self, spark: "SparkSession", table: str, options: ArchiveOptions, source: Source
    ) -> None:
        path = path_of(options.tables, table)
        self._spark, self._table, self._path = spark, table, path
        #: Delta's txnAppId, under which commits are numbered: of two archives that commit the same
        #: number at once, Delta drops one.
        self._app_id = f"{options.prefix}-archive"
        #: Names the table that this archive has written to, by path and Delta's id.
        self._id_file = f"{options.checkpoint}/{TABLE_FILE}-{table}"
        self._version, self.newest = -1, Commit.first(source)
        #: Of the file of that version's commit; None: there is none.
        self._digest: str | None = None
        snapshot = self._snapshot()
        self._is_there = int(snapshot.version()) >= 0
        self._refuse_another(snapshot)
        if self._is_there:
            self._version = int(snapshot.version())
            self._digest = self._digest_of(self._version)
            self.newest = self._find(self._number_in(snapshot)).continued(source, path)
            self._refuse_lacking(snapshot)
        #: The table is complete up to here: its newest commit, and what was read since then and
        #: had no row for it.
        self.next: Positions = self.newest.next
        #: The newest records read, likewise.
        self.read = self.newest.read

    def make_ready(self) -> None:
        """Make the table, where there is none. Before it is appended to.

        Raises:
            Exception: Delta's, where another archive makes the table at this moment.
        """
        if not self._is_there:
            # What Delta cleans later names the topics of a table that never gets a row.
            write_text(self._spark, self._position_file(self.newest), self.newest.to_json(-1))
            _create_table(self._spark, self._table, self._path, self.newest)
            self._version, self._is_there = int(self._snapshot().version()), True
            self._digest = self._digest_of(self._version)
        write_text(self._spark, self._id_file, f"{id_of(self._snapshot())} {self._path}")
        self._keep_position()

    def note_read(
        self,
        ends: Positions,
        newest: Mapping[str, Mapping[str, NewestRead]],
        cut: Collection[Hole] = (),
    ) -> None:
        """Up to there it was read.

        Args:
            newest: the newest records, of partitions that had any.
            cut: where the records read before are gone.
        """
        gone = {(each.topic, str(each.partition)) for each in cut}
        left = {
            topic: {at: record for at, record in each.items() if (topic, at) not in gone}
            for topic, each in self.read.items()
        }
        self.next, self.read = moved(self.next, ends), moved(left, newest)

    def append(self, rows: "DataFrame", commit: Commit, batch: int) -> None:
        """Commit rows, unless another archive did since this one looked.

        Raises:
            StartRefused: it did, before or at the same moment.
            CannotReach: the table is gone. AnotherTable: another one is in its place.
            CoordError: it was changed at the same moment; the next try goes on.
        """
        looked_at = self._refuse_others(self.newest)
        write_text(self._spark, self._position_file(commit), commit.to_json(batch))
        appended = Append(self._app_id, commit.number, commit.to_json(batch))
        try:
            columns, digest = PARTITIONED_BY[self._table], self._digest or ""
            append(self._spark, looked_at, rows, columns, appended, digest)
        except OvertakenByAnother:
            self._refuse_others(self.newest)  # it names the other one
            raise
        self._refuse_others(commit)
        delete(self._spark, self._position_file(self.newest))
        self.newest, self.next, self.read = commit, commit.next, commit.read

    def _refuse_others(self, ours: Commit) -> Any:
        """Look at what was committed since the last look; OPTIMIZE and the like are fine.

        Returns Delta's snapshot of what was looked at.

        Args:
            ours: the commit that must be the newest of any archive.
        """
        snapshot = self._snapshot()
        version = int(snapshot.version())
        self._refuse_another(snapshot)
        digest = self._digest_of(self._version)
        # One that has grown again has other commits under these numbers.  # INV-157
        if version < self._version or (digest is not None and digest != self._digest):
            raise AnotherTable(
                "An old copy of a table was put in its place while it was written.",
                f"{self._path}: version {version}, and {self._version} before",
                "What is still in Kafka is written into it again.",
            )
        texts = [self._commit_file(each) for each in range(self._version + 1, version + 1)]
        for found in filter(None, map(commit_in, filter(None, texts))):
            if found != ours:
                raise _another_archive(self._path, found)
        # A file that is missing was removed by Delta's own cleaning: then the number must do.
        if None in texts and (number := self._number_in(snapshot)) > ours.number:
            raise _another_archive(self._path, Commit("unknown", number))
        self._version, self._digest = version, self._digest_of(version)
        return snapshot

    def _refuse_another(self, snapshot: Any) -> None:
        """A table that is away for a while would come back to one that has the same records, or
        lacks those that Kafka has deleted since.  # INV-120"""
        known, _, path = (read_text(self._spark, self._id_file) or "").partition(" ")
        if not known or path != self._path:
            return
        hint = f"Put it back. If it is gone for ever: delete {self._id_file}, to begin a new one."
        if int(snapshot.version()) < 0:
            what = "There is no table any more where this archive has written to one."
            raise CannotReach(what, f"{self._path}: table {known}", hint)
        if (found := id_of(snapshot)) != known:
            what = "Another table is in the place of the one that this archive has written to."
            raise AnotherTable(what, f"{self._path}: table {found}, and it was {known}", hint)

    def _find(self, number: int) -> Commit:
        """The newest commit of an archive: by the log, else by the file of positions."""
        commit = next(self._commits(), None) or self._in_position_file(number)
        if commit is not None:
            return commit
        raise StartRefused(
            "It is unknown up to where this table is complete.",
            f"no archive's commit is known of {self._path}",
            "Continuing could double rows: name a fresh folder for the tables, and keep this one.",
        )

    def _commits(self) -> Iterator[Commit]:
        """Those of archives whose files are still there, the newest first."""
        for version in range(self._version, -1, -1):
            text = self._commit_file(version)
            if text is None:
                return  # Delta removes them from the oldest on
            commit = commit_in(text)
            if commit is not None:
                yield commit

    def _commit_file(self, version: int) -> str | None:
        return read_text(self._spark, f"{self._path}/_delta_log/{version:020d}.json")

    def _digest_of(self, version: int) -> str | None:
        """None: there is no such file, or none any more."""
        text = self._commit_file(version)
        return None if text is None else digest_of(text)

    def _in_position_file(self, number: int) -> Commit | None:
        folder = f"{self._path}/{POSITIONS_FOLDER}"
        names = [n for n in names_in(self._spark, folder) if n.startswith(f"{number:020d}-")]
        if len(names) != 1:
            return None  # two archives raced for this number, and the log does not show the winner
        return Commit.from_json(read_text(self._spark, f"{folder}/{names[0]}"))

    def _position_file(self, commit: Commit) -> str:
        return f"{self._path}/{POSITIONS_FOLDER}/{commit.number:020d}-{commit.identity}.json"

    def _keep_position(self) -> None:
        """Have the file of the newest commit, and none of attempts that came to nothing."""
        folder, mine = f"{self._path}/{POSITIONS_FOLDER}", self._position_file(self.newest)
        names = names_in(self._spark, folder)
        for name in names:
            if not mine.endswith(f"/{name}"):
                delete(self._spark, f"{folder}/{name}")
        if not any(mine.endswith(f"/{name}") for name in names):
            write_text(self._spark, mine, self.newest.to_json(-1))

    def _refuse_lacking(self, snapshot: Any) -> None:
        """Other code made it: Delta takes no rows with columns that the table has not got."""
        found = set(snapshot.schema().fieldNames())
        if lacking := [name for name in COLUMNS[self._table] if name not in found]:
            raise StartRefused(
                "A table has not all columns that this code writes.",
                f"{self._path}: {', '.join(lacking)}",
                f"Start the code that made it. {BEGIN_ANEW}",
            )

    def _snapshot(self) -> Any:
        """Delta's snapshot of what lies there now; its version costs no Spark job."""
        return newest_snapshot(self._spark, self._path)

    def _number_in(self, snapshot: Any) -> int:
        """The number of the newest commit of an archive; 0: there is none."""
        return number_in(snapshot, self._app_id) or 0


def _another_archive(path: str, found: Commit) -> StartRefused:
    return StartRefused(
        "Another archive writes these tables.",
        f"{path}: commit {found.number} is of checkpoint {found.identity}",
        "Let only one run: a coordinator brings its own unless started with "
        "--without-archive. Nothing was doubled or lost.",
    )


def _create_table(spark: "SparkSession", table: str, path: str, first: Commit) -> None:
    columns = (F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS[table].items())
    writer = spark.range(0).select(*columns).write.format("delta")
    writer = writer.options(**PROPERTIES).partitionBy(*PARTITIONED_BY[table])
    # One that somebody has made meanwhile may be of other topics.
    writer.option("userMetadata", first.to_json(-1)).mode("errorifexists").save(path)
