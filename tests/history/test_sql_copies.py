"""Tables that DuckDB cannot read itself, on object stores above all, are copied where they are
asked for."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordlib.errors import CoordError
from coordlib.history import sql as history_sql
from coordlib.history.engines import VIEWS
from coordlib.history.sql import query_tables
from coordlib.history.tables import EVENTS, LAG, SNAPSHOTS, TABLES
from tests.history.test_sql import rows_of, write


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """Each with rows, in folders as the archive makes them."""
    rows = pa.table({"group_id": ["g0"], "date": pa.array([date(2026, 3, 1)], pa.date32())})
    write_deltalake(f"{tmp_path}/{SNAPSHOTS}", rows.select(["group_id"]))
    write_deltalake(f"{tmp_path}/{LAG}", rows, partition_by=["date"])
    return write(tmp_path, rows_of(3))


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were copied; every table is as one on an object store."""
    found: list[str] = []
    copy = history_sql.copy_rows

    def note(connection: object, name: str, table: object, since: date | None) -> None:
        found.append(name)
        copy(connection, name, table, since)  # type: ignore[arg-type]

    monkeypatch.setattr("coordlib.history.delta_files.native_files", lambda *_: None)
    monkeypatch.setattr(history_sql, "copy_rows", note)
    return found


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("SELECT 1", []),
        ("SELECT events FROM (SELECT 1 AS events)", []),
        ("SELECT * FROM lag", [LAG]),
        ('SELECT * FROM main."Events", lag', [EVENTS, LAG]),
        ("SELECT (SELECT max(shard) FROM events)", [EVENTS]),
        ("WITH x AS (FROM generations) FROM x", [EVENTS]),
        ("FROM Ownership", [EVENTS]),
        ("FROM (DESCRIBE events)", sorted(TABLES)),
        ("FROM duckdb_columns()", sorted(TABLES)),
    ],
)
def test_only_tables_that_a_query_names_are_copied(
    sql: str, needed: list[str], tables: str, copied: list[str]
) -> None:
    """A question of a small table downloaded a year of events, and so did each of five questions of
    `coord groups history`."""
    query_tables(tables, sql)

    assert sorted(copied) == needed


@pytest.mark.parametrize("view", [*TABLES, *VIEWS])
def test_a_copy_has_the_rows_of_its_files(
    view: str, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was not copied has no rows: no view may lack one of its own."""
    native = query_tables(tables, f"SELECT * FROM {view} ORDER BY ALL")
    monkeypatch.setattr("coordlib.history.delta_files.native_files", lambda *_: None)

    assert query_tables(tables, f"SELECT * FROM {view} ORDER BY ALL") == native


def test_what_is_wrong_with_a_query_is_told_before_anything_is_copied(
    tables: str, copied: list[str]
) -> None:
    """A slip took as long as the answer would have taken."""
    with pytest.raises(CoordError):
        query_tables(tables, "SELECT * FROM events WHERE (")

    assert copied == []
