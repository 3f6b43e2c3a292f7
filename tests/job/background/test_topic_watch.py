"""What the driver tells the shards of the cluster's topics, and when it says nothing."""

from collections.abc import Callable, Collection

import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec import UNSET
from structlog.testing import capture_logs

from coordlib import limits
from coordlib.core.groups.group import learn_topics as learn
from coordlib.core.wire import codec
from coordlib.core.wire.api import TopicMetadata
from coordlib.job.background.loop import HealthReport
from coordlib.job.background.topic_watch import (
    CHANGES_MAX,
    IDS_LOOKS,
    SAY_AGAIN_S,
    UNCOUNTED_MAX,
    Ids,
    KafkaCluster,
    Planner,
    Seen,
    TopicWatch,
)
from coordlib.job.control import ControlWriter
from coordlib.kafka import producer
from coordlib.testing.signing import Keyholder
from tests.kafka.mortal import MortalProducer
from tests.tools.driving import SETTINGS


def told(planner: Planner, *looks: Seen, shard: dict[str, int] | None = None) -> dict[str, int]:
    """What a shard knows after these looks, by way of the bytes of the log."""
    known = shard or {}
    for number, seen in enumerate(looks):
        for record in planner.look(seen, float(number)):
            read = codec.decode_request(codec.encode(record))
            assert isinstance(read, TopicMetadata)
            known, _ = learn(known, read)
    return known


def test_a_shard_learns_what_there_is() -> None:
    """A job starts; the shard knew topics that were deleted while it was away."""
    topics = {"b": 2, "a": 1}

    assert told(Planner(), topics, topics, shard={"0": 4, "aa": 3, "z": 1}) == {"a": 1, "b": 2}


def test_more_topics_than_a_record_holds_are_told_in_ranges() -> None:
    """Thousands of topics: each record must stay far below what a request may have."""
    topics = {f"t{n:06}": 1 + n % 7 for n in range(2 * limits.TOPICS_PER_RECORD_MAX + 1)}
    planner = Planner()
    planner.look(topics, 0.0)

    records = planner.look(topics, 1.0)

    assert len(records) == 3
    assert all(len(codec.encode(each)) < limits.REQUEST_BYTES_MAX for each in records)
    assert told(Planner(), topics, topics, shard={"t000000a": 9}) == topics


@pytest.mark.parametrize("count", [0, 1, limits.TOPICS_PER_RECORD_MAX])
def test_the_ranges_cover_every_name(count: int) -> None:
    """At the seams a topic that is gone would stay for ever."""
    topics = {f"t{n:06}": 1 for n in range(count)}
    shard = {"": 1, "t": 1, "t000000a": 1, "zz": 1}

    assert told(Planner(), topics, topics, shard=shard) == topics


def test_only_changes_are_said() -> None:
    """The log must not fill with what everybody knows."""
    planner = Planner()
    told(planner, {"a": 1, "b": 2}, {"a": 1, "b": 2})

    assert planner.look({"a": 1, "b": 2}, 2.0) == []
    (grown,) = planner.look({"a": 1, "b": 3}, 3.0)
    assert (grown.after, grown.through) == ("a", "b")
    assert learn({"a": 1, "b": 2, "aa": 1}, grown)[0] == {"a": 1, "b": 3}


def test_a_topic_is_gone_when_two_looks_do_not_have_it() -> None:
    """A broker that has just started answers with less than there is."""
    planner = Planner()
    told(planner, {"a": 1, "b": 2}, {"a": 1, "b": 2})

    assert planner.look({"a": 1}, 2.0) == []
    (gone,) = planner.look({"a": 1}, 3.0)
    assert learn({"a": 1, "b": 2}, gone)[0] == {"a": 1}


def test_a_topic_without_a_leader_stays_as_it_was() -> None:
    """A broker died: its topics are still there."""
    planner = Planner()
    told(planner, {"a": 1, "b": 2}, {"a": 1, "b": 2})

    assert planner.look({"a": None, "b": 2}, 2.0) == []


def test_everything_is_said_again_after_a_time() -> None:
    """An older driver that woke up may have written what was true an hour ago."""
    planner = Planner()
    told(planner, {"a": 1}, {"a": 1})

    (again,) = planner.look({"a": 1}, 1.0 + SAY_AGAIN_S)

    assert (again.after, again.through, len(again.topics)) == (None, None, 1)


def test_many_changes_are_one_listing() -> None:
    """Somebody makes a thousand topics at once."""
    planner = Planner()
    told(planner, {}, {})

    assert len(planner.look({f"t{n}": 1 for n in range(CHANGES_MAX + 1)}, 2.0)) == 1


def test_what_must_be_said_again_is_no_reason_to_believe_one_look() -> None:
    """A write failed because a broker restarted, and that broker then answers with less."""
    planner = Planner()
    told(planner, {"a": 1, "b": 2}, {"a": 1, "b": 2})
    planner.unsaid()

    (everything,) = planner.look({"a": 1}, 3.0)

    assert [row.topic for row in everything.topics] == ["a", "b"]
    planner.unsaid()
    (gone,) = planner.look({"a": 1}, 4.0)
    assert [row.topic for row in gone.topics] == ["a"]


def test_a_new_driver_believes_no_single_look() -> None:
    """The second look of a driver that has just started meets a broker that has, too."""
    assert told(Planner(), {"a": 1, "b": 2}, {"a": 1}, shard={"a": 1, "b": 2}) == {"a": 1, "b": 2}


def test_a_first_listing_waits_for_a_topic_without_a_leader() -> None:
    """Listed without it, its partitions would be taken from everybody; but not for ever."""
    planner = Planner()
    planner.look({"a": 1, "b": None}, 0.0)

    assert [planner.look({"a": 1, "b": None}, 1.0) for _ in range(UNCOUNTED_MAX)] == [
        [] for _ in range(UNCOUNTED_MAX)
    ]
    (listing,) = planner.look({"a": 1, "b": None}, 2.0)
    assert [row.topic for row in listing.topics] == ["a"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard knows two topics, and the driver tells of four."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)
    monkeypatch.setattr(limits, "TOPICS_LISTED_MAX", 4)


@pytest.mark.usefixtures("small")
def test_a_topic_too_many_pushes_none_out_that_a_shard_knows() -> None:
    """Its name sorts first. The driver that starts anew meanwhile does not know who was first."""
    looks = [{"b": 1, "c": 1}, {"b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}]
    planner = Planner()

    known = told(planner, *looks)

    assert known == {"b": 1, "c": 1}
    assert told(Planner(), *looks[2:], shard=known) == known


@pytest.mark.usefixtures("small")
def test_a_topic_that_goes_makes_room_for_one_that_waited() -> None:
    """The one that waits stands earlier in a listing than the one whose place it takes."""
    everything = {"a": 1, "b": 1, "c": 1}
    planner = Planner()
    told(planner, everything, everything)

    known = told(planner, {"a": 1, "b": 1}, {"a": 1, "b": 1}, shard={"b": 1, "c": 1})

    assert known == {"a": 1, "b": 1}
    assert told(Planner(), *[{"a": 1, "b": 1}] * 2, shard={"b": 1, "c": 1}) == known


@pytest.mark.usefixtures("small")
def test_those_that_were_told_are_told_when_there_are_too_many_for_the_driver() -> None:
    """The log must not fill with a cluster's names without end, and nothing told may go for it."""
    planner, many = Planner(), dict.fromkeys("cdef", 1)
    told(planner, many, many)
    more = dict.fromkeys("abcdef", 1)

    assert planner.look(more, 2.0) == []
    planner.unsaid()
    rows = [row.topic for record in planner.look(more, 3.0) for row in record.topics]
    assert sorted(set(rows)) == list("cdef")


class FakeCluster:
    """A cluster whose log refuses records on demand."""

    def __init__(self) -> None:
        self.takes = True
        self.id = "A" * 21 + "Q"
        self.failure: Exception | None = None
        self.hides_ids: Exception | None = None
        self.topics: dict[str, int | None] = {"a": 1}
        #: The topics of each question for ids.
        self.asked: list[set[str]] = []
        self.written: list[TopicMetadata] = []

    def look(self) -> Seen:
        if self.failure is not None:
            raise self.failure
        return dict(self.topics)

    def ids(self, topics: Collection[str]) -> Ids:
        self.asked.append(set(topics))
        if self.hides_ids is not None:
            raise self.hides_ids
        return dict.fromkeys(topics, self.id)

    def write(self, record: TopicMetadata, told: Callable[[str], None]) -> None:
        if self.takes:
            self.written.append(record)
        told("" if self.takes else "no leader")

    def serve(self) -> None:
        pass


def test_what_the_log_did_not_take_is_said_again() -> None:
    """The broker was away for a moment, and a shard would never learn of the topic."""
    cluster = FakeCluster()
    watch = TopicWatch(cluster, 1.0)
    cluster.takes = False
    watch.turn()
    watch.turn()
    assert cluster.written == []

    cluster.takes = True
    watch.turn()

    assert [row.topic for record in cluster.written for row in record.topics] == ["a"]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def test_what_fails_is_told_since_when_and_until_it_works() -> None:
    """New topics are given to nobody, and the only sign is a warning in a log somewhere else."""
    cluster, clock = FakeCluster(), Clock()
    health = HealthReport(clock)
    watch = TopicWatch(cluster, 1.0, health)
    watch.turn()
    cluster.failure = KafkaException(KafkaError(KafkaError._TRANSPORT, "all are down"))
    watch.turn()
    clock.now_ms += 5_000
    watch.turn()

    (found,) = health.now.items()
    assert (found[0], found[1].since_ms, found[1].last_ms) == ("topics", 1_000, 6_000)
    assert "all are down" in found[1].error
    cluster.failure = None
    watch.turn()
    assert health.now == {}


def test_what_the_log_does_not_take_is_told() -> None:
    """It may look at the cluster, and may not write to the requests topic."""
    cluster, health = FakeCluster(), HealthReport()
    watch = TopicWatch(cluster, 1.0, health)
    cluster.takes = False
    watch.turn()
    watch.turn()

    assert health.now["topics"].error == "no leader"
    cluster.takes = True
    watch.turn()
    assert health.now == {}


def test_a_watch_that_has_ended_is_told() -> None:
    """A defect of ours ends the thread: without a word topics would never again be found."""
    cluster, health = FakeCluster(), HealthReport()
    cluster.failure = ValueError("a topic without a name")
    watch = TopicWatch(cluster, 1.0, health)
    watch.start()
    watch._thread.join()

    assert "a topic without a name" in health.now["topics"].error
    watch.stop()


def test_after_a_fatal_error_topics_are_written_by_another_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is raised by the flush, once; later every record is refused, and new topics would be found
    by nobody until the job is started again."""
    monkeypatch.setattr(MortalProducer, "made", [])
    monkeypatch.setattr(producer, "Producer", MortalProducer)
    broker = {"bootstrap.servers": "127.0.0.1:1"}
    writer = ControlWriter("coord", broker, Keyholder().signer(SETTINGS))
    cluster = KafkaCluster("coord", range(2), writer, broker)
    monkeypatch.setattr(cluster, "look", lambda: {"a": 1})
    monkeypatch.setattr(cluster, "ids", lambda _: {})
    health = HealthReport()
    watch = TopicWatch(cluster, 1.0, health)
    watch.turn()
    assert "INVALID_PRODUCER_EPOCH" in health.now["topics"].error

    watch.turn()

    _, second = MortalProducer.made
    assert len(second.written) == 2, "one for each shard"
    assert health.now == {}


def test_a_loss_that_another_thread_hears_of_is_not_forgotten() -> None:
    """Ticks and listings share a producer: whichever thread serves it hears what became of both,
    also while the other one looks at the cluster."""
    cluster = FakeCluster()
    watch = TopicWatch(cluster, 1.0)
    heard: list[Callable[[str], None]] = []
    cluster.write = lambda record, told: heard.append(told)  # type: ignore[method-assign]
    watch.turn()
    watch.turn()
    (told,) = heard
    watch.turn()
    assert len(heard) == 1, "nothing is known to be lost yet"

    told("timed out")
    watch.turn()

    assert len(heard) == 2


# -- topics that are made anew -------------------------------------------------------------------


def ids_said(records: list[TopicMetadata]) -> dict[str, object]:
    return {row.topic: row.topic_id for record in records for row in record.topics}


def test_a_topic_that_was_made_anew_is_listed_though_it_has_as_many_partitions() -> None:
    """INV-130: no look found it gone, and groups would go on at offsets of the one before."""
    planner, topics = Planner(), {"a": 1, "b": 2}
    first = {"a": "1" * 22, "b": "2" * 22}
    planner.look(topics, 0.0, first)
    assert ids_said(planner.look(topics, 1.0, first)) == first
    assert planner.look(topics, 2.0, first) == []

    assert planner.look(topics, 3.0, first | {"b": "3" * 22}) == []
    with capture_logs() as logged:
        (record,) = planner.look(topics, 3.0, {"b": "3" * 22})
    assert ids_said([record]) == {"b": "3" * 22}
    assert (record.after, record.through) == ("a", "b")
    assert [(each["topic"], each["id"]) for each in logged] == [("b", "3" * 22)]


def test_a_topic_that_is_gone_is_logged_and_keeps_its_id() -> None:
    """An operator asks why a group stands still; nothing else says it."""
    planner, first = Planner(), {"a": "1" * 22}
    for now_s in range(2):
        planner.look({"a": 1}, float(now_s), first)
    with capture_logs() as logged:
        for now_s in range(2, 4):
            planner.look({}, float(now_s), {})
    assert [each["topic"] for each in logged] == ["a"]

    (record,) = planner.look({"a": 1}, 5.0, {})
    assert ids_said([record]) == first


def test_a_change_of_id_that_was_not_written_is_written_again() -> None:
    """INV-130: the log did not take it for a moment."""
    cluster = FakeCluster()
    watch = TopicWatch(cluster, 1.0)
    watch.turn()
    watch.turn()
    cluster.written.clear()
    cluster.id, cluster.takes = "B" * 22, False
    for _ in range(IDS_LOOKS + 1):
        watch.turn()
    cluster.takes = True
    watch.turn()

    assert ids_said(cluster.written) == {"a": "B" * 22}


def test_one_look_at_a_broker_that_is_behind_lists_no_other_id() -> None:
    """INV-130: a shard that knows the present id alone takes it for one that was replaced."""
    planner, old, new = Planner(), {"a": "1" * 22}, {"a": "2" * 22}
    planner.look({"a": 1}, 0.0, old)
    (first,) = planner.look({"a": 1}, 1.0, new)
    assert ids_said([first]) == {"a": UNSET}, "two looks of a new driver do not agree"
    assert ids_said(planner.look({"a": 1}, 2.0, new)) == new

    for ids in (old, new, old, new):
        assert planner.look({"a": 1}, 3.0, ids) == []


def test_a_new_topic_is_listed_with_its_id_at_once() -> None:
    planner = Planner()
    told(planner, {}, {})

    assert ids_said(planner.look({"a": 1}, 2.0, {"a": "1" * 22})) == {"a": "1" * 22}


@pytest.mark.parametrize(
    "failure", [KafkaException(KafkaError(KafkaError._TRANSPORT)), TimeoutError()]
)
def test_new_partitions_are_listed_though_ids_cannot_be_asked_for(failure: Exception) -> None:
    """A describe fails, of too many topics, say: nobody would be given the new partitions."""
    cluster, health = FakeCluster(), HealthReport()
    watch = TopicWatch(cluster, 1.0, health)
    watch.turn()
    watch.turn()
    cluster.written.clear()
    cluster.hides_ids = failure
    cluster.topics = {"a": 2, "b": 1}
    watch.turn()

    listed = [(row.topic, row.partitions) for record in cluster.written for row in record.topics]
    assert listed == [("a", 2), ("b", 1)]
    assert ids_said(cluster.written) == {"a": cluster.id, "b": UNSET}
    assert "ids of topics" in health.now["topics"].error
    cluster.hides_ids = None
    cluster.written.clear()
    for _ in range(2):
        watch.turn()
    assert ids_said(cluster.written) == {"b": cluster.id}
    assert health.now == {}


def test_ids_are_asked_for_where_something_changed_and_of_all_from_time_to_time() -> None:
    """Each question describes all partitions of the topics: with thousands, at every look."""
    cluster = FakeCluster()
    cluster.topics = {"a": 1, "b": 1}
    watch = TopicWatch(cluster, 1.0)
    for number in range(2 * IDS_LOOKS):
        if number == 3:
            cluster.topics = {"a": 2, "b": 1, "c": 1}
        watch.turn()

    everything = {"a", "b", "c"}
    assert cluster.asked == [{"a", "b"}, {"a", "b"}, {"a", "c"}, everything]
