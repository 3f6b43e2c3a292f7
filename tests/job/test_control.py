"""How a driver numbers, signs and writes its control records."""

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.core.wire import api, codec
from coordlib.job import control
from coordlib.job.control import ControlWriter, Signer
from coordlib.kafka import producer
from coordlib.testing.signing import Keyholder
from tests.kafka.mortal import MortalProducer
from tests.kafka.queue_producer import Queue
from tests.tools.driving import SETTINGS

TICK = api.Tick(v=1, published=3)
BROKER = {"bootstrap.servers": "127.0.0.1:1"}


def signer() -> Signer:
    return Keyholder().signer(SETTINGS, 4)


def numbers(values: list[bytes]) -> list[tuple[int, int]]:
    read = [codec.decode_request(value) for value in values]
    return [
        each.n for each in read if isinstance(each, api.Control) and each.n is not msgspec.UNSET
    ]


def test_numbers_rise_in_each_shard() -> None:
    """What was not acknowledged is written again, behind whatever came meanwhile."""
    mine = signer()
    values = [mine.value(shard, TICK) for shard in (0, 1, 0, 0, 1)]

    assert numbers(values) == [(4, 0), (4, 0), (4, 1), (4, 2), (4, 1)]


def test_ed25519_takes_what_was_signed_and_nothing_else() -> None:
    """RFC 8032, 7.1, test 3: secret, public half, message and signature as they stand there."""
    secret = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
    public = bytes.fromhex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025")
    made = bytes.fromhex(
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )
    verify = control.ED25519.verify

    assert control.ED25519.public_of(secret) == public
    assert control.ED25519.sign(secret, b"\xaf\x82") == made
    assert verify(public, b"\xaf\x82", made)
    assert not verify(public, b"\xaf\x83", made)
    assert not verify(public, b"\xaf\x82", made[:-1] + b"\x0b")
    assert not verify(bytes(32), b"\xaf\x82", made)


@pytest.mark.parametrize(
    ("public", "signature"), [(b"", bytes(64)), (bytes(31), bytes(64)), (bytes(32), b"short")]
)
def test_what_has_another_length_is_no_signature(public: bytes, signature: bytes) -> None:
    """INV-40: a forger chooses it, and an exception would end the job."""
    assert not control.ED25519.verify(public, b"m", signature)


def test_each_new_secret_is_another_one() -> None:
    """Two prefixes whose drivers signed with one key could read out each other's records."""
    first, second = control.ED25519.new_secret(), control.ED25519.new_secret()

    assert len(first) == len(second) == 32
    assert first != second


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> ControlWriter:
    monkeypatch.setattr(Queue, "made", [])
    monkeypatch.setattr(producer, "Producer", Queue)
    return ControlWriter("coord", BROKER, signer())


def test_what_a_dead_producer_still_has_is_given_up_before_another_one_writes(
    writer: ControlWriter,
) -> None:
    """A tick ends the producer, and a listing waits in it. If that reached the log behind what the
    next producer writes, it would be acknowledged, and count for nothing."""
    told: list[str] = []
    writer.write(0, TICK, lambda error: told.append(f"tick {error}"))
    writer.write(0, api.TopicMetadata(v=1, topics=()), lambda error: told.append(f"topics {error}"))
    Queue.made[0].end(KafkaError(KafkaError._FATAL, "dead", fatal=True))

    writer.write(0, TICK, lambda error: told.append(f"again {error}"))

    first, second = Queue.made
    assert first.waiting == []
    assert [line.split()[0] for line in told] == ["tick", "topics"]
    assert all(line.split()[1:] for line in told), "both are told that they were lost"
    assert numbers([value for value, _ in second.waiting]) == [(4, 2)]


def test_a_dead_producer_is_replaced_though_nobody_writes(writer: ControlWriter) -> None:
    """A shard has one tick under way at a time: it is not told of it, and writes no other."""
    told: list[str] = []
    writer.write(0, TICK, told.append)
    writer.write(1, TICK, told.append)
    Queue.made[0].end(KafkaError(KafkaError._FATAL, "dead", fatal=True))

    writer.serve()

    assert len(told) == 2
    assert len(Queue.made) == 2


def test_a_full_queue_is_a_timeout(writer: ControlWriter) -> None:
    """The broker is away for long: threads wait, and try again, instead of ending."""
    Queue.made[0].is_full = True

    with pytest.raises(TimeoutError, match="full"):
        writer.write(0, TICK, lambda error: None)


def test_an_error_of_the_moment_keeps_the_producer(writer: ControlWriter) -> None:
    """The broker did not answer in time; the same producer goes on."""
    told: list[str] = []
    writer.write(0, TICK, told.append)
    Queue.made[0].end(KafkaError(KafkaError._MSG_TIMED_OUT, "late"))
    writer.write(0, TICK, told.append)
    Queue.made[0].end(None)

    assert told == ["late", ""]
    assert len(Queue.made) == 1


def test_a_fatal_error_that_the_flush_tells_replaces_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some fatal errors come by no acknowledgement, but once, from whatever serves the producer."""
    monkeypatch.setattr(MortalProducer, "made", [])
    monkeypatch.setattr(producer, "Producer", MortalProducer)
    writer = ControlWriter("coord", BROKER, signer())

    with pytest.raises(KafkaException):
        writer.serve(1.0)
    writer.write(0, TICK, lambda error: None)

    _, second = MortalProducer.made
    assert numbers(second.written) == [(4, 0)]
