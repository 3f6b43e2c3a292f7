"""Members of simulated worlds that write into a Delta table, and the table, step by step."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from coordlib.client.transactions.delta_commits import DeltaFiles, Table, Written, settle
from coordlib.core.wire import api
from coordlib.errors import AnotherTable, CannotReach
from tests.simulation.as_they_were import drawn
from tests.tools.simulation import drawing, plan, run
from tests.tools.simulation.evidence import Asked
from tests.tools.simulation.kinds import LAKE_KINDS
from tests.tools.simulation.lake import table
from tests.tools.simulation.lake.checks import Decisions, check_once
from tests.tools.simulation.lake.delta_rs import DeltaRs
from tests.tools.simulation.lake.faults import POINTS
from tests.tools.simulation.lake.member import GROUP, RAIN
from tests.tools.simulation.lake.members import with_the_table
from tests.tools.simulation.lake.table import (
    Access,
    Commit,
    DeltaLog,
    LakeTable,
    SparkLake,
    Store,
    StoreAway,
)
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.situations_beside import OF_LAKE
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import World

#: As little as there can be beside the lake.
SMALL: dict[str, Any] = {"members": 2, "partitions": 1, "messages": 5}
WRITER: Any = "coordlib/Simulat0/lake/m-1"


# -- worlds ----------------------------------------------------------------------------------------


def test_some_seeds_have_a_lake_and_the_others_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known bugs of groups, stores and copiers are found by the seeds that their headers name."""
    named = [drawing.draw(seed, kind=plan.ASSIGNED) for seed in range(400)]
    with_them = drawn(monkeypatch, "_with_lake", LAKE_KINDS, lake_members=0)

    assert 0.02 < sum(each.lake_members > 0 for each in with_them) / 400 < 0.12
    assert not any(each.lake_members for each in named)


def test_faults_of_the_lake_bring_members() -> None:
    """`--fault lake-fails` draws from that kind only."""
    drawn = drawing.draw(5, ("lake-fails", "lake-fails"))

    assert drawn.lake_members in (2, 3)
    assert {fault.kind for fault in drawn.faults} == {"lake-fails"}


#: Between them the table is away, and another one lies in its place.
GOES = (10, 11)
FAULTS = ("lake-dies-inside", "lake-acts-late", "lake-stalls-inside", "lake-joins")
#: The rows of the crash table: these faults must bring them about, in one of two worlds at least.
MET = {
    *(f"lake member struck at {point}" for point in POINTS),
    *("batch in doubt found in the table", "batch in doubt not found in the table"),
    *("batch and its offsets committed", "word about a batch came too late"),
    *(table.CONFLICT, table.CLAIM_LATE),
}


def test_members_of_the_lake_come_through() -> None:
    """INV-93, INV-96, INV-97, INV-100. A campaign plays more."""
    met: Counter[str] = Counter()
    for seed in (8, 13):
        world = World(replace(drawing.draw(seed, FAULTS * 3), **SMALL, shards=2))
        with quiet_logs():
            outcome = run.run_in(world)

        assert outcome.violation is None
        met.update(outcome.sometimes)
        assert world.lake is not None
        assert all(fiber.is_over for each in world.lake.processes for fiber in each.fibers)
    assert OF_LAKE.keys() >= MET
    assert [name for name in MET if not met[name]] == []


def test_members_wait_for_a_table_that_is_away_and_write_into_no_other() -> None:
    """INV-120, INV-157: a lost mount, and another table or an old copy at the place meanwhile."""
    met: Counter[str] = Counter()
    for seed in GOES:
        world = World(replace(drawing.draw(seed, ("lake-table-goes",) * 4), **SMALL, shards=2))
        with quiet_logs():
            outcome = run.run_in(world)

        assert outcome.violation is None
        met.update(outcome.sometimes)
        assert world.lake is not None
        assert world.lake.store.place is world.lake.store.log
    assert met[table.AWAY] > 0
    assert met[table.ANOTHER] > 0
    assert met[table.OLD_COPY] > 0


# -- the table -------------------------------------------------------------------------------------


class Hand:
    """Writers and lookers of one table, one step after the other, without a process."""

    def __init__(self) -> None:
        self.store = Store(DeltaLog(), Random(1))
        #: What happens at a point.
        self.at: dict[str, Callable[[], None]] = {}

    def access(self) -> Access:
        return Access(self.store, lambda for_ms: None, self._strike)

    def spark(self, app: str = WRITER) -> LakeTable:
        return LakeTable(SparkLake(self.access()), table.URI, app)

    def files(self, app: str = WRITER) -> DeltaFiles:
        return DeltaFiles(table.URI, app, DeltaRs(self.access()))

    def _strike(self, point: str) -> None:
        self.at.pop(point, lambda: None)()


def put(lake: LakeTable, rows: tuple[table.Row, ...], token: int) -> bool:
    """As a reader does."""
    batch: Any = rows
    lake.prepare(batch)
    return lake.stage(batch).commit(token)


def write(lake: LakeTable, rows: tuple[table.Row, ...], token: int) -> None:
    assert put(lake, rows, token)


@pytest.fixture
def hand() -> Iterator[Hand]:
    with with_the_table():
        yield Hand()


def test_a_write_is_skipped_unless_its_token_is_greater(hand: Hand) -> None:
    """Delta's rule: a claim shuts the writer out for good."""
    lake = hand.spark()
    lake.claim(9)
    assert not put(lake, ((RAIN, 0, 0),), 7)
    assert put(lake, ((RAIN, 0, 0),), 11)

    assert [each.token for each in hand.store.log.commits] == [0, 9, 11]


def test_a_batch_is_staged_for_the_table_that_was_looked_at(hand: Hand) -> None:
    """INV-157: an old copy comes between the look and the rows' files."""
    lake, rows = hand.spark(), ((RAIN, 0, 0),)
    write(lake, rows, 7)
    batch: Any = rows
    lake.prepare(batch)
    hand.store.place = hand.store.log.old_copy()
    staged = lake.stage(batch)

    with pytest.raises(AnotherTable):
        staged.commit(9)
    assert hand.store.astray == []


def test_who_is_the_first_of_its_process_to_write_asks_again(hand: Hand) -> None:
    """INV-120: it had asked before another member's first commit, and another table lies there."""
    lake = hand.spark()
    lake.ask_again = lambda: Written("the table", 0)
    hand.store.place = DeltaLog("another")

    with pytest.raises(AnotherTable):
        put(lake, ((RAIN, 0, 0),), 7)


def test_of_two_commits_of_one_application_at_once_one_conflicts(hand: Hand) -> None:
    """A stalled writer wakes up behind a claim, in the middle of its write."""
    hand.at[table.APPENDING] = lambda: hand.spark().claim(9)

    assert not put(hand.spark(), ((RAIN, 0, 0),), 7)
    assert hand.store.met[table.CONFLICT] == 1
    assert [each.token for each in hand.store.log.commits] == [0, 9]


def test_commits_of_other_applications_do_not_conflict(hand: Hand) -> None:
    """All members append to one table at once."""
    hand.at[table.APPENDING] = lambda: write(hand.spark("other"), ((RAIN, 1, 0),), 8)
    write(hand.spark(), ((RAIN, 0, 0),), 7)

    assert [each.token for each in hand.store.log.commits] == [0, 8, 7]


@pytest.mark.parametrize("kind", ["spark", "files"])
def test_a_writer_between_look_and_claim_is_found(hand: Hand, kind: str) -> None:
    """By the real rules, over both ways to open the simulated table."""
    looker: Table = getattr(hand, kind)()
    hand.at[table.CLAIMING] = lambda: write(hand.spark(), ((RAIN, 0, 0),), 7)

    assert settle(looker, 7, 9, 0) == "commit"
    assert hand.store.met[table.CLAIM_LATE] == 1


@pytest.mark.parametrize("kind", ["spark", "files"])
def test_who_is_behind_a_dead_lookers_claim_finds_the_same(hand: Hand, kind: str) -> None:
    """It died after its own empty commit, and had said nothing."""
    hand.spark().claim(9)
    looker: Table = getattr(hand, kind)()

    assert settle(looker, 7, 12, 0) == "abort"


@pytest.mark.parametrize("kind", ["spark", "files"])
def test_a_store_that_is_away_decides_nothing(hand: Hand, kind: str) -> None:
    """A failing look must not look like an empty table."""
    hand.store.fails = True
    hand.store.luck = Random(0)  # its first draws fail and do not

    failed = 0
    for _ in range(20):
        try:
            looker: Table = getattr(hand, kind)()
            assert settle(looker, 7, 9, 0) == "abort"
        except (CannotReach, StoreAway):  # the looker of a member takes any exception
            failed += 1
    assert failed > 5


# -- checks that find nothing may be blind ---------------------------------------------------------


WHO: dict[str, Any] = {"v": 1, "id": "1", "client": "d", "group": GROUP, "reply": 0}
ROWS = ((RAIN, 0, 5), (RAIN, 0, 6))


def pending(decisions: Decisions, offset: int, at: int = 7) -> None:
    rows = (api.CommittedOffset(RAIN, 0, at),)
    more = {"member": "m-1", "generation": 1, "decided_by": "delta", "table": table.URI}
    request = api.PendingCommit(**WHO, **more, offsets=rows)
    answer = {"error": "NONE", "pending": f"r0-{offset}"}
    decisions.judge(Asked(0, offset, offset, request), [answer])


def decide(decisions: Decisions, entry: int, result: Any, error: str = "NONE") -> None:
    request = api.DecidePending(**WHO, pending=f"r0-{entry}", result=result)
    decisions.judge(Asked(0, 99, 99, request), [{"error": error}])


def fetch(decisions: Decisions, offset: int, error: str = "NONE") -> None:
    request = api.OffsetFetch(**WHO, topics=None, require_stable=True)
    row = {"topic": RAIN, "partition": 0, "offset": offset, "error": error}
    decisions.judge(Asked(0, 99, 99, request), [{"error": "NONE", "offsets": [row]}])


def test_an_honest_log_passes() -> None:
    """One batch is in the table, and the next was given up."""
    made = Decisions(0, [Commit(WRITER, 3, ROWS)])
    pending(made, 3)
    fetch(made, -1, "UNSTABLE_OFFSET_COMMIT")
    decide(made, 3, "commit")
    fetch(made, 7)
    pending(made, 5, at=9)
    decide(made, 5, "abort")
    decide(made, 5, "commit", error="INVALID_TXN_STATE")
    fetch(made, 7)
    made.require_all_decided()


@pytest.mark.parametrize(
    ("commits", "result"),
    [
        pytest.param([], "commit", id="offsets without rows"),
        pytest.param([Commit(WRITER, 3, ())], "commit", id="a claim is no batch"),
        pytest.param([Commit(WRITER, 3, ROWS)], "abort", id="rows without offsets"),
        pytest.param([Commit(WRITER, 3, ROWS[:1])], "commit", id="other rows"),
        pytest.param([Commit(WRITER[:-1] + "2", 3, ROWS)], "commit", id="token of another member"),
    ],
)
def test_a_table_that_disagrees_is_seen(commits: list[Commit], result: str) -> None:
    """INV-100."""
    made = Decisions(0, commits)
    pending(made, 3)

    with pytest.raises(Violation, match="INV-100"):
        decide(made, 3, result)


def test_a_fetch_below_what_waits_is_seen() -> None:
    """INV-97: what it begins to read may be in the table already."""
    made = Decisions(0, [])
    pending(made, 3)

    with pytest.raises(Violation, match="INV-93"):
        fetch(made, -1)


def test_what_nobody_decides_is_seen() -> None:
    """INV-96."""
    made = Decisions(0, [])
    pending(made, 3)

    with pytest.raises(Violation, match="INV-96"):
        made.require_all_decided()


@pytest.mark.parametrize("rows", [ROWS[:1], (*ROWS, ROWS[0]), (*ROWS, (RAIN, 0, 7))])
def test_a_record_that_is_not_there_once_is_seen(rows: tuple[table.Row, ...]) -> None:
    """INV-97."""
    before = tuple((RAIN, 0, offset) for offset in range(5))
    check_once([Commit(WRITER, 2, before), Commit(WRITER, 3, ROWS)], {0: 7})

    with pytest.raises(Violation, match="INV-97"):
        check_once([Commit(WRITER, 2, before), Commit(WRITER, 3, rows)], {0: 7})
