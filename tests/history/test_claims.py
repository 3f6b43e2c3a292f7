"""The history of claims: who owned a partition from when to when, and why not any more."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib.core.claims.fold import begin_late
from coordlib.history.sql import query_tables
from coordlib.history.tables import EVENTS, LAG
from tests.history.claims_life import GROUP, SETTINGS, ClaimsLife, a_life_of_claims
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import KAFKA_SCHEMA, SOURCE, Log, a_life_of_a_group, at
from tests.history.test_archive import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a consumer group, and of claims in a group of the same name."""
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    folder = tmp_path_factory.mktemp("claims")
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
    )
    log = a_life_of_a_group()
    before = len(log.rows)
    a_life_of_claims(log)
    # The tables are there before the first claim.
    for number, part in enumerate((slice(0, before), slice(before, None))):
        batch = ArchiveBatch(spark, options, "claims", SOURCE)
        batch(spark.createDataFrame(log.rows[part], KAFKA_SCHEMA), number)
    return folder / "tables"


def test_a_tenure_says_how_it_began_and_how_it_ended(tables: Path) -> None:
    """Who owned the partition at three, and why not any more?"""
    sql = (
        "SELECT partition, since, until, began, ended, client_id, instance, epoch, first_position, "
        "last_position FROM claims WHERE topic = 'orders' ORDER BY partition, since"
    )

    assert query_tables(tables, sql).rows == (
        (0, at(0), at(7), "claimed", "released", "worker-1", "0a1b2c3d", 0, None, 77),
        (0, at(7.5), None, "claimed", None, "worker-2", "99999999", 9, 77, None),
        (1, at(0.1), at(19), "claimed", "expired", "worker-1", "0a1b2c3d", 1, None, 42),
        (1, at(19.5), None, "claimed", None, "worker-2", "99999999", 16, 42, None),
    )


def test_current_claims_have_their_positions(tables: Path) -> None:
    sql = "SELECT partition, client_id, epoch, position, lag FROM current_claims ORDER BY partition"

    assert query_tables(tables, sql).rows == (
        (0, "worker-2", 9, 89, 11),
        (1, "worker-2", 16, 42, 58),
    )


def test_lag_tells_a_group_of_claims_from_a_consumer_group_of_its_name(tables: Path) -> None:
    """Both are called `payments`, and both read `orders`."""
    sql = (
        f"SELECT partition, committed, kind, space FROM current_lag WHERE group_id = '{GROUP}' "
        "AND topic = 'orders' ORDER BY space, partition"
    )

    assert query_tables(tables, sql).rows == (
        (0, 89, "claims", "claims"),
        (1, 42, "claims", "claims"),
        (2, 60, None, "group"),
    )


def test_refused_messages_stand_among_what_was_rejected(tables: Path) -> None:
    """A zombie's heartbeat, and bytes that no client of Marshal wrote."""
    sql = (
        "SELECT type, error, request, client, bytes FROM rejected WHERE space = 'claims' "
        "ORDER BY time"
    )

    assert query_tables(tables, sql).rows == (
        ("HeartbeatRefused", "OTHER_EPOCH", "Heartbeat", "worker-1", None),
        ("MessageRejected", "UNKNOWN_TYPE", None, None, "YmFuYW5h"),
    )


@pytest.fixture(scope="module")
def session(spark: "SparkSession", tables: Path) -> "SparkSession":
    return session_over(spark, tables)


@pytest.mark.parametrize("view", ["claims", "current_claims", "current_lag", "rejected"])
def test_both_engines_give_the_same_rows(session: "SparkSession", tables: Path, view: str) -> None:
    """The same question on a laptop and on a cluster must not have two answers."""
    assert_engines_agree(session, tables, view, rows_min=2)


def test_an_archive_that_runs_gains_the_topics_of_claims(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    """Claims are switched on for a prefix whose history is a year old: its archive goes on, with
    the same checkpoint and the same tables, and reads the new topics from their beginning; what
    it had comes once.  # INV-39"""
    from coordlib.history.archive import Archive
    from coordlib.kafka import coordination

    topics = Topics(broker)
    log = a_life_of_a_group()
    before = len(log.rows)
    options = topics.options(tmp_path)
    topics.write(log, slice(0, before))
    Archive(spark, options).catch_up()
    groups = counts(tmp_path)
    topic = f"{topics.prefix}-marshal"
    coordination.create_coordination(topics.client, topic, 1, 1)
    coordination.create(topics.client, topics.prefix, topic, 1)
    a_life_of_claims(log)
    topics.write(log, slice(before, None))

    Archive(spark, options).catch_up()
    Archive(spark, options).catch_up()

    events = [row for row in log.rows[before:] if row[2] == "coord.claims.events"]
    assert counts(tmp_path) == (groups[0] + len(events), groups[0] + len(events), groups[2] + 2)


def counts(folder: Path) -> tuple[int, ...]:
    """Events, different ones, and lines of lag."""
    sql = (
        f"SELECT (SELECT count(*) FROM {EVENTS}), (SELECT count(DISTINCT event_id) FROM {EVENTS}), "
        f"(SELECT count(*) FROM {LAG})"
    )
    return query_tables(folder / "tables", sql).rows[0]


def test_a_claim_that_comes_back_after_its_end_has_a_tenure_of_its_own(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Its owner was suspended for longer than two intervals, and nobody else wanted it: what was
    expired goes on under the same epoch."""
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    life = ClaimsLife(Log())
    epoch = life.claim(0, "worker-1", 0, "0a1b2c3d")
    for seconds in range(2, 20, 2):
        life.send(seconds, b"somebody else's")
    life.beat(20, "worker-1", 0, f"0a1b2c3d-{epoch}", 5)
    life.end_batch(20)
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(tmp_path / "tables"), checkpoint=str(tmp_path / "check")
    )
    ArchiveBatch(spark, options, "one", SOURCE)(
        spark.createDataFrame(life.log.rows, KAFKA_SCHEMA), 0
    )

    sql = "SELECT began, ended, epoch, instance, last_position FROM claims ORDER BY since"
    instance = f"0a1b2c3d-{epoch}"
    found = query_tables(tmp_path / "tables", sql).rows
    assert [row[:3] for row in found] == [("claimed", "expired", epoch), ("resumed", None, epoch)]
    assert {row[3] for row in found} <= {"0a1b2c3d", instance}


def test_an_owner_that_ended_in_a_gap_of_the_log_is_none(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The job was away for longer than the coordination topic keeps, and meanwhile one partition
    was released for good: its last owner was a current one for ever. Another partition has another
    owner since, and did not get it by a reclaim."""
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    life = ClaimsLife(Log())
    for partition, client in enumerate(("worker-1", "worker-2", "worker-1")):
        life.claim(0, client, partition, "0a1b2c3d")
    life.end_batch(1)
    life.blob = begin_late({}, 3, SETTINGS)
    life.lose(47)
    life.beat(60, "worker-2", 1, "0a1b2c3d-1", 5)
    life.beat(61, "worker-3", 2, "99999999-40", 5)
    life.end_batch(61)
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(tmp_path / "tables"), checkpoint=str(tmp_path / "check")
    )
    ArchiveBatch(spark, options, "one", SOURCE)(
        spark.createDataFrame(life.log.rows, KAFKA_SCHEMA), 0
    )

    sql = "SELECT partition, client_id, until, ended FROM claims ORDER BY partition, since"
    assert query_tables(tmp_path / "tables", sql).rows == (
        (0, "worker-1", at(60), "log gap"),
        (1, "worker-2", at(60), "log gap"),
        (1, "worker-2", None, None),
        (2, "worker-1", at(61), "log gap"),
        (2, "worker-3", None, None),
    )
    assert_engines_agree(session_over(spark, tmp_path / "tables"), tmp_path / "tables", "claims")
