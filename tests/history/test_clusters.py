"""The history of clusters in Delta: both engines give it alike, and the archive writes it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib.history.cluster_views import CLUSTER_VIEWS
from coordlib.history.sql import query_tables
from coordlib.history.views import register_spark
from tests.history.cluster_life import ClusterLife, a_life_of_a_cluster
from tests.history.rows import KAFKA_SCHEMA, Log, a_life_of_a_group
from tests.history.test_views import _utc, same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack


def records(life: ClusterLife) -> Log:
    """What the job writes of a cluster, all of its topics, behind a group's life."""
    log = a_life_of_a_group()
    for output in life.talk.outputs:
        log.put(output.topic, output.key, output.value, 100)
    return log


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coordlib.history.archive import ArchiveBatch, ArchiveOptions

    folder = tmp_path_factory.mktemp("clusters")
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
    )
    life = a_life_of_a_cluster()
    life.talk.end_batch()
    batch = ArchiveBatch(spark, options, "clusters")
    batch(spark.createDataFrame(records(life).rows, KAFKA_SCHEMA), 0)
    return folder / "tables"


@pytest.mark.parametrize("view", CLUSTER_VIEWS)
def test_both_engines_give_the_same_rows(spark: "SparkSession", tables: Path, view: str) -> None:
    """The same question on a laptop and on a cluster must not have two answers."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    register_spark(session, str(tables))
    answer, expected = query_tables(tables, f"SELECT * FROM {view}"), session.table(view)

    assert answer.columns == tuple(expected.columns)
    assert len(answer.rows) > 1
    naive = [tuple(_utc(value) for value in row) for row in answer.rows]
    same_rows(session.createDataFrame(naive, expected.schema), expected)


def test_what_the_archive_wrote_is_what_the_core_said(tables: Path, tmp_path: Path) -> None:
    """Details survive Spark's JSON: arrays, nulls, numbers of 64 bits."""
    direct = a_life_of_a_cluster().write(tmp_path / "tables")
    for view in CLUSTER_VIEWS:
        sql = f"SELECT * EXCLUDE (detail) FROM {view} ORDER BY ALL"
        if view != "cluster_events":
            sql = f"SELECT * FROM {view} ORDER BY ALL"
        assert query_tables(tables, sql) == query_tables(direct, sql)


def test_heads_and_rows_of_clusters_are_no_groups(tables: Path) -> None:
    """The archive reads events of clusters alone: `current_groups` has none of them."""
    found = query_tables(tables, "SELECT group_id FROM current_groups ORDER BY 1").rows

    assert found == (("payments",),)
