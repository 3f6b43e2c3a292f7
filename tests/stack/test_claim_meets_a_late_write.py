"""A claim and a former owner's write to one Delta table at the same moment, in both orders.

Each opens its transaction on the table before the other has committed. Delta's own check decides.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.delta import How
from coordlib.client.spark.delta_writes import Share
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.stack
PARTITION = TopicPartition("t", 0)
FIRST = "committed first"
SCHEMA = "value string"


def share(fence: int) -> Share:
    """Of an owner; the greater fence is the later one."""
    return Share(
        group="orders",
        member=f"m-{fence}",
        generation=fence,
        log="AbCdEfGh-1",
        fences={PARTITION: fence},
        checkpoint="c",
        batches_before=0,
        may_work=lambda: True,
    )


class Table:
    """A Delta table, and a write to it that stands still between its beginning and its commit."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark, self.path = spark, str(folder / "table")
        self._begun, self._goes_on = folder / "begun", folder / "goes-on"
        self.rows(["before"]).write.format("delta").save(self.path)

    def rows(self, values: list[str]) -> "DataFrame":
        return self._spark.createDataFrame([(value,) for value in values], SCHEMA)

    def values(self) -> list[str]:
        return sorted(row[0] for row in self._spark.read.format("delta").load(self.path).collect())

    def slow(self, values: list[str]) -> "DataFrame":
        """Rows that are there when `go_on` has been called."""
        begun, goes_on = str(self._begun), str(self._goes_on)

        def stand_still(frames: Iterator[Any]) -> Iterator[Any]:
            Path(begun).touch()
            while not Path(goes_on).exists():
                time.sleep(0.05)
            yield from frames

        return self.rows(values).coalesce(1).mapInPandas(stand_still, SCHEMA)

    def meanwhile(self, slow: Callable[[], None], other: Callable[[], None]) -> str:
        """Do the other while the slow one is half done; how the slow one fails, if it does."""
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(slow)
            try:
                wait_until("the slow write has begun", lambda: self._begun.exists() or doing.done())
                other()
            finally:
                self._goes_on.touch()
            problem = doing.exception(120)
            return "" if problem is None else f"{type(problem).__name__} {problem}"


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def test_a_write_that_a_claim_overtakes_fails_and_leaves_no_row(table: Table) -> None:
    """The former owner wakes up in the middle of its write: its query ends, nothing is visible."""
    problem = table.meanwhile(
        lambda: share(10)._write(table.slow(["late"]), table.path, PARTITION, 5, How()),
        lambda: share(20).claim(table.rows([]), table.path),
    )

    assert FIRST in problem
    assert table.values() == ["before"]
    share(10)._write(table.rows(["late"]), table.path, PARTITION, 5, How())
    assert table.values() == ["before"], "tried again it is skipped"


@pytest.mark.chaos
def test_a_claim_that_a_write_overtakes_fails_and_may_be_tried_again(table: Table) -> None:
    """The write was committed before the claim: its rows are in the table, and the successor,
    whose claim did not succeed, has read nothing yet."""
    problem = table.meanwhile(
        lambda: share(20).claim(table.slow([]), table.path),
        lambda: share(10)._write(table.rows(["in time"]), table.path, PARTITION, 5, How()),
    )

    assert FIRST in problem
    assert table.values() == ["before", "in time"]
    share(20).claim(table.rows([]), table.path)
    share(10)._write(table.rows(["late"]), table.path, PARTITION, 6, How())
    assert table.values() == ["before", "in time"]
