"""The history of clusters in Delta: both engines give it alike, and the archive writes it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib.history.sql import query_tables
from coordlib.history.views.controller import CLUSTER_VIEWS
from tests.history.cluster_life import (
    ASK_UNPROVED,
    UNPROVED,
    ClusterLife,
    a_legacy_leader_is_replaced,
    a_life_of_a_cluster,
)
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import KAFKA_SCHEMA, SOURCE, Log, a_life_of_a_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack


def lives() -> ClusterLife:
    """Two clusters in one shard, one behind the other."""
    life = a_life_of_a_cluster()
    a_legacy_leader_is_replaced(life.talk)
    life.talk.end_batch()
    return life


def records(life: ClusterLife) -> Log:
    """What the job writes of a cluster, all of its topics, behind a group's life."""
    log = a_life_of_a_group()
    for output in life.talk.outputs:
        log.put(output.topic, output.key, output.value, 100)
    return log


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    folder = tmp_path_factory.mktemp("clusters")
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
    )
    batch = ArchiveBatch(spark, options, "clusters", SOURCE)
    batch(spark.createDataFrame(records(lives()).rows, KAFKA_SCHEMA), 0)
    return folder / "tables"


@pytest.fixture(scope="module")
def session(spark: "SparkSession", tables: Path) -> "SparkSession":
    return session_over(spark, tables)


@pytest.mark.parametrize("view", CLUSTER_VIEWS)
def test_both_engines_give_the_same_rows(session: "SparkSession", tables: Path, view: str) -> None:
    """The same question on a laptop and on a cluster must not have two answers."""
    assert_engines_agree(session, tables, view, rows_min=2)


def test_what_a_legacy_leader_led_was_led_by_others_without_a_proof(
    session: "SparkSession",
) -> None:
    """As DuckDB tells it: a notebook on a cluster must not say that two cannot have acted."""
    from chispa import assert_df_equality

    found = session.sql(ASK_UNPROVED)

    assert dict(found.dtypes)["unproved"] == "boolean"
    assert_df_equality(found, session.createDataFrame(UNPROVED, found.schema))


def test_what_the_archive_wrote_is_what_the_core_said(tables: Path, tmp_path: Path) -> None:
    """Details survive Spark's JSON: arrays, nulls, numbers of 64 bits."""
    direct = lives().write(tmp_path / "tables")
    for view in CLUSTER_VIEWS:
        sql = f"SELECT * EXCLUDE (detail) FROM {view} ORDER BY ALL"
        if view != "cluster_events":
            sql = f"SELECT * FROM {view} ORDER BY ALL"
        assert query_tables(tables, sql) == query_tables(direct, sql)


def test_heads_and_rows_of_clusters_are_no_groups(tables: Path) -> None:
    """The archive reads events of clusters alone: `current_groups` has none of them."""
    found = query_tables(tables, "SELECT group_id FROM current_groups ORDER BY 1").rows

    assert found == (("payments",),)
