"""What a start finds out about inputs that are not the logs that were judged."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from coordlib.client.kit.reading import Proofs
from coordlib.core.engine.effects import Output
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import api, codec
from coordlib.core.wire.cells import ShardRange, composed
from coordlib.core.wire.stored import (
    EVENT_REQUESTS_LOST,
    Event,
    JudgedRecord,
    Layout,
    Marker,
    decode_marker,
)
from coordlib.core.wire.stored import ShardPosition as Position
from coordlib.errors import CannotReach, CoordError, StartRefused
from coordlib.job import judged_log
from coordlib.job.batch import Batch, judged_record
from coordlib.job.checkpoint import Identity
from coordlib.job.judged_log import JudgedLog, KafkaInputs, lost_of
from coordlib.job.pipelines import groups
from coordlib.job.progress import next_marker
from coordlib.kafka.logs import Bounds, Lost, Place, Why

PLANE: Final = groups("p")
REQUESTS, OFFSETS = "p.requests", "p.offsets"
IDENTITY: Final = Identity(checkpoint="c", prefix="p", shards=2, incarnation="YjVo5al4")
LAYOUT: Final = Layout(shards=2, reply_partitions=1, topic_ids={REQUESTS: "YjVo5al4Qk"})
#: How many records each log has, all judged.
JUDGED: Final = 10


class Log:
    """One partition, whose records can be removed at both ends."""

    def __init__(self) -> None:
        self.start = 0
        self.records: dict[int, InputRecord] = {}
        self.life = 0
        self.grow(JUDGED)

    @property
    def end(self) -> int:
        return max([self.start, *(offset + 1 for offset in self.records)])

    def grow(self, count: int) -> None:
        for offset in range(self.end, self.end + count):
            value = b"%d" % offset
            self.records[offset] = InputRecord("r", offset, 1_000 * self.life + offset, value)

    def remove(self, before: int) -> None:
        """As retention does."""
        self.start = before
        self.records = {o: each for o, each in self.records.items() if o >= before}

    def cut(self, end: int) -> None:
        """What an unclean election does; what is written since has later stamps."""
        self.records = {o: each for o, each in self.records.items() if o < end}
        self.life += 1

    def newest(self) -> JudgedRecord:
        return judged_record(self.records[self.end - 1])


class Logs:
    """Both inputs of two shards."""

    def __init__(self) -> None:
        places = [Place(topic, shard) for topic in (REQUESTS, OFFSETS) for shard in range(2)]
        self.of = {place: Log() for place in places}

    def marker(self) -> Marker:
        """All is judged."""
        position = Position(clock_ms=5, previous_ms=5, published=-1, offsets={"r": 9, "o": 9})
        return Marker(
            checkpoint="c",
            batch=7,
            ranges={REQUESTS: {"0": (3, 9)}},
            digest="d",
            next_offsets=self._of_each(lambda log: log.end),
            shards={"0": position, "1": position},
            judged=self._of_each(Log.newest),
        )

    def _of_each(self, what: Callable[[Log], Any]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for place, log in self.of.items():
            found.setdefault(place.topic, {})[str(place.partition)] = what(log)
        return found

    def epochs(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """Whatever takes a log's end away brings another leader."""
        return {place: self.of[place].life for place in places}

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        return {place: Bounds(self.of[place].start, self.of[place].end) for place in places}

    def judged(self, offsets: Mapping[Place, int]) -> dict[Place, JudgedRecord | None]:
        records = {place: self.of[place].records.get(offset) for place, offset in offsets.items()}
        return {p: None if each is None else judged_record(each) for p, each in records.items()}

    def fill(self, place: Place, end: int) -> None:
        self.of[place].grow(max(0, end - self.of[place].end))

    def wait(self) -> None:
        pass


class Sink:
    """Keeps what a start writes."""

    def __init__(self, marker: Marker | None) -> None:
        self.marker = marker
        self.starts: dict[str, dict[str, int]] = {}
        self.lines: list[Event] = []
        self.told: api.AnyResponse | None = None

    @property
    def progress(self) -> "Sink":
        return self

    def note_marker(self, marker: Marker, owned: Any) -> None:
        self.marker = marker

    def write_extra(self, outputs: Iterable[Output]) -> None:
        row, *rest = outputs
        assert (row.topic, row.key) == ("progress", b"marker")
        assert decode_marker(row.value or b"") == self.marker
        lines = [each for each in rest if each.topic == "events"]
        self.lines += [msgspec.json.decode(each.value or b"", type=Event) for each in lines]
        replies = [each for each in rest if each.topic == "responses"]
        assert [each.partition for each in replies] == [0]
        self.told = codec.decode_response(replies[0].value or b"")


@pytest.fixture(params=[REQUESTS, OFFSETS])
def place(request: pytest.FixtureRequest) -> Place:
    """Whichever input it is."""
    return Place(request.param, 1)


@pytest.fixture
def logs() -> Logs:
    return Logs()


def lost(logs: Logs, marker: Marker) -> list[Lost]:
    return lost_of(marker, logs.of, logs)


def settle(logs: Logs, marker: Marker, accepted: bool = False) -> Any:
    sink: Any = Sink(marker)
    JudgedLog(PLANE, logs, accepts_loss=accepted).settle(sink, LAYOUT)
    return sink


def test_a_log_that_is_the_one_that_was_judged_has_lost_nothing(logs: Logs) -> None:
    marker = logs.marker()
    for log in logs.of.values():
        log.grow(5)

    assert lost(logs, marker) == []
    assert settle(logs, marker).lines == []


def test_what_was_removed_behind_the_judging_is_not_missed(logs: Logs, place: Place) -> None:
    """At the begin, in the middle, and all: whatever was judged may go."""
    marker, log = logs.marker(), logs.of[place]
    for before in (1, 5, JUDGED):
        log.remove(before)
        assert lost(logs, marker) == []
    log.grow(3)
    assert lost(logs, marker) == []


@pytest.mark.parametrize("left", [0, 1, 4])
def test_what_was_removed_before_it_was_judged_is_lost(logs: Logs, place: Place, left: int) -> None:
    """The job was away for longer than the topic keeps records: some or all of them went."""
    marker, log = logs.marker(), logs.of[place]
    log.grow(6)
    log.remove(16 - left)

    assert lost(logs, marker) == [Lost(place, 10, 16 - left, Why.REMOVED)]


@pytest.mark.parametrize("end", [0, 1, 9])
def test_a_log_that_is_shorter_than_what_was_judged(logs: Logs, place: Place, end: int) -> None:
    """A power cut, or a disk that was put back, took its end, or all of it."""
    marker = logs.marker()
    logs.of[place].cut(end)

    assert lost(logs, marker) == [Lost(place, end, 10, Why.SHORTER)]


@pytest.mark.parametrize(("end", "more"), [(0, 10), (4, 6), (9, 1), (9, 40)])
def test_a_log_that_was_cut_and_has_grown_again(
    logs: Logs, place: Place, end: int, more: int
) -> None:
    """Where it begins and ends is as it should be: what was judged stands there no more."""
    marker = logs.marker()
    logs.of[place].cut(end)
    logs.of[place].grow(more)

    assert lost(logs, marker) == [Lost(place, 9, 10, Why.OTHER)]


def test_a_record_that_came_again_to_its_offset_is_another_one_by_its_time(logs: Logs) -> None:
    """The same bytes, a repeat by its sender: those that stood before it are gone all the same."""
    marker, log = logs.marker(), logs.of[Place(REQUESTS, 0)]
    before = log.records[9].value
    log.cut(9)
    log.grow(1)

    assert log.records[9].value == before
    assert [each.why for each in lost(logs, marker)] == [Why.OTHER]


def test_where_the_judged_record_is_not_known_only_the_bounds_are_asked(logs: Logs) -> None:
    """A start skipped what was lost there, and nothing stood before what came next."""
    marker = msgspec.structs.replace(logs.marker(), judged={})
    log = logs.of[Place(REQUESTS, 0)]
    log.cut(4)
    log.grow(9)
    assert lost(logs, marker) == []
    log.cut(4)
    assert [each.why for each in lost(logs, marker)] == [Why.SHORTER]


def test_a_start_names_what_is_lost_and_the_way_to_go_on(logs: Logs) -> None:
    """Before that, the way that it named ended in the same refusal."""
    marker = logs.marker()
    logs.of[Place(REQUESTS, 0)].cut(4)
    logs.of[Place(OFFSETS, 1)].grow(6)
    logs.of[Place(OFFSETS, 1)].remove(13)

    with pytest.raises(StartRefused) as refused:
        settle(logs, marker)
    told = str(refused.value)
    assert "p.requests, partition 0, offsets 4 to 9: the log is shorter" in told
    assert "p.offsets, partition 1, offsets 10 to 12: removed before they were processed" in told
    assert "--rebuild --accept-loss" in told


@pytest.mark.parametrize("accepted", [False, True])
def test_one_wrong_look_refuses_no_start_and_skips_nothing(
    logs: Logs, place: Place, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that lags, or has just started, shows an end that is too low, or another record."""
    marker, log = logs.marker(), logs.of[place]
    whole = dict(log.records)
    log.cut(4)
    log.grow(JUDGED // 2)
    looks: list[int] = []

    def wait() -> None:
        looks.append(log.end)
        log.records = whole

    monkeypatch.setattr(logs, "wait", wait)
    sink = settle(logs, marker, accepted)

    assert looks == [4 + JUDGED // 2]
    assert (sink.marker, sink.lines, log.records) == (marker, [], whole)


@pytest.mark.parametrize("seed", range(3))
def test_no_offset_is_judged_twice_by_a_start_that_accepts_the_loss(
    logs: Logs, place: Place, seed: int
) -> None:
    """Ids and fencing tokens are offsets: the log is filled up to the judged place, and what is
    judged next stands behind it.  # INV-104"""
    marker, log = logs.marker(), logs.of[place]
    log.cut(3 + seed)
    log.grow(seed)
    sink = settle(logs, marker, accepted=True)

    assert log.end == 10
    assert sink.marker.next_offsets == marker.next_offsets
    assert sink.marker.checkpoint != marker.checkpoint, "an older folder must not go on"
    assert sink.marker.shards == marker.shards
    assert lost(logs, sink.marker) == []
    log.cut(9)
    log.grow(1)
    assert lost(logs, sink.marker) == [Lost(place, 9, 10, Why.OTHER)], "it is compared again"


def test_what_was_removed_is_skipped_once_and_stands_in_history(logs: Logs) -> None:
    marker, place = logs.marker(), Place(REQUESTS, 1)
    logs.of[place].grow(6)
    logs.of[place].remove(14)
    sink = settle(logs, marker, accepted=True)

    assert sink.marker.next_offsets == {REQUESTS: {"0": 10, "1": 14}, OFFSETS: {"0": 10, "1": 10}}
    assert settle(logs, sink.marker).lines == []
    (line,) = sink.lines
    assert (line.type, line.cause, line.time_ms) == (EVENT_REQUESTS_LOST, "r1-13", 5)
    assert line.event_id.startswith("YjVo5al4-r1-13-")
    assert line.reason == Why.REMOVED
    assert sink.told == api.CoordinatorLoading(lost={1: 14}), "clients ask again"
    assert line.detail == {
        "topic": REQUESTS,
        "partition": 1,
        "from_offset": 10,
        "to_offset": 14,
    }


@pytest.mark.parametrize("regrown", [0, 6, 9])
def test_of_a_log_that_was_cut_every_unanswered_request_is_lost(logs: Logs, regrown: int) -> None:
    """Members had written behind the judged place, too. They were told of that place alone, so a
    newcomer whose JoinGroup had stood there waited for ever.  # INV-145"""
    marker, log = logs.marker(), logs.of[Place(REQUESTS, 0)]
    log.cut(4)
    log.grow(regrown)
    proofs = Proofs()
    proofs.acknowledged(0, 17, proofs.mark(0, 1, "aa-1"))
    proofs.acknowledged(1, 17, proofs.mark(1, 1, "aa-2"))
    told = settle(logs, marker, accepted=True).told

    assert isinstance(told, api.CoordinatorLoading)
    assert isinstance(told.lost, dict)
    assert [each for at in told.lost.items() for each in proofs.lost(*at)] == ["aa-1"]


def test_a_prefix_that_nobody_judged_has_lost_nothing(logs: Logs) -> None:
    sink: Any = Sink(None)
    logs.of[Place(REQUESTS, 0)].remove(5)
    with capture_logs() as logged:
        JudgedLog(PLANE, logs).settle(sink, LAYOUT)

    assert sink.marker is None
    (line,) = logged
    assert line["lost"] == f"p.requests, partition 0, offsets 0 to 4: {Why.REMOVED}"
    assert sink.starts == {REQUESTS: {"0": 5, "1": 0}, OFFSETS: {"0": 0, "1": 0}}


def test_what_was_removed_before_the_first_start_is_not_lost_at_the_second(
    logs: Logs, place: Place
) -> None:
    """All of a partition, in which nobody has written since: no batch has named it."""
    logs.of[place].remove(JUDGED)
    sink: Any = Sink(None)
    JudgedLog(PLANE, logs).settle(sink, LAYOUT)
    first = next_marker(
        None, Batch(number=0, outputs=[], reports=[]), IDENTITY, PLANE.inputs, sink.starts
    )
    assert lost(logs, first) == []

    logs.of[place].grow(2)
    logs.of[place].remove(JUDGED + 1)
    assert lost(logs, first) == [Lost(place, JUDGED, JUDGED + 1, Why.REMOVED)]
    unnamed = msgspec.structs.replace(first, next_offsets={})
    assert lost(logs, unnamed) == [], "nobody knows whether it was there at the first start"


def test_cells_know_the_records_of_the_jobs_before_them(logs: Logs) -> None:
    """A range of the shards is taken over: what was judged of them is compared, too."""
    low, high = ShardRange(0, 0), ShardRange(1, 1)
    marker = logs.marker()
    taken = composed({None: marker, low: marker}, high, 2)

    assert taken is not None
    assert taken.judged == {t: {"1": each["1"]} for t, each in marker.judged.items()}


def _settled(logs: Logs, place: Place) -> tuple[JudgedLog, Marker, Log]:
    """A job that has looked at its inputs, the marker before, and one of the logs."""
    before = logs.marker()
    sink: Any = Sink(before)
    job = JudgedLog(PLANE, logs)
    job.settle(sink, LAYOUT)
    return job, before, logs.of[place]


def test_a_log_that_is_cut_under_the_job_ends_it_before_the_next_marker(
    logs: Logs, place: Place
) -> None:
    """Members write all the time: it has grown beyond the judged place before the job looks."""
    job, before, log = _settled(logs, place)
    log.grow(3)
    job.require_same(before, logs.marker())
    log.cut(7)
    log.grow(9)

    with pytest.raises(StartRefused, match="partition 1, at least offsets 9 to 9: another record"):
        job.require_same(before, logs.marker())


def test_one_look_at_a_broker_that_leads_no_more_ends_no_job(
    logs: Logs, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaders move: another record is concluded only when the next look finds it, too, and no other
    leader has come meanwhile."""
    job, before, log = _settled(logs, place)
    log.life += 1
    looks: list[int] = []
    judged = logs.judged

    def behind(offsets: Mapping[Place, int]) -> dict[Place, JudgedRecord | None]:
        looks.append(log.life)
        if len(looks) == 1:
            log.life += 1
        return judged(offsets) if len(looks) > 2 else dict.fromkeys(offsets)

    monkeypatch.setattr(logs, "judged", behind)
    job.require_same(before, before)

    assert looks == [1, 2, 2, 2], "the newest marker, and that of the batch, twice"


def test_what_the_brokers_do_not_answer_while_leaders_move_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker is restarted: the batch waits for the next leader, as Spark's source does."""
    place, answers = (
        Place(REQUESTS, 0),
        iter([KafkaError._TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION]),
    )

    def moving(*_: object) -> Any:
        if (code := next(answers, None)) is not None:
            raise KafkaException(KafkaError(code))
        return {place: None}

    monkeypatch.setattr(judged_log, "_PAUSE_S", 0.0)
    monkeypatch.setattr(judged_log, "records_at", moving)
    monkeypatch.setattr(judged_log, "bounds_of", lambda *_: {place: Bounds(0, 9)})
    inputs = KafkaInputs({"bootstrap.servers": "127.0.0.1:1"}, PLANE)
    assert inputs.judged({place: 4}) == {place: None}

    failures = [CannotReach("no leader")]
    monkeypatch.setattr(
        judged_log, "bounds_of", lambda *_: _raised(failures) or {place: Bounds(0, 9)}
    )
    assert inputs.bounds([place]) == {place: Bounds(0, 9)}
    monkeypatch.setattr(judged_log, "_LEADERS_S", -1.0)
    failures.append(CannotReach("no leader"))
    with pytest.raises(CannotReach):
        inputs.bounds([place])


def _raised(failures: list[CannotReach]) -> None:
    if failures:
        raise failures.pop()


def test_another_leader_with_the_same_log_changes_nothing(logs: Logs, place: Place) -> None:
    job, before, log = _settled(logs, place)
    log.grow(2)
    log.cut(log.end)
    job.require_same(before, logs.marker())
    log.records.pop(9)  # it is not read again: this epoch is known

    job.require_same(before, logs.marker())


def test_what_retention_removes_when_the_batch_has_read_it_is_not_missed(
    logs: Logs, place: Place
) -> None:
    """Another leader leads, and meanwhile the log begins behind the newest marker: a refusal would
    end the job, and these records would really be lost."""
    job, before, log = _settled(logs, place)
    log.grow(4)
    after = logs.marker()
    log.cut(log.end)
    log.remove(12)

    job.require_same(before, after)


def test_records_of_the_batch_alone_are_gone(logs: Logs, place: Place) -> None:
    """Nothing of it is committed, so it is judged anew as the log has it now."""
    job, before, log = _settled(logs, place)
    log.grow(4)
    after = logs.marker()
    log.cut(12)
    log.grow(5)

    with pytest.raises(CoordError, match="Nothing that was committed is missing") as told:
        job.require_same(before, after)
    assert not isinstance(told.value, StartRefused)


@pytest.mark.parametrize(("end", "more"), [(0, 0), (4, 0), (9, 0), (0, 10), (4, 6), (9, 40)])
def test_into_a_topic_of_others_nothing_is_written(
    logs: Logs, place: Place, end: int, more: int
) -> None:
    """Claims: a log that has lost its end, or all, or has grown again, has to be made anew."""
    sink: Any = Sink(logs.marker())
    log = logs.of[place]
    log.cut(end)
    log.grow(more)

    with pytest.raises(StartRefused, match=r"Make it anew\."):
        JudgedLog(PLANE, logs, hint="Make it anew.").settle(sink, LAYOUT)
    assert log.end == end + more


@pytest.mark.parametrize("before", [1, 5, JUDGED, JUDGED + 2, JUDGED + 5])
def test_what_was_removed_of_a_topic_of_others_is_met_elsewhere(
    logs: Logs, place: Place, before: int
) -> None:
    """At the begin, in the middle, or all: claims are learnt anew behind it."""
    sink: Any = Sink(logs.marker())
    logs.of[place].grow(5)
    logs.of[place].remove(before)

    JudgedLog(PLANE, logs, hint="Make it anew.").settle(sink, LAYOUT)
    assert sink.lines == []
