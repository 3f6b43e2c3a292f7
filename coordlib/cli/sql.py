"""`coord sql`: ask the history."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from coordlib.cli.numbers import Count, Seconds
from coordlib.cli.output import counted, json_text, jsonable, print_json, print_table, say
from coordlib.cli.where import TABLES_HERE, WhereTables
from coordlib.errors import CoordError

if TYPE_CHECKING:
    from coordlib.history.sql import Question

#: Of a table in a terminal or a JSON object, both of which are built whole: some 70 MB of memory.
ROWS_SHOWN: Final = 10_000


def sql(
    query: str,
    /,
    *,
    limit: Count | None = None,
    lines: Annotated[bool, Parameter(negative="")] = False,
    timeout: Seconds | None = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Ask the history in SQL (DuckDB's dialect), in UTC; no job and no JVM is needed.

    Tables: events, group_snapshots, lag. Views: generations, member_history, offset_history,
    ownership, current_groups, current_offsets, current_lag, rejected, lost_history. The column
    offset is to be quoted: "offset".

    Example: coord sql "select * from ownership where topic = 'orders' and partition = 3"

    Parameters
    ----------
    query
        One SELECT. It can read these tables and nothing else.
    limit
        Show so many rows, and say how many more there are; 10000 unless given. With --lines all
        rows, unless given.
    lines
        Print a JSON object for each row, as they come.
    timeout
        End the query after so many seconds.
    """
    from coordlib.history.sql import asked

    with asked(where.tables_dir(), query, (), timeout) as question:
        rows = (row for chunk in question.chunks() for row in chunk)
        if lines:
            _print_lines(question.columns, rows if limit is None else islice(rows, limit))
        else:
            _print(question, rows, limit or ROWS_SHOWN, where.format == "json")
    return 0


def _print(question: "Question", rows: Iterator[Sequence[Any]], limit: int, is_json: bool) -> None:
    shown = list(islice(rows, limit))
    left_out = _left_out(question, limit) if next(rows, None) is not None else 0
    if is_json:
        names = unique(question.columns)
        objects = [dict(zip(names, map(jsonable, row), strict=True)) for row in shown]
        print_json("sql", columns=names, rows=objects, left_out=left_out)
    else:
        print_table(question.columns, shown)
    if left_out != 0:
        rest = "there are more" if left_out is None else f"{counted(left_out, 'row')} more"
        say(f"{counted(limit, 'row')} shown, {rest}: --limit shows more, --lines all")


def _left_out(question: "Question", limit: int) -> int | None:
    """How many rows are not shown; None if there is no time to count them."""
    try:
        return question.count() - limit
    except CoordError:
        return None


def _print_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    names = unique(columns)
    for row in rows:
        line = dict(zip(names, map(jsonable, row), strict=True))
        sys.stdout.write(json_text(line) + "\n")


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
