"""What hits Spark readers: the job dies under them, or with one of them; a log is taken away."""

import pytest

from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, Scene
from tests.stack.recorded import keeps_every_promise
from tests.stack.spark_crew import (
    ASSIGNED,
    read_again_after_it_was_finished,
    spark_holds,
    start_queries,
    until_even,
)
from tests.stack.truths import outputs_are_exactly_once

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]


def two_queries_and_a_consumer(scene: Scene) -> None:
    """They share the records, and read."""
    start_queries(scene.crew, "spark-1", "spark-2")
    scene.crew.start("python", **ASSIGNED)
    scene.flow.begin()
    until_even(scene.crew, scene.flow.places, "spark-1", "spark-2", "python")
    all_read_on(scene, "spark-1", "spark-2", "python")


def all_read_on(scene: Scene, *names: str) -> None:
    crew = scene.crew
    crew.read_on()
    seen = {name: len(crew[name].readings) for name in names}
    crew.until("all read on", lambda: all(len(crew[n].readings) > k for n, k in seen.items()))


def ends_well(scene: Scene) -> str:
    spark_holds(scene.crew, scene.flow, scene.wire, GROUP)
    outputs_are_exactly_once(scene.wire)
    keeps_every_promise(scene.crew, GROUP)
    acts, records = len(scene.crew.readings), sum(scene.flow.ends.values())
    return f"{records} records, {acts - records} read twice"


def test_the_job_dies_under_spark_readers(scene: Scene, tell: Tell) -> None:
    """SIGKILL of the job alone, twice: the queries read on, nobody is asked for anything."""
    scene.start_job()
    two_queries_and_a_consumer(scene)
    queries = {name: len(scene.crew[name].told("query")) for name in ("spark-1", "spark-2")}
    scene.stack.kill_job()
    scene.note("fault", "the job is killed")
    all_read_on(scene, "spark-1", "spark-2", "python")
    scene.job_crashes("before-commit")
    scene.start_job()
    scene.job_goes_on()
    all_read_on(scene, "spark-1", "spark-2", "python")

    assert {name: len(scene.crew[name].told("query")) for name in queries} == queries
    assert scene.expelled() == []
    assert not read_again_after_it_was_finished(scene.crew)
    tell(f"no query was restarted: {ends_well(scene)}")


def test_the_job_and_a_spark_reader_die_at_once(scene: Scene, tell: Tell) -> None:
    """One machine had both. The reader's partitions go to others when its session is over by the
    log's clock, which stands still while no job runs."""
    scene.start_job()
    two_queries_and_a_consumer(scene)
    scene.crew.kill("spark-2")
    scene.stack.kill_job()
    scene.note("fault", "the job and spark-2 are killed")
    all_read_on(scene, "spark-1", "python")
    scene.start_job()
    until_even(scene.crew, scene.flow.places, "spark-1", "python")

    assert scene.expelled() == ["session expired"]
    tell(f"one expelled, which was dead: {ends_well(scene)}")
