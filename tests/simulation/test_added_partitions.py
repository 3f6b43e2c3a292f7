"""Somebody adds partitions to the job's topics while it runs, and writes there."""

import json

import pytest

from tests.tools.simulation import drawing, driver_io, run
from tests.tools.simulation.job_faults import INPUTS
from tests.tools.simulation.world import PREFIX, World

KIND = "partition-added"


def test_they_are_not_read_and_nothing_else_changes() -> None:
    """INV-115: a job over all shards ended at the first record there, and no start helped."""
    world = World(drawing.draw(0, (KIND, KIND)))

    assert run.run_in(world).violation is None
    topics = (f"{PREFIX}.{name}" for name in INPUTS)
    assert any(world.cluster.count(topic) > world.plan.shards for topic in topics)


def test_a_job_that_subscribes_to_its_topics_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its drivers ends with the batch that has a record of no shard."""
    monkeypatch.setattr(
        driver_io, "chosen", lambda inputs, _: {"subscribe": ",".join(inputs.values())}
    )
    world = World(drawing.draw(0, (KIND, KIND)))

    assert run.run_in(world).violation is not None


def test_what_is_read_is_what_the_source_is_told() -> None:
    """The simulated source follows the job's own option."""
    world = World(drawing.draw(0, (KIND,)))
    world.cluster.grow(f"{PREFIX}.requests")
    pipeline = world.engine.pipeline
    shards = range(world.plan.shards)

    found = driver_io.places_read(pipeline, shards, world.cluster)

    named = json.loads(driver_io.chosen(pipeline.inputs, list(shards))["assign"])
    assert found == [(topic, each) for topic in named for each in shards]
