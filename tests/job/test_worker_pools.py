"""Queries of one application in Python workers of their own."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.job import workers
from coordlib.job.workers import LOW_NICENESS, VARIABLE, lower_priority, workers_of

SHARED = {"PYTHONHASHSEED": "0"}


def session(master: str = "local[3]") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, environment=dict(SHARED)))


def test_a_query_that_gives_way_has_another_environment_while_it_is_made() -> None:
    """Spark keeps workers apart by their environment: those of the groups keep their shards."""
    spark = session()
    with workers_of(spark, LOW_NICENESS):
        assert spark.sparkContext.environment == {**SHARED, VARIABLE: str(LOW_NICENESS)}
    assert spark.sparkContext.environment == SHARED


@pytest.mark.parametrize("master", ["yarn", "spark://m:7077", "local-cluster[2,1,1024]"])
def test_an_executor_of_a_cluster_has_one_kind_of_workers(master: str) -> None:
    """Beside its heap it has memory for one daemon and one worker. With two of each YARN could end
    the container, and the groups' worker with it."""
    spark = session(master)
    with workers_of(spark, LOW_NICENESS):
        assert spark.sparkContext.environment == SHARED


def test_a_query_that_others_wait_for_has_the_environment_of_before() -> None:
    spark = session()
    with workers_of(spark, 0):
        assert spark.sparkContext.environment == SHARED


def test_a_query_that_cannot_be_made_leaves_the_environment_as_it_was() -> None:
    spark = session()
    with pytest.raises(ValueError, match="no query"), workers_of(spark, LOW_NICENESS):
        raise ValueError("no query")
    assert spark.sparkContext.environment == SHARED


def test_groups_that_begin_anew_meanwhile_do_not_get_workers_that_give_way() -> None:
    """The groups' query goes on with other batches in the moment in which claims begin."""
    spark, made, seen = session(), threading.Event(), list[dict[str, str]]()

    def groups() -> None:
        made.set()
        with workers_of(spark, 0):
            seen.append(spark.sparkContext.environment)

    thread = threading.Thread(target=groups)
    with workers_of(spark, LOW_NICENESS):
        thread.start()
        assert made.wait(60)
        thread.join(0.05)
        assert not seen, "it waits"
    thread.join(60)
    assert seen == [SHARED]


@pytest.mark.parametrize(("told", "lowered"), [(str(LOW_NICENESS), [LOW_NICENESS]), (None, [])])
def test_a_daemon_lowers_its_priority_as_its_environment_says(
    monkeypatch: pytest.MonkeyPatch, told: str | None, lowered: list[int]
) -> None:
    done: list[int] = []
    monkeypatch.setattr(workers.os, "nice", done.append)
    monkeypatch.delenv(VARIABLE, raising=False)
    if told is not None:
        monkeypatch.setenv(VARIABLE, told)
    lower_priority()
    assert done == lowered
