"""A query that gives way, in Spark: how many tasks its batches are, and where its functions run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from coordlib.job.main.claims_query import ONE_TASK
from coordlib.job.workers import LOW_NICENESS, VARIABLE, workers_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.stack


def test_a_batch_is_one_task_and_runs_in_workers_of_its_own(spark: "SparkSession") -> None:
    """Four coordination partitions were four tasks, and two more: all slots of a laptop."""
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
    from pyspark.sql.streaming.state import GroupStateTimeout

    # In here, because workers cannot import this module.
    def told_of(
        key: tuple[int], frames: "Iterator[pd.DataFrame]", state: Any
    ) -> "Iterator[pd.DataFrame]":
        import os

        import pandas

        count = sum(map(len, frames))
        state.update((count,))
        told = os.environ.get(VARIABLE, "")
        yield pandas.DataFrame([(key[0], count, told)], columns=["key", "count", "told"])

    session, seen = spark.newSession(), list[Any]()
    session.conf.set(*ONE_TASK)

    def write(frame: "DataFrame", _: int) -> None:
        seen.extend(frame.collect())

    source = session.readStream.format("rate-micro-batch")
    rows = source.option("rowsPerBatch", 8).option("numPartitions", 4).load().coalesce(1)
    with workers_of(session, LOW_NICENESS):
        told = (
            rows.withColumn("key", F.col("value") % 4)
            .groupBy("key")
            .applyInPandasWithState(
                told_of,
                "key LONG, count LONG, told STRING",
                "count LONG",
                "append",
                GroupStateTimeout.NoTimeout,
            )
        )
    query = told.writeStream.trigger(once=True).outputMode("append").foreachBatch(write).start()

    assert query.awaitTermination(60)
    assert query.exception() is None
    assert sorted(tuple(row) for row in seen) == [(n, 2, str(LOW_NICENESS)) for n in range(4)]
    tasks = _tasks_of_stages(session, str(query.runId))
    assert tasks == [1], "no shuffle: neither a second stage nor a second task"


def _tasks_of_stages(spark: "SparkSession", run: str) -> list[int]:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(run)]
    stages = [tracker.getStageInfo(each) for job in jobs if job for each in job.stageIds]
    return [stage.numTasks for stage in stages if stage]
