"""The columns of the tables: a table that lacks one is not written to."""

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from coordlib.errors import StartRefused
from coordlib.history.sql import query_tables
from coordlib.history.tables import COLUMNS, EVENTS, LAG, SNAPSHOTS, path_of
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import KAFKA_SCHEMA, SOURCE, Log, a_life_of_a_group

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack


class Folder:
    """Tables, and archives over them."""

    def __init__(self, spark: "SparkSession", path: str) -> None:
        self.spark, self.tables = spark, path

    def archive(self, log: Log, last: int | None = None) -> None:
        """A new archive brings in what it has not got of these."""
        from coordlib.history.archive import ArchiveBatch, ArchiveOptions

        options = ArchiveOptions(bootstrap_servers="", tables=self.tables, checkpoint="")
        batch = ArchiveBatch(self.spark, options, "one", SOURCE)
        batch(self.spark.createDataFrame(log.rows[:last], KAFKA_SCHEMA), 0)

    def columns(self, table: str) -> list[str]:
        return [field.name for field in DeltaTable(path_of(self.tables, table)).schema().fields]

    def ask(self, sql: str) -> Any:
        return query_tables(self.tables, sql).rows

    def assert_engines_agree(self) -> None:
        session = session_over(self.spark, self.tables)
        for name in (EVENTS, LAG, SNAPSHOTS, "ownership", "current_offsets"):
            assert_engines_agree(session, self.tables, name)


@pytest.fixture
def folder(spark: "SparkSession", tmp_path: "Path") -> Folder:
    return Folder(spark, str(tmp_path / "tables"))


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


def test_a_table_that_lacks_a_column_is_refused_and_kept(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other code made it. The error names the column and the way to go on."""
    with monkeypatch.context() as patch:
        less = {name: kind for name, kind in COLUMNS[EVENTS].items() if name != "space"}
        patch.setitem(COLUMNS, EVENTS, less)
        folder.archive(a_life_of_a_group())

    with pytest.raises(StartRefused, match="space") as refused:
        folder.archive(a_life_of_a_group())

    assert "Start the code that made it" in refused.value.hint
    assert folder.columns(EVENTS) == [*less]


def test_tables_of_somebody_else_get_no_columns(folder: Folder) -> None:
    """They are refused, and stay as they were: also where they lack one column of ours alone."""
    columns = [*COLUMNS[EVENTS]][1:]
    schema = ", ".join(f"`{name}` STRING" for name in columns)
    rows = folder.spark.createDataFrame([], schema)
    rows.write.format("delta").save(path_of(folder.tables, EVENTS))

    with pytest.raises(StartRefused, match="unknown up to where"):
        folder.archive(Log())

    assert folder.columns(EVENTS) == columns
