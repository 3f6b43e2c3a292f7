"""Compacted topics that lack records: a rebuild refuses them, and every start names them.

At the begin, in the middle, at the end, all of them; and cut and grown again.  # INV-153
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from coordlib.core.engine.effects import Output
from coordlib.core.wire.cells import ShardRange, composed
from coordlib.errors import StartRefused
from coordlib.job import rebuild
from coordlib.job.batch import Batch
from coordlib.job.checkpoint import Identity
from coordlib.job.pipelines import claims, groups
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.logs import Bounds, Place
from tests.tools.simulation.driver_io import Delivered

#: Who would tell where a record was written.
Note = Callable[[Any, Any], None]
Look = Mapping[Place, Bounds | None]
PLANES = {"groups": groups("p"), "claims": claims("p", "m")}
TOPICS = [(name, topic) for name, pipeline in PLANES.items() for topic in pipeline.restored_from]


class Logs:
    """The outputs' logs with the ends of transactions, and a producer that writes them."""

    def __init__(self) -> None:
        self.starts: dict[tuple[str, int], int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.marker: Any = None
        self._notes: list[Callable[[], None]] = []
        self._places: set[tuple[str, int]] = set()

    def begin_transaction(self) -> None:
        self._places.clear()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int,
        on_delivery: Note | None = None,
    ) -> None:
        place = (topic, partition)
        offset = self.ends.get(place, 0)
        self.ends[place] = offset + 1
        self._places.add(place)
        if on_delivery is not None:
            self._notes.append(lambda: on_delivery(None, Delivered(place, offset)))

    def flush(self, timeout: float) -> None:
        for note in self._notes:
            note()
        self._notes.clear()

    def commit_transaction(self, timeout: float) -> None:
        for place in self._places:
            self.ends[place] += 1

    def lacking(self) -> list[str]:
        """What a start finds that reads the newest marker."""
        bounds = {Place(*at): Bounds(self.starts.get(at, 0), end) for at, end in self.ends.items()}
        return rebuild.cut(bounds, self.marker)


IDENTITY = Identity(checkpoint="c", prefix="p", shards=2, incarnation="i")


class Job:
    """Batches of a driver, one after the other; each start goes on from the newest marker."""

    def __init__(self, logs: Logs, pipeline: str = "groups", topic: str = "groups") -> None:
        producer: Any = logs
        self._logs, self._topic = logs, topic
        self.sink = TransactionalSink(PLANES[pipeline], lambda: producer, lambda *_: {})
        if logs.marker is not None:
            self.sink.progress.note_marker(logs.marker, None)

    def write(self, *shards: int) -> None:
        """A record of each named shard, in one batch."""
        before = self._logs.marker
        outputs = [Output(self._topic, shard, b"k", b"v") for shard in shards]
        outputs.append(Output("events", 0, b"", b""))
        number = 0 if before is None else before.batch + 1
        self.sink.write(Batch(number=number, outputs=outputs, reports=[]), IDENTITY)
        self._logs.marker = self.sink.marker


def test_the_marker_names_where_the_compacted_topics_end() -> None:
    """With the records of its own batch; but not with the end of its transaction, which may come a
    moment later."""
    logs = Logs()
    job = Job(logs)
    for batch in ([0, 0, 1], [0], [], [1, 1, 1], [0]):
        job.write(*batch)
        assert all(
            end == logs.ends[topic, int(at)] - 1
            for topic, ends in logs.marker.saved.items()
            for at, end in ends.items()
        )
        job = Job(logs)

    assert logs.marker.saved == {"p.groups": {"0": 6, "1": 5}}
    assert logs.lacking() == []


def test_what_others_write_makes_a_log_longer_and_is_no_loss() -> None:
    """Records beside the batches, and those of transactions that were aborted. They count from the
    batch on that comes behind the next one."""
    logs = Logs()
    job = Job(logs)
    job.write(0)
    logs.ends["p.groups", 0] += 5
    for _ in range(2):
        job.write(0)
        assert logs.lacking() == []
    logs.ends["p.groups", 0] -= 2
    assert logs.lacking(), "the end of the transaction, and its record"


@pytest.mark.parametrize(("pipeline", "topic"), TOPICS)
@pytest.mark.parametrize("before", [1, 3, 8])
def test_records_that_were_removed_at_the_begin_in_the_middle_or_all(
    pipeline: str, topic: str, before: int
) -> None:
    logs = Logs()
    job = Job(logs, pipeline, topic)
    for _ in range(4):
        job.write(1)
    place = f"{PLANES[pipeline].prefix}.{topic}", 1
    logs.starts[place] = before

    told = f"{place[0]}, partition 1, begins at offset {before}"
    assert logs.lacking() == [told]
    job.write(1)
    assert logs.lacking() == [told]
    with pytest.raises(StartRefused, match=told) as refused:
        rebuild.refuse_cut(lambda: {Place(*place): Bounds(before, 8)}, logs.marker, lambda: None)
    # With a checkpoint in its folder the job would not look at the flag alone.
    assert "name an empty folder and add --rebuild --accept-loss" in refused.value.hint


def test_what_one_look_alone_misses_is_no_reason_to_refuse() -> None:
    """A broker that has just started, or leads no more, gives a wrong answer for a moment."""
    logs = Logs()
    job = Job(logs)
    for _ in range(2):
        job.write(0, 1)
    one, two = Place("p.groups", 0), Place("p.groups", 1)
    whole = {one: Bounds(0, 4), two: Bounds(0, 4)}
    wrong = {**whole, one: Bounds(0, 0)}

    def found(*looks: Look) -> tuple[list[str], Look]:
        left = iter(looks)
        return rebuild.cut_at_two_looks(lambda: next(left), logs.marker, lambda: None)

    assert found(whole) == ([], whole)
    assert found(wrong, whole) == ([], whole)
    told = ["p.groups, partition 0, ends at offset 0, and 3 was written"]
    assert found(wrong, wrong) == (told, wrong)
    assert found(wrong, {two: whole[two]}) == (told, wrong), "one does not answer any more"
    waits: list[None] = []
    left = iter([wrong, whole])
    rebuild.refuse_cut(lambda: next(left), logs.marker, lambda: waits.append(None))
    assert len(waits) == 1


@pytest.mark.parametrize(("pipeline", "topic"), TOPICS)
@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("left", [0, 1, 6])
def test_a_topic_that_has_lost_its_end_is_told_of_for_good(
    pipeline: str, topic: str, is_running: bool, left: int
) -> None:
    """Also when it has grown again: by then the job has written on, and nothing in the topic shows
    that it lacks records."""
    logs = Logs()
    job = Job(logs, pipeline, topic)
    for _ in range(4):
        job.write(0, 1)
    name = f"{PLANES[pipeline].prefix}.{topic}"
    logs.ends[name, 1] = left
    (told,) = logs.lacking()
    assert told == f"{name}, partition 1, ends at offset {left}, and 7 was written"

    with capture_logs() as logged:
        job = job if is_running else Job(logs, pipeline, topic)
        for _ in range(20):
            job.write(0, 1)

    (line,) = (each for each in logged if each["log_level"] == "error")
    assert (line["topic"], line["partition"]) == (name, 1)
    (told,) = logs.lacking()
    assert told.startswith(f"{name}, partition 1, ends at offset")
    # A rebuild that accepts it begins with what is there.
    job.sink.saved = {place: end - 1 for place, end in logs.ends.items()}
    job.write(0, 1)
    assert logs.lacking() == []


def test_cells_know_the_ends_of_the_jobs_before_them() -> None:
    logs = Logs()
    Job(logs).write(0, 1)
    judged = {"p.requests": {"0": 3, "1": 3}}
    whole = msgspec.structs.replace(logs.marker, next_offsets=judged)
    taken = composed({None: whole, ShardRange(0, 0): whole}, ShardRange(1, 1), 2)

    assert taken is not None
    assert taken.saved == {"p.groups": {"1": 1}}
