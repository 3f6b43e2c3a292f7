"""Keys of shards in Spark's state: where Spark's own hash puts them."""

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from coordlib.job.checkpoint import balanced, partition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_hash_is_sparks(spark: "SparkSession") -> None:
    """A checkpoint's rows lie where Spark's HashPartitioning has put them."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [*range(200), 2**31 - 1, 65_536, 123_456_789]
    rows = spark.createDataFrame([(key,) for key in keys], "key INT")
    for partitions in (1, 2, 3, 4, 16, 200):
        told = rows.select("key", F.expr(f"pmod(hash(key), {partitions})").alias("p")).collect()
        assert {row.key: row.p for row in told} == {
            key: partition_of(key, partitions) for key in keys
        }


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("shards", [1, 2, 8, 33])
def test_shards_spread_evenly(shards: int, partitions: int) -> None:
    """Each partition has as many shards as any other, or one less."""
    keys = balanced(shards, partitions)
    counts = Counter(partition_of(key, partitions) for key in keys)

    assert len(set(keys)) == shards
    assert [partition_of(key, partitions) for key in keys] == [
        s % partitions for s in range(shards)
    ]
    assert max(counts.values()) <= -(-shards // partitions)


def test_plain_shards_do_not() -> None:
    """What it is for: shards 0 and 1 lie in one of two partitions."""
    assert partition_of(0, 2) == partition_of(1, 2)
