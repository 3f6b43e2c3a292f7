"""Upkeep of the tables: old rows are dropped, files are put in order and deleted."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from coordlib.errors import AnotherTable, CoordError, SetupError
from coordlib.history.delta_files import (
    local_folder,
    native_files,
    open_table,
    quoted,
    rows_in,
    short,
)
from coordlib.history.engines import DUCKDB_SHIMS
from coordlib.history.plan import digest_of
from coordlib.history.sql import tables_in
from coordlib.history.tables import (
    CALLED,
    EVENTS,
    LAG,
    ORDERED,
    PARTITIONED_BY,
    SNAPSHOTS,
    STAYING,
    TIME_OF,
    is_frequent,
    path_of,
)

if TYPE_CHECKING:
    import duckdb
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

#: Rows of a row group, the least that is read of a file: a group of a busy day has about as many.
ROW_GROUP: Final = 8_192
MEMORY: Final = "1GB"  # beyond it DuckDB sorts on disk
#: An archive commits every 30 s, and a commit takes milliseconds.
COMMIT_ATTEMPTS: Final = 20
ORDER: Final[Mapping[str, str]] = {
    EVENTS: "group_id, time, event_id",
    SNAPSHOTS: "group_id, as_of_time",
    LAG: "group_id, topic, partition, time",
}
TURNS: Final = "turns"
#: Table to the files of a date when it is in order: a word in their names, and their rows.
PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    EVENTS: {TURNS: f"NOT {is_frequent('type')}", "commits": is_frequent("type")},
    SNAPSHOTS: {"all": "true"},
    LAG: {"all": "true"},
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table, as its log has it."""

    #: Below the table's folder.
    path: str
    size: int
    #: None: the table has no dates, or its rows have none.
    date: date | None

    @property
    def part(self) -> str | None:
        """What it has of its date, in order; None: anything, in any order."""
        name = Path(self.path).name
        return name.removeprefix(ORDERED).split("-")[0] if name.startswith(ORDERED) else None


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files of one date that are to be written anew."""

    files: tuple[DataFile, ...]
    #: Rows that go: the others are listed in `staying`.
    dropped: int = 0


class Overtaken(Exception):
    """Another writer has replaced a file first."""


class Rewriter:
    """One version of a table on this machine, and what may be written in place of its files.

    Args:
        reopen: the table as it is now; raises where another one has come to its place.

    Raises:
        SetupError: the files of this table alone do not determine its rows.
    """

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: str,
        table: "DeltaTable",
        reopen: "Callable[[], DeltaTable]",
    ) -> None:
        folder = local_folder(table.table_uri)
        if folder is None or native_files(name, table) is None:
            raise SetupError(
                "These tables cannot be maintained from here.",
                f"{table.table_uri}: an object store, or with deletion vectors or column mapping",
                "Use OPTIMIZE and VACUUM in Spark.",
            )
        self._connection, self._name, self._folder = connection, name, folder
        self._reopen = reopen
        self._columns = [field.name for field in table.schema().fields]
        self._is_dated = bool(PARTITIONED_BY[name])
        self.files = tuple(_files_of(table, self._is_dated))

    def unordered(self, before: date) -> list[Replacement]:
        """The dates before this one that are not one file in order for each part."""
        dates = _by_date(f for f in self.files if f.date is None or f.date < before)
        return [
            Replacement(files)
            for files in dates.values()
            if None in (parts := {file.part for file in files}) or len(parts) < len(files)
        ]

    def superseded(self, until: datetime) -> list[Replacement]:
        """Where rows are older than this and may go; `staying` has all others of these files."""
        files = [
            file
            for file in self.files
            if (file.date is None or file.date < until.date()) and file.part != TURNS
        ]
        if not files:
            return []
        self._look_at("looked", files)
        is_old = f"COALESCE({TIME_OF[self._name]} < TIMESTAMPTZ '{until.isoformat()}', false)"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE staying AS "
            f"WITH old AS (SELECT * FROM looked WHERE {is_old}) "
            f"SELECT row_id FROM ({STAYING[self._name]}) "
            f"UNION SELECT row_id FROM looked WHERE NOT {is_old}",
        )
        counts = self._connection.execute(
            "SELECT l.filename, count(*) - count(s.row_id) FROM looked AS l "
            "LEFT JOIN staying AS s ON s.row_id = l.row_id GROUP BY ALL"
        ).fetchall()
        gone = {name.removeprefix(f"{self._folder}/"): count for name, count in counts}
        dates = _by_date(files).values()
        sums = [(files, sum(gone.get(file.path, 0) for file in files)) for files in dates]
        return [Replacement(files, count) for files, count in sums if count]

    def replace(self, replacements: Sequence[Replacement], why: str) -> None:
        """Write and commit these, all or none.

        delta-rs lets two writers replace one file where neither changes data, and the rows would be
        doubled. So a commit is tried on the newest version alone, if it still has these files.

        Raises:
            Overtaken: another writer was first. Nothing has changed.
            CoordError: the files are there, and no commit could be made; or another table has come
                to the place. Nothing has changed.
            OSError, duckdb.Error: files cannot be written or read. Nothing has changed.
        """
        from deltalake.exceptions import CommitFailedError

        # Whether a commit that failed is one may be in doubt: its files are left to VACUUM.
        actions = [action for each in replacements for action in self._actions(each)]
        planned = {file.path for each in replacements for file in each.files}
        failed: CommitFailedError | None = None
        for _ in range(COMMIT_ATTEMPTS):
            newest = self._reopen()
            if not planned <= {file.path for file in _files_of(newest, self._is_dated)}:
                raise Overtaken(self._folder) from failed
            try:
                return self._commit(newest, actions, why)
            except CommitFailedError as problem:
                failed = problem
        raise CoordError(
            "A table of the history took no commit.",
            f"{self._folder}: {short(failed)}",
            "Run it again: what was done stays.",
        ) from failed

    def _commit(
        self, newest: "DeltaTable", actions: "list[AddAction | RemoveAction]", why: str
    ) -> None:
        """Make the version after this one, or none."""
        from deltalake import CommitProperties

        newest.create_write_transaction(
            actions,
            "append",
            newest.schema(),
            list(PARTITIONED_BY[self._name]),
            commit_properties=CommitProperties(
                custom_metadata={"coord_maintain": why}, max_commit_retries=0
            ),
        )

    def _actions(self, each: Replacement) -> "list[AddAction | RemoveAction]":
        """Write its files; returns what the log is to say of them and of those that they replace.

        Where no row goes, the log says that its data is the same: streams that read the table
        pass over such a commit.
        """
        from deltalake.transaction import AddAction, RemoveAction

        now_ms, is_less = time.time_ns() // 1_000_000, each.dropped > 0
        day = each.files[0].date
        name = None if day is None else day.isoformat()
        values: dict[str, str | None] = dict.fromkeys(PARTITIONED_BY[self._name], name)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, is_less, now_ms, file.size, values) for file in each.files
        ]
        for target, rows in self._write(each, Path(self._folder, *_folders(values))):
            path, size = str(target.relative_to(self._folder)), target.stat().st_size
            stats = f'{{"numRecords":{rows}}}'
            actions.append(AddAction(path, size, values, now_ms, is_less, stats))
        return actions

    def _write(self, each: Replacement, folder: Path) -> list[tuple[Path, int]]:
        """The rows that stay, in order: files that have any, and how many."""
        self._look_at("replaced", each.files)
        folder.mkdir(parents=True, exist_ok=True)
        stays = "row_id IN (SELECT row_id FROM staying)" if each.dropped else "true"
        written = []
        for part, which in PARTS[self._name].items():
            target = folder / f"{ORDERED}{part}-{uuid.uuid4()}.parquet"
            rows = self._copy(f"FROM replaced WHERE {stays} AND {which}", target)
            if rows:
                written.append((target, rows))
            else:
                target.unlink()
        self._require_all(each, sum(rows for _, rows in written))
        return written

    def _copy(self, rows: str, target: Path) -> int:
        """Write one file; returns its number of rows."""
        kept = (name for name in self._columns if name not in PARTITIONED_BY[self._name])
        columns = ", ".join(f'"{name}"' for name in kept)
        ((count,),) = self._connection.execute(
            f"COPY (SELECT {columns} {rows} ORDER BY {ORDER[self._name]}) "
            f"TO {quoted(str(target))} "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"
        ).fetchall()
        return int(count)

    def _require_all(self, each: Replacement, written: int) -> None:
        ((before,),) = self._connection.execute("SELECT count(*) FROM replaced").fetchall()
        if written != before - each.dropped:
            raise CoordError(
                "Files of the history do not have the rows that were counted in them.",
                f"{self._folder}: {written} of {before}, {each.dropped} to go",
                "Nothing was changed. Run it again.",
            )

    def _look_at(self, view: str, files: Iterable[DataFile]) -> None:
        """Make a view of the rows of some files, with `filename` and `row_id`."""
        names = [f"{self._folder}/{file.path}" for file in files]
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT *, {{'file': filename, "
            f"'row': file_row_number}} AS row_id FROM ({rows_in(self._name, names, numbered=True)})"
        )


@contextmanager
def engine() -> "Iterator[duckdb.DuckDBPyConnection]":
    """A DuckDB that rewrites files, and sorts on disk what is too large for memory."""
    import duckdb

    with TemporaryDirectory(prefix="coord-history-") as spilled:
        options = {"memory_limit": MEMORY, "temp_directory": spilled}
        with duckdb.connect(config={"autoinstall_known_extensions": False, **options}) as opened:
            opened.execute("SET TimeZone = 'UTC'")
            opened.execute("SET preserve_insertion_order = false")
            for statement in DUCKDB_SHIMS:
                opened.execute(statement)
            yield opened


def _files_of(table: "DeltaTable", is_dated: bool) -> Iterator[DataFile]:
    actions = table.get_add_actions(flatten=True)
    paths = actions.column("path").to_pylist()
    sizes = actions.column("size_bytes").to_pylist()
    dates = actions.column("partition.date").to_pylist() if is_dated else [None] * len(paths)
    for path, size, day in zip(paths, sizes, dates, strict=True):
        yield DataFile(str(path), int(size), date.fromisoformat(str(day)) if day else None)


def _by_date(files: Iterable[DataFile]) -> dict[date | None, tuple[DataFile, ...]]:
    """The files of each date, in order of the dates."""
    found: dict[date | None, tuple[DataFile, ...]] = {}
    for file in sorted(files, key=lambda file: (str(file.date), file.path)):
        found[file.date] = (*found.get(file.date, ()), file)
    return found


def _folders(values: Mapping[str, str | None]) -> list[str]:
    return [f"{column}={value or '__HIVE_DEFAULT_PARTITION__'}" for column, value in values.items()]


#: Files that no version needs are deleted after it, Delta's own default: no query runs longer.
VACUUM_AFTER: Final = timedelta(days=7)
#: Of one commit: the archive reads the commits of others, so there are few; and what is lost when
#: another writer is first is little.
DATES_PER_COMMIT: Final = 30
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What was done to a table; in a dry run what would be, and the files are as they were."""

    table: str
    dropped_rows: int
    #: Dates that were written anew; of a table without dates at most one.
    rewritten: int
    deleted_files: int
    files: int
    bytes: int


def maintain(
    tables_dir: str,
    keep: Mapping[str, timedelta],
    *,
    prefix: str | None = None,
    now: datetime | None = None,
    is_dry_run: bool = False,
) -> list[Maintained]:
    """Maintain all tables of a history.

    Args:
        tables_dir: the folder that holds them, on this machine.
        keep: how long what is kept, as `keeping.kept` reads it; what is absent is kept for ever.
        prefix: of the topics that must have been archived here; None: of any.

    Raises:
        CannotReach: there is no history.
        SetupError: they are tables of another prefix, or cannot be maintained from here.
        CoordError: another writer was always first. What was done stays.
    """
    opened = tables_in(tables_dir)
    if prefix is not None:
        _require_prefix(opened[EVENTS], prefix)
    today = (now or datetime.now(UTC)).date()
    with engine() as connection:
        return [
            _Upkeep(connection, name, path_of(tables_dir, name), table, today, is_dry_run)(
                keep.get(CALLED[name])
            )
            for name, table in opened.items()
        ]


def _require_prefix(events: "DeltaTable", prefix: str) -> None:
    if events.file_uris() and events.transaction_version(f"{prefix}-archive") is None:
        raise SetupError(
            "These tables are of another prefix.",
            f"{events.table_uri}: no archive of the prefix {prefix} has written there",
            "Check --tables and --prefix.",
        )


class _Upkeep:
    """One table and its steps."""

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: str,
        path: str,
        table: "DeltaTable",
        today: date,
        is_dry_run: bool,
    ) -> None:
        self._connection, self._name, self._path = connection, name, path
        #: Of the table that was there at the beginning, as of the newest look.
        self._seen = self._look(table)
        self._today, self._is_dry_run = today, is_dry_run
        self._dropped, self._rewritten = 0, set[date | None]()

    def __call__(self, kept: timedelta | None) -> Maintained:
        if kept is not None:
            self._often(lambda: self._drop(kept))
        self._often(self._order)
        deleted = self._vacuum()
        table = self._open()
        if not self._is_dry_run:
            table.create_checkpoint()
        left = self._rewriter(table).files
        return Maintained(
            table=self._name,
            dropped_rows=self._dropped,
            rewritten=len(self._rewritten),
            deleted_files=deleted,
            files=len(left),
            bytes=sum(file.size for file in left),
        )

    def _drop(self, kept: timedelta) -> None:
        until = datetime.combine(self._today, datetime.min.time(), UTC) - kept
        self._rewrite("drop", lambda rewriter: rewriter.superseded(until))

    def _order(self) -> None:
        self._rewrite("order", lambda rewriter: rewriter.unordered(self._today))

    def _rewrite(self, why: str, plan: Callable[[Rewriter], list[Replacement]]) -> None:
        """Write dates anew, a few in each commit. Each commit is of the version that it was planned
        on: a file that another writer has replaced since would otherwise be doubled, and not be a
        conflict. What was committed is counted at once: a later commit may come too late."""
        done = set[date | None]()
        while True:
            some = self._next(why, plan, done)
            dates = {each.files[0].date for each in some}
            done |= dates
            self._rewritten |= dates
            self._dropped += sum(each.dropped for each in some)
            if self._is_dry_run or len(some) < DATES_PER_COMMIT:
                return

    def _next(
        self, why: str, plan: Callable[[Rewriter], list[Replacement]], done: Set[date | None]
    ) -> list[Replacement]:
        """Write the next dates anew; in a dry run nothing changes, and all of them are next."""
        rewriter = self._rewriter(self._open())
        left = [each for each in plan(rewriter) if each.files[0].date not in done]
        if self._is_dry_run:
            return left
        some = left[:DATES_PER_COMMIT]
        if some:
            rewriter.replace(some, why)
        return some

    def _vacuum(self) -> int:
        """Delete what no version of the last days needs; else nothing is committed."""
        hours = VACUUM_AFTER // timedelta(hours=1)
        unneeded = self._open().vacuum(hours, dry_run=True, full=True)
        if unneeded and not self._is_dry_run:
            self._open().vacuum(hours, dry_run=False, full=True)
        return len(unneeded)

    def _often(self, step: Callable[[], None]) -> None:
        """Take a step anew where another writer was first."""
        overtaken: Overtaken | None = None
        for _ in range(ATTEMPTS):
            try:
                return step()
            except Overtaken as problem:
                overtaken = problem
        raise CoordError(
            "Another writer always replaced the same files first.",
            self._path,
            "Let one coord history maintain run at a time, then run it again: what was done stays.",
        ) from overtaken

    def _open(self) -> "DeltaTable":
        """The table as it is now. To tidy up another one by this one's log, or to write a
        checkpoint into its log, would leave it without its rows.  # INV-120"""
        table = open_table(self._path)
        if table is None:
            raise CoordError(
                "A table was deleted while it was maintained.", self._path, "Check --tables."
            )
        seen, found = self._seen, self._look(table)
        # An old copy that has grown again has other commits under these numbers.  # INV-157
        then = self._digest_of(seen.version)
        is_copy = found.version < seen.version or then not in ("", seen.digest)
        if found.id != seen.id or is_copy:
            raise AnotherTable(
                "Another table, or an old copy, has come to the place of the one that was "
                "maintained.",
                f"{self._path}: table {found.id}, version {found.version}, and it was {seen.id}, "
                f"version {seen.version}",
                "Run it again when the right one is there: what was done stays.",
            )
        self._seen = found
        return table

    def _look(self, table: "DeltaTable") -> "_Seen":
        version = table.version()
        return _Seen(str(table.metadata().id), version, self._digest_of(version))

    def _digest_of(self, version: int) -> str:
        """Of a commit's file; "": it is not there, or not on this machine."""
        file = Path(local_folder(self._path) or "", "_delta_log", f"{version:020d}.json")
        return digest_of(file.read_text()) if file.exists() else ""

    def _rewriter(self, table: "DeltaTable") -> Rewriter:
        return Rewriter(self._connection, self._name, table, self._open)


class _Seen(NamedTuple):
    """Which table it was."""

    #: Delta's.
    id: str
    version: int
    digest: str
