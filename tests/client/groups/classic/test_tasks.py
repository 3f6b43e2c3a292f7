"""Groups under a protocol type of their own, which share a program's tasks."""

from collections.abc import Mapping
from typing import Any

import pytest

from coordlib.client import ClassicMember, TopicPartition
from coordlib.core.wire import api
from coordlib.errors import SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.world import User, World


class Program:
    """The tasks that there are, which may fail to be told."""

    def __init__(self, **counts: int) -> None:
        self.counts = dict(counts)
        self.is_broken = False

    def __call__(self) -> Mapping[str, int]:
        if self.is_broken:
            raise ConnectionError("no table")
        return self.counts


def shift(world: World, program: Program, *names: str) -> list[User]:
    """Workers of one group."""
    fields: dict[str, Any] = {"protocol_type": "reporter", "tasks": program}
    return world.join(*names, topics=["reports"], **fields)


def test_workers_share_tasks_that_are_no_topic() -> None:
    """Seed 002: other uses of the protocol."""
    world = World({"t": 1})
    workers = shift(world, Program(reports=7), "a", "b", "c")

    assert sorted(len(each.owns) for each in workers) == [2, 2, 3]
    assert {each for w in workers for each in w.owns} == {
        TopicPartition("reports", number) for number in range(7)
    }
    joins = [each for each in world.requests if isinstance(each, api.JoinGroup | api.SyncGroup)]
    assert {each.protocol_type for each in joins} == {"reporter"}


def test_the_tasks_of_a_worker_that_dies_go_to_the_others() -> None:
    """As partitions do: by session, and not before its own fence has stopped it."""
    world = World({"t": 1})
    first, second = shift(world, Program(reports=4), "a", "b")
    first.transport.is_cut = True
    world.run(25_000)

    assert len(second.owns) == 4
    assert first.owns == ()


def test_new_tasks_are_noticed() -> None:
    """A row that was added to the table."""
    world, program = World({"t": 1}), Program(reports=2)
    workers = shift(world, program, "a", "b")
    program.counts["reports"] = 6
    world.run(8_000)

    assert sum(len(each.owns) for each in workers) == 6


def test_tasks_that_cannot_be_counted_are_asked_for_again() -> None:
    """The program's table is away for a while: nobody fails for that."""
    world, program = World({"t": 1}), Program(reports=2)
    program.is_broken = True
    (worker,) = shift(world, program, "a")
    assert worker.owns == ()
    program.is_broken = False
    world.run(6_000)

    assert (len(worker.owns), worker.errors) == (2, [])


def test_a_consumer_of_the_same_name_is_refused() -> None:
    """A typing error in a group's name must not mix partitions with tasks."""
    world = World({"reports": 2})
    shift(world, Program(reports=2), "a")
    (consumer,) = world.join("c", topics=["reports"])

    assert {error.what for error in consumer.errors} == {"INCONSISTENT_GROUP_PROTOCOL"}


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "reporter"},
        {"tasks": Program()},
        {"protocol_type": "", "tasks": Program()},
        {"protocol_type": "a\nb", "tasks": Program()},
        {"protocol_type": "r", "tasks": Program(), "assignors": "cooperative-sticky"},
    ],
    ids=["no tasks", "no type", "empty", "no name", "cooperative"],
)
def test_what_cannot_be_promised_is_refused(fields: dict[str, Any]) -> None:
    """Before anything is sent."""
    log = FakeLog({"t": 1})
    with pytest.raises(SetupError):
        ClassicMember("g", transport=log.transport(), **fields)
    log.pump()
    assert log.batches == []
