"""`coord sql` and `coord history maintain`: ask the history, and keep its tables small."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from coordlib.cli.kit.options import Count, Seconds, Since
from coordlib.cli.kit.output import (
    counted,
    json_text,
    jsonable,
    print_json,
    print_line,
    print_table,
    say,
)
from coordlib.cli.kit.where import TABLES_HERE, WhereTables
from coordlib.errors import CoordError
from coordlib.history.tables import kept

if TYPE_CHECKING:
    from coordlib.history.sql import Question

#: Of a table in a terminal or a JSON object, both of which are built whole: some 70 MB of memory.
ROWS_SHOWN: Final = 10_000
COUNT_S: Final = 1.0  # what counting the others may take; the query runs once more for it


def sql(
    query: str,
    /,
    *,
    limit: Count | None = None,
    lines: Annotated[bool, Parameter(negative="")] = False,
    timeout: Seconds | None = None,
    since: Since = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Query the history in SQL (DuckDB's dialect), in UTC, without a job or a JVM.

    Tables: events, group_snapshots, lag. Views: group_events, group_turns, generations,
    member_history, offset_history, ownership, current_groups, current_offsets, current_lag, claims,
    current_claims, rejected, lost_history; of clusters of brokers: leaders, leaderless,
    isr_history, broker_history, current_brokers, current_partitions, and what they are made of,
    cluster_events, partition_changes, leader_epochs; of transactions: transactions,
    fenced_producers, pending_offsets, and what that is made of, pending_events. Quote the column
    "offset".

    Example: coord sql "select * from ownership where topic = 'orders' and partition = 3"

    Parameters
    ----------
    query
        One SELECT on these tables and views.
    limit
        Show at most N rows; by default 10000, and with --lines all.
    lines
        Print one JSON object per row, as rows arrive.
    timeout
        End the query after this number of seconds.
    since
        Read no file of a date before this one, as 2026-03-01; what began earlier is missing then.
    """
    from coordlib.history.sql import asked

    with asked(where.tables_dir(), query, (), timeout, since) as question:
        rows = (row for chunk in question.chunks() for row in chunk)
        if lines:
            _print_lines(question.columns, rows, limit)
        elif where.format == "json":
            _print_object(question, rows, limit or ROWS_SHOWN)
        else:
            _print(question, rows, limit or ROWS_SHOWN)
    return 0


def _print(question: "Question", rows: Iterator[Sequence[Any]], limit: int) -> None:
    """The rows first: to count those that are not shown may take long."""
    print_table(question.columns, islice(rows, limit))
    sys.stdout.flush()
    _say_left_out(limit, _left_out(question, rows, limit))


def _print_object(question: "Question", rows: Iterator[Sequence[Any]], limit: int) -> None:
    shown = list(islice(rows, limit))
    left_out = _left_out(question, rows, limit)
    names = unique(question.columns)
    objects = [dict(zip(names, map(jsonable, row), strict=True)) for row in shown]
    print_json("sql", columns=names, rows=objects, left_out=left_out)
    _say_left_out(limit, left_out)


def _left_out(question: "Question", rows: Iterator[Sequence[Any]], limit: int) -> int | None:
    """How many rows are not shown; None if there are some, and no time to count them."""
    if next(rows, None) is None:
        return 0
    try:
        return question.count(COUNT_S) - limit
    except CoordError:
        return None


def _say_left_out(limit: int, left_out: int | None) -> None:
    if left_out is None:
        say(f"{_more_than(limit)}: --limit shows more, --lines all")
    elif left_out:
        rest = f"{counted(left_out, 'row')} more"
        say(f"{counted(limit, 'row')} shown, {rest}: --limit shows more, --lines all")


def _more_than(limit: int) -> str:
    rows = counted(limit, "row")
    return f"{rows} shown of more than {rows}"


def _print_lines(columns: Sequence[str], rows: Iterator[Sequence[Any]], limit: int | None) -> None:
    names = unique(columns)
    for row in rows if limit is None else islice(rows, limit):
        line = dict(zip(names, map(jsonable, row), strict=True))
        print_line(json_text(line))
    if limit is not None and next(rows, None) is not None:
        sys.stdout.flush()
        say(f"{_more_than(limit)}: --limit shows more")


def unique(columns: Sequence[str]) -> list[str]:
    """Names that a JSON object can have beside each other: of two `a` the second is `a_1`."""
    found: list[str] = []
    for column in columns:
        name, n = column, 0
        while name in found or (n and name in columns):
            n += 1
            name = f"{column}_{n}"
        found.append(name)
    return found


_KEYS: Final = ("table", "dropped_rows", "rewritten", "deleted_files", "files", "bytes")


def require_kept(_: Any, given: list[str] | None) -> None:
    """Raises SetupError for what does not say how long something is kept."""
    kept(given or ())


def maintain(
    *,
    keep: Annotated[
        list[str] | None, Parameter(negative="", show_default=False, validator=require_kept)
    ] = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Compact the history's tables, drop what is old, and delete files that nothing needs.

    It may run while the archive writes, once a day. Dates that are over become one file each, in
    order of their groups; the log of each table gets a checkpoint.

    Parameters
    ----------
    keep
        What may go after a time, such as commits=30d, lag=30d, snapshots=1d; else all is kept.
    dry_run
        Show what would be done, and change nothing.
    """
    from coordlib.history.upkeep import maintain as maintain_tables

    prefix = where.prefix if where.tables is not None else where.topic_prefix()
    done = [
        asdict(each)
        for each in maintain_tables(
            where.tables_dir(), kept(keep or ()), prefix=prefix, is_dry_run=dry_run
        )
    ]
    if where.format == "json":
        print_json("history maintain", dry_run=dry_run, tables=done)
        return 0
    headers = [key.upper().replace("_", "-") for key in _KEYS]
    print_table(headers, [[row[key] for key in _KEYS] for row in done])
    if dry_run:
        say("Nothing was changed; FILES and BYTES are as they are.")
    return 0
