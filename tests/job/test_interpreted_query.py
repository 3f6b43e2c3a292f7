"""Generated code: the coordinator's query does without it, all else in the session has it."""

from typing import TYPE_CHECKING

import pytest

from coordlib.job.query import QUERY_CONF, start_interpreted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.stack


def _settings(spark: "SparkSession") -> dict[str, str | None]:
    return {name: spark.conf.get(name, None) for name in QUERY_CONF}


def test_only_the_query_that_is_started_so_lacks_generated_code(spark: "SparkSession") -> None:
    """The archive works in the same session, on hundreds of thousands of rows where it was away: to
    interpret its expressions would cost it more than to compile them."""
    session = spark.newSession()
    before: dict[str, str | None] = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
    }
    for name, value in before.items():
        session.conf.set(name, str(value))
    seen: list[dict[str, str | None]] = []

    def write(frame: "DataFrame", _: int) -> None:
        seen.append(_settings(frame.sparkSession))
        frame.collect()

    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = start_interpreted(session, rows.writeStream.trigger(once=True).foreachBatch(write))

    assert _settings(session) == before, "also while the query runs"
    assert query.awaitTermination(60)
    assert query.exception() is None
    assert seen == [QUERY_CONF]
