"""Commits, fetches and subscriptions that cannot be written: text or a number from the user."""

from typing import Any

import pytest

from coordlib.client.machine.signals import TopicPartition
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError
from coordlib.records import requests as rq
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import Program

SURROGATE = "\udc80"  # of a file name that is no UTF-8, as os.fsdecode gives it
BAD: dict[str, dict[str, Any]] = {
    "a surrogate": {"metadata": SURROGATE},
    "beyond 64 bits": {"offset": 2**70},
    "an epoch below -1": {"leader_epoch": -5},
}


def row(partition: int, **fields: Any) -> rq.CommittedOffset:
    return rq.CommittedOffset(**{"topic": "t", "partition": partition, "offset": 5} | fields)


def program(log: FakeLog, client: str = "a", **config: Any) -> Program:
    made = Program(log, client, **config)
    run(log, made)
    return made


def run(log: FakeLog, *programs: Program, rounds: int = 10) -> None:
    for _ in range(rounds):
        for each in programs:
            each.poll()
        log.advance(200)


@pytest.fixture
def log() -> FakeLog:
    made = FakeLog({"t": 4})
    made.tell_topics()
    return made


@pytest.mark.parametrize("bad", BAD)
def test_a_commit_that_cannot_be_written_is_refused_before_it_is_counted(
    log: FakeLog, bad: str
) -> None:
    """The commit raised in the middle of the member, which then waited for its answer: `close`
    took its whole time, and ended before the log had taken that the member leaves."""
    a = program(log)
    with pytest.raises(GroupError) as refused:
        a.consumer.member.commit([row(0, **BAD[bad])])

    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not a.consumer.member._answers.commits_are_open
    assert not a.consumer.member._membership._asks.are_open()


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_commit_in_on_revoke_does_not_spoil_the_release_that_would_carry_it(
    log: FakeLog, bad: str
) -> None:
    """The coordinator refused Release and commit together: the member failed for good, and the
    newcomer waited until its session had ended."""
    a = program(log, **{"group.protocol": "assigned"})
    told: list[Any] = []

    def revoked(_: Any, some: list[Any]) -> None:
        rows = [row(each.partition, **BAD[bad]) for each in some]
        told.append(a.consumer.member.commit_async(rows))

    a.consumer.subscribe(["t"], on_revoke=revoked)
    b = program(log, "b", **{"group.protocol": "assigned"})
    run(log, a, b)

    assert [each.result().error.code for each in told] == [ErrorCode.INVALID_REQUEST]
    assert [len(each.consumer.assignment()) for each in (a, b)] == [2, 2]


def test_a_fetch_that_cannot_be_written_ends_at_once(log: FakeLog) -> None:
    """It was asked again and again, and the caller waited for the whole timeout."""
    a = program(log)
    asked = a.consumer.member.committed_async([TopicPartition(SURROGATE, 0)])
    log.pump()

    assert isinstance(asked.result(0).error, CannotReach)


def test_a_subscription_that_cannot_be_written_fails_in_poll(log: FakeLog) -> None:
    """`subscribe` raised, and the member waited for the answer to what it had never sent, also
    after it was subscribed anew."""
    a = program(log, **{"group.protocol": "assigned"})
    a.consumer.subscribe([f"^{SURROGATE}"])
    log.pump()
    a.consumer.poll(0)  # all is lost

    with pytest.raises(CoordError, match="cannot be written"):
        a.consumer.poll(0)
