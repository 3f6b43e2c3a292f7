"""An archive writes on tables that were maintained, by Spark and without a JVM."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordlib.errors import SetupError, StartRefused
from coordlib.history.sql import query_tables
from coordlib.history.tables import EVENTS, TABLES, kept
from coordlib.history.upkeep import maintain
from tests.history.rows import KAFKA_SCHEMA, SOURCE, START, Log, a_life_of_a_group
from tests.history.test_columns import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

NEXT_WEEK = START + timedelta(days=7)


@pytest.fixture
def folder(spark: "SparkSession", tmp_path: Path) -> Folder:
    return Folder(spark, str(tmp_path / "tables"))


def _forget_commits(spark: "SparkSession", tables: str) -> None:
    """What Delta does with commits older than 30 days: only the checkpoint has what was in them."""
    for table in TABLES:
        for file in sorted(Path(tables, table, "_delta_log").glob("0*.json"))[:-1]:
            file.unlink()
        for file in Path(tables, table, "_delta_log").glob("*.crc"):
            file.unlink()
        for file in Path(tables, table, "_delta_log").glob(".*.crc"):
            file.unlink()
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def test_an_archive_writes_on_maintained_tables(folder: Folder) -> None:
    """It runs while the tables are maintained; both engines read the same from Parquet files that
    neither of them wrote. Spark's own record of who wrote there says which prefix they are of."""
    log = a_life_of_a_group()
    folder.archive(log, 8)
    folder.archive(log, 20)
    events = folder.ask("SELECT * FROM events ORDER BY ALL")
    with pytest.raises(SetupError, match="another prefix"):
        maintain(folder.tables, {}, prefix="other")

    told = maintain(folder.tables, {}, prefix="coord", now=NEXT_WEEK)

    assert told[0].rewritten == 2
    assert folder.ask("SELECT * FROM events ORDER BY ALL") == events
    folder.archive(log)
    folder.archive(log)
    assert folder.ask("SELECT count(*), count(DISTINCT event_id) FROM events") == ((18, 18),)
    folder.assert_engines_agree()


@pytest.mark.chaos  # in `make test` without Spark: test_maintain.py
def test_the_checkpoint_keeps_the_archives_number(spark: "SparkSession", folder: Folder) -> None:
    """The commits themselves have been cleaned since: the number of the newest one tells which
    position holds, and of two archives one is refused."""
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    log = a_life_of_a_group()
    options = ArchiveOptions(bootstrap_servers="", tables=folder.tables, checkpoint="")
    running = ArchiveBatch(spark, options, "running", SOURCE)
    running(spark.createDataFrame(log.rows[:10], KAFKA_SCHEMA), 0)
    maintain(folder.tables, {}, now=NEXT_WEEK)
    _forget_commits(spark, folder.tables)

    folder.archive(log)

    assert folder.ask("SELECT count(*), count(DISTINCT event_id) FROM events") == ((18, 18),)
    with pytest.raises(StartRefused, match="Another archive"):
        running(spark.createDataFrame(log.rows, KAFKA_SCHEMA), 1)


@pytest.mark.chaos
def test_what_is_dropped_does_not_come_back(folder: Folder) -> None:
    """The archive goes on where it was, and not where the rows end."""
    log = a_life_of_a_group()
    folder.archive(log, 20)

    keep = kept(["commits=1d", "lag=1d", "snapshots=1d"])
    maintain(folder.tables, keep, now=NEXT_WEEK)
    folder.archive(log)

    committed = 'SELECT topic, partition, "offset" FROM offset_history ORDER BY ALL'
    assert folder.ask(committed) == (("a.b", 0, 7), ("orders", 2, 60))
    kept_for_ever = f"SELECT count(*) FROM {EVENTS} WHERE type <> 'OffsetsCommitted'"
    assert folder.ask(kept_for_ever) == ((16,),)


def test_an_empty_history_is_maintained(folder: Folder) -> None:
    """The job was started, and nothing has happened yet."""
    folder.archive(Log())

    told = maintain(folder.tables, kept(["commits=1d"]), prefix="coord", now=NEXT_WEEK)

    # The job writes no statistics: that a file is empty is seen when it is read.
    assert [(each.files, each.rewritten <= 1) for each in told] == [(0, True)] * 3
    assert query_tables(folder.tables, "SELECT count(*) FROM events").rows == ((0,),)
