"""The limits of a query: it may read the tables, and do nothing else.

DuckDB may open files in the tables' folders and nowhere else, and no setting can be changed. That
alone would let a query write: a folder that may be read may be written, and DuckDB takes a COPY
inside a WITH for a part of a SELECT. So a query is parsed before it runs, and only one kind is let
through: one SELECT, made of SELECTs, from tables and from functions that touch no file.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from coordlib.errors import SetupError
from coordlib.history.delta_files import quoted, quoted_list

if TYPE_CHECKING:
    import duckdb

#: The nodes of a SELECT. Other nodes write: COPY_QUERY_NODE, INSERT_QUERY_NODE and the like.
_READING: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})

#: Functions that may stand in FROM. Of DuckDB's others some change settings, write logs, or run a
#: text as a query.
TABLE_FUNCTIONS: Final = frozenset(
    {"unnest", "explode", "range", "generate_series", "repeat", "repeat_row"}
    | {"json_each", "json_tree", "duckdb_columns", "duckdb_functions", "duckdb_tables"}
    | {"duckdb_types", "duckdb_views", "pragma_table_info"}
)
_MEND: Final = "Ask with one SELECT, of the tables and views; coord sql --help names them."


def close_in(connection: "duckdb.DuckDBPyConnection", folders: Sequence[str]) -> None:
    """From now on nothing but these folders can be opened, and no setting changed.

    DuckDB allows itself the folder into which it spills, too, which is `.tmp` where the command
    runs. So it gets a folder of its own, which it makes when it spills, and deletes at the end.
    """
    spilled = Path(gettempdir()) / f"coord-sql-{uuid4().hex}"
    connection.execute(f"SET temp_directory = {quoted(str(spilled))}")
    if folders:
        connection.execute(f"SET allowed_directories = {quoted_list(folders)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def require_reading(connection: "duckdb.DuckDBPyConnection", sql: str) -> frozenset[str] | None:
    """Check that a query only reads.

    Returns:
        The names in lower case that may be tables or views of the history; None: the query lists
        tables, so all of them.

    Raises:
        SetupError: it is none, several, or does something else.
        duckdb.Error: it cannot be parsed.
    """
    if not _is_text(sql):
        raise _refusal("This query is no text", ascii(sql[:200]))
    try:
        statements = connection.extract_statements(sql)
    except ValueError as problem:  # a kind of statement that DuckDB's own client has no name for
        raise _refusal("This is no SELECT", str(problem)) from problem
    if not statements:
        raise _refusal("There is no query", repr(sql[:200]))
    if len(statements) > 1:
        raise _refusal("These are several queries", f"{len(statements)} statements; none was run")
    ((told,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        parsed = json.loads(told or "{}")
    except RecursionError as problem:
        raise _refusal("This query is too deeply nested", repr(sql[:200])) from problem
    if parsed.get("error", True):
        raise _refusal("Only a SELECT is answered", str(parsed.get("error_message")))
    nodes = list(_nodes(parsed))
    for node in nodes:
        _require_reading(node)
    if any(map(_asks_what_there_is, nodes)):
        return None
    return frozenset(str(node["table_name"]).lower() for node in nodes if "table_name" in node)


def _is_text(sql: str) -> bool:
    """Not so for arguments of a command line with bytes that are no UTF-8."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_reading(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if not isinstance(kind, str):
        return
    is_query = kind.endswith("_NODE") or "cte_map" in node
    if is_query and kind not in _READING:
        name = kind.removesuffix("_NODE").removesuffix("_QUERY")
        raise _refusal("Only a SELECT is answered", f"this one has {name} in it")
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"]).lower()
        if name not in TABLE_FUNCTIONS:
            raise _refusal("This function is not open to queries", f"FROM {name}(…)")


def _asks_what_there_is(node: dict[str, Any]) -> bool:
    """DESCRIBE, SHOW, SUMMARIZE, or a function that lists tables, views and columns."""
    if node.get("type") == "TABLE_FUNCTION":
        return str(node["function"]["function_name"]).lower().startswith(("duckdb_", "pragma_"))
    return node.get("type") == "SHOW_REF"


def _nodes(parsed: Any) -> Iterator[dict[str, Any]]:
    """Every object of the parsed query, however deep."""
    left = [parsed]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)


def _refusal(what: str, where: str) -> SetupError:
    return SetupError(what, where, _MEND)
