"""Batches and offsets in one unit: real members over the real core; Spark and Delta are played."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordlib.client.kit.fence import MemberFenced
from coordlib.client.spark import delta_writes as spark_writes
from coordlib.client.spark import reader as spark_reader
from coordlib.client.spark.delta import How
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.client.transactions.delta_commits import Written, metadata_of
from coordlib.core.wire import api
from coordlib.errors import AnotherTable, CoordError, SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.spark.test_share import share as share_of
from tests.client.spark.world import ReaderWorld
from tests.client.transactions.test_in_doubt import FakeTable
from tests.client.world import t
from tests.tools.simulation.lake.query import Batch


class FakeBatch(Batch):
    """A batch of the topic `t`: partition -> its greatest offset."""

    def __init__(self, **greatest: int) -> None:
        rows = tuple(("t", int(name[1:]), offset) for name, offset in greatest.items())
        super().__init__(None, rows)  # type: ignore[arg-type]  # a table of its own is played

    def collect(self) -> list[dict[str, Any]]:
        assert self.is_cached, "read from Kafka once"
        return super().collect()


class Lake:
    """One table, with the rows of each application's commits."""

    def __init__(self) -> None:
        self.apps: dict[str, FakeTable] = {}
        self.rows: list[Any] = []
        #: Delta's id of what lies there now.
        self.id = "a-table"
        #: What a writer took to be there, at each batch.
        self.expected: list[Written | None] = []
        #: Called in the middle of a write, before Delta compares the versions.
        self.in_the_middle: Callable[[], None] = lambda: None
        #: Called while the rows' files are written.
        self.while_staging: Callable[[], None] = lambda: None
        #: What a write ends with, after its commit.
        self.failure: Exception | None = None

    def open(self, _spark: Any, path: str, app: str) -> "LakeTable":
        assert path in ("lake", LakeTable.uri)
        return LakeTable(self, self.apps.setdefault(app, FakeTable(None)))


class LakeTable:
    """`SparkTable` over a lake."""

    uri = "file:///lake"

    def __init__(self, lake: Lake, app: FakeTable) -> None:
        self._lake, self._app = lake, app
        self.written: Written | None = None

    def id(self) -> str:
        return self._lake.id

    def prepare(self, _rows: Any, how: How) -> None:
        """As `SparkTable` does, and nobody waits."""
        self._lake.expected.append(self.written)
        known, at = self.written, self._lake.id
        if known is not None and known.id not in (at, how.replaces):
            raise AnotherTable("Another Delta table is there.", self.uri)
        turn = 0 if known is None else known.turn + (known.id != at)
        self.written = Written(at, self._app.newest(), turn)

    def stage(self, rows: Any, _how: How) -> "LakeBatch":
        self._lake.while_staging()
        return LakeBatch(self._lake, self._app, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


class LakeBatch:
    """`StagedBatch` over a lake."""

    def __init__(self, lake: Lake, app: FakeTable, rows: Any) -> None:
        self._lake, self._app, self._rows = lake, app, rows

    def commit(self, token: int) -> bool:
        self._lake.in_the_middle()
        is_written = self._app.write(token)
        if is_written:
            self._lake.rows.append(self._rows)
        if self._lake.failure is not None:
            raise self._lake.failure
        return is_written


class LakeReaders(ReaderWorld):
    """Readers that commit with their writes into one lake."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.lake = Lake()
        self.looks: list[Callable[[], None]] = []
        for module in (spark_reader, spark_writes):
            monkeypatch.setattr(module, "SparkTable", self.lake.open)

    def read(self, client: str = "spark", **more: Any) -> SparkGroupReader:
        return super().read(client, **{"commits": "with-writes", **more})

    def follow(self, reader: SparkGroupReader) -> None:
        """Looks of this reader run when the world comes to them."""
        commit_checker = reader.member.commit_checker
        commit_checker.spawn = self.looks.append
        commit_checker.opener = lambda _uri, app: self.lake.open(None, "lake", app)

    def poll_all(self) -> None:
        super().poll_all()
        looks = list(self.looks)
        self.looks.clear()
        for look in looks:
            look()

    def write(self, share: Share, replaces: str = "", **greatest: int) -> Exception | None:
        """foreachBatch in Spark's thread, while all others go on; what it raised."""
        doing = self.begin_write(share, replaces, **greatest)
        wait_for(self.log, doing)
        return doing.problem

    def begin_write(self, share: Share, replaces: str = "", **greatest: int) -> "Doing":
        source: Any = FakeBatch(**greatest)
        rows: Any = greatest
        doing = Doing(lambda: share.write_once(source, rows, "lake", replaces=replaces))
        doing.start()
        return doing

    @property
    def committed_now(self) -> dict[int, int]:
        """What the group has committed, partition -> offset."""
        return committed_in(self.log)


class Doing(threading.Thread):
    """A thread that keeps what its function raised."""

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            self._function()
        except Exception as problem:  # noqa: BLE001  for the test
            self.problem = problem


def wait_for(log: FakeLog, doing: Doing) -> None:
    """Until it ends, while the log goes on."""
    for _ in range(500):
        log.pump()
        doing.join(0.02)
        if not doing.is_alive():
            return
    raise AssertionError("the write does not end")


def committed_in(log: FakeLog) -> dict[int, int]:
    """What the group has committed, partition -> offset."""
    found: dict[int, int] = {}
    for output in log.outputs:
        if output.topic == "committed" and output.value:
            key, value = map(json.loads, (output.key, output.value))
            found[key[2]] = value["offset"]
    return found


def app_of(world: LakeReaders) -> str:
    """The application under which the newest reader has written."""
    return next(reversed(world.lake.apps))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LakeReaders:
    return LakeReaders(monkeypatch, tmp_path)


# ---- batches ----------------------------------------------------------------------------------


def test_rows_and_offsets_come_together(world: LakeReaders) -> None:
    """Batch after batch; Spark's progress commits nothing by itself."""
    world.read(commit_interval_s=1)
    query = world.query

    for number in (4, 9):
        query.begin()
        assert world.write(query.share, t0=number, t2=number) is None
        query.end(t0=number + 1, t1=0, t2=number + 1)
        world.run(3_000)

    assert world.lake.rows == [{"t0": 4, "t2": 4}, {"t0": 9, "t2": 9}]
    assert world.committed_now == {0: 10, 2: 10}
    assert world.of("spark", api.OffsetCommit) == []
    words = world.of("spark", api.DecidePending)
    assert [each.result for each in words] == ["commit", "commit"]


def test_the_next_owner_goes_on_behind_what_is_written(world: LakeReaders) -> None:
    """A hand-over between two batches repeats nothing, and its Release carries no offsets."""
    world.read()
    query = world.query
    assert world.write(query.share, t0=4, t1=4, t2=4, t3=4) is None
    query.end(t0=5, t1=5, t2=5, t3=5)

    world.read("other")
    world.run(3_000)

    assert [each.offsets for each in world.releases("spark")] == [()]
    began = {each: at for query in world.reading for each, at in query.began.items()}
    assert began == dict.fromkeys(t(0, 1, 2, 3), 5)


def test_a_program_may_look_between_the_tables_commit_and_the_word(world: LakeReaders) -> None:
    """There it is killed by the demo: the rows are in the table, and nobody was told."""
    world.read()
    writes, seen = world.query.share.writes, []
    assert writes is not None
    writes.on_written = lambda: seen.append((list(world.lake.rows), world.committed_now))

    assert world.write(world.query.share, t0=4) is None

    world.run(3_000)
    assert seen == [([{"t0": 4}], {})]
    assert world.committed_now == {0: 5}


def test_a_batch_without_records_writes_nothing(world: LakeReaders) -> None:
    """Spark makes one of what is only markers of transactions."""
    world.read()

    assert world.write(world.query.share) is None

    assert world.lake.rows == []
    assert world.of("spark", api.PendingCommit) == []


def test_a_second_table_for_the_same_batch_is_refused(world: LakeReaders) -> None:
    """Two commits of Delta are no unit."""
    world.read()
    query = world.query
    assert world.write(query.share, t0=4) is None

    problem = world.write(query.share, t0=4)

    assert isinstance(problem, CoordError)
    assert "in a table already" in problem.what
    assert len(world.lake.rows) == 1


def test_rows_of_other_partitions_are_refused(world: LakeReaders) -> None:
    """A batch of another query was given as the source."""
    world.read()

    problem = world.write(world.query.share, t0=4, t7=4)

    assert isinstance(problem, CoordError)
    assert "t-7" in problem.what


# ---- who is shut out ----------------------------------------------------------------------------


def test_a_writer_that_was_overtaken_begins_again_from_what_is_committed(
    world: LakeReaders,
) -> None:
    """INV-100: it stalled after the acceptance, and somebody has looked into the table."""
    reader = world.read()
    query, app = world.query, f"coordlib/FakeLog0/orders/{reader.member.member_id}"

    def overtake() -> None:
        world.lake.apps[app].write(10**6)

    world.lake.in_the_middle = overtake

    problem = world.write(query.share, t0=4)
    query.fail(ValueError("MemberFenced, in Spark's words"))
    world.lake.in_the_middle = lambda: None

    assert isinstance(problem, MemberFenced)
    assert world.lake.rows == []
    world.follow(reader)
    world.run(20_000)
    assert world.query is not query
    assert world.query.began == dict.fromkeys(t(0, 1, 2, 3), 0)
    assert world.of("spark", api.DecidePending)[-1].result == "abort"


def test_a_write_that_fails_after_its_commit_has_written(world: LakeReaders) -> None:
    """Delta writes a checkpoint after some commits, and the disk is full."""
    world.read()
    world.lake.failure = OSError("no space left")

    assert world.write(world.query.share, t0=4) is None

    world.run(1_000)
    assert world.committed_now == {0: 5}


def test_a_batch_whose_rows_cannot_be_computed_leaves_nothing_in_doubt(
    world: LakeReaders,
) -> None:
    """Its files are written before the commit: nobody has to look into the table."""
    world.read()

    def fail() -> None:
        raise ValueError("no such column")

    world.lake.while_staging = fail

    problem = world.write(world.query.share, t0=4)
    world.run(3_000)

    assert isinstance(problem, ValueError)
    assert [each.result for each in world.of("spark", api.DecidePending)] == ["abort"]
    assert world.lake.rows == []


def test_a_batch_that_fails_ends_the_reader_and_is_found_not_written(world: LakeReaders) -> None:
    """The user's query has a defect: its offsets wait until the next owner has looked."""
    reader = world.read()
    query = world.query

    def fail() -> None:
        raise ValueError("no such column")

    world.lake.in_the_middle = fail
    problem = world.write(query.share, t0=4)
    assert isinstance(problem, ValueError)
    later = world.write(query.share, t0=9)
    assert isinstance(later, CoordError), "a later batch would pass over this one"
    query.fail(problem)
    with pytest.raises(CoordError, match="The query failed"):
        world.run(500)
    world.stop(reader)
    world.lake.in_the_middle = lambda: None

    heir = world.read("heir")
    world.follow(heir)
    world.run(20_000)

    assert world.query.began == dict.fromkeys(t(0, 1, 2, 3), 0)
    assert world.lake.rows == []


def test_a_batch_whose_word_was_never_said_is_found_written(world: LakeReaders) -> None:
    """INV-100: cut off behind the acceptance, killed behind the write. The heir looks into the
    table for the token of the commit, and goes on behind the batch."""
    transport = world.log.transport()
    world.read(transport=transport)
    assert world.write(world.query.share, t1=0) is None

    def cut() -> None:
        transport.is_cut = True

    world.lake.in_the_middle = cut
    query = world.query
    assert world.write(query.share, t0=4) is None
    world.run(8_000)  # its session ends

    heir = world.read("heir")
    world.follow(heir)
    world.run(20_000)

    assert world.of("heir", api.DecidePending)[-1].result == "commit"
    assert world.committed_now == {0: 5, 1: 1}
    assert world.lake.rows == [{"t1": 0}, {"t0": 4}]


@pytest.mark.parametrize("has_written", [False, True])
def test_a_batch_waits_for_the_job_and_is_given_up_with_its_run(
    world: LakeReaders, has_written: bool
) -> None:
    """The job is away; meanwhile the reader is stopped. What is judged later is not written.

    A first batch waits for what the group has committed, a later one for its own commit.
    """
    reader = world.read()
    query = world.query
    if has_written:
        assert world.write(query.share, t0=0) is None
        query.end(t0=1, t1=0, t2=0, t3=0)
    world.log.job_is_up = False
    query.begin()
    doing = world.begin_write(query.share, t0=4)
    for _ in range(10):
        world.log.pump()
        doing.join(0.02)
    assert doing.is_alive()

    reader._give_up("a test")
    wait_for(world.log, doing)
    world.log.job_is_up = True
    world.run(20_000)

    assert isinstance(doing.problem, MemberFenced)
    assert world.lake.rows == [{"t0": 0}] * has_written
    words = [each.result for each in world.of("spark", api.DecidePending)]
    assert words == ["commit", "abort"] * has_written
    assert world.query.began == dict.fromkeys(t(0, 1, 2, 3), 0) | {t(0)[0]: int(has_written)}


def test_one_that_has_lost_its_partitions_writes_nothing(world: LakeReaders) -> None:
    """Cut off for longer than its session."""
    transport = world.log.transport()
    world.read(transport=transport)
    query = world.query
    query.begin()
    transport.is_cut = True
    world.join("python")
    world.run(8_000)

    assert isinstance(world.write(query.share, t0=4), MemberFenced)
    assert world.lake.rows == []


# ---- the table ----------------------------------------------------------------------------------


def test_a_first_batch_makes_the_table_and_offsets_name_it(world: LakeReaders) -> None:
    """Its id and version stand in the metadata of each offset, for whoever begins next."""
    world.read()

    assert world.write(world.query.share, t0=4) is None

    world.run(3_000)
    assert world.lake.expected == [None]
    (asked,) = world.of("spark", api.PendingCommit)
    named = metadata_of({LakeTable.uri: Written("a-table", 0, behind=app_of(world))})
    assert [row.metadata for row in asked.offsets] == [named]


def test_a_restarted_member_expects_the_table_of_its_group(world: LakeReaders) -> None:
    """INV-120: nothing of the first process is left but what it has committed; and the share of the
    second has partitions of which nobody has committed anything."""
    reader = world.read()
    assert world.write(world.query.share, t0=4) is None
    world.query.end(t0=5, t1=0, t2=0, t3=0)
    world.run(3_000)
    world.stop(reader)
    of_first = app_of(world)

    world.read("heir")
    world.lake.id = "another"  # it has come to the table's place
    problem = world.write(world.query.share, t3=4)

    assert isinstance(problem, AnotherTable)
    assert world.lake.expected[-1] == Written("a-table", 0, behind=of_first)
    assert len(world.lake.rows) == 1
    assert len(world.of("heir", api.PendingCommit)) == 0, "nothing is left to be decided"


def test_a_reader_that_writes_nothing_keeps_the_name_of_the_groups_table(
    world: LakeReaders,
) -> None:
    """INV-120: with its own commits the group would forget its table, and one that is away would be
    made anew by whoever writes next."""
    reader = world.read()
    assert world.write(world.query.share, t0=4, t1=4) is None
    world.query.end(t0=5, t1=5, t2=0, t3=0)
    world.run(3_000)
    world.stop(reader)
    of_first = app_of(world)

    heir = world.read("heir", commits="progress", commit_interval_s=1)
    world.query.end(t0=7, t1=7, t2=7, t3=7)
    world.run(3_000)
    world.stop(heir)

    commits = [each for each in world.of("heir", api.OffsetCommit) if each.offsets]
    assert commits
    named = {row.metadata for each in commits for row in each.offsets}
    assert named == {metadata_of({LakeTable.uri: Written("a-table", 0, behind=of_first)})}


def test_a_group_that_writes_to_two_tables_in_turn_keeps_both(world: LakeReaders) -> None:
    reader = world.read()
    other = Written("other-table", 3)
    reader._tables.noted([metadata_of({"file:///other": other})])

    assert world.write(world.query.share, t0=4) is None

    (asked,) = world.of("spark", api.PendingCommit)
    mine = Written("a-table", 0, behind=app_of(world))
    both = metadata_of({"file:///other": other, LakeTable.uri: mine})
    assert [row.metadata for row in asked.offsets] == [both]


def test_a_table_is_replaced_on_purpose_and_the_newest_one_counts(world: LakeReaders) -> None:
    """Offsets of idle partitions name the old table for ever."""
    reader = world.read()
    assert world.write(world.query.share, t0=4, t1=4) is None
    world.query.end(t0=5, t1=5, t2=0, t3=0)
    world.lake.id = "another"
    assert world.write(world.query.share, replaces="a-table", t0=6) is None
    world.query.end(t0=7, t1=5, t2=0, t3=0)
    world.run(3_000)
    world.stop(reader)

    world.read("heir")
    assert world.write(world.query.share, replaces="a-table", t0=8) is None

    (*_, expected) = world.lake.expected
    assert expected is not None
    assert (expected.id, expected.turn) == ("another", 1)


def test_a_batch_in_doubt_is_not_looked_for_in_another_table(world: LakeReaders) -> None:
    """It may be in the one that was there, which may come back: nobody says that it is not."""
    transport = world.log.transport()
    world.read(transport=transport)

    def cut() -> None:
        transport.is_cut = True

    world.lake.in_the_middle = cut
    assert world.write(world.query.share, t0=4) is None
    world.run(8_000)  # its session ends
    world.lake.id = "another"
    world.lake.apps.clear()

    heir = world.read("heir")
    world.follow(heir)
    world.run(20_000)

    assert world.of("heir", api.DecidePending) == []
    assert "Another Delta table" in heir.member.commit_checker.trouble
    assert "coord transactions decide" in heir.member.commit_checker.trouble


# ---- settings -----------------------------------------------------------------------------------


def test_a_reader_that_commits_its_progress_has_no_such_writes() -> None:
    """Both would commit."""
    with pytest.raises(SetupError, match="commits its progress"):
        share_of().write_once(FakeBatch(), FakeBatch(), "lake")  # type: ignore[arg-type]


def test_there_are_two_ways_to_commit(world: LakeReaders) -> None:
    """A slip of the pen must not mean the usual way."""
    with pytest.raises(SetupError, match="no such way"):
        world.read(commits="with_writes")
