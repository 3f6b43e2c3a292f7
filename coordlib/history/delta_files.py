"""The Delta tables without a JVM: delta-rs reads their logs, DuckDB their files.

DuckDB's own reader takes the files of a table on this machine. It must not read tables with
deletion vectors or column mapping: their files alone do not determine their rows and columns.
Such tables, and those on an object store, are copied into DuckDB's memory by delta-rs if a query
names them, always to their end: a scan of another library that a LIMIT cuts short can end the
process.
"""

import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from coordlib.errors import CannotReach, SetupError
from coordlib.history.tables import COLUMNS, ORDERED_COMMITS, PARTITIONED_BY, TABLES, path_of

if TYPE_CHECKING:
    import duckdb
    from deltalake import DeltaTable

WHERE_LENGTH_MAX: Final = 500  # of an object store client's message, which may be a page of XML

#: Reader features that change nothing in how the files are read. Delta's protocol,
#: "Valid feature names in table features".
_HARMLESS: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_VECTORS: Final = "deletionVectors"
_DATE: Final = "date"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_KINDS: Final = {"TIMESTAMP": "TIMESTAMPTZ", "STRING": "VARCHAR"}


class Reading(NamedTuple):
    """Which files of a table a query needs."""

    #: Those of this date and of later ones; None, and a table without dates: of all.
    since: date | None = None
    #: Those that have other events than frequent ones.
    is_rare: bool = False


def open_table(path: str) -> "DeltaTable | None":
    """The Delta table there, or None.

    Raises:
        CannotReach: something is there that cannot be read, or the store does not answer.
        SetupError: deltalake is not installed, or this is no table of a history.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as problem:
        raise not_installed(problem) from problem
    try:
        folder = local_folder(path)
        table = DeltaTable(path if folder is None else folder)
        columns = {field.name for field in table.schema().fields}
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as problem:
        raise _unreadable(path, problem) from problem
    except BaseException as problem:
        if type(problem).__name__ != "PanicException":  # delta-rs gives up on odd URIs with it
            raise
        raise _unreadable(path, problem) from problem
    if "group_id" not in columns:  # every table of ours has it
        raise SetupError(
            "This is no table of a history.",
            f"{path}: its columns are {', '.join(sorted(columns))}",
            "Check --tables: the folder that the archive writes to.",
        )
    return table


def describe_tables(tables_dir: str | Path) -> dict[str, dict[str, Any] | None]:
    """Per table its Delta version, its number of files and its newest commit in epoch
    milliseconds; None for one that does not exist (yet)."""
    return {table: _describe(path_of(str(tables_dir), table)) for table in TABLES}


def _describe(path: str) -> dict[str, Any] | None:
    table = open_table(path)
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


def declare(connection: "duckdb.DuckDBPyConnection") -> None:
    """Make every table known without rows: views over it are made at once then, while each of them
    would open every file of a table that is there."""
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS {_no_rows(name)}")


def attach_files(
    connection: "duckdb.DuckDBPyConnection", name: str, table: "DeltaTable", which: Reading
) -> bool:
    """Give a declared table its rows, if DuckDB itself can read its files: whether it can.

    Files that are not needed are not opened: to read the end of each costs more than all else.

    Columns that its files lack are null; those that only its files have come after the others.
    Times are TIMESTAMPTZ whatever a writer stored (Spark writes INT96).
    """
    files = native_files(name, table)
    if files is None:
        return False
    if which.since is not None and _DATE in PARTITIONED_BY[name]:
        files = [file for file in files if _date_of(file) >= which.since.isoformat()]
    if which.is_rare:
        files = [file for file in files if not Path(file).name.startswith(ORDERED_COMMITS)]
    connection.execute(f"CREATE OR REPLACE VIEW {name} AS {rows_in(name, files)}")
    return True


def _date_of(file: str) -> str:
    """The name of its date's folder; that of rows without a date is behind all dates."""
    return file.rpartition(f"/{_DATE}=")[2].partition("/")[0]


def rows_in(name: str, files: list[str], *, numbered: bool = False) -> str:
    """A query for the rows of a table's files; numbered: with `filename` and `file_row_number`."""
    more = ", filename = true, file_row_number = true" if numbered else ""
    rows = f"UNION ALL BY NAME SELECT * FROM {_read_parquet(name, files, more)}" if files else ""
    return f"{_no_rows(name)} {rows}"


def copy_rows(
    connection: "duckdb.DuckDBPyConnection", name: str, table: "DeltaTable", since: date | None
) -> None:
    """Give a declared table its rows, as `attach_files`: delta-rs reads all of them into memory."""
    is_bound = since is not None and _DATE in PARTITIONED_BY[name]
    bound = f"WHERE {_DATE} IS NULL OR {_DATE} >= DATE '{since}'" if is_bound else ""
    connection.register("incoming", table.scan())
    connection.execute(
        f"CREATE TABLE {name}_copy AS {_no_rows(name)} "
        f"UNION ALL BY NAME SELECT * FROM incoming {bound}"
    )
    connection.unregister("incoming")
    connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}_copy")


def native_files(name: str, table: "DeltaTable") -> list[str] | None:
    """The table's files, if they alone determine its rows and lie on this machine."""
    folder = local_folder(table.table_uri)
    if folder is None or not _says_all_in_files(table):
        return None
    # In front of each file's own name delta-rs leaves the folder as the URI spells it.
    spelled = urlsplit(table.table_uri).path
    uris = table.file_uris()
    # Folders named after their partition's value, as every writer makes them by default.
    names = [f"/{column}=" for column in PARTITIONED_BY[name]]
    if not all(uri.startswith(spelled) for uri in uris):
        return None
    files = [f"{folder}/{uri.removeprefix(spelled)}" for uri in uris]
    return files if all(each in file for file in files for each in names) else None


def _says_all_in_files(table: "DeltaTable") -> bool:
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return False
    features = set(table.protocol().reader_features or ())
    if features - _HARMLESS - {_VECTORS}:
        return False
    return _VECTORS not in features or next(iter(table.deletion_vectors()), None) is None


def local_folder(path: str) -> str | None:
    """The real folder behind a path or a file: URI, links resolved; None for an object store."""
    if "://" not in path:
        return os.path.realpath(path)
    parts = urlsplit(path)
    is_here = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return os.path.realpath(unquote(parts.path)) if is_here else None


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def quoted_list(texts: Sequence[str]) -> str:
    """A list of texts as SQL writes it."""
    return f"[{', '.join(map(quoted, texts))}]"


def _read_parquet(name: str, files: list[str], more: str = "") -> str:
    columns = COLUMNS[name]
    kinds = ", ".join(f"'{column}': {columns[column]}" for column in PARTITIONED_BY[name])
    hive = f", hive_partitioning = true, hive_types = {{{kinds}}}" if kinds else ""
    return f"read_parquet({quoted_list(files)}, union_by_name = true{hive}{more})"


def _no_rows(name: str) -> str:
    """A query without rows that has the columns."""
    columns = (
        f'CAST(NULL AS {_KINDS.get(kind, kind)}) AS "{column}"'
        for column, kind in COLUMNS[name].items()
    )
    return f"SELECT {', '.join(columns)} WHERE false"


def _unreadable(path: str, problem: BaseException) -> CannotReach:
    return CannotReach(
        "The history's tables cannot be read.", f"{path}: {short(problem)}", "Check --tables."
    )


def short(problem: BaseException | None) -> str:
    """A coloured message of delta-rs as one plain line."""
    text = " ".join(_COLOUR.sub("", str(problem)).replace("↳", ":").split())
    text = text.replace(" : ", ": ")
    return text if len(text) <= WHERE_LENGTH_MAX else text[:WHERE_LENGTH_MAX] + " …"


def not_installed(problem: ImportError) -> SetupError:
    return SetupError(
        f"{problem.name} is not installed in this Python.",
        "SQL over the history reads Delta without a JVM",
        "Run: pip install 'coordlib[cli]'",
    )
