"""A poll has more messages at hand than it returns, and none that may not be.  # INV-154"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from coordlib.client.kit import calls as uninterrupted
from coordlib.client.kit.data import FRESH_MS
from coordlib.client.transactions.committed import TornTransaction
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.core.wire.data_headers import Txn
from coordlib.errors import CannotReach, CoordError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import Program, offsets_of
from tests.client.test_interrupted import LOGS, Given, read_log

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def a() -> Program:
    """It has returned (0, 0), and five messages are at hand."""
    program = Program(FakeLog({"t": 2}), "a")
    program.settle()
    assert program.poll() == (0, 0)
    assert program.reader.ahead == []
    return program


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that the main thread has waited for."""
    waited: list[Any] = []
    begin = uninterrupted._Call.__init__

    def counted(self: Any, work: Callable[[], Any]) -> None:
        waited.append(work)
        begin(self, work)

    monkeypatch.setattr(uninterrupted._Call, "__init__", counted)
    return waited


def test_a_poll_waits_for_the_other_thread_once_for_many_messages(
    a: Program, calls: list[Any]
) -> None:
    """Three times for each message: a sixteenth of what `consume` reads in the same time."""
    got = [a.consumer.poll(0) for _ in range(5)]
    assert offsets_of(got) == [(1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert len(calls) == 1  # the log has told of something since the first

    assert a.consumer.poll(0) is None
    assert len(calls) == 2


@pytest.mark.parametrize("kind", LOGS)
def test_so_does_one_of_a_committed_reader(kind: str, calls: list[Any]) -> None:
    reader = CommittedReader({}, data_consumer=Given(read_log(kind)))
    reader.assign([TopicPartition("out", 0, 0)])
    calls.clear()

    assert [reader.poll(0.1) is not None for _ in range(9)] == [True] * 9
    assert len(calls) <= 2


def test_what_is_at_hand_is_neither_a_position_nor_committed(a: Program) -> None:
    assert [each.offset for each in a.consumer.position([T0, T1])] == [1, OFFSET_INVALID]
    a.consumer.commit()
    asked = a.consumer.member.committed_async()
    a.log.pump()
    assert [(row.partition, row.offset) for row in asked.result(0).offsets] == [(0, 1)]
    assert a.poll() == (1, 0)


def test_what_is_at_hand_of_before_a_seek_is_not_returned(a: Program) -> None:
    a.consumer.seek(TopicPartition("t", 0, 7))
    got = [a.poll() for _ in range(6)]
    assert [offset for partition, offset in got if partition == 0] == [7, 8, 9]  # type: ignore[misc]


def test_what_is_at_hand_of_a_paused_partition_is_returned_when_it_goes_on(a: Program) -> None:
    a.consumer.pause([T1])
    assert [a.poll() for _ in range(3)] == [(0, 1), (0, 2), None]
    a.consumer.resume([T1])
    assert [a.poll() for _ in range(3)] == [(1, 0), (1, 1), (1, 2)]


def test_what_is_at_hand_is_not_returned_once_a_partition_is_to_be_revoked(a: Program) -> None:
    """The look at the member is left out only while nothing happens to it."""
    Program(a.log, "b")
    a.log.pump()
    assert a.poll() is None
    assert a.told[-1] == ("revoke", [0, 1])
    assert a.ahead() == []


def test_what_is_at_hand_is_not_returned_behind_the_fence(a: Program) -> None:
    """It closes by time alone, sooner than another look is due."""
    fence = a.consumer.member._machine.fence
    a.transport.is_cut = True
    while fence.is_open(a.log.now_ms + FRESH_MS // 2):
        a.log.now_ms += 1
    assert a.poll() == (1, 0)

    a.log.now_ms += FRESH_MS // 2
    assert not fence.is_open(a.log.now_ms)
    assert a.consumer.poll(0) is None


def test_nothing_at_hand_is_returned_after_unassign_or_close(a: Program) -> None:
    a.consumer.incremental_unassign([T1])
    assert [a.poll() for _ in range(3)] == [(0, 1), (0, 2), None]
    a.transport.is_cut = True
    a.consumer.close(0)
    with pytest.raises(CoordError, match="closed"):
        a.consumer.poll(0)


def test_a_member_that_fails_says_so_before_anything_at_hand(a: Program) -> None:
    a.consumer.member.fail(ValueError("odd"))
    with pytest.raises(CoordError, match="odd"):
        a.consumer.poll(0)


def test_a_torn_transaction_behind_what_is_at_hand_is_forgotten_with_it(a: Program) -> None:
    """The program goes back, or loses the partition: a reader raises it again where it still is."""
    a.consumer.seek(T0)
    torn: list[Exception] = [TornTransaction(Txn("i", "a", 1, 0), "a record is missing", "t-0")]

    def fail() -> None:
        if not a.reader.ahead and torn:
            raise torn.pop()

    a.reader.before_poll = fail
    assert a.consumer.poll(0) is not None
    assert not torn
    a.consumer.seek(TopicPartition("t", 0, 7))
    assert all(a.consumer.poll(0) is not None for _ in range(5))


def test_a_problem_that_was_met_ahead_comes_behind_the_messages(
    a: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.consumer.seek(T0)

    def fail() -> None:
        if not a.reader.ahead:
            raise CannotReach("no broker")

    a.reader.before_poll = fail
    assert [a.consumer.poll(0) is not None for _ in range(6)] == [True] * 6
    with pytest.raises(CannotReach, match="no broker"):
        a.consumer.poll(0)
