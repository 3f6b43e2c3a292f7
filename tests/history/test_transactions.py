"""The history of transactions in Delta: both engines give it alike, and the archive writes it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib.history.sql import query_tables
from coordlib.history.views.transactions import TRANSACTION_VIEWS
from tests.history.engines import assert_engines_agree, session_over
from tests.history.rows import KAFKA_SCHEMA, SOURCE, a_life_of_a_group
from tests.history.transaction_life import ID, a_life_of_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

VIEWS = [*TRANSACTION_VIEWS, "offset_history"]


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coordlib.history.archive import ArchiveBatch
    from coordlib.history.plan import ArchiveOptions

    folder = tmp_path_factory.mktemp("transactions")
    options = ArchiveOptions(
        bootstrap_servers="", tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
    )
    log, life = a_life_of_a_group(), a_life_of_transactions()
    life.talk.end_batch()
    for output in life.talk.outputs:
        log.put(output.topic, output.key, output.value, 100)
    batch = ArchiveBatch(spark, options, "transactions", SOURCE)
    batch(spark.createDataFrame(log.rows, KAFKA_SCHEMA), 0)
    return folder / "tables"


@pytest.fixture(scope="module")
def session(spark: "SparkSession", tables: Path) -> "SparkSession":
    return session_over(spark, tables)


@pytest.mark.parametrize("view", VIEWS)
def test_both_engines_give_the_same_rows(session: "SparkSession", tables: Path, view: str) -> None:
    """The same question on a laptop and on a cluster must not have two answers."""
    assert_engines_agree(session, tables, view, rows_min=1)


def test_events_of_an_id_name_it(tables: Path) -> None:
    found = query_tables(
        tables,
        "SELECT DISTINCT space, transactional_id FROM events ORDER BY ALL NULLS LAST",
    ).rows

    assert (
        ("transaction", ID) in found,
        {id for space, id in found if space != "transaction"},
    ) == (
        True,
        {None},
    )
