"""INV-144: the record that ends the job where it is judged by itself is set aside, and no other."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from msgspec.structs import replace
from structlog.testing import capture_logs

from coordlib.core.engine.effects import COMMITTED, EVENTS, RESPONSES, Output
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import TooMuchAtOnce
from coordlib.job.batch import assemble, judge_readable
from coordlib.job.checkpoint import Identity, Probe
from coordlib.job.pipelines import groups
from coordlib.job.process import StopAsked
from coordlib.job.progress import next_marker
from coordlib.job.start import WHY, Probing
from coordlib.kafka.logs import Place
from tests.tools import driving
from tests.tools.driving import commit

PLANE = groups("p")
#: A group of each shard.
NAMES = [next(n for n in map(str, range(99)) if shard_of(n, 2) == shard) for shard in range(2)]


class Killed(BaseException):
    """The kernel ends the driver: it notes nothing any more."""


class Prefix:
    """The topics, and a checkpoint's folder. All that a start has dies with it, but for these."""

    def __init__(self) -> None:
        self.log: dict[Place, list[bytes]] = {}
        self.marker: Any = None
        self.set_aside: dict[str, str] = {}
        self.id_pages: dict[bytes, bytes] = {}
        self.compacted: dict[tuple[str, int], dict[bytes, bytes]] = {}
        self.outputs: list[Output] = []
        self.note: Probe | None = None
        #: Values that are too much, and what ends a start with them.
        self.deadly: dict[bytes, BaseException] = {}
        #: Whether a shard cannot be judged with nothing.
        self.is_small = False
        self.starts = 0
        #: After so many steps a start is killed; negative: never.
        self.dies_after = -1
        #: Whether the job is to stop.
        self.is_stopped: Callable[[], bool] = lambda: False

    def live(self) -> None:
        if self.dies_after == 0:
            raise Killed
        self.dies_after -= 1

    def append(self, request: api.AnyRequest, shard: int, topic: str = "p.requests") -> bytes:
        value = codec.encode(request)
        self.log.setdefault(Place(topic, shard), []).append(value)
        return value

    # -- what a start has ------------------------------------------------------------------

    def start(self) -> None:
        """Probe what waits; what ends the start is noted as the job notes it."""
        self.starts += 1
        identity = Identity(checkpoint=f"c{self.starts}", prefix="p", shards=2, incarnation="t")
        probing = Probing(
            pipeline=PLANE,
            sink=_Sink(self),  # type: ignore[arg-type]
            next_record=self.next_record,  # type: ignore[arg-type]
            newest_by_key=self.newest_by_key,
            folder=self,  # type: ignore[arg-type]
            identity=identity,
            settings=replace(driving.SETTINGS, shards=2),
            judge=lambda settings, blob, records: _Frame(self, settings, blob, records),  # type: ignore[arg-type,return-value]
            write=lambda frame, number: self.commit(frame, number, identity),
            is_stopped=lambda: self.is_stopped(),
        )
        try:
            probing.run()
        except TooMuchAtOnce:
            assert self.note is not None
            self.note = Probe(record=self.note.record, times=self.note.times, is_too_much=True)
            raise

    def next_record(self, place: Place, first: int) -> Any:
        values = self.log.get(place, [])
        if first >= len(values):
            return None
        time = TIMESTAMP_LOG_APPEND_TIME, driving.START_MS + first
        return SimpleNamespace(
            offset=lambda: first, value=lambda: values[first], timestamp=lambda: time
        )

    def newest_by_key(self, topic: str, partition: int, _first: int = 0, /) -> dict[bytes, bytes]:
        return self.compacted.get((topic, partition), {})

    def commit(self, frame: Any, number: int, identity: Identity) -> None:
        batch = assemble(number, frame.toArrow())
        self.live()
        self.marker = next_marker(self.marker, batch, identity, PLANE.inputs)
        self.outputs += batch.outputs
        for each in batch.outputs:
            kept = self.compacted.setdefault((f"p.{each.topic}", each.partition), {})
            kept.pop(each.key, None)
            if each.value is not None:
                kept[each.key] = each.value
        self.live()

    # -- the folder ------------------------------------------------------------------------

    def probe(self) -> Probe | None:
        return self.note

    def write_probe(self, probe: Probe) -> None:
        self.live()
        self.note = probe
        self.live()

    def forget_probe(self) -> None:
        self.live()
        self.note = None

    def told(self, topic: str) -> list[str]:
        return [str(each.value) for each in self.outputs if each.topic == topic]


class _Sink:
    def __init__(self, prefix: Prefix) -> None:
        self._prefix, self.progress = prefix, prefix

    @property
    def marker(self) -> Any:
        return self._prefix.marker

    def set_aside(self, record: str, why: str) -> None:
        self._prefix.live()
        self._prefix.set_aside = {**self._prefix.set_aside, record: why}
        self._prefix.live()


class _Frame:
    """The rows of a probe, which are collected once."""

    def __init__(self, prefix: Prefix, *given: Any) -> None:
        self._prefix, self._given = prefix, given

    def toArrow(self) -> list[Any]:  # noqa: N802  # Spark's name
        settings, blob, records = self._given
        if not records and self._prefix.is_small:
            raise TooMuchAtOnce("the state alone")
        for each in records:
            at = f"{each.topic}{settings.shard}-{each.offset}"
            if each.value in self._prefix.deadly and at not in settings.set_aside:
                raise self._prefix.deadly[each.value]
        return judge_readable(PLANE.fold, blob, records, settings)[1]


@pytest.fixture
def prefix() -> Prefix:
    return Prefix()


@pytest.mark.parametrize("topic", ["p.requests", "p.offsets"])
def test_the_record_that_is_too_much_is_set_aside_and_others_are_judged(
    prefix: Prefix, topic: str
) -> None:
    """It is rejected, its sender is answered, and the next start begins behind it."""
    prefix.append(commit("a", group=NAMES[0]), 0)
    deadly = prefix.append(commit("big", id="big", group=NAMES[1]), 1, topic)
    prefix.deadly[deadly] = TooMuchAtOnce("too much")
    letter = "o" if topic == "p.offsets" else "r"

    with pytest.raises(TooMuchAtOnce):
        prefix.start()
    assert prefix.note == Probe(record=f"{letter}1-0", times=1, is_too_much=True)
    assert prefix.set_aside == {}
    prefix.start()

    assert prefix.set_aside == {f"{letter}1-0": WHY}
    assert prefix.note is None
    assert len(prefix.told(COMMITTED)) == 1
    (answer,) = [each for each in prefix.told(RESPONSES) if "Rejected" in each]
    assert '"id":"big"' in answer
    assert "more memory, then send it again." in answer
    assert [each for each in prefix.told(EVENTS) if WHY in each]
    assert prefix.marker.next_offsets[topic]["1"] == 1


def test_it_is_found_while_other_records_keep_coming(prefix: Prefix) -> None:
    """Each start writes ticks, which come before it among the inputs: the note of the record that
    had ended the job was written over by theirs, and it was never set aside."""
    prefix.append(commit("a", group=NAMES[0]), 0)
    deadly = prefix.append(commit("big", group=NAMES[1]), 1, "p.offsets")
    prefix.deadly[deadly] = TooMuchAtOnce("too much")
    with pytest.raises(TooMuchAtOnce):
        prefix.start()
    for shard, name in enumerate(NAMES):
        prefix.append(commit("b", group=name), shard)
    prefix.start()

    assert prefix.set_aside == {"o1-0": WHY}
    assert len(prefix.told(COMMITTED)) == 3


def test_it_is_written_before_the_record_is_judged(prefix: Prefix) -> None:
    """A start that judges it, and dies before the entry is written, would judge it otherwise when
    it runs again."""
    deadly = prefix.append(commit("big", group=NAMES[0]), 0)
    prefix.deadly[deadly] = TooMuchAtOnce("too much")
    with pytest.raises(TooMuchAtOnce):
        prefix.start()
    seen = []
    judge = _Frame.toArrow

    def look(frame: _Frame) -> list[Any]:
        seen.append((len(frame._given[2]), frame._given[0].set_aside, prefix.set_aside))
        return judge(frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Frame, "toArrow", look)
        prefix.start()

    entry = {"r0-0": WHY}
    assert seen == [(0, {}, {}), (1, entry, entry)]


def test_starts_that_are_killed_anywhere_come_to_the_same_end(prefix: Prefix) -> None:
    """Each start is killed after one step more than the one before: all is judged once, the
    deadly request alone is set aside, and nothing is judged before that."""
    deadly = prefix.append(commit("big", id="big", group=NAMES[0]), 0)
    for shard, name in enumerate(NAMES):
        prefix.append(commit(name, id=name, group=name), shard, "p.offsets")
    prefix.deadly[deadly] = TooMuchAtOnce("too much")
    ends, waiting = 0, True
    while waiting:
        prefix.dies_after = ends
        try:
            prefix.start()
            waiting = False
        except (Killed, TooMuchAtOnce):
            ends += 1

    assert 4 < ends < 30
    assert prefix.set_aside == {"r0-0": WHY}
    told = prefix.told(RESPONSES)
    for each in ("big", *NAMES):
        assert len([value for value in told if f'"id":"{each}"' in value]) == 1
    assert len(prefix.told(COMMITTED)) == 2


@pytest.mark.parametrize("ends", [1, 2])
def test_one_end_without_a_word_may_be_a_kill(prefix: Prefix, ends: int) -> None:
    """The machine goes down in the middle of a probe: nobody's request is rejected for that."""
    deadly = prefix.append(commit("big", group=NAMES[0]), 0)
    prefix.deadly[deadly] = Killed()
    for _ in range(ends):
        with pytest.raises(Killed):
            prefix.start()
    if ends == 1:
        prefix.deadly.clear()
    prefix.start()

    assert prefix.set_aside == ({} if ends == 1 else {"r0-0": WHY})


def test_a_stop_ends_a_start_between_two_probes(prefix: Prefix) -> None:
    """The start went on through all of them, and was killed: a record was blamed for that."""
    for shard, name in enumerate(NAMES):
        prefix.append(commit(name, group=name), shard)
    prefix.is_stopped = lambda: prefix.marker is not None
    with pytest.raises(StopAsked):
        prefix.start()

    assert prefix.note is None
    assert len(prefix.told(COMMITTED)) == 1
    prefix.is_stopped = lambda: False
    prefix.start()
    assert len(prefix.told(COMMITTED)) == 2


def test_a_stop_before_the_first_probe_leaves_what_was_counted(prefix: Prefix) -> None:
    """The record in question is found all the same, where a supervisor stops starts as well."""
    deadly = prefix.append(commit("big", group=NAMES[0]), 0)
    prefix.deadly[deadly] = Killed()
    for ends in (Killed, StopAsked, Killed):
        prefix.is_stopped = lambda ends=ends: ends is StopAsked  # type: ignore[misc]
        with pytest.raises(ends):
            prefix.start()
    assert prefix.note == Probe(record="r0-0", times=2)
    prefix.is_stopped = lambda: False
    prefix.start()

    assert prefix.set_aside == {"r0-0": WHY}


def test_a_record_is_not_to_blame_where_the_state_alone_is_too_much(prefix: Prefix) -> None:
    """With too little memory for its groups a job would reject one request after the other."""
    deadly = prefix.append(commit("a", group=NAMES[0]), 0)
    prefix.deadly[deadly] = TooMuchAtOnce("everything is")
    prefix.is_small = True
    for _ in range(3):
        with pytest.raises(TooMuchAtOnce):
            prefix.start()

    assert prefix.set_aside == {}


@pytest.mark.parametrize(
    "record",
    [api.Tick(v=1, published=-1), api.FromShard(v=1, source=1, seq=1, body=driving.Raw(b"{}"))],
)
def test_what_the_job_has_written_is_never_set_aside(prefix: Prefix, record: api.Control) -> None:
    """The start names it, and what to do; the other shards go on by a record."""
    prefix.deadly[prefix.append(record, 0)] = TooMuchAtOnce("too much")
    prefix.append(commit("b", group=NAMES[1]), 1)
    with pytest.raises(TooMuchAtOnce):
        prefix.start()
    with capture_logs() as lines:
        prefix.start()

    assert prefix.set_aside == {}
    (named,) = [line for line in lines if line["log_level"] == "error"]
    assert (named["record"], named["hint"]) == ("r0-0", "give the job more memory")
    assert prefix.marker.next_offsets == {"p.requests": {"1": 1}}


def test_a_record_that_is_set_aside_and_still_too_much_is_named(prefix: Prefix) -> None:
    """What its time brings about needs the memory: to set it aside again helps nothing."""
    prefix.append(commit("a", group=NAMES[0]), 0)
    prefix.set_aside = {"r0-0": WHY}
    prefix.note = Probe(record="r0-0", times=1, is_too_much=True)
    with capture_logs() as lines:
        prefix.start()

    assert [line["record"] for line in lines if line["log_level"] == "error"] == ["r0-0"]
    assert prefix.marker is None


def test_nothing_waits(prefix: Prefix) -> None:
    """The records were lost, or all were judged: nothing is written."""
    prefix.note = Probe(record="r0-0", times=1)
    prefix.start()

    assert (prefix.marker, prefix.note, prefix.outputs) == (None, None, [])
