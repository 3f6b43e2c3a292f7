"""A consumer group and something in another space may have one name: their histories stay apart."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from coordlib.cli.main.main import main
from coordlib.client.spark.positions import _history
from coordlib.exit_codes import FAILED, OK
from coordlib.history.engines import VIEWS, tables_behind
from coordlib.history.sql import query_tables
from coordlib.history.tables import EVENTS, LAG, PARTITIONED_BY, SNAPSHOTS, path_of
from coordlib.history.views.controller import CLUSTER_VIEWS
from coordlib.history.views.transactions import TRANSACTION_VIEWS
from notebooks.plots import SAMPLES
from tests.cli.tables import write_events
from tests.history.assigned_life import GROUP, a_life_of_an_assigned_group
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import Log, a_life_of_a_group, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Views whose rows may be of any space, and those of others.
OF_ALL_SPACES = {"rejected", "current_lag", "lost_history"}
OF_OTHERS = {"claims", "current_claims", *CLUSTER_VIEWS, *TRANSACTION_VIEWS}
#: Views of groups; those of snapshots read a table that has no other rows.
OF_GROUPS = [
    name
    for name in VIEWS
    if name not in OF_ALL_SPACES | OF_OTHERS and tables_behind([name]) != {SNAPSHOTS}
]
SHIFT = pa.scalar(timedelta(seconds=5), pa.duration("us"))


def rows_of(tables: Path, table: str) -> pa.Table:
    return DeltaTable(path_of(str(tables), table)).to_pyarrow_table()


def add(tables: Path, table: str, rows: pa.Table) -> None:
    path = path_of(str(tables), table)
    write_deltalake(path, rows, mode="append", partition_by=list(PARTITIONED_BY[table]))


def with_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    place = rows.column_names.index(name)
    return rows.set_column(place, name, values)


def in_another_space(rows: pa.Table) -> pa.Table:
    """The same rows as those of clusters, each somewhat before and somewhat after: what mixes them
    with the groups' finds other begins, other ends, or more of them."""
    copies = []
    for mark, shift in (("before", pc.subtract), ("after", pc.add)):
        copy = with_column(rows, "time", shift(rows["time"], SHIFT))
        for name, value in (("space", "cluster"), ("kind", "brokers")):
            copy = with_column(copy, name, pa.array([value] * len(rows), pa.string()))
        if "event_id" in rows.column_names:
            marked = pc.binary_join_element_wise(mark, rows["event_id"], "-")
            copy = with_column(copy, "event_id", marked)
        copies.append(copy)
    return pa.concat_tables(copies)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a group of each kind, and of one that spells its space out."""
    folder = tmp_path_factory.mktemp("alone")
    tables = a_life_of_an_assigned_group().write(folder)
    log = a_life_of_a_group()
    log.event("GroupCreated", 50, group="spelled out", space="group")
    write_events(log, folder / "classic")
    add(tables, EVENTS, rows_of(folder / "classic", EVENTS))
    return tables


@pytest.fixture(scope="module")
def shared(alone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and clusters of the same names."""
    tables = tmp_path_factory.mktemp("shared")
    for table in (EVENTS, LAG):
        rows = rows_of(alone, table)
        add(tables, table, pa.concat_tables([rows, in_another_space(rows)]))
    return tables


def ask(tables: Path, sql: str, *parameters: object) -> tuple[tuple[Any, ...], ...]:
    return query_tables(tables, sql, parameters).rows


@pytest.mark.parametrize("view", OF_GROUPS)
def test_views_of_groups_have_groups_alone(alone: Path, shared: Path, view: str) -> None:
    """Asked why a group rebalanced, nobody wants to read what a cluster did."""
    sql = f"SELECT * FROM {view} ORDER BY ALL"
    expected = ask(alone, sql)

    assert len(expected) > 0
    assert ask(shared, sql) == expected


@pytest.mark.parametrize(("view", "copies"), [("rejected", 2), ("current_lag", 1)])
def test_refusals_and_lag_name_their_space(
    alone: Path, shared: Path, view: str, copies: int
) -> None:
    """An operator wants to see all of them; who asks for one group names the space, too. Of lag
    the newer of two samples counts."""
    sql = f"SELECT * FROM {view} WHERE space = 'group' ORDER BY ALL"
    expected = ask(alone, sql)

    assert len(expected) > 3
    assert ask(shared, sql) == expected
    by_space = f"SELECT space, count(*) FROM {view} GROUP BY ALL ORDER BY ALL"
    n = len(expected)
    assert ask(shared, by_space) == (("cluster", copies * n), ("group", n))


def test_samples_of_a_groups_lag_are_its_own(alone: Path, shared: Path) -> None:
    """They are drawn as one line for each partition."""
    assert len(ask(alone, SAMPLES, GROUP)) > 10
    assert sorted(ask(shared, SAMPLES, GROUP)) == sorted(ask(alone, SAMPLES, GROUP))


def test_positions_of_a_past_time_are_the_groups_own(alone: Path, shared: Path) -> None:
    """A query would begin where something else of that name stood."""
    when = at(39)
    assert _history("payments", when, alone) == [("orders", 2, 41)]
    assert _history("payments", when, shared) == [("orders", 2, 41)]


def test_history_of_a_group_is_its_own(
    alone: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turns, refusals, and the newest event."""
    told = []
    for tables in (alone, shared):
        command = ["groups", "history", "payments", "--owners", "--tables", str(tables)]
        assert main(command) == OK
        told.append(capsys.readouterr())

    assert len(told[0].out.splitlines()) > 6
    assert told[1] == told[0]


def test_a_group_without_history_is_not_known_by_what_has_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    log.event("GroupCreated", 0, group="shop", kind="brokers", space="cluster")
    write_events(log, tmp_path)

    assert main(["groups", "history", "shop", "--tables", str(tmp_path)]) == FAILED
    assert "group shop" in capsys.readouterr().err


@pytest.fixture(scope="module")
def session(spark: "SparkSession", shared: Path) -> "SparkSession":
    """With views of its own."""
    return session_over(spark, shared)


@pytest.mark.stack
@pytest.mark.parametrize("view", [*OF_GROUPS, "rejected", "current_lag"])
def test_spark_keeps_them_apart_as_well(session: "SparkSession", shared: Path, view: str) -> None:
    """One SQL text for both engines, and the same rows."""
    assert_engines_agree(session, shared, view, rows_min=1)
