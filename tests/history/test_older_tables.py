"""Tables and events of before: without `kind` and `space`, with the kind in `protocol`."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coordlib.errors import StartRefused
from coordlib.history import tables as known
from coordlib.history.engines import VIEWS, tables_behind
from coordlib.history.sql import query_tables
from coordlib.history.tables import COLUMNS, EVENTS, LAG, SNAPSHOTS, path_of
from tests.history.assigned_life import a_life_of_an_assigned_group
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import KAFKA_SCHEMA, SOURCE, Log, a_life_of_a_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fields of events that came later, and columns: the archive alone makes the last one.
FIELDS = ("kind", "space")
ADDED = (*FIELDS, "transactional_id")
WIDENED = (EVENTS, LAG, SNAPSHOTS)
CUT = 8  # rows of the log that were archived before the upgrade: all of them are events


@contextmanager
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The archive makes and writes its tables as it did before the columns came."""
    with monkeypatch.context() as patch:
        for table in WIDENED:
            later = {*ADDED, "places"}
            columns = {n: kind for n, kind in COLUMNS[table].items() if n not in later}
            patch.setitem(known.COLUMNS, table, columns)
        patch.setattr("coordlib.history.parse._SAMPLE", ("time", "date", "group_id"))
        yield


def of_before(log: Log) -> Log:
    """The same records as an older job wrote them."""
    for at, (key, value, topic, *rest) in enumerate(log.rows):
        if topic.endswith(".events"):
            event = json.loads(value)
            for name in FIELDS:
                del event[name]
            log.rows[at] = (key, json.dumps(event).encode(), topic, *rest)
    return log


class Folder:
    """Tables, and archives over them."""

    def __init__(self, spark: "SparkSession", path: str) -> None:
        self.spark, self.tables = spark, path

    def archive(self, log: Log, last: int | None = None) -> None:
        """A new archive brings in what it has not got of these."""
        from coordlib.history.archive import ArchiveBatch
        from coordlib.history.plan import ArchiveOptions

        options = ArchiveOptions(bootstrap_servers="", tables=self.tables, checkpoint="")
        batch = ArchiveBatch(self.spark, options, "one", SOURCE)
        batch(self.spark.createDataFrame(log.rows[:last], KAFKA_SCHEMA), 0)

    def columns(self, table: str) -> list[str]:
        return [field.name for field in DeltaTable(path_of(self.tables, table)).schema().fields]

    def ask(self, sql: str) -> Any:
        return query_tables(self.tables, sql).rows

    def version(self, table: str) -> int:
        return DeltaTable(path_of(self.tables, table)).version()

    def assert_engines_agree(self) -> None:
        session = session_over(self.spark, self.tables)
        for name in (EVENTS, LAG, SNAPSHOTS, "ownership", "current_offsets"):
            assert_engines_agree(session, self.tables, name)


@pytest.fixture
def folder(spark: "SparkSession", tmp_path: Path) -> Folder:
    return Folder(spark, str(tmp_path / "tables"))


@pytest.mark.stack
@pytest.mark.chaos  # most of a minute
def test_a_table_of_before_is_written_on_and_read_whole(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was upgraded. Queries find what they ask for also before it runs; the columns come
    once, and the tables are as open to other readers as they were."""
    with as_before(monkeypatch):
        folder.archive(of_before(a_life_of_a_group()), CUT)
    assert not {*ADDED} & {*folder.columns(EVENTS), *folder.columns(LAG)}
    assert "places" not in folder.columns(SNAPSHOTS)
    folder.assert_engines_agree()

    folder.archive(a_life_of_a_group())

    for table in WIDENED:
        assert folder.columns(table) == [*COLUMNS[table]]
        delta = DeltaTable(path_of(folder.tables, table))
        protocol = delta.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert "delta.columnMapping.mode" not in delta.metadata().configuration
    folder.assert_engines_agree()
    by_kind = "SELECT kind, protocol, count(*) FROM events GROUP BY ALL ORDER BY ALL NULLS LAST"
    assert folder.ask(by_kind) == (
        ("classic", "classic", 9),
        (None, "classic", CUT),
        (None, None, 1),
    )
    assert folder.ask("SELECT count(*) FROM lag WHERE kind IS NULL AND space IS NULL") == ((5,),)
    folder.archive(a_life_of_a_group())
    assert [folder.version(table) for table in (EVENTS, LAG, SNAPSHOTS)] == [3, 2, 2]


@pytest.mark.stack
@pytest.mark.chaos  # most of a minute
def test_an_archive_of_before_writes_on_tables_that_have_the_columns(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was set back: its rows have null there, and the kind in `protocol`."""
    folder.archive(a_life_of_a_group(), CUT)

    with as_before(monkeypatch):
        folder.archive(a_life_of_a_group())

    folder.assert_engines_agree()
    by_kind = "SELECT kind, protocol, count(*) FROM events GROUP BY ALL ORDER BY ALL NULLS LAST"
    assert folder.ask(by_kind) == (
        ("classic", "classic", CUT),
        (None, "classic", 9),
        (None, None, 1),
    )


@pytest.mark.stack
def test_events_of_before_have_their_kind(folder: Folder) -> None:
    """The topic holds records of both versions when the new archive reads them."""
    log, later = of_before(a_life_of_a_group()), Log()
    later.ends = log.ends
    later.event("GroupCreated", 50, group="later", kind="assigned")
    log.rows += later.rows

    folder.archive(log)

    by_kind = "SELECT kind, count(*) FROM events GROUP BY ALL ORDER BY ALL NULLS LAST"
    assert folder.ask(by_kind) == (("assigned", 1), ("classic", 17), (None, 1))


@pytest.mark.stack
def test_a_space_of_its_own_is_a_column(folder: Folder) -> None:
    """A name may be that of a group and of something else."""
    log = Log()
    line = {"topic": "t", "partition": 0, "committed": 1}
    for of in ({}, {"kind": "counter", "space": "counter"}):
        log.event("GroupCreated", 1, group="shop", **of)  # type: ignore[arg-type]
        log.lag(2, line, group="shop", **of)

    folder.archive(log)

    both = "SELECT group_id, kind, space FROM {} ORDER BY space NULLS FIRST"
    other = ("shop", "counter", "counter")
    assert folder.ask(both.format(EVENTS)) == (("shop", "classic", None), other)
    assert folder.ask(both.format(LAG)) == (("shop", None, None), other)


@pytest.mark.stack
def test_a_folder_of_any_name_gets_the_columns_also_where_its_log_is_gone(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name goes into a text of SQL, which takes no relative one. Nothing was ever written into
    one of its tables, and Delta has cleaned the commit that made it: it is still ours."""
    from coordlib.history import delta_table

    folder = Folder(spark, os.path.relpath(tmp_path / "it's `a` 50% [b] c"))
    with as_before(monkeypatch):
        folder.archive(of_before(a_life_of_a_group()), CUT)
    commits = delta_table.ArchivedTable._commits
    monkeypatch.setattr(
        delta_table.ArchivedTable,
        "_commits",
        lambda self: commits(self) if Path(self._path).name == EVENTS else iter(()),
    )

    folder.archive(a_life_of_a_group())

    for table in WIDENED:
        assert folder.columns(table) == [*COLUMNS[table]]
    assert folder.ask("SELECT count(*) FROM events") == ((18,),)
    assert folder.ask("SELECT count(*) FROM lag") == ((5,),)


@pytest.mark.stack
def test_tables_of_somebody_else_get_no_columns(folder: Folder) -> None:
    """They are refused, and stay as they were: also where they lack one column of ours alone."""
    columns = [*COLUMNS[EVENTS]][1:]
    schema = ", ".join(f"`{name}` STRING" for name in columns)
    rows = folder.spark.createDataFrame([], schema)
    rows.write.format("delta").save(path_of(folder.tables, EVENTS))

    with pytest.raises(StartRefused, match="cannot be told how far"):
        folder.archive(Log())

    assert folder.columns(EVENTS) == columns


def mixed(tables: Path) -> tuple[str, str]:
    """A history as this version writes it, and the same with rows of before and of the next one."""
    whole = a_life_of_an_assigned_group().write(tables / "whole")
    rows = DeltaTable(path_of(str(whole), EVENTS)).to_pyarrow_table().sort_by("log_offset")
    third = len(rows) // 3
    place = rows.column_names.index("protocol")
    gone = pa.nulls(len(rows), pa.string())
    parts = (
        rows.slice(0, third).drop_columns([*ADDED]),
        rows.slice(third, third),
        rows.set_column(place, "protocol", gone).slice(2 * third),
    )
    for part in parts:
        path = path_of(str(tables / "mixed"), EVENTS)
        write_deltalake(path, part, mode="append", schema_mode="merge", partition_by=["date"])
    return str(whole), str(tables / "mixed")


@pytest.mark.parametrize("is_copied", [False, True])
def test_rows_of_three_versions_are_one_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    """Without a JVM, read by DuckDB itself or copied from an object store: of an older version, of
    this one, and of the next, which has no `protocol` any more."""
    whole, parts = mixed(tmp_path)
    if is_copied:
        monkeypatch.setattr("coordlib.history.delta_files.native_files", lambda *_: None)
    kinds = "SELECT DISTINCT kind IS NULL, protocol IS NULL FROM events ORDER BY 1, 2"
    assert query_tables(parts, kinds).rows == ((False, False), (False, True), (True, False))

    for view in (each for each in VIEWS if tables_behind([each]) == {EVENTS}):
        sql = f"SELECT * FROM {view} ORDER BY ALL"
        assert query_tables(parts, sql) == query_tables(whole, sql)
    by_kind = "SELECT DISTINCT COALESCE(kind, protocol) FROM events"
    assert query_tables(parts, by_kind).rows == (("assigned",),)
    assert len(query_tables(parts, "SELECT * FROM ownership").rows) > 6
