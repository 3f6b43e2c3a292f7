"""`coord sql`: ask the history."""

from coordlib.cli.output import jsonable, print_json, print_table
from coordlib.cli.where import TABLES_HERE, WhereTables


def sql(query: str, /, *, where: WhereTables = TABLES_HERE) -> int:
    """Ask the history in SQL (DuckDB's dialect), in UTC; no job and no JVM is needed.

    Tables: events, group_snapshots, lag. Views: generations, member_history, offset_history,
    ownership, current_groups, current_offsets, current_lag, rejected. The column offset is to
    be quoted: "offset".

    Example: coord sql "select * from ownership where topic = 'orders' and partition = 3"

    Parameters
    ----------
    query
        One SELECT.
    """
    from coordlib.history.sql import query_tables

    answer = query_tables(where.tables_dir(), query)
    if where.format == "json":
        names = answer.columns
        rows = [dict(zip(names, map(jsonable, row), strict=True)) for row in answer.rows]
        print_json("sql", columns=list(names), rows=rows)
    else:
        print_table(answer.columns, answer.rows)
    return 0
