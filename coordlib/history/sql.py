"""Query the history in SQL without a JVM: delta-rs finds the tables' files, DuckDB reads them."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.history.delta_files import (
    Reading,
    attach_files,
    copy_rows,
    declare,
    local_folder,
    not_installed,
    open_table,
    quoted,
    quoted_list,
)
from coordlib.history.engines import VIEWS, needs_frequent, register_duckdb, tables_behind
from coordlib.history.tables import EVENTS, TABLES, path_of

if TYPE_CHECKING:
    import duckdb
    from deltalake import DeltaTable

#: The nodes of a SELECT. Other nodes write: COPY_QUERY_NODE, INSERT_QUERY_NODE and the like.
_READING: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})

#: Functions that may stand in FROM. Of DuckDB's others some change settings, write logs, or run a
#: text as a query.
TABLE_FUNCTIONS: Final = frozenset(
    {"unnest", "explode", "range", "generate_series", "repeat", "repeat_row"}
    | {"json_each", "json_tree", "duckdb_columns", "duckdb_functions", "duckdb_tables"}
    | {"duckdb_types", "duckdb_views", "pragma_table_info"}
)
_HINT: Final = "Ask with one SELECT, of the tables and views; coord sql --help names them."


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
    ((serialized,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        parsed = json.loads(serialized or "{}")
    except RecursionError as problem:
        raise _refusal("This query is too deeply nested", repr(sql[:200])) from problem
    if parsed.get("error", True):
        raise _refusal("Only a SELECT is answered", str(parsed.get("error_message")))
    nodes = list(_nodes(parsed))
    for node in nodes:
        _require_reading(node)
    if any(map(_is_introspection, nodes)):
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


def _is_introspection(node: dict[str, Any]) -> bool:
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
    return SetupError(what, where, _HINT)


CHUNK: Final = 5_000  # rows that are fetched at once
INTERRUPT_PATIENCE_S: Final = 5.0  # DuckDB ends within milliseconds; a store's client may not

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one query. Times are UTC."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query_tables(
    tables_dir: str | Path,
    sql: str,
    parameters: Sequence[object] = (),
    timeout_s: float | None = None,
) -> Answer:
    """Run one SQL query over the tables and the views.

    Args:
        tables_dir: the folder or URI that holds the Delta tables.
        sql: one SELECT in DuckDB's dialect; `?` stands for a parameter.
        timeout_s: the query is ended after this number of seconds; None: never.

    Raises:
        CannotReach: there is no history yet.
        SetupError: deltalake or duckdb is not installed, or this is not one SELECT.
        CoordError: the query is wrong, and where; or it took too long.
    """
    with asked(tables_dir, sql, parameters, timeout_s) as question:
        return question.answer()


def query_all(
    tables_dir: str | Path,
    questions: Sequence[tuple[str, Sequence[object]]],
    since: date | None = None,
) -> list[Answer]:
    """Several queries, each with its parameters, over one look at the tables: their files are
    opened once. As `query_tables` each.

    Args:
        since: tables with dates have none before this one, also for the views over them: what
            began earlier and goes on is missing there.
    """
    (sql, parameters), *others = questions
    question = Question(sql, parameters, None, since)
    try:
        question.ask(str(tables_dir), [each for each, _ in others])
        answers = [question.answer()]
        for each in others:
            question.ask_again(*each)
            answers.append(question.answer())
        return answers
    finally:
        question.close()


@contextmanager
def asked(
    tables_dir: str | Path,
    sql: str,
    parameters: Sequence[object] = (),
    timeout_s: float | None = None,
    since: date | None = None,
) -> "Iterator[Question]":
    """A query whose rows are taken piece by piece; as `query_tables`, which takes them all, and
    `query_all` with `since`."""
    question = Question(sql, parameters, timeout_s, since)
    try:
        question.ask(str(tables_dir))
        yield question
    finally:
        question.close()


class Question:
    """One running query. All its work is done in threads of its own."""

    def __init__(
        self,
        sql: str,
        parameters: Sequence[object],
        timeout_s: float | None,
        since: date | None = None,
    ) -> None:
        self._sql, self._parameters, self._timeout_s = sql, list(parameters), timeout_s
        self._since = since
        self._ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        self._connection: duckdb.DuckDBPyConnection | None = None
        #: The newest piece of work; it is done, or was left where it hung.
        self._outcome: Future[Any] | None = None
        self.columns: tuple[str, ...] = ()

    def ask(self, tables_dir: str, later: Sequence[str] = ()) -> None:
        """Connect and start the query; `columns` are known then.

        Args:
            later: other queries, which `ask_again` may ask then.
        """

        def ask() -> tuple[str, ...]:
            # Not before it is whole: a copy that is interrupted can end the process.
            self._connection = _connect(tables_dir, [self._sql, *later], self._since)
            return self._execute()

        self.columns = self._run(ask)

    def ask_again(self, sql: str, parameters: Sequence[object]) -> None:
        """Start another of the queries that `ask` was told of; the rows of the last are gone."""
        self._sql, self._parameters = sql, list(parameters)
        self.columns = self._run(self._execute)

    def answer(self) -> Answer:
        """All rows that are left."""
        return Answer(self.columns, tuple(row for chunk in self.chunks() for row in chunk))

    def _execute(self) -> tuple[str, ...]:
        assert self._connection is not None
        with _in_words():
            self._connection.execute(self._sql, self._parameters)
            return tuple(column[0] for column in self._connection.description or ())

    def chunks(self, size: int = CHUNK) -> Iterator[list[tuple[Any, ...]]]:
        """The rows, in chunks."""

        def fetch() -> list[tuple[Any, ...]]:
            assert self._connection is not None
            with _in_words():
                return self._connection.fetchmany(size)

        while rows := self._run(fetch):
            yield rows

    def count(self, within_s: float | None = None) -> int:
        """The number of rows of the query; the query runs again, and `chunks` is over.

        Raises:
            CoordError: it takes longer than these seconds, or than the query may.
        """

        def count() -> int:
            assert self._connection is not None
            with _in_words():
                self._connection.abort()  # the rows that were not taken
                rows = self._connection.query(self._sql, params=self._parameters or None)
                ((found,),) = rows.aggregate("count(*)").fetchall()
                return int(found)

        return self._run(count, within_s)

    def close(self) -> None:
        """End the query; work that cannot be ended is left to the end of the process."""
        if self._outcome is not None and not self._outcome.done():
            self._interrupt(self._outcome)
        if self._connection is not None and self._outcome is not None and self._outcome.done():
            self._connection.close()

    def _run(self, work: Callable[[], _T], within_s: float | None = None) -> _T:
        self._outcome = outcome = Future[_T]()
        left_s = within_s
        if self._ends_at is not None:
            left_s = max(0.0, self._ends_at - time.monotonic())
            left_s = left_s if within_s is None else min(left_s, within_s)
        try:
            threading.Thread(target=_fill, args=(outcome, work), daemon=True).start()
            return outcome.result(left_s)
        except TimeoutError as problem:
            raise CoordError(
                f"The query was ended after {within_s or self._timeout_s:g} s.",
                self._sql[:200],
                "Ask for fewer dates or groups, or give it more time (--timeout).",
            ) from problem

    def _interrupt(self, outcome: "Future[Any]") -> None:
        """End what runs; once is not enough for what has not quite begun."""
        give_up_at = time.monotonic() + INTERRUPT_PATIENCE_S
        while not outcome.done() and time.monotonic() < give_up_at:
            if self._connection is not None:
                self._connection.interrupt()
            with suppress(TimeoutError, KeyboardInterrupt):  # an impatient user
                outcome.exception(0.05)


def _fill(outcome: "Future[_T]", work: Callable[[], _T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as problem:  # noqa: BLE001  # raised again where the result is awaited
        outcome.set_exception(problem)


@contextmanager
def _in_words() -> Iterator[None]:
    """The error of a query, as a CoordError."""
    import duckdb

    try:
        yield
    except duckdb.Error as problem:
        raise CoordError(
            "The query failed.",
            str(problem).strip(),
            f"Tables: {', '.join(TABLES)}; views: {', '.join(VIEWS)}; offset is to be quoted.",
        ) from problem


def _connect(
    tables_dir: str, queries: Sequence[str], since: date | None
) -> "duckdb.DuckDBPyConnection":
    """A connection that can answer these queries, and can do nothing else."""
    try:
        import duckdb
    except ImportError as problem:
        raise not_installed(problem) from problem
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,  # a table of no name is no variable of a caller
        }
    )
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET parquet_metadata_cache = true")  # several parts read the same files
        declare(connection)
        register_duckdb(connection)
        with _in_words():
            named = [require_reading(connection, sql) for sql in queries]
        tables = tables_in(tables_dir, _needed(named))
        is_rare = not any(names is None or needs_frequent(names) for names in named)
        which = Reading(since, is_rare)
        with _as_tables(tables_dir):
            for name, table in _attach(connection, tables, tables_dir, which).items():
                copy_rows(connection, name, table, since)
    except BaseException:
        connection.close()
        raise
    return connection


def _needed(named: Sequence[frozenset[str] | None]) -> set[str]:
    """The tables behind what queries name; None names all."""
    known = [each for each in named if each is not None]
    return tables_behind(frozenset().union(*known)) if len(known) == len(named) else {*TABLES}


def tables_in(tables_dir: str, names: Iterable[str] = TABLES) -> "dict[str, DeltaTable]":
    """Those of the tables that are there. Raises CannotReach where there is no history."""
    opened = {name: open_table(path_of(tables_dir, name)) for name in {EVENTS, *names}}
    if opened[EVENTS] is None:
        raise CannotReach(
            "There is no history yet.",
            path_of(tables_dir, EVENTS),
            "The archive writes within its interval (30 s) of the first event: is the job up? "
            "Else name the tables' folder with --tables.",
        )
    return {name: table for name in TABLES if name in names and (table := opened[name])}


def dates(tables_dir: str) -> tuple[date, date] | None:
    """The oldest and the newest date with events, by the table's log; None: there are none.

    Raises as `query_tables`.
    """
    values = {each["date"] for each in tables_in(tables_dir, (EVENTS,))[EVENTS].partitions()}
    found = sorted(date.fromisoformat(str(each)) for each in values if each)
    return (found[0], found[-1]) if found else None


def _attach(
    connection: "duckdb.DuckDBPyConnection",
    tables: "dict[str, DeltaTable]",
    tables_dir: str,
    which: Reading,
) -> "dict[str, DeltaTable]":
    """Give declared tables their rows, close the sandbox, and return the tables without rows."""
    native = [
        name for name, table in tables.items() if attach_files(connection, name, table, which)
    ]
    places = [local_folder(path_of(tables_dir, name)) for name in native]
    close_in(connection, [folder for folder in places if folder])
    return {name: table for name, table in tables.items() if name not in native}


@contextmanager
def _as_tables(tables_dir: str) -> Iterator[None]:
    """DuckDB's error about unreadable files, as a CoordError."""
    import duckdb

    try:
        yield
    except duckdb.Error as problem:
        raise SetupError(
            "These are not the history's tables, or not whole.",
            f"{tables_dir}: {str(problem).strip()}",
            "Check --tables: the folder that the archive writes to.",
        ) from problem
