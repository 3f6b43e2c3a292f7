"""A producer that has failed for ever is replaced; its owner goes on."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.kafka import producer as under_test
from coordlib.kafka.producer import LastingProducer
from coordlib.local.broker import Broker
from tests.kafka.mortal import MortalProducer
from tests.kafka.queue_producer import Note, Queue

FATAL = KafkaError(KafkaError._FATAL, "dead", fatal=True)


class Told:
    """What became of records, by their values."""

    def __init__(self) -> None:
        self.errors: dict[str, str | None] = {}

    def of(self, name: str) -> Note:
        def note(error: KafkaError | None, _message: Any) -> None:
            self.errors[name] = None if error is None else error.name()

        return note


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> list[Queue]:
    monkeypatch.setattr(Queue, "made", [])
    monkeypatch.setattr(under_test, "Producer", Queue)
    return Queue.made


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_a_fatal_error_is_told_once_by_any_call(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call meets it: every later record would be refused, and nobody would see why."""
    monkeypatch.setattr(MortalProducer, "made", [])
    monkeypatch.setattr(under_test, "Producer", MortalProducer)
    lasting = LastingProducer({}, "things")
    with pytest.raises(KafkaException):
        getattr(lasting, call)(0.0)
    assert lasting.is_broken
    with pytest.raises(KafkaException):
        lasting.produce("t", b"refused")

    lasting.renew()
    lasting.produce("t", b"taken")

    assert not lasting.is_broken
    assert [made.written for made in MortalProducer.made] == [[], [b"taken"]]


def test_what_waits_is_given_up_before_another_producer_writes(queues: list[Queue]) -> None:
    """It might be written behind what the new one writes, and be the newer value by its place."""
    lasting, told = LastingProducer({}, "things"), Told()
    lasting.produce("t", b"1", on_delivery=told.of("first"))
    lasting.produce("t", b"2", on_delivery=told.of("second"))
    queues[0].end(FATAL)

    lasting.renew()

    assert told.errors == {"first": "_FATAL", "second": "_PURGE_QUEUE"}
    assert len(queues) == 2


def test_a_passing_error_keeps_the_producer(queues: list[Queue]) -> None:
    """The broker did not answer in time; the same producer goes on."""
    lasting, told = LastingProducer({}, "things"), Told()
    lasting.produce("t", b"1", on_delivery=told.of("first"))
    queues[0].end(KafkaError(KafkaError._MSG_TIMED_OUT))

    lasting.renew()

    assert told.errors == {"first": "_MSG_TIMED_OUT"}
    assert len(queues) == 1


def test_a_late_report_of_the_old_one_does_not_end_the_new_one(queues: list[Queue]) -> None:
    """A thread is still inside its poll when another one replaces it."""
    lasting = LastingProducer({}, "things")
    lasting.produce("t", b"1")
    lasting.produce("t", b"2")
    queues[0].end(FATAL)
    (_, late) = queues[0].waiting.pop()
    lasting.renew()

    late(FATAL, None)

    assert not lasting.is_broken
    assert len(queues) == 2


def test_a_young_one_is_replaced_only_at_once(queues: list[Queue]) -> None:
    """Where each new one fails, too, the broker is not to be asked for another every second."""
    now_s = 100.0
    lasting = LastingProducer({}, "things", renew_interval_s=10.0, now_s=lambda: now_s)
    lasting.produce("t", b"1")
    queues[0].end(FATAL)
    now_s = 109.0
    lasting.renew()
    assert lasting.is_broken
    assert len(queues) == 1

    lasting.renew(at_once=True)

    assert not lasting.is_broken
    lasting.produce("t", b"1")
    queues[1].end(FATAL)
    now_s = 119.0
    lasting.renew()
    assert len(queues) == 3


def test_a_full_queue_is_a_timeout(queues: list[Queue]) -> None:
    """The broker is away for long: its owner waits, and tries again, instead of ending."""
    lasting = LastingProducer({}, "things")
    queues[0].is_full = True

    with pytest.raises(TimeoutError, match="producer of things is full"):
        lasting.produce("t", b"1")


def test_it_is_idempotent_whatever_the_options(queues: list[Queue]) -> None:
    LastingProducer({"enable.idempotence": False, "log_level": 7}, "things")

    assert queues[0].options == {"enable.idempotence": True, "log_level": 7}


@pytest.mark.parametrize(
    "call",
    [
        lambda lasting: lasting.produce("t", b"1"),
        lambda lasting: lasting.poll(0.1),
        lambda lasting: lasting.flush(0.1),
        lambda lasting: lasting.list_topics(0.1),
    ],
)
def test_a_thread_that_has_it_still_is_refused_in_words_of_kafka(
    call: Callable[[LastingProducer], object], queues: list[Queue]
) -> None:
    """INV-156. A watch asks brokers that do not answer while the job ends: the library's
    RuntimeError ended it with a trace, where a KafkaException is tried again or stops it."""
    lasting = LastingProducer({}, "things")
    lasting.close()

    with pytest.raises(KafkaException, match="The producer of things is closed"):
        call(lasting)
    lasting.close()


def test_one_that_is_closed_inside_a_call_of_another_thread(queues: list[Queue]) -> None:
    lasting = LastingProducer({}, "things")

    def close_meanwhile() -> None:
        lasting.close()
        raise RuntimeError("Producer has been closed")

    queues[0].on_poll = close_meanwhile
    with pytest.raises(KafkaException, match="The producer of things is closed"):
        lasting.poll(0.1)


def test_a_defect_in_a_callback_is_not_taken_for_the_end(queues: list[Queue]) -> None:
    lasting = LastingProducer({}, "things")

    def break_() -> None:
        raise RuntimeError("a callback is wrong")

    queues[0].on_poll = break_
    with pytest.raises(RuntimeError, match="a callback is wrong"):
        lasting.poll(0.1)


def test_a_close_is_done_whatever_the_producer_says_once_more(queues: list[Queue]) -> None:
    """INV-156. The job's close raised here, and left its other threads and its status undone."""
    lasting = LastingProducer({}, "things")

    def fail(_timeout_s: float) -> int:
        raise KafkaException(FATAL)

    queues[0].flush = fail  # type: ignore[method-assign]
    lasting.close()

    assert queues[0].is_closed


def test_a_closed_one_is_not_replaced(queues: list[Queue]) -> None:
    """INV-156. The thread that serves it is late, and would leave a producer open that nobody
    closes."""
    lasting = LastingProducer({}, "things")
    lasting.produce("t", b"1")
    queues[0].end(FATAL)
    lasting.close()

    assert not lasting.renew(at_once=True)
    assert len(queues) == 1


def test_a_close_waits_for_the_thread_that_replaces_it(queues: list[Queue]) -> None:
    """INV-156. Whichever comes first, what is open in the end is closed."""
    lasting, is_inside = LastingProducer({}, "things"), threading.Event()
    lasting.produce("t", b"1")
    queues[0].end(FATAL)
    closing = threading.Thread(target=lambda: (is_inside.wait(60), lasting.close()))
    flush = queues[0].flush

    def slow(timeout_s: float) -> int:
        is_inside.set()
        closing.join(0.3)  # it cannot end before the other producer is there
        return flush(timeout_s)

    queues[0].flush = slow  # type: ignore[method-assign]
    closing.start()
    assert lasting.renew()
    closing.join(60)

    assert [each.is_closed for each in queues] == [False, True]


@pytest.mark.stack
def test_after_a_real_fatal_error_records_are_written_again(broker: Broker) -> None:
    """librdkafka's own: a record that the topic does not take, where no gap is allowed."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    topic, told = f"fatal-{uuid4().hex[:8]}", Told()
    new = NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})
    admin = AdminClient(client)  # a name for it: the answer is lost with the client
    admin.create_topics([new])[topic].result(60)
    lasting = LastingProducer({**client, "enable.gapless.guarantee": True, "linger.ms": 0}, "x")
    lasting.produce(topic, b"x" * 5000, on_delivery=told.of("large"))
    deadline = time.monotonic() + 60
    while not lasting.is_broken and time.monotonic() < deadline:
        with suppress(KafkaException):
            lasting.poll(0.1)
    assert lasting.is_broken, told.errors
    with pytest.raises(KafkaException):
        lasting.produce(topic, b"refused")

    lasting.renew()
    lasting.produce(topic, b"small", on_delivery=told.of("small"))
    lasting.flush(60)

    assert told.errors.pop("large") is not None
    assert told.errors == {"small": None}
