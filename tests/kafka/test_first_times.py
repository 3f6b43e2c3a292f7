"""What waits in a log, and what is not known: the two must not be taken for each other."""

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError

from coordlib.cli.main import status
from coordlib.errors import CannotReach, NotAllowed
from coordlib.history import topics_read
from coordlib.history.plan import Backlog, Commit
from coordlib.kafka.logs import Bounds, Place

CLIENT = {"bootstrap.servers": "nowhere:1"}
END = -1  # a partition says that it has ended
ERROR = -2  # a partition cannot be read


class Record:
    """A record that was written at a time, or what a partition says in its place."""

    def __init__(self, place: Place, told: int) -> None:
        self._place, self._told = place, told

    def error(self) -> KafkaError | None:
        codes = {END: KafkaError._PARTITION_EOF, ERROR: KafkaError.TOPIC_AUTHORIZATION_FAILED}
        return KafkaError(codes[self._told]) if self._told in codes else None

    def topic(self) -> str:
        return self._place.topic

    def partition(self) -> int:
        return self._place.partition

    def timestamp(self) -> tuple[int, int]:
        return 1, self._told


class FakeConsumer:
    """A client of partitions that tell what they were given to tell, and else nothing."""

    told: Mapping[Place, int] = {}
    levels: ClassVar[list[str | None]] = []

    def __init__(self, options: Mapping[str, Any]) -> None:
        assert options["group.id"] == "coordlib-reader"
        self._level = options.get("isolation.level")

    def assign(self, places: list[Any]) -> None:
        asked = {Place(each.topic, each.partition) for each in places}
        self._left = [Record(*each) for each in self.told.items() if each[0] in asked]

    def consume(self, _: int, __: float) -> list[Record]:
        self.levels.append(self._level)
        found, self._left = self._left, []
        return found

    def pause(self, _: list[Any]) -> None: ...

    def close(self) -> None: ...


REQUESTS = [Place("coord.requests", 0), Place("coord.requests", 1)]
EVENTS = [Place("coord.events", 0), Place("coord.events", 1)]


@pytest.fixture(autouse=True)
def _kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordlib.kafka.bounds.Consumer", FakeConsumer)
    for name in (
        "coordlib.history.topics_read.BACKLOG_TIMEOUT_S",
        "coordlib.cli.main.status.TIMEOUT_S",
    ):
        monkeypatch.setattr(name, 0.05)
    monkeypatch.setattr("coordlib.kafka.clients.Admin", lambda _: None)
    monkeypatch.setattr(topics_read, "places_of", lambda *_: EVENTS)
    monkeypatch.setattr(topics_read, "topic_ids_of", lambda *_: {})
    monkeypatch.setattr(topics_read, "newest_commits", lambda _: {"events": Commit(prefix="coord")})
    for name in ("coordlib.kafka.bounds.log_bounds", "coordlib.history.topics_read.log_bounds"):
        monkeypatch.setattr(name, lambda _, at, *__, **___: dict.fromkeys(at, Bounds(0, 10)))


def tell(monkeypatch: pytest.MonkeyPatch, places: list[Place], *told: int | None) -> None:
    found = {p: each for p, each in zip(places, told, strict=True) if each is not None}
    monkeypatch.setattr(FakeConsumer, "told", found)


def lag() -> dict[str, int | None]:
    topics = {"coord.requests": SimpleNamespace(partitions=[0, 1])}
    return status._lag(CLIENT, topics, "coord", 2, None).of()


@pytest.mark.parametrize("told", [(None, None), (END, None), (1_000, None)])
def test_an_archive_behind_silent_partitions_is_no_archive_without_backlog(
    told: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker was slow for 5 s, and the monitor said that nothing waits."""
    tell(monkeypatch, EVENTS, *told)

    with pytest.raises(CannotReach, match=r"coord\.events-1"):
        topics_read.backlog("tables", CLIENT, "coord")


def test_a_partition_without_leader_is_not_counted_as_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bounds are not told, so nobody knows what waits there."""
    monkeypatch.setattr(topics_read, "log_bounds", lambda *_, **__: {EVENTS[0]: Bounds(0, 0)})

    with pytest.raises(CannotReach, match=r"coord\.events-1"):
        topics_read.backlog("tables", CLIENT, "coord")


def test_a_backlog_is_nothing_where_each_partition_says_that_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an aborted transaction left is no record for anybody."""
    tell(monkeypatch, EVENTS, END, END)

    assert topics_read.backlog("tables", CLIENT, "coord") == Backlog()


def test_a_backlog_is_as_old_as_its_oldest_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition may lag by an hour while the others keep up."""
    now_ms = time.time_ns() // 1_000_000
    tell(monkeypatch, EVENTS, now_ms - 3_600_000, now_ms)

    left = topics_read.backlog("tables", CLIENT, "coord")

    assert left is not None
    assert left.records == 20
    assert 3_600_000 <= left.ms < 3_660_000


@pytest.mark.parametrize("told", [(None, None), (END, None), (1_000, None)])
def test_a_job_behind_silent_partitions_is_late(
    told: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records waited, none of them came in 5 s, and `--max-lag-ms` was content with an age of 0."""
    tell(monkeypatch, REQUESTS, *told)

    found = lag()

    assert found["ms"] is None
    assert found["records"]


def test_what_nobody_will_judge_is_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark at the end of a transaction in coord.offsets is the log's last record, for hours
    perhaps."""
    tell(monkeypatch, REQUESTS, END, END)

    assert lag() == {"records": 0, "ms": 0}


def test_the_lag_is_that_of_the_oldest_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard may hang while the other one works."""
    now_ms = time.time_ns() // 1_000_000
    tell(monkeypatch, REQUESTS, now_ms, now_ms - 60_000)

    found = lag()

    assert found["records"] == 20
    assert 60_000 <= (found["ms"] or 0) < 120_000


def test_a_topic_that_may_not_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost permission was taken for an empty topic."""
    tell(monkeypatch, REQUESTS, END, ERROR)
    with pytest.raises(NotAllowed, match=r"Read on the topic coord\.requests"):
        lag()

    tell(monkeypatch, EVENTS, END, ERROR)
    with pytest.raises(NotAllowed, match=r"Read on the topic coord\.events"):
        topics_read.backlog("tables", CLIENT, "coord")


def test_each_log_is_read_as_its_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job judges what an open transaction has written; read committed, the partition would have
    ended before it, and a job that hangs would have no lag. The archive waits for its end."""
    monkeypatch.setattr(FakeConsumer, "levels", [])
    tell(monkeypatch, REQUESTS, 1, 1)
    lag()
    tell(monkeypatch, EVENTS, 1, 1)
    topics_read.backlog("tables", CLIENT, "coord")

    assert FakeConsumer.levels == ["read_uncommitted", "read_committed"]
