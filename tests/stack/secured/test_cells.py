"""Cells at brokers that allow nothing by default: the rows of the job are enough, and needed."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from coordlib import exit_codes
from coordlib.client import CoordinatedConsumer
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.offsets import COORDINATOR
from coordlib.errors import NotAllowed
from coordlib.kafka import topics
from coordlib.kafka.roles import Kind, Operation, Right, Role, rights
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.conftest import JOB_ARGS
from tests.stack.secured.scene import (
    COPYING,
    OUTPUT,
    TOPIC,
    TRIAL,
    Options,
    Scene,
    copy,
    start_cell,
)

pytestmark = pytest.mark.stack

#: The prefix of two cells: a job beside them runs at another one.
CELLED = "celled"
WHOLE = "{}-coordinator"
OF_CELLS = "{}-coordinator-"
Cell = Callable[..., Stack]


def of_id(name: str, prefix: str) -> Right:
    """The row of the table with this transactional id."""
    operation, is_prefix = Operation.WRITE, name == OF_CELLS
    return Right(Kind.TRANSACTIONAL_ID, name.format(prefix), operation, is_prefix)


@pytest.mark.parametrize("name", [OF_CELLS, pytest.param(WHOLE, marks=pytest.mark.chaos)])
@pytest.mark.chaos
def test_a_cell_needs_its_id_and_that_of_a_job_over_all_shards(scene: Scene, name: str) -> None:
    """A job over all shards may run, and may not have registered: a cell takes its id in any case.
    Whoever grants the row of cells alone is told which other one is missing."""
    right = of_id(name, TRIAL)

    with pytest.raises(NotAllowed) as refused:
        start_cell(scene.lacking(Role.JOB, right))

    whose = right.name if name == WHOLE else f"{right.name}0-0"
    assert f"A right is missing: Write on the transactional-id {whose}" in str(refused.value)


@pytest.fixture
def cell(secured_broker: Stack, tmp_path: Path) -> Iterator[Cell]:
    """Launch a job of the prefix of cells, which logs in as the role job, in an empty folder."""
    secured = secured_broker.secured
    assert secured is not None
    topics.create(secured_broker.client(), CELLED, 2, 4, 1)
    secured.grant_roles(CELLED)
    made: list[Stack] = []

    def launch(name: str, *arguments: str) -> Stack:
        stack = Stack(tmp_path / name, prefix=CELLED)
        stack.broker, stack.secured = secured_broker.broker, secured
        made.append(stack)
        stack.launch_job((*JOB_ARGS, "--without-archive", *arguments))
        return stack

    yield launch
    for stack in made:
        stack.kill_job()
    gc.collect()


@pytest.mark.chaos
def test_two_cells_work_with_the_rows_of_the_job(scene: Scene, cell: Cell) -> None:
    """Each as the role job, without a row of its own: groups of both, and a transaction that one
    cell decides about a group of the other. Then a job over all shards takes both over."""
    low, high = cell("low", "--shards", "0-0"), cell("high", "--shards", "1-1")
    for each in (low, high):
        each.job.wait_until_ready()
    member = scene.principals.new(
        rights(Role.MEMBER, CELLED, [TOPIC], transactional_ids=[f"{COPYING}*"], outputs=[OUTPUT])
    )
    for shard in range(2):
        copy_across(member, shard)
    command = partial(scene.command, scene.stack.client(str(Role.OPERATOR)))
    command("status", "--prefix", CELLED)
    assert [each.job.last_status()["watches_failing"] for each in (low, high)] == [{}, {}]

    whole = cell("whole", "--rebuild")
    whole.job.wait_until_ready()
    for older in (low, high):
        wait_until("a cell ends", lambda job=older.job: not job.is_running)
        assert older.job.exit_code == exit_codes.FENCED
    copy_across(member, 0)


def copy_across(options: Options, shard: int) -> None:
    """Copy a record: the group is in this shard, and the transactional id is not."""
    group = next(name for name in names("copied") if shard_of(name, 2) == shard)
    producer = next(name for name in names(COPYING) if shard_of(name, 2) != shard)
    config = {**options, "coord.prefix": CELLED}
    own = {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 9_000}
    with CoordinatedConsumer({**config, **own, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([TOPIC])
        copy(consumer, config, COORDINATOR, producer)


def names(begin: str) -> Iterator[str]:
    return (f"{begin}{number}" for number in range(99))
