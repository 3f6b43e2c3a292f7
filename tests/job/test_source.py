"""Which partitions the source reads."""

import json
from unittest.mock import MagicMock

import pyspark.sql
import pytest

from coordlib.config import EngineConfig
from coordlib.core.wire.cells import ShardRange
from coordlib.job.pipelines import Pipeline, claims, groups
from coordlib.job.query import read_inputs


@pytest.mark.parametrize(
    ("pipeline", "partitions"),
    [
        (groups("p"), [0, 1, 2, 3]),
        (groups("p", ShardRange(1, 2)), [1, 2]),
        (claims("p", "c.6s"), [0, 1, 2, 3]),
    ],
)
def test_the_recorded_partitions_are_read_and_none_that_was_added(
    pipeline: Pipeline, partitions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription takes up what is added to a topic: its records are of no shard.  # INV-115"""
    functions = MagicMock()
    functions.col.return_value.__eq__.return_value = MagicMock()
    monkeypatch.setattr(pyspark.sql, "functions", functions)
    spark = MagicMock()
    reader = spark.readStream.format.return_value
    reader.option.return_value = reader.options.return_value = reader

    read_inputs(spark, pipeline.inputs, {}, EngineConfig(), None, 5, pipeline.shards(4))

    given = (*reader.options.call_args_list, *spark.readStream.options.call_args_list)
    options = {name: value for call in given for name, value in call.kwargs.items()}
    assert json.loads(options["assign"]) == dict.fromkeys(pipeline.inputs.values(), partitions)
    assert "subscribe" not in options
