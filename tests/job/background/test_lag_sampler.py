"""Rounds of samples: what is asked, what is written, and what is left out."""

import contextlib
import tracemalloc
from collections.abc import Iterable

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.core.wire.stored import LagLine, LagSample
from coordlib.job.background import lag_sampler
from coordlib.job.background.committed_log import CommittedOffsets, read_record
from coordlib.job.background.lag_sampler import LagSampler, LagTopic, samples_max
from coordlib.kafka import producer
from coordlib.kafka.lag import SAMPLES_MAX, LogEnds
from coordlib.kafka.logs import Bounds, Place
from tests.kafka.mortal import MortalProducer

ORDERS = Place("orders", 0)
OTHERS = Place("others", 3)


class World:
    """Groups that commit, logs that grow, and a sampler between them."""

    def __init__(self, earlier: dict[Place, LogEnds] | None = None) -> None:
        self.now_s, self.earlier = 1000.0, earlier or {}
        self.bounds: dict[Place, Bounds | None] = {}
        self.failure: Exception | None = None
        self.asked: list[set[Place]] = []
        self.written: list[LagSample] = []
        self.offsets = CommittedOffsets()
        self.sampler = LagSampler(
            self._ask,
            self.written.append,
            30_000,
            self.earlier,
            now_ms=lambda: round(1000 * self.now_s),
            now_s=lambda: self.now_s,
        )

    def _ask(self, places: Iterable[Place]) -> dict[Place, Bounds | None]:
        self.asked.append(set(places))
        if self.failure is not None:
            raise self.failure
        return {place: self.bounds[place] for place in self.asked[-1] if place in self.bounds}

    def commit(self, group: str, place: Place, offset: int | None) -> None:
        self.offsets.put(group, place, offset)
        self.sampler.changed(group, place, offset)

    def round(self) -> list[LagSample]:
        """What the next round writes."""
        self.now_s += 30
        before = len(self.written)
        self.sampler.turn(self.offsets)
        return self.written[before:]


@pytest.fixture
def world() -> World:
    world = World()
    world.bounds = {ORDERS: Bounds(0, 10), OTHERS: Bounds(0, 10)}
    return world


def test_a_round_has_a_record_per_group_and_asks_for_each_partition_once(world: World) -> None:
    """Two groups read one topic: the brokers are asked once."""
    world.commit("b", ORDERS, 10)
    world.commit("a", ORDERS, 4)
    world.commit("a", OTHERS, 10)
    world.round()
    world.bounds[ORDERS] = Bounds(0, 20)

    (first, second) = world.round()

    assert world.asked == 2 * [{ORDERS, OTHERS}]
    assert (first.group, second.group) == ("a", "b")
    assert first.time_ms == second.time_ms == 1_060_000
    assert [(line.topic, line.lag, line.lag_seconds, line.is_at_least) for line in first.lines] == [
        ("orders", 16, 30.0, True),
        ("others", 0, 0.0, False),
    ]
    numbers = {"committed": 10, "log_start": 0, "log_end": 20, "lag": 10, "lost": 0}
    assert second.lines == (LagLine(topic="orders", partition=0, lag_seconds=30.0, **numbers),)


def test_nothing_is_asked_between_rounds_nor_for_partitions_without_offsets(world: World) -> None:
    world.round()
    world.commit("a", ORDERS, 4)
    world.now_s += 29.9
    world.sampler.turn(world.offsets)

    assert world.asked == [set()]


def test_what_earlier_runs_have_sampled_is_not_forgotten() -> None:
    """A restart must not make a group look younger that has been behind for an hour; and samples of
    partitions that nobody has an offset for any more are let go of."""
    ends = LogEnds()
    ends.add(400_000, 4)
    ends.add(430_000, 10)
    world = World({ORDERS: ends, OTHERS: LogEnds()})
    world.bounds = {ORDERS: Bounds(0, 10)}
    world.commit("a", ORDERS, 4)

    ((line,),) = (sample.lines for sample in world.round())

    assert (line.lag_seconds, line.is_at_least) == (630.0, False)
    assert world.sampler._ends.keys() == {ORDERS}


def test_a_group_without_lag_is_told_once(world: World) -> None:
    """A thousand idle groups must not fill the table with what it says already."""
    world.commit("a", ORDERS, 10)
    assert len(world.round()) == 1
    assert world.round() == []
    world.bounds[ORDERS] = Bounds(0, 11)
    assert len(world.round()) == 1
    assert len(world.round()) == 1, "what is not read gets older"
    world.commit("a", ORDERS, 11)
    assert len(world.round()) == 1
    assert world.round() == []


def test_a_deleted_topic_leaves_a_row_without_lag(world: World) -> None:
    """The offsets stay until they expire; who made the topic anew begins without old samples."""
    world.commit("a", ORDERS, 4)
    world.round()
    world.bounds[ORDERS] = None
    (sample,) = world.round()
    assert sample.lines == (LagLine(topic="orders", partition=0, committed=4),)
    assert world.round() == []
    world.bounds[ORDERS] = Bounds(0, 6)

    (sample,) = world.round()

    (line,) = sample.lines
    assert (line.lag, line.lag_seconds, line.is_at_least) == (2, 0.0, True)


def test_a_partition_without_leader_keeps_its_samples(world: World) -> None:
    world.commit("a", ORDERS, 4)
    world.round()
    del world.bounds[ORDERS]
    (unknown,) = world.round()
    world.bounds[ORDERS] = Bounds(0, 10)

    (known,) = world.round()

    assert unknown.lines[0].lag is None
    assert (known.lines[0].lag_seconds, known.lines[0].is_at_least) == (60.0, True)


def test_a_deleted_offset_is_told_once_and_not_if_it_came_back(world: World) -> None:
    """Else the newest row of a deleted group would show its lag for ever."""
    world.commit("a", ORDERS, 4)
    world.commit("b", ORDERS, 10)
    world.round()
    world.commit("a", ORDERS, None)
    world.commit("b", ORDERS, None)
    world.commit("b", ORDERS, 10)

    (sample,) = world.round()

    assert sample.group == "a"
    assert sample.lines == (LagLine(topic="orders", partition=0, committed=None),)
    assert world.round() == []


def test_a_round_that_fails_is_made_up_for_at_once(world: World) -> None:
    """The broker restarts in the middle of it: no deletion is forgotten, no interval lost."""
    world.commit("a", ORDERS, 4)
    world.commit("a", ORDERS, None)
    world.failure = KafkaException(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(KafkaException):
        world.round()
    world.failure = None

    world.sampler.turn(world.offsets)

    assert [sample.lines[0].committed for sample in world.written] == [None]


def test_a_group_with_many_partitions_comes_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record of 100,000 lines could not be written."""
    monkeypatch.setattr(lag_sampler, "LINES_MAX", 2)
    for partition in range(5):
        world.bounds[Place("t", partition)] = Bounds(0, 9)
        world.commit("a", Place("t", partition), 9)

    parts = world.round()

    assert [[line.partition for line in part.lines] for part in parts] == [[0, 1], [2, 3], [4]]
    assert world.round() == []


def test_a_round_that_cannot_be_written_whole_goes_on_where_it_stopped(world: World) -> None:
    """The brokers take less than there is to say: whoever comes first in the alphabet must not be
    the only one that has samples."""
    for group in "abcde":
        world.commit(group, ORDERS, 4)
    room = 0

    def write(sample: LagSample) -> None:
        nonlocal room
        if room == 0:
            raise TimeoutError
        room -= 1
        world.written.append(sample)

    world.sampler._write = write
    for _ in range(3):
        room = 2
        with contextlib.suppress(TimeoutError):
            world.sampler.turn(world.offsets)

    assert "".join(sample.group for sample in world.written) == "abcdea"


def sample_bytes(samples: int) -> int:
    """Memory per partition whose log grew in every round, when all its samples are there."""
    weighed = 50
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [LogEnds(samples) for _ in range(weighed)]
    for turn in range(samples + 5):
        for ends in kept:
            ends.add(1_700_000_000_000 + turn * 30_000, 1_000_000 + 50 * turn)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) // weighed


def test_samples_have_a_bound_in_bytes() -> None:
    """Half a million partitions with a tuple for each sample were 6 GB in the driver, which died an
    hour after each start, and coordination with it."""
    bound = lag_sampler.SAMPLES_BYTES_MAX
    assert samples_max(160_000) == SAMPLES_MAX
    assert 160_000 * sample_bytes(SAMPLES_MAX) <= bound
    assert samples_max(500_000) == 31
    assert 500_000 * sample_bytes(31) <= bound


def test_the_more_partitions_the_fewer_samples(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are there already give way to those of partitions that came later; what is behind
    the oldest sample is a lower bound then."""
    world.commit("a", ORDERS, 4)
    for second in range(40):
        world.bounds[ORDERS] = Bounds(0, 10 + second)
        world.round()
    assert len(world.sampler._ends[ORDERS]._ends) == 40
    monkeypatch.setattr(lag_sampler, "SAMPLES_BYTES_MAX", 2 * (240 + 12 * 18))
    world.commit("a", OTHERS, 10)

    world.round()

    assert len(world.sampler._ends[ORDERS]._ends) == 12


def test_a_quiet_group_is_told_when_its_log_is_cut(world: World) -> None:
    """Nothing to read, and retention takes what was read: the table must show where it begins."""
    world.commit("a", ORDERS, 10)
    world.round()
    assert world.round() == []
    world.bounds[ORDERS] = Bounds(7, 10)

    (sample,) = world.round()

    assert sample.lines[0].log_start == 7
    assert world.round() == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"\xff"),
        (b'["g","t"]', None),
        (b'["g","t",-1]', None),
        (b'["g","t",2147483648]', None),
        (b'["g","t",1e400]', None),
        (b'["\xff\xfe","t",0]', None),
        (b'["g","",0]', None),
        (b'["g","no topic",0]', None),
        (b'["g","' + b"t" * 250 + b'",0]', None),
        (b'["g","t",0]', b"[]"),
        (b'["g","t",0]', b'{"offset":-1}'),
        (b'["g","t",0]', b'{"offset":9223372036854775808}'),
        (b'["g","t",0]', b'{"a":' + b"[" * 100_000),
    ],
)
def test_records_of_others_are_left_out(key: bytes | None, value: bytes | None) -> None:
    """One bad record would end the thread at every start, or crash a Kafka client."""
    assert read_record(key, value) is None


def test_records_of_later_versions_are_read() -> None:
    change = read_record(b'["g","t",2147483647]', b'{"offset":9223372036854775807,"new":[1]}')

    assert change == ("g", Place("t", 2**31 - 1), 2**63 - 1)
    assert read_record(b'["g","t",0]', None) == ("g", Place("t", 0), None)


@pytest.mark.parametrize("is_told_first", [True, False])
def test_after_a_fatal_error_samples_are_written_by_another_producer(
    monkeypatch: pytest.MonkeyPatch, is_told_first: bool
) -> None:
    """Whichever call hears of it: a sampler that writes nothing more for ever looks like no lag."""
    monkeypatch.setattr(MortalProducer, "made", [])
    monkeypatch.setattr(producer, "Producer", MortalProducer)
    topic = LagTopic({}, "coord", 1)
    sample = LagSample(time_ms=1, interval_ms=1, group="g", lines=())
    with pytest.raises(KafkaException):
        topic.serve() if is_told_first else topic.write(sample)

    topic.serve()
    topic.write(sample)

    _, second = MortalProducer.made
    assert len(second.written) == 1
