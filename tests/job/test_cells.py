"""Jobs with ranges of shards on one progress topic: who is fenced, by whom, and what each says."""

from random import Random
from typing import Any

import pytest

from coordlib.core.wire.cells import Owned, ShardRange
from coordlib.core.wire.stored import ControlKeys, Layout, ShardPosition
from coordlib.errors import DriverFenced, StartRefused
from coordlib.job.batch import Batch, BatchReport
from coordlib.job.checkpoint import Identity
from coordlib.job.control import NEVER, begin
from coordlib.job.pipelines import groups
from coordlib.job.progress import OtherCells
from coordlib.job.sink import TransactionalSink
from coordlib.job.start import agree
from coordlib.kafka.transactions import DOUBTFUL_AFTER_MS
from coordlib.testing.signing import stand_in
from tests.tools.core import Status
from tests.tools.simulation.checkpoint import Checkpoint
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.driver_io import Resends, SimulatedProducer
from tests.tools.simulation.scheduler import Clock, Scheduler

P = 8
LOW, HIGH, MIDDLE = ShardRange(0, 3), ShardRange(4, 7), ShardRange(2, 5)
LAYOUT = Layout(shards=P, reply_partitions=1, topic_ids={"p.requests": "abcdefgh0"})


class Prefix:
    """The broker of one prefix."""

    def __init__(self) -> None:
        scheduler = Scheduler(Random(1))
        self.cluster = Cluster(scheduler, Random(2), [Clock(scheduler, 1.0, 0)])
        self.cluster.marker_delay_ms = 0
        self.now_s = 0.0
        for topic in ("requests", "offsets", "groups", "committed", "clusters", "metadata"):
            self.cluster.create(f"p.{topic}", P)
        for topic in ("transactions", "outbox"):
            self.cluster.create(f"p.{topic}", P)
        self.cluster.create("p.responses", 1)
        self.cluster.create("p.progress", 1)
        self.checkpoints = 0
        #: Ids that were taken away, in order.
        self.fenced: list[str] = []

    def job(self, owned: Owned = None) -> "Job":
        return Job(self, owned)

    def read(self, topic: str, partition: int, first: int = 0, /) -> dict[bytes, bytes]:
        for transaction in list(self.cluster._producers):
            self.cluster.write_markers(transaction)
        return self.cluster.newest_by_key(topic, partition, first)

    def fence(self, transactional_id: str) -> None:
        self.fenced.append(transactional_id)
        self.cluster.init_transactions(transactional_id)


class Job:
    """A driver as far as its start and its batches go."""

    def __init__(self, prefix: Prefix, owned: Owned) -> None:
        self.prefix, self.pipeline = prefix, groups("p", owned)
        self.commit_takes_s = 0.0
        self.sink = TransactionalSink(
            self.pipeline,
            self._open,
            prefix.read,
            now_s=lambda: prefix.now_s,
            others=OtherCells(prefix.fence, prefix.read),
        )
        self.identity: Identity | None = None
        self.number = 0

    def _open(self) -> Any:
        return SimulatedProducer(
            self.prefix.cluster, self.pipeline.query_name, self._strike, lambda _: None, Resends()
        )

    def _strike(self, point: str) -> None:
        if point == "before-commit":
            self.prefix.now_s += self.commit_takes_s

    def start(self, folder: Checkpoint | None = None, is_rebuild: bool = False) -> "Job":
        self.prefix.checkpoints += 1
        self.folder = folder or Checkpoint(f"checkpoint-{self.prefix.checkpoints}")
        self.identity = agree(
            self.sink, self.folder, LAYOUT, self.pipeline, self.prefix.read, is_rebuild
        )
        return self

    def judge(self, *shards: int) -> None:
        """A batch with one record more of these shards, by default of all that the job has."""
        assert self.identity is not None
        marker = self.sink.marker
        judged = marker.next_offsets.get("p.requests", {}) if marker else {}
        reports = [report(s, judged.get(str(s), 0)) for s in shards or self.pipeline.shards(P)]
        batch = Batch(number=self.number, outputs=[], reports=reports)
        self.sink.write(batch, self.identity)
        self.folder.commits.add(self.number)
        self.folder.offsets[self.number] = {}
        self.number += 1

    def positions(self) -> dict[str, int]:
        marker = self.sink.marker
        return marker.next_offsets["p.requests"] if marker else {}


def report(shard: int, offset: int) -> BatchReport:
    position = ShardPosition(
        clock_ms=0, previous_ms=0, published=-1, offsets={"r": offset}, control=(shard, 0)
    )
    status = Status(
        shard=shard,
        position=position,
        owed=-1,
        has_deadline=False,
        cap_ms=0,
        undecided=(),
        heard={},
    )
    return BatchReport(status=status, ranges={"r": (offset, offset)}, state_bytes=0)


@pytest.fixture
def prefix() -> Prefix:
    return Prefix()


def test_cells_beside_each_other_do_not_touch_each_other(prefix: Prefix) -> None:
    low, high = prefix.job(LOW).start(), prefix.job(HIGH).start()
    for _ in range(3):
        low.judge()
        high.judge(4)

    assert low.positions() == dict.fromkeys("0123", 3)
    assert high.positions() == {"4": 3}
    assert "p-coordinator-0-3" not in prefix.fenced


def test_the_newer_of_two_overlapping_cells_wins_and_the_older_one_names_it(prefix: Prefix) -> None:
    """An operator cuts the ranges anew, and forgets to stop a job.  # INV-103"""
    low = prefix.job(LOW).start()
    low.judge()
    middle = prefix.job(MIDDLE).start(is_rebuild=True)

    with pytest.raises(DriverFenced, match=r"with shards 2-5, .* which has shards 0-3"):
        low.judge()
    middle.judge()
    assert middle.positions() == {"2": 2, "3": 2, "4": 1, "5": 1}


def test_what_the_older_cell_commits_until_it_is_fenced_counts(prefix: Prefix) -> None:
    """Its batch ends while the newer one asks who has registered."""
    low = prefix.job(LOW).start()
    low.judge()
    middle = prefix.job(MIDDLE)

    def fence(transactional_id: str) -> None:
        if transactional_id.endswith("0-3"):
            low.judge()
        prefix.fence(transactional_id)

    middle.sink._others = OtherCells(fence, prefix.read)
    middle.start(is_rebuild=True)

    assert middle.identity is not None
    assert middle.identity.rebuilt_from is not None
    assert middle.identity.rebuilt_from.next_offsets == {"p.requests": {"2": 2, "3": 2}}


def test_a_cell_that_is_started_twice_goes_on_in_the_newer_driver(prefix: Prefix) -> None:
    first = prefix.job(LOW).start()
    first.judge()
    second = prefix.job(LOW).start(first.folder)
    second.number = first.number

    with pytest.raises(DriverFenced, match=r"newer driver has taken over shards 0-3"):
        first.judge()
    second.judge()
    assert second.positions() == dict.fromkeys("0123", 2)


def test_of_two_that_start_at_once_the_one_that_registered_later_goes_on(prefix: Prefix) -> None:
    """Both have registered before either has looked: never do both go on."""
    low, middle = prefix.job(LOW), prefix.job(MIDDLE)
    low.sink.open()
    middle.sink.open()
    low.sink.progress._newest_decided = _then(lambda: middle.sink.take_over(P), prefix.read)

    with pytest.raises(DriverFenced, match="shards 2-5"):
        low.sink.take_over(P)
    middle.sink.write_keys(ControlKeys(starts=1, keys=()))


def _then(once: Any, read: Any) -> Any:
    left = [once]

    def reading(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return read(*arguments)

    return reading


def test_an_older_cell_that_takes_its_id_again_reads_that_it_was_fenced(prefix: Prefix) -> None:
    """Its transaction took long, so it opens another producer, just after a newer cell had taken
    its id away: Kafka's fence is gone, and the newer one's registration is all that is left."""
    low = prefix.job(LOW).start()
    low.judge()
    low.commit_takes_s = DOUBTFUL_AFTER_MS / 1000
    opened = low.sink._open_producer

    def opening() -> Any:
        middle = prefix.job(MIDDLE)
        middle.sink.open()
        middle.sink.take_over(P)
        return opened()

    low.sink._open_producer = opening
    with pytest.raises(DriverFenced, match="shards 2-5"):
        low.judge()


def test_a_registration_before_the_marker_of_a_slow_batch_is_read_too(prefix: Prefix) -> None:
    """The newer cell has registered, the older one commits a batch behind that, and only then is
    it fenced; by then it has read what stands behind its own marker alone."""
    low = prefix.job(LOW).start()
    low.judge()
    middle = prefix.job(MIDDLE)
    middle.sink.open()
    late: list[str] = []
    middle.sink._others = OtherCells(late.append, prefix.read)  # it reaches the brokers later
    middle.sink.take_over(P)
    low.commit_takes_s = DOUBTFUL_AFTER_MS / 1000

    with pytest.raises(DriverFenced, match="shards 2-5"):
        low.judge()
    assert "p-coordinator-0-3" in late


def test_a_job_over_all_shards_goes_over_into_cells_and_back(prefix: Prefix) -> None:
    whole = prefix.job().start()
    whole.judge()
    low = prefix.job(LOW).start(is_rebuild=True)
    high = prefix.job(HIGH).start(is_rebuild=True)
    with pytest.raises(DriverFenced, match="shards 0-3, shards 4-7"):
        whole.judge()
    low.judge()
    high.judge(5)
    again = prefix.job().start(is_rebuild=True)

    for each in (low, high):
        with pytest.raises(DriverFenced, match="with all shards"):
            each.judge(each.pipeline.shards(P)[0])
    again.judge(0)
    assert again.positions() == {**dict.fromkeys("12345", 2), "0": 3, "4": 1, "6": 1, "7": 1}
    assert again.sink.marker == prefix.job().start(again.folder).sink.marker


def test_a_job_over_all_shards_writes_nothing_new_where_there_are_no_cells(prefix: Prefix) -> None:
    """A prefix without cells has one id, and keys without a range."""
    prefix.job().start().judge()

    assert list(prefix.read("p.progress", 0)) == [b"layout", b"marker"]
    assert prefix.fenced == []
    assert prefix.cluster._producers.keys() == {"p-coordinator"}


def test_cells_of_a_new_prefix_begin_one_after_the_other(prefix: Prefix) -> None:
    """A job over all shards comes after them, and is rebuilt from both."""
    low = prefix.job(LOW).start()
    low.judge()
    high = prefix.job(HIGH).start()
    assert high.sink.marker is None, "none of its shards was judged: it begins, without a rebuild"
    high.judge()
    assert prefix.job().start(is_rebuild=True).positions() == dict.fromkeys("01234567", 1)


def test_a_job_over_all_shards_goes_on_beside_a_cell_that_has_judged_nothing(
    prefix: Prefix,
) -> None:
    whole = prefix.job().start()
    whole.judge()
    prefix.job(LOW).start(is_rebuild=True)

    assert prefix.job().start(whole.folder).sink.marker is not None


def test_a_stopped_cell_does_not_come_back_on_shards_that_another_has_judged(
    prefix: Prefix,
) -> None:
    """0-3 was cut into two; its supervisor starts it again with its old folder."""
    low = prefix.job(LOW).start()
    low.judge()
    half = prefix.job(ShardRange(2, 3)).start(is_rebuild=True)
    half.judge()

    with pytest.raises(StartRefused, match="--rebuild"):
        prefix.job(LOW).start(low.folder)
    half.judge()


def test_a_folder_of_other_shards_is_refused_before_anybody_is_fenced(prefix: Prefix) -> None:
    low = prefix.job(LOW).start()
    low.judge()
    before = len(prefix.fenced)

    with pytest.raises(
        StartRefused, match="made for shards 0-3, and this job is to have shards 2-5"
    ):
        prefix.job(MIDDLE).start(low.folder)
    low.judge()
    assert prefix.fenced[before:] == []


def test_a_range_is_moved_while_the_others_answer(prefix: Prefix) -> None:
    """To another Spark cluster: the job is stopped there and rebuilt here."""
    low, high = prefix.job(LOW).start(), prefix.job(HIGH).start()
    low.judge()
    high.judge()
    moved = prefix.job(HIGH).start(is_rebuild=True)
    low.judge()
    moved.judge()

    assert moved.positions() == dict.fromkeys("4567", 2)
    with pytest.raises(StartRefused, match="empty folder with --rebuild"):
        prefix.job(HIGH).start(high.folder)


def test_cells_sign_with_keys_and_numbers_of_their_own(prefix: Prefix) -> None:
    """Two cells count their starts at the same moment, and neither loses the other's key."""
    authorities = {}
    for owned in (LOW, HIGH):
        job = prefix.job(owned).start()
        shards = list(owned.shards)
        others = [s for s in range(P) if s not in shards]
        ends = lambda own=shards: dict.fromkeys(own, 10)  # noqa: E731
        secret = stand_in(str(owned).encode())
        authorities[owned] = begin(job.sink, job.folder, "abcdefgh", ends, secret, others)

    low, high = authorities[LOW].keys, authorities[HIGH].keys
    assert len(low) == 1
    assert high[0] == low[0]
    assert low[0].since == {**dict.fromkeys("0123", 0), **dict.fromkeys("4567", NEVER)}
    assert not low[0].counts_at(5, 1_000_000)
    again = prefix.job(LOW)
    again.sink.read_progress()
    assert again.sink.keys is not None
    assert {key.key for key in again.sink.keys.keys} == {key.key for key in high}


def test_a_driver_of_moved_shards_numbers_its_records_above_all_before(prefix: Prefix) -> None:
    low = prefix.job(LOW).start()
    low.sink.write_keys(ControlKeys(starts=41, keys=()))
    low.judge()
    half = prefix.job(ShardRange(2, 3)).start(is_rebuild=True)
    authority = begin(
        half.sink,
        half.folder,
        "abcdefgh",
        lambda: {2: 0, 3: 0},
        stand_in(b"half"),
        [0, 1, *HIGH.shards],
    )

    assert authority.signer.start == 42
