"""Rights that are taken from the job itself: it does not start, or says what it does without."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from coordlib.client.admin import Admin
from coordlib.client.spark.progress import Publication
from coordlib.errors import NotReady
from coordlib.kafka.acls import grant, withdraw
from coordlib.kafka.roles import Kind, Operation, Right, Role, rights
from coordlib.local.progress import silent
from coordlib.local.stack import Stack
from tests.stack.conftest import JOB_ARGS
from tests.stack.secured.scene import TOPIC

pytestmark = [pytest.mark.stack, pytest.mark.chaos]

JOB = f"User:{Role.JOB}"
ARGUMENTS = (
    *JOB_ARGS,
    *("--set", "engine.lag_interval_ms=1000"),
    *("--set", 'engine.mirror_offsets=["mirrored"]', "--without-archive"),
)
MIRRORED = tuple(
    right
    for right in rights(Role.JOB, "coord", [TOPIC], ["mirrored"])
    if right not in rights(Role.JOB, "coord")
)
NEEDED_AT_START = [
    right
    for right in rights(Role.JOB, "coord")
    if right.kind is not Kind.GROUP and right.name != "*"
]


@contextmanager
def without(stack: Stack, right: Right) -> Iterator[None]:
    """The job has all rows but this one meanwhile."""
    withdraw(stack.client(), JOB, [right])
    try:
        yield
    finally:
        grant(stack.client(), JOB, [right])


@pytest.fixture
def stopped(secured_stack: Stack) -> Stack:
    """The stack without its job. A start takes a while: it is left to who needs the job."""
    secured_stack.stop_job()
    return secured_stack


@pytest.fixture
def running(secured_stack: Stack) -> Stack:
    """The stack with its job, which a test before may have stopped."""
    if not secured_stack.job.is_running:
        secured_stack.start_job(ARGUMENTS, progress=silent)
    return secured_stack


@pytest.mark.parametrize("right", NEEDED_AT_START, ids=str)
def test_a_job_without_a_right_ends_with_a_sentence(stopped: Stack, right: Right) -> None:
    """A supervisor must not start it again: nothing would change."""
    with without(stopped, right), pytest.raises(NotReady, match="exit code 2") as refused:
        stopped.start_job(ARGUMENTS, progress=silent)

    assert f"A right is missing: {right.operation} on" in str(refused.value)
    assert right.name in str(refused.value)


def test_a_job_whose_consumers_may_not_ask_for_coordinators_says_so(stopped: Stack) -> None:
    unused = Right(Kind.GROUP, "coordlib-", Operation.DESCRIBE, is_prefix=True)

    with without(stopped, unused):
        stopped.start_job(ARGUMENTS, progress=silent)
        _until(lambda: str(unused) in str(stopped.job.told().get("watches_failing")))
        stopped.stop_job()


def test_lag_of_topics_that_may_not_be_described_is_a_trouble(running: Stack) -> None:
    every = Right(Kind.TOPIC, "*", Operation.DESCRIBE)
    told = f"Describe on the topic {TOPIC}"
    _commit(running, "seen", 1)

    with without(running, every):
        _until(lambda: told in str(running.job.told().get("watches_failing")))
    _until(lambda: told not in str(running.job.told().get("watches_failing")))


def test_each_right_of_the_mirror_is_named(running: Stack) -> None:
    """Mirrored offsets are for tools that nobody watches: the job's status must tell."""
    failing: Callable[[], str] = lambda: str(running.job.told().get("offsets_failing"))  # noqa: E731
    _commit(running, "mirrored", 1)
    _until(lambda: "A right is missing" in failing())
    grant(running.client(), JOB, MIRRORED)
    _until(lambda: failing() == "{}")

    offset = 1
    for right in MIRRORED:
        if right.operation is not Operation.DELETE:
            offset += 1
            with without(running, right):
                _commit(running, "mirrored", offset)
                _until(lambda right=right: str(right) in failing())
            _until(lambda: failing() == "{}")

    delete = next(right for right in MIRRORED if right.operation is Operation.DELETE)
    with without(running, delete), Admin(running.client()) as admin:
        admin.delete_group("mirrored")
        _until(lambda: str(delete) in failing())


def _commit(stack: Stack, group: str, offset: int) -> None:
    publication = Publication(stack.client(str(Role.PUBLISHER)), group, stack.prefix)
    source = {"description": "KafkaV2[Subscribe[orders]]", "endOffset": {TOPIC: {"0": offset}}}
    publication.hear({"batchId": 1, "sources": [source]})
    assert publication.close(30)


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)
