"""INV-131: a batch that has ended the job is not run again and again as it is."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from structlog.testing import capture_logs

from coordlib.core.wire.stored import Layout, Marker
from coordlib.errors import (
    CannotReach,
    CoordError,
    NotReady,
    StartRefused,
    TooMuchAtOnce,
    WorkerEnded,
)
from coordlib.job import query as plane_query
from coordlib.job import rebuild, start
from coordlib.job.batch import BatchSize
from coordlib.job.checkpoint import Begun, Ended, Identity, Planned, Probe
from coordlib.job.pipelines import groups
from coordlib.job.query import PipelineQuery, QueryOptions
from coordlib.job.start import _planned_less, agree, ended_with, must_begin_anew

PLANE = groups("p")
LAYOUT = Layout(shards=2, reply_partitions=0, topic_ids={PLANE.first_input: "AbCdEfGhIj"})


def identity(checkpoint: str = "one") -> Identity:
    return Identity(
        checkpoint=checkpoint, prefix="p", shards=2, incarnation="AbCdEfGh", keys=(0, 1)
    )


def marker(batch: int, checkpoint: str = "one") -> Marker:
    return Marker(
        checkpoint=checkpoint, batch=batch, ranges={}, digest="", next_offsets={}, shards={}
    )


class Folder:
    """As much of a checkpoint's folder as decides here."""

    path = "folder"

    def __init__(
        self,
        planned: Planned | None = None,
        ended: Ended | None = None,
        begun: Begun | None = None,
    ) -> None:
        self._planned, self._ended, self._begun = planned, ended, begun
        self.known = identity()
        self.probed: Probe | None = None
        self.seeds: dict[int, bytes] = {}

    def identity(self) -> Identity:
        return self.known

    def create(self, *_: Any) -> Identity:
        self.known = identity(f"{self.known.checkpoint}+")
        return self.known

    def has_batches(self) -> bool:
        return self._planned is not None

    def has_committed_batches(self) -> bool:
        return True

    def planned(self, _: Identity) -> Planned | None:
        return self._planned

    def plan(self, records: int) -> None:
        """Spark plans the first batch of the checkpoint."""
        self._planned = Planned(number=0, records=records)

    def forget_batches(self) -> None:
        self._planned = self._ended = self._begun = None

    def ended(self) -> Ended | None:
        return self._ended

    def write_ended(self, ended: Ended) -> None:
        self._ended = ended

    def begun(self) -> Begun | None:
        return self._begun

    def write_begun(self, begun: Begun) -> None:
        self._begun = begun

    def forget_begun(self) -> None:
        self._begun = None

    def write_seed(self, shard: int, blob: bytes, _: Marker) -> None:
        self.seeds[shard] = blob

    def forget_silent_probe(self) -> None: ...

    def probe(self) -> Probe | None:
        return self.probed

    def write_probe(self, probe: Probe) -> None:
        self.probed = probe

    def without_java(self) -> None:
        """It lies in a cluster's file system."""


class OnDisk(Folder):
    """One of which Java keeps the files, and this machine has them."""

    has_java_ended = False

    def without_java(self) -> Any:
        notes = Folder(self._planned, self._ended, self._begun)
        notes.probed = self.probed
        notes.write_ended = self.write_ended  # type: ignore[method-assign]
        notes.write_probe = self.write_probe  # type: ignore[method-assign]
        return notes

    def has_batches(self) -> bool:
        if self.has_java_ended:
            raise Py4JNetworkError("Answer from Java side is empty")
        return super().has_batches()


SEVEN = Planned(number=7, records=120)
TOO_MUCH = Ended(checkpoint="one", batch=7, records=120)


def begun(times: int, batch: int = 7, checkpoint: str = "one") -> Begun:
    return Begun(checkpoint=checkpoint, batch=batch, records=100, times=times)


@pytest.mark.parametrize(
    ("planned", "ended", "noted", "newest", "records"),
    [
        (SEVEN, TOO_MUCH, None, marker(6), 120),
        # Its outputs are there, and Spark folds it again, as it has not ended it.
        (SEVEN, TOO_MUCH, None, marker(7), 120),
        # A kill: it runs again as it is.
        (SEVEN, None, None, marker(6), 0),
        # One start has ended with it without a word, then another one.
        (SEVEN, None, begun(1), marker(6), 0),
        (SEVEN, None, begun(2), marker(6), 100),
        (SEVEN, None, begun(2, batch=6), marker(6), 0),
        (SEVEN, None, begun(2, checkpoint="zero"), marker(6), 0),
        # Another one was too much, and was committed since.
        (SEVEN, Ended(checkpoint="one", batch=5, records=120), None, marker(6), 0),
        (SEVEN, Ended(checkpoint="zero", batch=7, records=120), None, marker(6), 0),
        # Nothing is planned.
        (None, TOO_MUCH, begun(2), marker(6), 0),
        # The first batch of a checkpoint that was begun with fewer: it says nothing by itself.
        (
            Planned(number=0, records=60),
            Ended(checkpoint="zero", batch=7, records=60),
            None,
            marker(6, "zero"),
            0,
        ),
        # The very first batch of a prefix.
        (
            Planned(number=0, records=60),
            Ended(checkpoint="one", batch=0, records=50),
            None,
            None,
            50,
        ),
    ],
)
def test_which_planned_batch_is_not_run_again(
    planned: Planned | None,
    ended: Ended | None,
    noted: Begun | None,
    newest: Marker | None,
    records: int,
) -> None:
    """A supervisor starts the job again and again, and each start ended with the same batch."""
    found: Any = Folder(planned, ended, noted)

    told = ended_with(found, identity(), newest)

    assert (told.records if told else 0) == records
    if planned is not None:
        assert not must_begin_anew(found, newest)


class Query:
    """A pipeline's query whose checkpoint is settled, and which prepares and ends."""

    def __init__(self, folder: Folder, newest: Marker | None, records_max: int = 50_000) -> None:
        no_spark: Any = None
        options = QueryOptions(bootstrap_servers="127.0.0.1:1", checkpoint="/nowhere")
        self.query = PipelineQuery(no_spark, PLANE, options, lambda *_: None)
        self.query.sink = SimpleNamespace(marker=newest)  # type: ignore[assignment]
        self.query._settled = (folder, folder.known)  # type: ignore[assignment]
        self.size = BatchSize(records_max, 1 << 30)
        running: Any = SimpleNamespace(
            folder=folder, identity=folder.known, settings=None, size=self.size
        )
        self.query._running = running
        self.query._plan_no_more_than_before(running)

    def end(self, reason: Exception | None) -> None:
        self.query.note_end(reason)


DISK_FULL = NotReady("The disk is full", "/", "Make space.")
UNREACHABLE = CannotReach("The broker did not answer", "b", "Start again.")


@pytest.mark.parametrize("reason", [None, DISK_FULL, UNREACHABLE, CoordError("killed")])
def test_a_known_end_is_no_sign_of_a_batch_that_is_too_much(reason: Exception | None) -> None:
    """Stops under load, full disks and brokers that are away: a healthy checkpoint was removed."""
    folder = Folder(SEVEN)
    for _ in range(5):
        Query(folder, marker(6)).end(reason)

        assert ended_with(folder, identity(), marker(6)) is None


@pytest.mark.parametrize("reason", [RuntimeError("no words"), WorkerEnded("killed"), "nothing"])
def test_two_starts_that_end_without_a_word_are(reason: Any) -> None:
    """The kernel ends a process for want of memory, or Java exits with 52."""
    folder = Folder(SEVEN)
    for told in [None, Planned(number=7, records=120)]:
        query = Query(folder, marker(6))
        if reason != "nothing":
            query.end(reason)

        assert ended_with(folder, identity(), marker(6)) == told


@pytest.mark.parametrize(
    ("reason", "records"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), 120),
        (ConnectionRefusedError(), 120),
        # It ends with the whole machine, or an operator stops it: the reason is known.
        (None, 0),
        (UNREACHABLE, 0),
    ],
)
def test_a_batch_with_which_java_has_ended_runs_no_more_as_it_is(
    reason: Exception | None, records: int
) -> None:
    """Java exits with 52 in a running job, and it alone wrote the notes: the same batch ran three
    times until it was halved."""
    folder = OnDisk(SEVEN)
    query = Query(folder, marker(6))
    folder.forget_begun()  # it was planned when the job ran
    folder.has_java_ended = True
    query.end(reason)

    told = ended_with(folder, identity(), marker(6))
    assert (told.records if told else 0) == records


@pytest.mark.parametrize(
    ("reason", "is_too_much"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), False),
        (ConnectionRefusedError(), False),
        (TooMuchAtOnce("Java heap space"), True),
    ],
)
def test_java_that_ends_with_a_probe_is_one_end_without_a_word(
    reason: Exception, is_too_much: bool
) -> None:
    """The kernel or an operator may have killed it, and the next start rejected the request."""
    folder = OnDisk()
    folder.probed = Probe(record="r0-4", times=1)
    query = Query(folder, marker(6))
    folder.has_java_ended = True
    query.end(reason)

    assert folder.probed == Probe(record="r0-4", times=1, is_too_much=is_too_much)


def test_a_query_that_probes_says_so_and_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status said "running", and a stop was seen behind the last probe."""
    folder: Any = Folder(None, Ended(checkpoint="zero", batch=7, records=1, probes=True))
    query = Query(folder, marker(6, "zero")).query
    query.sink.layout = LAYOUT
    query._spark = SimpleNamespace()  # type: ignore[assignment]
    told: list[bool] = []

    def probing(**given: Any) -> Any:
        told.append(given["is_stopped"]())
        return SimpleNamespace(run=lambda: told.append(query.is_probing))

    monkeypatch.setattr(plane_query, "Probing", probing)
    monkeypatch.setattr(query, "_running_of", lambda *_: query._running)
    no_settings: Any = None
    query.prepare(no_settings, is_stopped=lambda: True)

    assert told == [True, True]
    assert not query.is_probing


def test_a_silent_end_of_a_job_whose_java_lives_says_nothing() -> None:
    """A defect of the driver ends it: the batch is no reason."""
    folder = OnDisk(SEVEN)
    query = Query(folder, marker(6))
    folder.forget_begun()
    query.end(RuntimeError("a defect"))

    assert ended_with(folder, identity(), marker(6)) is None


def test_java_that_ends_where_nobody_else_reaches_the_folder_ends_no_driver() -> None:
    """The checkpoint lies in an object store: two starts find it out, as before."""
    folder = OnDisk(SEVEN)
    query = Query(folder, marker(6))
    folder.without_java = lambda: None  # type: ignore[method-assign]
    folder.has_java_ended = True

    def gone(*_: Any) -> None:
        raise Py4JNetworkError("no Java")

    folder.planned = gone  # type: ignore[method-assign,assignment]
    query.end(ConnectionRefusedError())


def test_a_batch_that_is_known_to_be_too_much_runs_no_more_as_it_is() -> None:
    """Where a topic does not begin at 0 the number of its records is not known: no more than were
    planned."""
    folder = Folder(Planned(number=7, records=1_000_000))
    Query(folder, marker(6), records_max=300).end(TooMuchAtOnce("too much"))

    assert ended_with(folder, identity(), marker(6)) == Planned(number=7, records=300)


def test_notes_that_cannot_be_written_refuse_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise DISK_FULL

    folder = Folder(SEVEN)
    for name in ("write_begun", "write_ended", "forget_begun"):
        monkeypatch.setattr(folder, name, full)

    query = Query(folder, marker(6))
    for reason in (None, TooMuchAtOnce("too much")):
        query.end(reason)


# ---- the next start -----------------------------------------------------------------------------


class Sink:
    """A sink that has taken over."""

    def __init__(self, newest: Marker | None) -> None:
        self.marker, self.layout = newest, LAYOUT
        self.progress = SimpleNamespace(cells={}, id_pages={}, read=lambda: None)

    def read_progress(self) -> None: ...

    def open(self) -> None: ...

    def take_over(self, _: int) -> None: ...

    def write_layout(self, _: Layout) -> None: ...

    def write_extra(self, _: Any) -> None: ...


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Identity]:
    """A start, as far as the identity of its checkpoint; `problem`: of reading the topics."""

    def settle(
        folder: Folder,
        newest: Marker | None,
        problem: Exception | None = None,
        require_whole: Callable[[], None] = lambda: None,
    ) -> Identity:
        def seed_blobs(*_: Any) -> dict[int, bytes]:
            if problem is not None:
                raise problem
            return {0: b"", 1: b""}

        monkeypatch.setattr(rebuild, "seed_blobs", seed_blobs)
        sink: Any = Sink(newest)
        return agree(sink, folder, LAYOUT, PLANE, lambda *_: {}, require_whole=require_whole)

    monkeypatch.setattr(start, "check_identity", lambda *_: None)
    return settle


def test_each_start_plans_half_as_many_down_to_one_of_each_partition(
    settle: Callable[..., Identity],
) -> None:
    """Whatever is too much for this machine: some number of records is not."""
    folder, planned, newest = Folder(SEVEN, TOO_MUCH), [], marker(6)
    for _ in range(8):
        settle(folder, newest)
        query = Query(folder, newest)
        planned.append(query.size.records)
        # Spark counts from where the topic begins: more than it has, if much was deleted.
        folder.plan(1_000_000)
        query.end(TooMuchAtOnce("still too much"))

    assert planned == [60, 30, 15, 7, 3, 1, 1, 1]


def test_a_start_that_is_cut_short_does_not_plan_less_than_half(
    settle: Callable[..., Identity],
) -> None:
    """The new checkpoint's first batch is planned, and the job is stopped before it has ended."""
    folder, newest = Folder(SEVEN, TOO_MUCH), marker(6)
    made = settle(folder, newest)
    folder.plan(60)
    for _ in range(5):
        Query(folder, newest).end(None)

        assert settle(folder, newest) == made
        assert Query(folder, newest).size.records == 60


def test_a_batch_that_is_committed_is_not_planned_again(settle: Callable[..., Identity]) -> None:
    """Kafka has its outputs, and each start ended with folding it once more: the next checkpoint
    begins behind it."""
    folder = Folder(SEVEN, TOO_MUCH)

    assert settle(folder, marker(7)) != identity()
    assert folder.ended() is None


@pytest.mark.parametrize("planned", [SEVEN, None])
def test_topics_that_cannot_be_read_leave_the_checkpoint_as_it_was(
    settle: Callable[..., Identity], planned: Planned | None
) -> None:
    """It was removed first, and nothing was left where the topics could not be read, either."""
    folder = Folder(planned, TOO_MUCH)
    with pytest.raises(CannotReach):
        settle(folder, marker(6), UNREACHABLE)

    assert (folder.planned(identity()), folder.ended()) == (planned, TOO_MUCH)
    assert folder.identity() == identity()


@pytest.mark.parametrize("what", ["cut", "not to be decoded"])
def test_a_batch_runs_as_it_is_where_a_rebuild_would_be_refused(
    settle: Callable[..., Identity], what: str
) -> None:
    """Records of a compacted topic were deleted: with its checkpoint the job goes on all the same,
    and no start is refused that was not before."""
    refused = StartRefused(what, "p", "--accept-loss")

    def require_whole() -> None:
        if what == "cut":
            raise refused

    folder = Folder(SEVEN, TOO_MUCH)
    problem = None if what == "cut" else refused

    with capture_logs() as lines:
        assert settle(folder, marker(6), problem, require_whole) == identity()
    assert folder.planned(identity()) == SEVEN
    (told,) = (line for line in lines if "no rebuild" in line["event"])
    assert "more memory" in told["hint"]


@pytest.mark.parametrize(("records", "is_named"), [(2, False), (1, True)])
def test_the_smallest_batch_that_has_ended_the_job_is_named(records: int, is_named: bool) -> None:
    """Nothing smaller can be planned: an operator must know which records need more memory."""
    spans = ("p.requests", 0, 5, 6), ("p.offsets", 1, 7, 8)
    with capture_logs() as lines:
        planned = Planned(number=7, records=records, spans=spans)
        ended = _planned_less(identity(), marker(6), planned, PLANE)

    named = [line["records"] for line in lines if line["log_level"] == "error"]
    assert named == ([["p.requests-0 at 5", "p.offsets-1 at 7"]] if is_named else [])
    assert ended == Ended(checkpoint="one", batch=7, records=1, probes=is_named)
