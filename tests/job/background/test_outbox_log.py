"""Messages between shards of different cells: which driver feeds them, and who is told."""

from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import Output
from coordlib.core.wire.api import FromShard
from coordlib.job.background.feeder import Feeder, Waiting, tell, waiting_in
from coordlib.job.background.ticks import TickWriter

OWNED = range(2)
#: Of another cell.
THERE = 2


class Told:
    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.judged: list[Any] = []

    def message(self, *news: Any) -> None:
        self.messages.append(news)

    def heard(self, *news: Any) -> None:
        self.judged.append(news)


def test_only_what_concerns_a_shard_of_this_job_is_handed_on() -> None:
    told = Told()
    for key, value in (
        (b"[2,1,7]", b"body"),
        (b"[2,3,8]", b"to a shard of its own cell"),
        (b"[2,1,6]", None),
        (b'["heard",0]', b'{"heard":5}'),
        (b'["heard",3]', b'{"heard":5}'),
        (b'["sent",1]', b'{"sent":7,"heard":6}'),
    ):
        tell(THERE, key, value, OWNED, told)

    assert told.messages == [((2, 1), 7, b"body")]
    assert told.judged == [(0, THERE, 5)]


@pytest.mark.parametrize("key", [b"", b"{}", b"\xff", b"[1.5]"])
def test_what_the_job_has_not_written_is_told_from_what_it_has(key: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeError)):
        tell(THERE, key, b"x", OWNED, Told())


class Log:
    """The requests topic."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int]] = []

    def write(self, shard: int, record: FromShard, told: Any) -> None:
        self.written.append((record.source, shard, record.seq))
        told("")


def fed(feeder: Feeder, log: Log) -> list[tuple[int, int, int]]:
    log.written.clear()
    feeder.turn()
    return list(log.written)


def test_a_driver_feeds_its_own_shards_alone() -> None:
    """Control records are numbered by driver: one of another cell's driver would do nothing, or
    all of this one's after it."""
    log = Log()
    waiting = waiting_in({0: {b"[0,1,3]": b"{}", b"[0,2,1]": b"{}"}})
    feeder = Feeder(log.write, lambda: None, waiting, OWNED)
    outputs = [Output("outbox", 0, key, b"{}") for key in (b"[0,1,4]", b"[0,3,1]")]

    assert fed(feeder, log) == [(0, 1, 3)]
    feeder.batch_committed(outputs)
    assert fed(feeder, log) == [(0, 1, 4)]
    assert not feeder.is_busy


def test_a_message_of_another_cell_is_fed_once_and_not_after_it_was_judged() -> None:
    """The log of its outbox is read from the beginning at each start."""
    log = Log()
    waiting = waiting_in({1: {b'["heard",2]': b'{"heard":4}'}})
    feeder = Feeder(log.write, lambda: None, waiting, OWNED)
    for number in (3, 4, 5, 5, 6):
        feeder.add((THERE, 1), number, b"{}")

    assert fed(feeder, log) == [(2, 1, 5), (2, 1, 6)]
    feeder.add((THERE, 1), 6, b"{}")
    assert fed(feeder, log) == []
    assert not feeder.is_busy


class Broker:
    def ends(self, places: Any, visible: bool) -> dict[Any, int]:
        return dict.fromkeys(places, -1)


def test_the_sender_is_told_by_its_own_driver() -> None:
    """Shard 0 has sent to one of another cell, and one of that has sent to shard 1."""
    broker: Any = Broker()
    known = {(THERE, 1): 9, (0, 1): 2}
    ticks = TickWriter(broker, {0: -1, 1: -1}, [], heard=known, acknowledged={(0, 1): 2})
    assert ticks._shards[0].heard == {}

    ticks.learn_heard(0, THERE, 5)
    ticks.learn_heard(3, THERE, 5)
    assert ticks._shards[0].heard == {THERE: 5}


def test_nothing_waits_where_there_is_nothing() -> None:
    assert waiting_in({}) == Waiting({}, {}, {})
