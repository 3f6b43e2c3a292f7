"""INV-159. Batches of a loop, and their offsets in one unit: the real member over the real core.

Spark and Delta are played.
"""

from collections.abc import Callable
from typing import Any

import pytest

from coordlib.client.kit.fence import MemberFenced
from coordlib.client.spark import delta_writes
from coordlib.client.spark.batch import Batch
from coordlib.client.spark.batches import GroupLoop
from coordlib.client.transactions.delta_commits import Written, metadata_of
from coordlib.core.wire import api
from coordlib.errors import AnotherTable, CoordError, SetupError
from coordlib.kafka.logs import Bounds
from tests.client.interrupting import interrupt_everywhere
from tests.client.spark.loops import LoopWorld, begins
from tests.client.spark.test_share import FakeFrame, FakeTable
from tests.client.spark.test_writes import Doing, LakeTable, wait_for
from tests.tools.background import judged

ALL = range(4)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> LoopWorld:
    return LoopWorld(monkeypatch)


def grow(world: LoopWorld, end: int) -> None:
    """Records come, up to there in each partition."""
    world.bounds = dict.fromkeys(ALL, Bounds(0, end))


def words(world: LoopWorld, client: str = "spark") -> list[str]:
    return [each.result for each in world.of(client, api.DecidePending)]


def app_of(world: LoopWorld) -> str:
    """The application under which the newest loop has written."""
    return next(reversed(world.lake.apps))


# ---- write_once -------------------------------------------------------------------------------


def test_rows_and_offsets_come_together(world: LoopWorld) -> None:
    """Batch after batch, without a commit of their own."""
    loop = world.loop()
    for end in (10, 20):
        grow(world, end)
        batch = world.take(loop)
        assert world.write(batch, f"up to {end}") is None
        batch.commit()  # does nothing: it is committed
        world.run(3_000)

    assert world.lake.rows == ["up to 10", "up to 20"]
    assert world.committed_now == dict.fromkeys(ALL, 20)
    assert world.of("spark", api.OffsetCommit) == []
    assert words(world) == ["commit", "commit"]


def test_the_next_owner_goes_on_behind_what_is_written(world: LoopWorld) -> None:
    """A hand-over between two batches repeats nothing, and its Release carries no offsets."""
    loop = world.loop()
    assert world.write(world.take(loop), "first") is None

    other = world.loop("other")
    grow(world, 12)

    assert [each.offsets for each in world.releases("spark")] == [()]
    found = begins(world.take(loop)) | begins(world.take(other))
    assert found == dict.fromkeys(ALL, 10)


def test_a_program_may_look_between_the_tables_commit_and_the_word(world: LoopWorld) -> None:
    """There a test kills it: the rows are in the table, and the group was not informed."""
    loop, seen = world.loop(), []
    loop.writes.on_written = lambda: seen.append((list(world.lake.rows), world.committed_now))

    assert world.write(world.take(loop), "rows") is None

    world.run(3_000)
    assert seen == [(["rows"], {})]
    assert world.committed_now == dict.fromkeys(ALL, 10)


def test_a_second_table_for_the_same_batch_is_refused(world: LoopWorld) -> None:
    """Two commits of Delta are no unit."""
    batch = world.take(world.loop())
    assert world.write(batch, "rows") is None

    problem = world.write(batch, "rows")

    assert isinstance(problem, CoordError)
    assert "in a table already" in problem.what
    assert world.lake.rows == ["rows"]


def test_a_batch_that_is_committed_is_not_written(world: LoopWorld) -> None:
    """Its partitions may have other owners by now."""
    batch = world.take(world.loop())
    batch.commit()

    problem = world.write(batch, "rows")

    assert isinstance(problem, CoordError)
    assert "before you commit" in problem.hint
    assert world.lake.rows == []


def test_batches_may_be_committed_or_written_in_turn(world: LoopWorld) -> None:
    """An older commit that was refused for the moment never comes behind a newer one."""
    loop = world.loop()
    world.take(loop).commit()
    grow(world, 20)
    assert world.write(world.take(loop), "rows") is None
    grow(world, 30)
    world.take(loop).commit()
    world.run(5_000)

    assert world.committed_now == dict.fromkeys(ALL, 30)
    offsets = [each.get(0) for each in world.committed("spark")]
    assert offsets == sorted(offsets)


# ---- who is shut out --------------------------------------------------------------------------


def test_a_writer_that_was_overtaken_begins_again_from_what_is_committed(
    world: LoopWorld,
) -> None:
    """INV-100: it stalled after the acceptance, and somebody has looked into the table."""
    loop = world.loop()
    batch, app = world.take(loop), f"coordlib/FakeLog0/orders/{loop.member.member_id}"

    def overtake() -> None:
        world.lake.apps[app].write(10**6)

    world.lake.in_the_middle = overtake
    problem = world.write(batch, "rows")
    world.lake.in_the_middle = lambda: None

    assert isinstance(problem, MemberFenced)
    assert world.lake.rows == []
    assert loop.take() is None, "it is in doubt"
    world.run(20_000)
    assert begins(world.take(loop)) == dict.fromkeys(ALL, 0)
    assert words(world)[-1] == "abort"


def test_a_write_that_fails_after_its_commit_has_written(world: LoopWorld) -> None:
    """Delta writes a checkpoint after some commits, and the disk is full."""
    batch = world.take(world.loop())
    world.lake.failure = OSError("no space left")

    assert world.write(batch, "rows") is None

    world.run(1_000)
    assert world.committed_now == dict.fromkeys(ALL, 10)


def test_a_batch_whose_rows_cannot_be_computed_leaves_nothing_in_doubt(
    world: LoopWorld,
) -> None:
    """Its files are written before the commit. The next batch is the same one."""
    loop = world.loop()

    def fail() -> None:
        raise ValueError("no such column")

    world.lake.while_staging = fail
    problem = world.write(world.take(loop), "rows")
    world.lake.while_staging = lambda: None
    world.run(3_000)

    assert isinstance(problem, ValueError)
    assert words(world) == ["abort"]
    batch = world.take(loop)
    assert begins(batch) == dict.fromkeys(ALL, 0)
    assert world.write(batch, "rows") is None
    assert world.lake.rows == ["rows"]


def test_a_batch_that_fails_is_never_passed_over(world: LoopWorld) -> None:
    """The program logs the exception, and takes the next batch: it has the same records."""
    loop = world.loop(max_records=8)
    world.run(2_000)
    batch = world.take(loop)
    world.run(2_000)  # the next one is planned

    def fail() -> None:
        raise ValueError("no such column")

    world.lake.in_the_middle = fail
    assert isinstance(world.write(batch, "rows"), ValueError)
    assert isinstance(world.write(batch, "rows"), CoordError)
    with pytest.raises(CoordError, match="not written"):
        batch.commit()
    assert loop.take() is None, "nobody knows yet whether the table has it"
    world.lake.in_the_middle = lambda: None
    world.run(20_000)

    assert begins(world.take(loop)) == dict.fromkeys(ALL, 0)
    assert world.lake.rows == []


def test_a_batch_whose_word_was_never_said_is_found_written(world: LoopWorld) -> None:
    """INV-100: cut off behind the acceptance, killed behind the write. The heir looks into the
    table for the token of the commit, and goes on behind the batch."""
    transport = world.log.transport()
    loop = world.loop(transport=transport)
    assert world.write(world.take(loop), "first") is None
    grow(world, 20)

    def cut() -> None:
        transport.is_cut = True

    world.lake.in_the_middle = cut
    assert world.write(world.take(loop), "second") is None
    world.loops.remove(loop)
    world.run(8_000)  # its session ends

    heir = world.loop("heir")
    world.run(20_000)

    assert words(world, "heir")[-1] == "commit"
    assert world.committed_now == dict.fromkeys(ALL, 20)
    grow(world, 25)
    assert begins(world.take(heir)) == dict.fromkeys(ALL, 20)
    assert world.lake.rows == ["first", "second"]


@pytest.mark.parametrize("has_written", [False, True])
def test_a_batch_waits_for_the_job_and_is_given_up_with_its_loop(
    world: LoopWorld, has_written: bool
) -> None:
    """The job is away; meanwhile the loop is left. What is judged later is not written.

    A first batch waits for what the group has committed, a later one for its own commit.
    """
    loop = world.loop()
    if has_written:
        assert world.write(world.take(loop), "first") is None
        world.run(1_000)
        grow(world, 20)
    world.log.job_is_up = False
    batch = world.take(loop)
    doing = world.begin_write(batch, "second")
    for _ in range(10):
        world.log.pump()
        doing.join(0.02)
    assert doing.is_alive()

    with loop._changed:
        loop._end_batch()
    wait_for(world.log, doing)
    world.log.job_is_up = True
    world.run(20_000)

    assert isinstance(doing.problem, MemberFenced)
    assert world.lake.rows == ["first"] * has_written
    assert words(world) == ["commit", "abort"] * has_written
    assert begins(world.take(loop)) == dict.fromkeys(ALL, 10 * has_written)


def test_one_that_has_lost_its_partitions_writes_nothing(world: LoopWorld) -> None:
    """Cut off for longer than its session."""
    transport = world.log.transport()
    batch = world.take(world.loop(transport=transport))
    transport.is_cut = True
    world.join("python")
    world.run(8_000)

    assert isinstance(world.write(batch, "rows"), MemberFenced)
    assert world.lake.rows == []


# ---- the table --------------------------------------------------------------------------------


def test_a_first_batch_makes_the_table_and_offsets_name_it(world: LoopWorld) -> None:
    """Its id and version stand in the metadata of each offset, for whoever begins next."""
    assert world.write(world.take(world.loop()), "rows") is None

    world.run(3_000)
    assert world.lake.expected == [None]
    (asked,) = world.of("spark", api.PendingCommit)
    named = metadata_of({LakeTable.uri: Written("a-table", 0, behind=app_of(world))})
    assert {row.metadata for row in asked.offsets} == {named}


def test_a_restarted_member_expects_the_table_of_its_group(world: LoopWorld) -> None:
    """INV-120: nothing of the first process is left but what it has committed."""
    loop = world.loop()
    assert world.write(world.take(loop), "rows") is None
    world.run(3_000)
    world.end(loop)
    of_first = app_of(world)
    grow(world, 20)

    heir = world.loop("heir")
    world.lake.id = "another"  # it has come to the table's place
    problem = world.write(world.take(heir), "more")

    assert isinstance(problem, AnotherTable)
    assert world.lake.expected[-1] == Written("a-table", 0, behind=of_first)
    assert world.lake.rows == ["rows"]
    assert len(world.of("heir", api.PendingCommit)) == 0, "nothing is left to be decided"


def test_a_loop_that_writes_nothing_keeps_the_name_of_the_groups_table(world: LoopWorld) -> None:
    """INV-120: with its own commits the group would forget its table, and one that is away would be
    made anew by whoever writes next."""
    loop = world.loop()
    assert world.write(world.take(loop), "rows") is None
    world.run(3_000)
    world.end(loop)
    of_first = app_of(world)
    grow(world, 20)

    heir = world.loop("heir")
    world.take(heir).commit()
    world.run(3_000)

    commits = [each for each in world.of("heir", api.OffsetCommit) if each.offsets]
    named = {row.metadata for each in commits for row in each.offsets}
    assert named == {metadata_of({LakeTable.uri: Written("a-table", 0, behind=of_first)})}


def test_a_group_that_writes_to_two_tables_in_turn_keeps_both(world: LoopWorld) -> None:
    loop = world.loop()
    other = Written("other-table", 3)
    loop.tables.noted([metadata_of({"file:///other": other})])

    assert world.write(world.take(loop), "rows") is None

    (asked,) = world.of("spark", api.PendingCommit)
    mine = Written("a-table", 0, behind=app_of(world))
    both = metadata_of({"file:///other": other, LakeTable.uri: mine})
    assert {row.metadata for row in asked.offsets} == {both}


def test_a_table_is_replaced_on_purpose_and_the_newest_one_counts(world: LoopWorld) -> None:
    """Offsets of idle partitions name the old table for ever."""
    loop = world.loop()
    assert world.write(world.take(loop), "rows") is None
    world.lake.id = "another"
    world.bounds[0] = Bounds(0, 20)
    assert world.write(world.take(loop), "more", replaces="a-table") is None
    world.run(3_000)
    world.end(loop)

    heir = world.loop("heir")
    world.bounds[1] = Bounds(0, 20)
    assert world.write(world.take(heir), "most", replaces="a-table") is None

    (*_, expected) = world.lake.expected
    assert expected is not None
    assert (expected.id, expected.turn) == ("another", 1)


def test_a_batch_in_doubt_is_not_looked_for_in_another_table(world: LoopWorld) -> None:
    """It may be in the one that was there, which may come back: nobody decides that it is not."""
    transport = world.log.transport()
    loop = world.loop(transport=transport)

    def cut() -> None:
        transport.is_cut = True

    world.lake.in_the_middle = cut
    assert world.write(world.take(loop), "rows") is None
    world.loops.remove(loop)
    world.run(8_000)  # its session ends
    world.lake.id = "another"
    world.lake.apps.clear()

    heir = world.loop("heir")
    world.run(20_000)

    assert words(world, "heir") == []
    assert "Another Delta table" in heir.member.commit_checker.trouble
    assert "coord transactions decide" in heir.member.commit_checker.trouble


def test_an_option_that_is_none_of_an_append_is_refused(world: LoopWorld) -> None:
    """The batch is read again, as after any exception."""
    loop = world.loop()
    batch = world.take(loop)

    with pytest.raises(SetupError, match="no such option"):
        batch.write_once("rows", "lake", options={"txnVersion": "1"})  # type: ignore[arg-type]

    world.run(1_000)
    assert begins(world.take(loop)) == dict.fromkeys(ALL, 0)


def test_a_late_write_of_a_batch_that_was_left_behind_disturbs_no_other(world: LoopWorld) -> None:
    """The program keeps batches in a list, and writes them later."""
    loop = world.loop()
    left = world.take(loop)
    grow(world, 20)
    batch = world.take(loop)

    problem = world.write(left, "rows")

    assert isinstance(problem, CoordError)
    assert batch.may_work()
    assert world.write(batch, "rows") is None


# ---- a topic that was made anew ---------------------------------------------------------------


def named(world: LoopWorld) -> set[str]:
    """The topics' ids in all commits of the loop."""
    rows = [getattr(each, "offsets", None) for each in world.requests if each.client == "spark"]
    return {str(row.topic_id) for some in rows for row in some or ()}


def test_offsets_are_committed_under_the_id_of_the_topic(world: LoopWorld) -> None:
    """INV-130, in both ways to commit."""
    loop = world.loop()
    world.take(loop).commit()
    grow(world, 20)
    assert world.write(world.take(loop), "rows") is None
    world.run(1_000)

    assert named(world) == {world.log.id_of("t")}


def test_a_batch_of_a_topic_that_was_made_anew_is_fenced_and_the_new_one_read_from_its_start(
    world: LoopWorld,
) -> None:
    """INV-130: no offset is out of range, as the new topic is longer than what was read."""
    loop = world.loop()
    batch = world.take(loop)
    world.log.make_anew("t")
    grow(world, 50)
    world.run(10_000)

    with pytest.raises(CoordError, match="created again"):
        batch.commit()
    assert world.committed("spark") == []
    again = world.take(loop)
    assert begins(again) == dict.fromkeys(ALL, 0)
    again.commit()
    world.run(1_000)
    assert world.committed_now == dict.fromkeys(ALL, 50)
    assert named(world) == {world.log.id_of("t")}


def test_who_is_given_its_partitions_waits_for_the_fenced_batch(world: LoopWorld) -> None:
    """The program may write where nobody fences it: as for any batch, the Release is sent when it
    is done with it, or the time for it is over."""
    loop = world.loop()
    batch = world.take(loop)
    world.log.make_anew("t")
    grow(world, 50)
    world.run(10_000)
    assert not batch.may_work()
    waits: list[int] = []

    def work() -> None:
        waits.append(world.log.now_ms)
        if len(waits) == 5:
            with pytest.raises(CoordError, match="created again"):
                batch.commit()

    world.while_waiting = work
    (user,) = world.join("python")

    assert len(waits) == 5
    assert len(user.owns) == 2


def test_a_commit_that_may_be_of_the_new_topic_is_left_out(world: LoopWorld) -> None:
    """INV-130: the topic was exchanged a moment ago, and the commit asks for its id."""
    loop = world.loop()
    batch = world.take(loop)
    world.log.make_anew("t")
    world.run(1_000)

    batch.commit()
    world.run(10_000)

    assert world.committed("spark") == []
    assert begins(world.take(loop)) == dict.fromkeys(ALL, 0)


def test_a_batch_that_may_be_of_the_new_topic_is_not_written(world: LoopWorld) -> None:
    """INV-130: neither its rows nor its offsets."""
    loop = world.loop()
    assert world.write(world.take(loop), "first") is None
    world.run(1_000)
    grow(world, 20)
    batch = world.take(loop)
    world.log.make_anew("t")

    problem = world.write(batch, "second")

    assert isinstance(problem, CoordError)
    assert "created again" in problem.what
    world.run(10_000)
    again = world.take(loop)
    assert begins(again) == dict.fromkeys(ALL, 0)
    assert world.write(again, "third") is None
    assert world.lake.rows == ["first", "third"]


def test_a_topic_that_was_away_begins_at_its_start(world: LoopWorld) -> None:
    """INV-130: the loop has seen it absent, and is told of it when it is back."""
    loop = world.loop()
    world.take(loop).commit()
    world.run(3_000)
    world.bounds = {}
    world.log.make_anew("t")
    world.run(10_000)
    grow(world, 30)
    world.run(10_000)

    assert begins(world.take(loop)) == dict.fromkeys(ALL, 0)


def test_a_loop_that_starts_after_it_begins_at_the_new_topics_start(world: LoopWorld) -> None:
    """INV-130: no listing has shown the new id."""
    loop = world.loop()
    world.take(loop).commit()
    world.run(3_000)
    world.end(loop)
    world.log.make_anew("t")
    grow(world, 30)

    assert begins(world.take(world.loop("heir"))) == dict.fromkeys(ALL, 0)


# ---- write, and the claim of a table ----------------------------------------------------------


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> LoopWorld:
    """A world whose writers hand all to the frame's own table."""
    world = LoopWorld(monkeypatch)
    monkeypatch.setattr(delta_writes, "SparkTable", FakeTable)
    return world


def do(world: LoopWorld, work: Callable[[], None]) -> Exception | None:
    """In the program's thread; what it raised."""
    doing = Doing(work)
    doing.start()
    wait_for(world.log, doing)
    return doing.problem


def fence_of(batch: Batch, number: int) -> int:
    return next(at for each, at in batch.fences.items() if each.partition == number)


def test_only_partitions_with_rows_are_written_each_under_its_own_application(
    fenced: LoopWorld,
) -> None:
    """A commit to Delta takes a second or more: one per partition that has none would be waste."""
    batch = fenced.take(fenced.loop())
    frame: Any = FakeFrame([("t", 0, "a"), ("t", 2, "b"), ("t", 0, "c")])

    assert do(fenced, lambda: batch.write(frame, "here")) is None

    assert [(row[1], row[3]) for row in frame.table] == [
        ("coordlib/FakeLog0-0/orders/t/0", ["a", "c"]),
        ("coordlib/FakeLog0-0/orders/t/2", ["b"]),
    ]
    assert [row[2] >> 24 for row in frame.table] == [fence_of(batch, 0), fence_of(batch, 2)]
    assert not frame.is_cached
    batch.commit()


def test_who_is_fenced_in_the_middle_writes_nothing_more(fenced: LoopWorld) -> None:
    loop = fenced.loop()
    batch = fenced.take(loop)
    frame: Any = FakeFrame([("t", 0, "a"), ("t", 1, "b")])
    write = FakeTable.write

    def write_and_lose(self: FakeTable, *given: Any) -> None:
        write(self, *given)
        with loop._changed:
            loop._end_batch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeTable, "write", write_and_lose)
        problem = do(fenced, lambda: batch.write(frame, "here"))

    assert isinstance(problem, MemberFenced)
    assert [row[3] for row in frame.table] == [["a"]]
    assert not frame.is_cached


def test_rows_of_other_partitions_are_refused_and_not_left_out(fenced: LoopWorld) -> None:
    """The program renamed a column: without this its rows would be lost in silence."""
    batch = fenced.take(fenced.loop())
    frame: Any = FakeFrame([("t", 0, "a"), ("t-clean", 0, "b")])

    problem = do(fenced, lambda: batch.write(frame, "here"))

    assert isinstance(problem, CoordError)
    assert "t-clean-0" in problem.what
    assert frame.table == []


def test_versions_rise_over_claims_batches_and_owners(fenced: LoopWorld) -> None:
    """Delta skips what is not above: nothing of an owner is, once its successor has claimed."""
    loop = fenced.loop()
    empty: Any = FakeFrame([])
    frame: Any = FakeFrame([("t", number, "a") for number in ALL], table=empty.table)
    for end in (10, 20):
        grow(fenced, end)
        batch = fenced.take(loop)
        assert do(fenced, lambda: batch.claim(empty, "here")) is None  # noqa: B023
        assert do(fenced, lambda: batch.write(frame, "here")) is None  # noqa: B023
        batch.commit()
    fenced.run(1_000)
    fenced.end(loop)
    grow(fenced, 30)
    heirs = fenced.take(fenced.loop("heir"))
    before = {row[1]: row[2] for row in empty.table}
    del empty.table[:]
    assert do(fenced, lambda: heirs.claim(empty, "here")) is None

    assert {row[1]: before[row[1]] < row[2] for row in empty.table} == dict.fromkeys(before, True)
    assert all(row[3] == [] for row in empty.table)


def test_a_claim_of_one_who_lost_it_is_refused(fenced: LoopWorld) -> None:
    loop = fenced.loop()
    batch = fenced.take(loop)
    fenced.end(loop)
    empty: Any = FakeFrame([])

    assert isinstance(do(fenced, lambda: batch.claim(empty, "here")), MemberFenced)
    assert empty.table == []


# ---- interrupted ------------------------------------------------------------------------------


def test_a_write_that_is_interrupted_is_whole_or_is_not() -> None:
    """INV-100: Ctrl-C comes at any line, and the program goes on with the next batch."""

    def course(interrupted: Callable[[Callable[[], Any]], Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            world = LoopWorld(patch)
            loop = world.loop()
            batch: Batch = world.take(loop)
            rows: Any = "rows"
            with judged(world.log):
                interrupted(lambda: batch.write_once(rows, "lake"))
            if batch.may_work() and not world.lake.rows:
                assert world.write(batch, rows) is None  # the call had not begun
            world.run(20_000)
            written_again(world, loop)
            assert world.lake.rows == ["rows"]

    interrupt_everywhere(course, least=40, step=5)


def written_again(world: LoopWorld, loop: GroupLoop) -> None:
    """What is not in the table comes again, and nothing else."""
    batch = loop.take()
    if batch is not None:
        assert begins(batch) == dict.fromkeys(ALL, 0)
        assert world.lake.rows == []
        assert world.write(batch, "rows") is None
    assert loop.take() is None
