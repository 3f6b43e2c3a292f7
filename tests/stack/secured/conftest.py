"""One secured stack for the tests of a process, as `coord up --secure` makes it."""

import gc
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from coordlib.kafka import coordination, topics
from coordlib.kafka.cluster import create_topic
from coordlib.local.stack import Stack
from tests.stack.conftest import JOB_ARGS
from tests.stack.secured.principals import Principals
from tests.stack.secured.scene import COORDINATION, OUTPUT, RECORDS, TOPIC, TRIAL, Scene


@pytest.fixture(scope="session")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its broker, with a topic to be shared, one of claims, and a prefix at which no job runs."""
    home = tmp_path_factory.mktemp("secured") / "stack"
    stack = Stack(home, is_secured=True, claims=COORDINATION)
    stack.start_broker()
    for topic in (TOPIC, OUTPUT):
        create_topic(stack.client(), topic, 2)
    topics.create(stack.client(), TRIAL, 1, 1, 1)
    coordination.create(stack.client(), TRIAL, COORDINATION, 1)
    _fill(stack.client())
    yield stack
    gc.collect()
    stack.down()


@pytest.fixture(scope="session")
def secured_stack(secured_broker: Stack) -> Stack:
    """The same with its job, which logs in as the role job."""
    secured_broker.start_job((*JOB_ARGS, "--without-archive"))
    return secured_broker


def _fill(options: dict[str, str]) -> None:
    producer = Producer(options)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    producer.produce(COORDINATION, b"a message that no reader takes", partition=0)
    assert producer.flush(20) == 0


@pytest.fixture
def principals(secured_broker: Stack) -> Principals:
    """Principals without any right."""
    return Principals(secured_broker.client())


@pytest.fixture
def scene(secured_broker: Stack, principals: Principals) -> Scene:
    """A secured stack, whose job need not run, and principals without any right."""
    return Scene(secured_broker, principals)
