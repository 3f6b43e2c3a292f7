"""Ctrl-C anywhere in a unit of work, and the program goes on: each record counts once.

INV-141, INV-155.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from coordlib.client.transactions.machine import State, TransactionError
from coordlib.testing.fake_log import FakeLog
from tests.client.interrupting import interrupt_everywhere
from tests.client.test_consumer import FakeReader
from tests.client.transactions import test_by_coordinator, test_exactly_once
from tests.client.transactions.data import PATIENCE_S, FakeCluster, FakeProducer
from tests.client.transactions.test_by_coordinator import policies  # noqa: F401  # a fixture

Interrupted = Callable[[Callable[[], Any]], Any]
ALL = 3  # so many at least


class ByKafka(test_exactly_once.Copier):
    def written(self) -> list[int]:
        return [offset for _, offset in self.out]


class ByCoordinator(test_by_coordinator.Copier):
    def written(self) -> list[int]:
        return [int(each[1:]) for each in self.cluster.committed()]

    def renew(self) -> None:
        raise AssertionError("nobody has fenced it")


def go_on(copier: Any) -> None:
    """What a program does that finds its producer somewhere in a transaction."""
    producer = copier.producer
    match producer.state:
        case State.COMMITTING:
            producer.commit_transaction(PATIENCE_S)
        case State.IN_TRANSACTION | State.ABORTABLE_ERROR | State.ABORTING:
            producer.abort_transaction(PATIENCE_S)
        case State.UNINIT | State.INITIALIZING:
            producer.init_transactions(PATIENCE_S)
        case State.FATAL_ERROR:
            copier.renew()


def made(decider: str) -> Any:
    log = FakeLog({"t": 1})
    log.tell_topics()
    copier: Any = ByKafka(log, "a") if decider == "kafka" else ByCoordinator(log, FakeCluster(log))
    if decider == "coordinator":
        copier.producer.init_transactions(PATIENCE_S)
    for _ in range(4):
        copier.program.settle()
    return copier


def copy_the_rest(copier: Any) -> None:
    for _ in range(40):
        try:
            go_on(copier)
            if len(copier.written()) >= ALL:
                return
            copier.unit(2)
        except TransactionError:
            pass
        copier.log.advance(100, copier.program.consumer.member.poll)
    raise AssertionError(f"it stands at {copier.written()}, {copier.producer.state}")


@pytest.mark.parametrize("decider", ["kafka", "coordinator"])
def test_a_unit_that_is_interrupted_counts_once(decider: str) -> None:
    def course(interrupted: Interrupted) -> None:
        copier = made(decider)
        interrupted(lambda: copier.unit(2))
        copy_the_rest(copier)
        copier.log.advance(1_000, copier.program.consumer.member.poll)
        written = copier.written()
        assert written == list(range(len(written)))
        (at,) = copier.consumer.position([TopicPartition("t", 0)])
        assert at.offset in (len(written), OFFSET_INVALID)  # asked for again
        assert copier.committed() == len(written)

    interrupt_everywhere(course, FakeReader, FakeProducer, least=100, step=STEPS[decider])


STEPS = {"kafka": 3, "coordinator": 7}
