"""Records on their way: what becomes of them while the program's own callbacks run."""

import threading
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.transactions.data_cluster import DataCluster, Outgoing, Record
from coordlib.client.transactions.life import Place

PLACE = Place("there", "out", 0)


class Refusing:
    """A cluster that refuses some values at once, and takes all others while it has room."""

    def __init__(self, *refused: str, room: int = 100) -> None:
        self.refused, self.room, self.written = refused, room, list[Any]()

    def produce(self, _place: Place, value: Any, **_named: Any) -> None:
        if len(self.written) >= self.room:
            raise BufferError
        if value in self.refused:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self.written.append(value)


def outgoing_of(cluster: Refusing) -> Outgoing:
    return Outgoing(
        {"there": cast(DataCluster, cluster)}, lambda _: True, lambda *_: True, threading.RLock()
    )


def record(number: int, value: str, on_delivery: Any = lambda *_: None) -> Record:
    return Record(PLACE, number, value, None, [], 0, on_delivery)


@pytest.mark.parametrize("behind", [(), ("c",)])
def test_a_callback_that_writes_tells_no_record_twice_and_loses_none(
    behind: tuple[str, ...],
) -> None:
    """`produce` in the callback of a record that was refused at once comes back here."""
    cluster, told = Refusing("big"), list[str]()
    outgoing = outgoing_of(cluster)

    def writes(_error: Any, _message: Any) -> None:
        told.append("big")
        outgoing.add(record(9, "next"))
        outgoing.write()

    outgoing.add(record(0, "big", writes))
    for number, value in enumerate(behind, 1):
        outgoing.add(record(number, value))
    outgoing.write()

    assert told == ["big"]
    assert cluster.written == [*behind, "next"]
    assert (outgoing.held, outgoing.in_flight) == (0, len(behind) + 1)


def test_a_record_for_which_there_is_no_room_stays_the_first() -> None:
    cluster = Refusing(room=1)
    outgoing = outgoing_of(cluster)
    for number, value in enumerate("abc"):
        outgoing.add(record(number, value))
    outgoing.write()
    assert (cluster.written, outgoing.held) == (["a"], 2)
    cluster.room = 3
    outgoing.write()

    assert cluster.written == ["a", "b", "c"]
