"""How long questions to a long history take.

A history is made by arithmetic and written once into a folder, as `coord history maintain` leaves
it; tests also have it as the archive does, with files in order of time and a snapshot for each
commit. Then each question is asked several times, each in a connection of its own, as a command
does. With another number of days a smaller history is made beside it, and each question is asked of
the two by turns.

In a folder that is named each history has a folder of its own, by its shape. What was written there
is not written again: a run that was ended goes on where it stood.
"""

import contextlib
import io
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from coordlib.cli.main.main import main
from coordlib.history.delta_files import quoted
from coordlib.history.sql import query_tables
from coordlib.history.tables import (
    COLUMNS,
    EVENTS,
    LAG,
    ORDERED,
    PARTITIONED_BY,
    PROPERTIES,
    SNAPSHOTS,
    TABLES,
    path_of,
)
from coordlib.history.upkeep import ORDER, ROW_GROUP, engine
from tests.tools.bench.figures import Took, tell, tell_machine, timed
from tests.tools.bench.history_rows import START, Shape, commits, group_name, lag, snapshots, turns

BENCH: Final = "history"
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


def run(*, shape: Shape, beside: int | None, folder: str | None, repeats: int) -> int:
    """Make the histories that are not there, and ask them.

    Args:
        beside: days of the smaller history; None: there is none.
    """
    shapes = [*([replace(shape, days=beside)] if beside else []), shape]
    with _place(folder) as home:
        tell_machine(BENCH)
        places = [(home / name_of(each), each) for each in shapes]
        for place, each in places:
            _have(place, each)
        ask(places, repeats)
    return 0


def name_of(shape: Shape) -> str:
    """The folder of a history: another shape is another folder."""
    return f"{shape.days}-days-{shape.groups}-groups-{shape.commits_per_day}-commits-maintained"


def _have(place: Path, shape: Shape) -> None:
    """Make the history there, if it is not there whole."""
    if not all((place / table / "_delta_log").exists() for table in TABLES):
        took = timed(lambda: make(place, shape, is_archived=False))[1]
        times = {"cpu_ms": took.cpu_ms, "wall_ms": took.wall_ms}
        tell(BENCH, "made", days=shape.days, **times)
    commits = shape.days * shape.commits_per_day
    tell(BENCH, "history", days=shape.days, groups=shape.groups, commits=commits, **_size(place))


def ask(places: Sequence[tuple[Path, Shape]], repeats: int) -> None:
    """Time every question, of the histories by turns; the figures of one beside the other's."""
    asked = [(shape, questions(str(place), shape)) for place, shape in places]
    for name in asked[0][1]:
        took: dict[int, list[Took]] = defaultdict(list)
        rows: dict[int, int] = {}
        for turn in range(repeats):
            for shape, each in asked if turn % 2 == 0 else reversed(asked):
                rows[shape.days], spent = timed(each[name])
                took[shape.days].append(spent)
        figures = {
            f"{days}_days": {
                "rows": rows[days],
                "best_ms": min(each.wall_ms for each in spent),
                "worst_ms": max(each.wall_ms for each in spent),
                "cpu_ms": min(each.cpu_ms for each in spent),
            }
            for days, spent in sorted(took.items())
        }
        tell(BENCH, name, **figures)


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
        "commits of a group on a date": f"{commits_of} AND date = DATE '2026-01-02' GROUP BY ALL",
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
    for options in ([], ["--owners"], ["--owners", "--since", f"{START.date()}"]):
        found[" ".join(["groups history", *options])] = partial(_lines_of, [*command, *options])
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
        begun = len(self._added.get(table, []))
        parts = range(1, self._files + 1)
        if all(
            self._target(table, folder, "part-", begun + n)[1].exists() for n in range(len(parts))
        ):
            for _ in parts:  # their rows are not asked for
                self._copy(table, "", folder, "part-", "")
            return
        time = "as_of_time" if table == SNAPSHOTS else "time"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE day AS "
            f"SELECT *, ntile({self._files}) OVER (ORDER BY {time}) AS part FROM ({query})"
        )
        for part in parts:
            rows = f"SELECT * EXCLUDE (part) FROM day WHERE part = {part} ORDER BY {time}"
            self._copy(table, rows, folder, "part-", "COMPRESSION snappy")

    def _copy(self, table: str, query: str, folder: str, prefix: str, options: str) -> None:
        added = self._added.setdefault(table, [])
        path, target = self._target(table, folder, prefix, len(added))
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            names = [f'"{name}"' for name in COLUMNS[table] if name not in PARTITIONED_BY[table]]
            whole = target.with_suffix(".begun")  # a run may end in the middle of a file
            self._connection.execute(
                f"COPY (SELECT {', '.join(names)} FROM ({query})) TO {quoted(str(whole))} "
                f"(FORMAT parquet, {options})"
            )
            whole.rename(target)
        rows = pq.read_metadata(target).num_rows
        values = {name: folder.partition("=")[2] for name in PARTITIONED_BY[table]}
        stat = target.stat()
        stats, ms = f'{{"numRecords":{rows}}}', int(stat.st_mtime * 1000)
        added.append(AddAction(str(path), stat.st_size, values, ms, True, stats))

    def _target(self, table: str, folder: str, prefix: str, number: int) -> tuple[Path, Path]:
        """A file's path below its table, and where that is."""
        path = Path(folder, f"{prefix}{number:06}.parquet")
        return path, Path(path_of(str(self._place), table), path)

    def commit(self) -> None:
        """Make the tables, each with one commit."""
        for table, added in self._added.items():
            if Path(path_of(str(self._place), table), "_delta_log").exists():
                continue
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
