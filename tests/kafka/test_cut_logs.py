"""What is found out of a log that may have lost records since it was read.  # INV-152"""

from collections.abc import Mapping
from typing import Final

import pytest

from coordlib.kafka import logs
from coordlib.kafka.logs import (
    Bounds,
    Lost,
    Place,
    Read,
    Why,
    find_lost,
    lost_at_two_looks,
    still_there,
)

PLACE: Final = Place("t", 0)
#: It has been read up to here; the newest record stands before the end of its transaction.
NEXT: Final = 10
NEWEST: Final = 8


class Log:
    """The records of one partition, by offset; 9 is the end of a transaction."""

    def __init__(self) -> None:
        self.start, self.end = 0, NEXT
        self.records: dict[int, str] = {offset: f"old-{offset}" for offset in range(NEWEST + 1)}

    def remove(self, before: int) -> None:
        """As retention does."""
        self.start, self.end = before, max(self.end, before)
        self.records = {at: each for at, each in self.records.items() if at >= before}

    def cut(self, end: int) -> None:
        self.end = end
        self.records = {at: each for at, each in self.records.items() if at < end}

    def grow(self, end: int) -> None:
        self.records |= {offset: f"new-{offset}" for offset in range(self.end, end)}
        self.end = end

    def lost(self) -> list[Lost]:
        read = Read(NEXT, NEWEST, f"old-{NEWEST}")
        return find_lost({PLACE: read}, {PLACE: Bounds(self.start, self.end)}, self.at)

    def at(self, offsets: Mapping[Place, int]) -> dict[Place, str | None]:
        return {place: self.records.get(offset) for place, offset in offsets.items()}


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("before", [1, 5, NEWEST, NEWEST + 1, NEXT])
def test_what_is_removed_behind_the_reading_is_not_missed(log: Log, before: int) -> None:
    """At the begin, in the middle, and all."""
    log.remove(before)
    assert log.lost() == []
    log.grow(NEXT + 5)
    assert log.lost() == []


def test_what_is_removed_before_it_is_read_is_lost(log: Log) -> None:
    log.grow(NEXT + 5)
    log.remove(NEXT + 2)

    assert log.lost() == [Lost(PLACE, NEXT, NEXT + 2, Why.REMOVED)]


@pytest.mark.parametrize("end", [0, 5, NEWEST, NEXT - 1])
def test_a_log_that_has_lost_its_end(log: Log, end: int) -> None:
    """The last one: the end of a transaction alone is gone."""
    log.cut(end)

    assert log.lost() == [Lost(PLACE, end, NEXT, Why.SHORTER)]


@pytest.mark.parametrize("end", [0, 5, NEWEST])
@pytest.mark.parametrize("more", [0, 1, 30])
def test_a_log_that_was_cut_and_has_grown_again(log: Log, end: int, more: int) -> None:
    log.cut(end)
    log.grow(NEXT + more)

    assert log.lost() == [Lost(PLACE, NEWEST, NEWEST + 1, Why.OTHER)]


def test_one_that_ends_a_transaction_where_the_record_stood_is_another_one(log: Log) -> None:
    """The log that has grown again need not have a record there."""
    log.cut(5)
    log.grow(NEXT)
    del log.records[NEWEST]

    assert [each.why for each in log.lost()] == [Why.OTHER]


def test_where_nothing_is_known_only_the_ends_are_asked() -> None:
    """No record was read, or nobody leads the partition."""
    other = Place("t", 1)
    known = {PLACE: Read(NEXT), other: Read(NEXT, NEWEST, "old")}

    assert find_lost(known, {PLACE: Bounds(0, NEXT), Place("t", 2): Bounds(0, 4)}, Log().at) == []


def test_a_record_that_is_removed_between_the_questions_is_not_missed(log: Log) -> None:
    found = log.at({PLACE: NEWEST + 1})

    removed = still_there(found, {PLACE: 9}, lambda _: {PLACE: Bounds(10, 12)})
    missing = still_there(found, {PLACE: 9}, lambda _: {PLACE: Bounds(9, 12)})

    assert (removed, missing) == ({}, {PLACE: None})


def test_what_one_look_alone_misses_is_there() -> None:
    """A broker that has just started, or leads no more, gives a wrong answer for a moment."""
    lost = [Lost(PLACE, 4, NEXT, Why.SHORTER)]
    waits: list[None] = []

    def told(*looks: list[Lost]) -> list[Lost]:
        left = iter(looks)
        return lost_at_two_looks(lambda: next(left), lambda: waits.append(None))

    assert (told([]), told(lost, []), told(lost, lost)) == ([], [], lost)
    assert len(waits) == 2


def test_many_partitions_are_counted() -> None:
    told = logs.named(Lost(Place("t", n), 4, 9, Why.SHORTER) for n in range(23))

    assert told.startswith("t, partition 0, offsets 4 to 8: the log is shorter")
    assert told.endswith("; and 3 more")
