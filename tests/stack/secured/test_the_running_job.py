"""Rights that are taken from the job itself: it does not start, and says which one it lacks."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordlib.errors import NotReady
from coordlib.kafka.acls import grant, withdraw
from coordlib.kafka.roles import Kind, Operation, Right, Role, rights
from coordlib.local.progress import silent
from coordlib.local.stack import Stack
from tests.stack.conftest import JOB_ARGS

pytestmark = [pytest.mark.stack, pytest.mark.chaos]

JOB = f"User:{Role.JOB}"
ARGUMENTS = (*JOB_ARGS, "--without-archive")
#: A job over all shards does not miss it; a cell does (test_cells.py).
OF_CELLS = Right(Kind.TRANSACTIONAL_ID, "coord-coordinator-", Operation.WRITE, is_prefix=True)
NEEDED_AT_START = [
    right
    for right in rights(Role.JOB, "coord")
    if right.kind is not Kind.GROUP and right.name != "*" and right != OF_CELLS
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


@pytest.mark.parametrize("right", NEEDED_AT_START, ids=str)
def test_a_job_without_a_right_ends_with_a_sentence(stopped: Stack, right: Right) -> None:
    """A supervisor must not start it again: nothing would change."""
    with without(stopped, right), pytest.raises(NotReady, match="exit code 2") as refused:
        stopped.start_job(ARGUMENTS, progress=silent)

    assert f"A right is missing: {right.operation} on" in str(refused.value)
    assert right.name in str(refused.value)
