"""How long questions to a long history take, and what maintaining it takes.

A history is made by arithmetic and written once into a folder, as the archive leaves it (files in
order of time, a snapshot for each commit) or as `coord history maintain` does. Then each question
is asked several times, each in a connection of its own, as a command does.
"""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from coordlib.cli.main import main
from coordlib.errors import SetupError
from coordlib.history.delta_files import quoted
from coordlib.history.maintain import maintain
from coordlib.history.rewriting import ORDER, ORDERED, ROW_GROUP, engine
from coordlib.history.sql import query_tables
from coordlib.history.tables import (
    COLUMNS,
    EVENTS,
    LAG,
    PARTITIONED_BY,
    PROPERTIES,
    SNAPSHOTS,
    path_of,
)
from tests.tools.bench.figures import tell, tell_machine, timed
from tests.tools.bench.history_rows import Shape, commits, group_name, lag, snapshots, turns

BENCH: Final = "history"
ARCHIVED: Final = "as archived"
MAINTAINED: Final = "maintained"
_ARROW: Final = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_AT: Final = "TIMESTAMPTZ '2026-01-02 12:00:00Z'"


def run(*, shape: Shape, folder: str | None, is_archived: bool, repeats: int) -> int:
    """Make the history where there is none, and ask it; as archived, maintain it and ask again.

    Raises:
        SetupError: the history that is there was maintained, and the one as archived is asked for.
    """
    with _place(folder) as place:
        tell_machine(BENCH)
        if not (place / EVENTS).exists():
            took = timed(lambda: make(place, shape, is_archived))[1]
            tell(BENCH, "made", **_size(place), wall_ms=took.wall_ms)
        state = state_of(place)
        if is_archived and state == MAINTAINED:
            raise SetupError(
                "This history is maintained: nobody can ask it as the archive left it.",
                f"--folder {place}",
                "Name an empty folder, or leave out --archived.",
            )
        ask(str(place), shape, repeats, state)
        if is_archived:
            done, took = timed(lambda: maintain(str(place), {}))
            tell(BENCH, "maintain", cpu_ms=took.cpu_ms, wall_ms=took.wall_ms, **_size(place))
            tell(BENCH, "maintained", tables=[repr(each) for each in done])
            ask(str(place), shape, repeats, MAINTAINED)
    return 0


def state_of(place: Path) -> str:
    """What the names of the files say; a maintained history may have dates that go on."""
    names = [
        Path(uri).name
        for table in (EVENTS, SNAPSHOTS, LAG)
        for uri in DeltaTable(path_of(str(place), table)).file_uris()
    ]
    return MAINTAINED if any(name.startswith(ORDERED) for name in names) else ARCHIVED


def ask(tables: str, shape: Shape, repeats: int, state: str) -> None:
    """Time every question."""
    for name, question in questions(tables, shape).items():
        took, rows = [], 0
        for _ in range(repeats):
            rows, each = timed(question)
            took.append(each)
        best, worst = min(each.wall_ms for each in took), max(each.wall_ms for each in took)
        cpu_ms = min(each.cpu_ms for each in took)
        figures = {"best_ms": best, "worst_ms": worst, "cpu_ms": cpu_ms}
        tell(BENCH, name, state=state, days=shape.days, rows=rows, **figures)


def questions(tables: str, shape: Shape) -> dict[str, Callable[[], int]]:
    """What the README asks, and the commands; each returns its number of rows."""
    group = group_name(shape.groups // 2)
    of_group = f"group_id = '{group}'"
    owner = (
        f"SELECT member_id, issued, until FROM ownership WHERE topic = 'orders' AND partition = 2 "
        f"AND issued <= {_AT} AND (until IS NULL OR until > {_AT})"
    )
    commits_of = (
        'SELECT member_id, max("offset") AS committed, count(*) AS commits FROM offset_history '
        f"WHERE {of_group} AND partition = 2"
    )
    asked = {
        "owner at, of a group": f"{owner} AND {of_group}",
        "owner at, of all groups": owner,
        "generations of a group": "SELECT started, generation, reason, duration_ms "
        f"FROM generations WHERE {of_group} ORDER BY started",
        "commits of a group": f"{commits_of} GROUP BY ALL",
        "commits of a group on a day": f"{commits_of} AND time >= {_AT} "
        f"AND time < {_AT} + INTERVAL 1 DAY GROUP BY ALL",
        "current_offsets of a group": f"SELECT * FROM current_offsets WHERE {of_group}",
        "current_offsets": 'SELECT count(*), max("offset") FROM current_offsets',
        "current_groups of a group": f"SELECT * FROM current_groups WHERE {of_group}",
        "current_lag of a group": f"SELECT * FROM current_lag WHERE {of_group}",
        "events by type": "SELECT type, count(*) FROM events GROUP BY ALL",
    }
    found: dict[str, Callable[[], int]] = {
        name: partial(_rows_of, tables, sql) for name, sql in asked.items()
    }
    command = ["groups", "history", group, "--tables", tables]
    found["groups history"] = lambda: _lines_of(command)
    found["groups history --owners"] = lambda: _lines_of([*command, "--owners"])
    return found


def _rows_of(tables: str, sql: str) -> int:
    return len(query_tables(tables, sql).rows)


def _lines_of(command: list[str]) -> int:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        assert main(command) == 0
    return len(printed.getvalue().splitlines())


def make(place: Path, shape: Shape, is_archived: bool) -> None:
    """Write all tables."""
    with engine() as connection:
        writer = _Writer(connection, place, shape.files)
        for day, date in shape.dates():
            folder = f"date={date}"
            rare, frequent = turns(shape, day), commits(shape, day)
            if is_archived:
                writer.mixed(EVENTS, f"{rare} UNION ALL {frequent}", folder)
                writer.mixed(LAG, lag(shape, day), folder)
                writer.mixed(SNAPSHOTS, snapshots(shape, day, is_whole=False), ".")
            else:
                writer.ordered(EVENTS, rare, folder, "turns")
                writer.ordered(EVENTS, frequent, folder, "commits")
                writer.ordered(LAG, lag(shape, day), folder, "all")
        whole = snapshots(shape, 0, is_whole=True)
        if is_archived:
            writer.mixed(SNAPSHOTS, whole, ".")
        else:
            last = snapshots(shape, shape.days - 1, is_whole=False)
            writer.ordered(SNAPSHOTS, f"{whole} UNION ALL {last}", ".", "all")
        writer.commit()


class _Writer:
    """Files of tables, and then a log for each."""

    def __init__(self, connection: Any, place: Path, files: int) -> None:
        self._connection, self._place, self._files = connection, place, files
        self._added: dict[str, list[AddAction]] = {}

    def ordered(self, table: str, query: str, folder: str, part: str) -> None:
        """A file as `coord history maintain` writes it."""
        options = f"COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
        self._copy(table, f"{query} ORDER BY {ORDER[table]}", folder, f"{ORDERED}{part}-", options)

    def mixed(self, table: str, query: str, folder: str) -> None:
        """Files as the archive leaves them."""
        time = "as_of_time" if table == SNAPSHOTS else "time"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE day AS "
            f"SELECT *, ntile({self._files}) OVER (ORDER BY {time}) AS part FROM ({query})"
        )
        for part in range(1, self._files + 1):
            rows = f"SELECT * EXCLUDE (part) FROM day WHERE part = {part} ORDER BY {time}"
            self._copy(table, rows, folder, "part-", "COMPRESSION snappy")

    def _copy(self, table: str, query: str, folder: str, prefix: str, options: str) -> None:
        added = self._added.setdefault(table, [])
        path = Path(folder, f"{prefix}{len(added):06}.parquet")
        target = Path(path_of(str(self._place), table), path)
        target.parent.mkdir(parents=True, exist_ok=True)
        names = [f'"{name}"' for name in COLUMNS[table] if name not in PARTITIONED_BY[table]]
        ((rows,),) = self._connection.execute(
            f"COPY (SELECT {', '.join(names)} FROM ({query})) TO {quoted(str(target))} "
            f"(FORMAT parquet, {options})"
        ).fetchall()
        values = {name: folder.partition("=")[2] for name in PARTITIONED_BY[table]}
        stat = target.stat()
        stats, ms = f'{{"numRecords":{rows}}}', int(stat.st_mtime * 1000)
        added.append(AddAction(str(path), stat.st_size, values, ms, True, stats))

    def commit(self) -> None:
        """Make the tables, each with one commit."""
        for table, added in self._added.items():
            fields = [(name, _ARROW[kind]) for name, kind in COLUMNS[table].items()]
            create_table_with_add_actions(
                path_of(str(self._place), table),
                Schema.from_arrow(pa.schema(fields)),
                added,
                partition_by=list(PARTITIONED_BY[table]),
                configuration=dict(PROPERTIES),
            )


def _size(place: Path) -> dict[str, float]:
    files = [file for file in place.rglob("*.parquet") if "_delta_log" not in file.parts]
    return {"files": len(files), "mb": round(sum(f.stat().st_size for f in files) / 1e6, 1)}


@contextlib.contextmanager
def _place(folder: str | None) -> Iterator[Path]:
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield Path(folder)
        return
    made = Path(tempfile.mkdtemp(prefix="coord-bench-history-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)
