"""What follows a batch: nothing that others could see, before it is committed."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from coordlib.errors import CannotReach
from coordlib.job import query as plane_query
from coordlib.job.batch import Batch
from coordlib.job.pipelines import groups
from coordlib.job.query import PipelineQuery, QueryOptions
from coordlib.job.workers import LOW_NICENESS, VARIABLE


class FakeSink:
    """Takes batches, or cannot."""

    marker = "a marker"

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self.problem: CannotReach | None = None

    def write(self, *_: Any) -> str:
        self.told.append("written")
        if self.problem is not None:
            raise self.problem
        return self.marker


@pytest.fixture
def told() -> list[str]:
    """What was done, in order."""
    return []


@pytest.fixture
def query(told: list[str]) -> PipelineQuery:
    def on_batch(_batch: Batch, written: Any) -> None:
        assert written == "a marker"
        told.append("told")

    no_spark: Any = None
    options = QueryOptions(bootstrap_servers="127.0.0.1:1", checkpoint="/nowhere")
    made = PipelineQuery(no_spark, groups("coord"), options, on_batch)
    made.sink = FakeSink(told)  # type: ignore[assignment]
    return made


def run(query: PipelineQuery, number: int = 7) -> None:
    """A batch in which no shard has anything."""
    frame: Any = SimpleNamespace(toArrow=lambda: SimpleNamespace(to_pydict=dict))
    running: Any = SimpleNamespace(identity=None, taken_over=0, folder=None, size=None)
    query.write_batch(frame, number, running)


def test_feeder_and_ticks_are_told_of_a_batch_that_is_committed(
    query: PipelineQuery, told: list[str]
) -> None:
    """A message that is fed before it would be acted upon, and another run of the batch, or other
    code, may never send it."""
    run(query)

    assert told == ["written", "told"]


def test_nobody_is_told_of_a_batch_that_could_not_be_committed(
    query: PipelineQuery, told: list[str]
) -> None:
    """The brokers are away: it runs again, as the next driver's perhaps."""
    query.sink.problem = CannotReach("The batch could not be committed")  # type: ignore[attr-defined]
    with pytest.raises(CannotReach):
        run(query)

    assert told == ["written"]
    assert isinstance(query.failure, CannotReach)


@pytest.mark.parametrize("is_low_priority", [False, True])
def test_only_a_query_that_gives_way_reads_in_one_task_and_judges_in_other_workers(
    monkeypatch: pytest.MonkeyPatch, is_low_priority: bool
) -> None:
    """Each coordination partition was a task of its own: four of them took every slot at once."""
    rows, spark, judged = MagicMock(), MagicMock(), list[tuple[Any, str]]()
    spark.sparkContext.environment, spark.sparkContext.master = {}, "local[3]"

    def judge(given: Any, *_: Any) -> MagicMock:
        judged.append((given, spark.sparkContext.environment.get(VARIABLE, "")))
        return MagicMock()

    monkeypatch.setattr(plane_query, "read_inputs", lambda *_: rows)
    monkeypatch.setattr(plane_query, "judge", judge)
    options = QueryOptions(bootstrap_servers="b:1", checkpoint="c", is_low_priority=is_low_priority)
    query = PipelineQuery(spark, groups("coord"), options, lambda *_: None)
    query._begin(MagicMock(identity=SimpleNamespace(rebuilt_from=None, keys=(0,))))

    if is_low_priority:
        rows.coalesce.assert_called_once_with(1)
        assert judged == [(rows.coalesce.return_value, str(LOW_NICENESS))]
    else:
        assert judged == [(rows, "")]
