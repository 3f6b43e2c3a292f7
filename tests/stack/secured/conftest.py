"""One secured stack for the tests of a process, as `coord up --secure` makes it."""

import gc
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from coordlib.kafka import topics
from coordlib.kafka.cluster import create_topic
from coordlib.local.stack import Stack
from tests.stack.conftest import JOB_ARGS
from tests.stack.secured.principals import Principals
from tests.stack.secured.scene import RECORDS, TOPIC, TRIAL, Scene


@pytest.fixture(scope="session")
def secured_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its job logs in as the role job, and has a topic to be shared."""
    stack = Stack(tmp_path_factory.mktemp("secured") / "stack", is_secured=True)
    watches = (
        *("--set", "engine.lag_interval_ms=1000"),
        *("--set", 'engine.mirror_offsets=["mirrored"]'),
    )
    stack.up(job_args=(*JOB_ARGS, *watches, "--without-archive"))
    create_topic(stack.client(), TOPIC, 2)
    topics.create(stack.client(), TRIAL, 1, 1, 1)
    _fill(stack.client())
    yield stack
    gc.collect()
    stack.down()


def _fill(options: dict[str, str]) -> None:
    producer = Producer(options)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0


@pytest.fixture
def scene(secured_stack: Stack) -> Scene:
    """A secured stack, and principals without any right."""
    return Scene(secured_stack, Principals(secured_stack.client()))
