"""Every view, in Spark and in DuckDB, over the tables that the archive made of one group's life."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib.errors import CannotReach, CoordError
from coordlib.history.delta_files import describe_tables
from coordlib.history.engines import VIEWS, register_spark
from coordlib.history.plan import Hole, Plan
from coordlib.history.sql import query_tables
from coordlib.history.tables import COLUMNS, TABLES
from coordlib.history.views.controller import CLUSTER_VIEWS
from coordlib.history.views.transactions import TRANSACTION_VIEWS
from tests.history.assigned_life import a_life_of_an_assigned_group
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import KAFKA_SCHEMA, SOURCE, a_life_of_a_group, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    folder = tmp_path_factory.mktemp("history")
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
    )
    batch = ArchiveBatch(spark, options, "views", SOURCE)
    what = Plan(until={}, holes=(Hole("events", 1, 4, 9),))
    batch(spark.createDataFrame(a_life_of_a_group().rows, KAFKA_SCHEMA), 0, what)
    register_spark(spark, options.tables)
    return folder / "tables"


#: Views that are about something else than groups have tests of their own.
OF_OTHERS = {*CLUSTER_VIEWS, *TRANSACTION_VIEWS}
OF_GROUPS = [each for each in VIEWS if "claims" not in each and each not in OF_OTHERS]


@pytest.mark.parametrize("name", [*TABLES, *OF_GROUPS])
def test_both_engines_give_the_same_rows(spark: "SparkSession", tables: Path, name: str) -> None:
    """The same question on a laptop and on a cluster must not have two answers."""
    assert_engines_agree(spark, tables, name, rows_min=1)


@pytest.fixture(scope="module")
def divided(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> "tuple[Path, SparkSession]":
    """Tables of a group whose coordinator divides, and a session with views of its own."""
    tables = a_life_of_an_assigned_group().write(tmp_path_factory.mktemp("assigned"))
    return tables, session_over(spark, tables)


@pytest.mark.parametrize("name", ["generations", "member_history", "offset_history", "ownership"])
def test_both_engines_agree_where_the_coordinator_divides(
    divided: "tuple[Path, SparkSession]", name: str
) -> None:
    """Rows of each member's own assignments, which follow upon each other member by member."""
    from chispa import assert_df_equality

    tables, session = divided
    answer, expected = query_tables(tables, f"SELECT * FROM {name}"), session.table(name)

    assert answer.columns == tuple(expected.columns)
    assert answer.rows
    naive = [tuple(_utc(value) for value in row) for row in answer.rows]
    found = session.createDataFrame(naive, expected.schema)
    assert_df_equality(found, expected, ignore_row_order=True)


def _utc(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def test_ownership_ends_with_removal_or_the_next_assignment(tables: Path) -> None:
    """Who owned this partition at three: m2 until it was removed, m1 from its next assignment."""
    answer = query_tables(
        tables,
        "SELECT member_id, generation, issued, until, fence FROM ownership "
        "WHERE topic = ? AND partition = ? ORDER BY fence",
        ["orders", 2],
    )

    assert answer.rows == (
        ("m2", 1, at(3.2), at(30), 104),
        ("m1", 2, at(33.5), None, 112),
    )


def test_generations_tell_their_causes(tables: Path) -> None:
    answer = query_tables(
        tables, "SELECT generation, reason, duration_ms, members FROM generations ORDER BY 1"
    )

    assert answer.rows == (
        (1, "member joined", 2900, '["m1","m2"]'),
        (2, "session expired", 3000, '["m1"]'),
    )


def test_events_are_one_row_each_with_the_causing_record(tables: Path) -> None:
    """The incarnation holds dashes and underscores itself: ids are read from the right."""
    answer = query_tables(
        tables, "SELECT event_id, time, CAST(date AS VARCHAR), shard, log_offset, detail "
        "FROM events WHERE type = 'CommitRefused' AND member_id = 'm9'"
    )  # fmt: skip

    (row,) = answer.rows
    assert row[:5] == ("a-B_9-xyz-r0-108-0", at(6), "2026-03-01", 0, 108)
    assert json.loads(row[5]) == {"client": "É\n"}
    dates = query_tables(
        tables,
        "SELECT DISTINCT CAST(date AS VARCHAR) FROM events WHERE type <> 'HistoryLost' ORDER BY 1",
    )
    assert dates.rows == (("2026-03-01",), ("2026-03-02",))


def test_refusals_of_all_kinds_have_the_same_columns(tables: Path) -> None:
    """Undecodable ones have bytes and no request type; a refused commit has its error as reason."""
    answer = query_tables(
        tables,
        "SELECT time, group_id, error, request, client, reason, bytes, generation FROM rejected "
        "ORDER BY time",
    )

    unknown, not_owned = "UNKNOWN_MEMBER_ID", "PARTITION_NOT_OWNED"
    protocol = ("INCONSISTENT_GROUP_PROTOCOL", "JoinGroup")
    assert answer.rows == (
        (at(6), "payments", unknown, "OffsetCommit", "É\n", unknown, None, 1),
        (at(41), "", "INVALID_REQUEST", None, "", "No JSON object", "e30=", -1),
        (at(42), "payments", *protocol, "late", "Offer another protocol.", None, 2),
        (at(43), "payments", *protocol, "later", "Offer another protocol.", None, 2),
        (at(44), "payments", not_owned, "Release", "c2", not_owned, None, 2),
    )


def test_rows_of_a_commit_that_were_refused_are_told_one_by_one(tables: Path) -> None:
    """Who tried to commit a partition that was another's, and how far had he read?"""
    answer = query_tables(
        tables, "SELECT member_id, offsets FROM rejected WHERE offsets IS NOT NULL"
    )

    ((member, offsets),) = answer.rows
    assert member == "m2"
    assert json.loads(offsets) == [
        {"topic": "a", "partition": 2, "offset": 9, "error": "PARTITION_NOT_OWNED"}
    ]


def test_a_refusal_that_concerns_no_group_has_no_kind(tables: Path) -> None:
    """It must not be counted among those of classic groups."""
    answer = query_tables(
        tables, "SELECT type, group_id FROM events WHERE kind IS NULL ORDER BY type DESC"
    )

    assert answer.rows == (("RequestRejected", ""), ("HistoryLost", ""))


def test_deleted_groups_and_offsets_are_not_current(tables: Path) -> None:
    groups = query_tables(tables, "SELECT group_id, state, generation FROM current_groups")
    offsets = query_tables(
        tables, 'SELECT topic, partition, "offset", time FROM current_offsets ORDER BY topic'
    )

    assert groups.rows == (("payments", "Stable", 2),)
    assert offsets.rows == (("a.b", 0, 7, at(40)), ("orders", 2, 60, at(40)))


def test_current_lag_is_the_newest_sample_of_offsets_that_are_left(tables: Path) -> None:
    """A deleted topic is told as unknown; a deleted offset is not told any more."""
    answer = query_tables(
        tables,
        "SELECT topic, time, committed, lag, lag_seconds, is_at_least, lost, is_beyond_end "
        "FROM current_lag ORDER BY topic",
    )

    assert answer.rows == (
        ("a.b", at(45), 7, None, None, False, None, False),
        ("orders", at(45), 60, 10, 0.5, False, 0, False),
    )


def test_lag_keeps_every_sample(tables: Path) -> None:
    """How far behind was it at three, and was anything lost?"""
    sql = "SELECT lag_seconds, is_at_least, lost FROM lag WHERE topic = ? AND time <= ?"

    assert query_tables(tables, sql, ["orders", at(40)]).rows == ((12.5, True, 9),)
    marked = query_tables(tables, "SELECT topic, lag FROM lag WHERE is_beyond_end").rows
    assert marked == (("old", 0),)


def test_snapshots_keep_members_readable_and_small(tables: Path) -> None:
    (row,) = query_tables(tables, "SELECT members FROM current_groups").rows

    assert json.loads(row[0])["m1"]["client"] == "c1"
    assert "metadata" not in row[0]


def test_the_schema_is_the_documented_one(spark: "SparkSession", tables: Path) -> None:
    for table in TABLES:
        found = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
        assert found == {name: kind.lower() for name, kind in COLUMNS[table].items()}


def test_a_query_can_neither_write_nor_read_files(tables: Path, tmp_path: Path) -> None:
    """A pasted query must not be able to do harm."""
    for sql in (
        f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "INSTALL httpfs",
    ):
        with pytest.raises(CoordError):
            query_tables(tables, sql)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_query_says_what_is_wrong_and_what_there_is(tables: Path) -> None:
    with pytest.raises(CoordError) as caught:
        query_tables(tables, "SELECT nothing FROM nowhere")

    assert caught.value.what == "The query failed."
    assert "nowhere" in caught.value.where
    assert "generations" in caught.value.hint


def test_no_tables_yet_is_told_in_three_lines(tmp_path: Path) -> None:
    with pytest.raises(CannotReach) as caught:
        query_tables(tmp_path, "SELECT 1")

    assert caught.value.what == "There is no history yet."
    assert len(str(caught.value).splitlines()) == 3


def test_tables_are_described_for_the_status(tables: Path, tmp_path: Path) -> None:
    found = describe_tables(tables)["events"]
    assert found is not None
    assert found["version"] == 1
    assert found["files"] == 3  # one per date; what is lost was found today

    assert describe_tables(tmp_path) == {"events": None, "group_snapshots": None, "lag": None}
