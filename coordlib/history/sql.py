"""Ask the history in SQL without a JVM: deltalake finds the files, DuckDB reads them.

Only what is built into both is used: no extension is downloaded. The connection sees the
tables and the views and no file or network besides, so that a pasted query cannot write anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.history.tables import COLUMNS, EVENTS, TABLES, path_of
from coordlib.history.views import VIEWS, register_duckdb

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one query. Times are UTC."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query_tables(tables_dir: str | Path, sql: str, parameters: Sequence[object] = ()) -> Answer:
    """Run one SQL query over the tables and the views.

    Args:
        tables_dir: the folder that holds the Delta tables.
        sql: DuckDB's dialect; `?` stands for a parameter.

    Raises:
        CannotReach: there is no history yet.
        SetupError: deltalake or duckdb is not installed.
        CoordError: the query is wrong; says where.
    """
    connection = _connect(str(tables_dir))
    import duckdb

    try:
        found = connection.execute(sql, list(parameters))
        if found is None:  # DuckDB's answer to no statement at all
            raise duckdb.ParserException("There is no statement in this query.")
        columns = tuple(column[0] for column in found.description or ())
        return Answer(columns, tuple(found.fetchall()))
    except duckdb.Error as problem:
        raise CoordError(
            "The query failed",
            str(problem).strip(),
            f"Tables: {', '.join(TABLES)}; views: {', '.join(VIEWS)}; offset is to be quoted.",
        ) from problem
    finally:
        connection.close()


def describe_tables(tables_dir: str | Path) -> dict[str, dict[str, Any] | None]:
    """Per table its Delta version, its number of files and its newest commit in epoch
    milliseconds; None for one that does not exist (yet)."""
    return {table: _describe(path_of(str(tables_dir), table)) for table in TABLES}


def _describe(path: str) -> dict[str, Any] | None:
    table = _open(path)
    if table is None:
        return None
    newest = table.history(1)
    committed_ms = newest[0].get("timestamp") if newest else None
    return {
        "path": path,
        "version": table.version(),
        "files": len(table.file_uris()),
        "committed_ms": committed_ms,
    }


def _connect(tables_dir: str) -> "duckdb.DuckDBPyConnection":
    try:
        import duckdb
        import pyarrow.dataset  # noqa: F401  # what deltalake hands the files over with
    except ImportError as problem:
        raise _not_installed(problem) from problem
    events = _open(path_of(tables_dir, EVENTS))
    if events is None:
        raise CannotReach(
            "There is no history yet",
            path_of(tables_dir, EVENTS),
            "The archive writes within its interval (30 s) of the first event: is the job up? "
            "Else name the tables' folder with --tables.",
        )
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.register(EVENTS, events.to_pyarrow_dataset())
    for name in TABLES[1:]:
        table = _open(path_of(tables_dir, name))
        if table is None:
            connection.execute(_empty(name))
        else:
            connection.register(name, table.to_pyarrow_dataset())
    register_duckdb(connection)
    connection.execute("SET enable_external_access = false")
    return connection


def _open(path: str) -> Any:
    """The Delta table there, or None."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as problem:
        raise _not_installed(problem) from problem
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as problem:
        raise CannotReach(
            "The history's tables cannot be read", f"{path}: {problem}", "Check --tables."
        ) from problem


def _empty(table: str) -> str:
    kinds = {"TIMESTAMP": "TIMESTAMPTZ"}
    columns = (f"{name} {kinds.get(kind, kind)}" for name, kind in COLUMNS[table].items())
    return f"CREATE TABLE {table} ({', '.join(columns)})"


def _not_installed(problem: ImportError) -> SetupError:
    return SetupError(
        f"{problem.name} is not installed in this Python",
        "SQL over the history reads Delta without a JVM",
        "Run: pip install 'coordlib[cli]'",
    )
