"""Files of a table, written anew: in order, and without the rows that are to go.

In a file that is in order a question about one group reads only the row groups that have it, by
Parquet's own statistics. The frequent events of a date are in a file of their own: what asks for
rare ones passes it over by the same statistics, and after a time it goes (keeping.py). The names of
such files begin with `coord-ordered-`. Rows that stay are the same rows.

A commit names the files that it replaces, so rows that are appended meanwhile are never touched;
where another writer has replaced one of these files first, there is none (Overtaken).
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from coordlib.errors import CoordError, SetupError
from coordlib.history.delta_files import local_folder, native_files, quoted, rows_in, short
from coordlib.history.tables import (
    EVENTS,
    LAG,
    ORDERED,
    PARTITIONED_BY,
    SNAPSHOTS,
    STAYING,
    TIME_OF,
    is_frequent,
)
from coordlib.history.views.groups import DUCKDB_SHIMS

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
