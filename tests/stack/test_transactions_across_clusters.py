"""Records in one cluster, offsets in another: a copier dies behind the decision."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.local.broker import Broker
from coordlib.local.stack import Stack
from tests.stack.copying import Copying

pytestmark = [pytest.mark.stack, pytest.mark.fault]

ONE, TWO = "one cluster", "two clusters"


@pytest.fixture
def copying(
    request: pytest.FixtureRequest, shared_stack: Stack, broker: Broker, tmp_path: Path
) -> Iterator[Copying]:
    """Within the cluster of the job, which is the cheaper one; or from it into another one."""
    stack, there = shared_stack, shared_stack.bootstrap_servers
    if request.param == TWO:
        stack = request.getfixturevalue("own_stack")
        request.getfixturevalue("start_job")()
        there = broker.bootstrap_servers
    with Copying(stack.bootstrap_servers, there, tmp_path) as copying:
        yield copying


@pytest.mark.parametrize(
    "copying", [ONE, pytest.param(TWO, marks=pytest.mark.chaos)], indirect=True
)
@pytest.mark.chaos
def test_a_copier_that_dies_behind_the_decision_has_copied_all_or_nothing(
    copying: Copying,
) -> None:
    """Its transaction is committed by the coordinator, and its records have no markers.

    INV-91, INV-93: readers ask the coordinator, and are given all of it; the next process of the
    transactional id writes the markers, and goes on behind it.
    """
    copying.start("a")
    copying.begins()
    copying.dies_at("a", "hold-markers", "decided")

    before, told = copying.marked(), copying.committed()
    assert sum(told.values()) > sum(before.values()), "the coordinator knew more than the markers"
    assert set(told.values()) == {1}

    copying.start("a")
    copying.ends_well()
