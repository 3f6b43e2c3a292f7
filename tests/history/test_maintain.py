"""Maintained tables: few files in order, nothing lost of what is kept, whoever writes beside it."""

import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from coordlib.cli.main.main import main
from coordlib.errors import AnotherTable, CannotReach, CoordError, SetupError
from coordlib.exit_codes import OK, UNREACHABLE, USAGE
from coordlib.history import upkeep
from coordlib.history.engines import OF_RARE_EVENTS, VIEWS
from coordlib.history.sql import query_all, query_tables
from coordlib.history.tables import (
    EVENTS,
    LAG,
    ORDERED,
    ORDERED_COMMITS,
    SNAPSHOTS,
    TABLES,
    kept,
    path_of,
)
from coordlib.history.upkeep import Overtaken, Rewriter, maintain
from tests.history.transaction_life import a_life_of_transactions
from tests.tools import driving
from tests.tools.bench.history import make
from tests.tools.bench.history_rows import START, Shape, group_name

SHAPE = Shape(days=4, groups=20, commits_per_day=400, files=3)
LAST_DAY = START + timedelta(days=SHAPE.days - 1, hours=12)
LATER = START + timedelta(days=SHAPE.days)
DAY = timedelta(days=1)


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """Four days as an archive leaves them: several files a day, in order of time."""
    make(tmp_path, SHAPE, is_archived=True)
    return str(tmp_path)


def answers(tables: str, where: str = "true") -> dict[str, Any]:
    """All rows of all views and tables."""
    names = (*TABLES, *VIEWS)
    asked = [(f"SELECT * FROM {name} WHERE {where} ORDER BY ALL", ()) for name in names]
    return dict(zip(names, query_all(tables, asked), strict=True))


def files_of(tables: str, table: str = EVENTS) -> list[str]:
    return [Path(uri).name for uri in DeltaTable(path_of(tables, table)).file_uris()]


def version_of(tables: str, table: str = EVENTS) -> int:
    return DeltaTable(path_of(tables, table)).version()


def test_a_date_that_is_over_becomes_one_file_in_order(tables: str) -> None:
    """Every view answers as before; the day that goes on stays as its archive leaves it."""
    before = answers(tables)

    told = maintain(tables, {}, now=LAST_DAY)

    assert answers(tables) == before
    ordered = [name for name in files_of(tables) if name.startswith(ORDERED)]
    assert len(ordered) == 2 * (SHAPE.days - 1)  # rare events and frequent ones
    assert len(files_of(tables)) > len(ordered)
    assert [each.rewritten for each in told] == [3, 1, 3]
    assert files_of(tables, SNAPSHOTS)[0].startswith(ORDERED)


def test_files_of_commits_are_opened_for_those_who_ask_for_commits(tables: str) -> None:
    """Who owned a partition at three in a year: the files of commits are the largest by far, and
    nothing in them can be an answer. Broken ones show which views read them."""
    maintain(tables, {}, now=LATER)
    before = answers(tables)
    for file in Path(path_of(tables, EVENTS)).rglob(f"{ORDERED_COMMITS}*.parquet"):
        file.write_bytes(b"x" * file.stat().st_size)

    for name in (*TABLES, *VIEWS):
        asked = f"SELECT * FROM {name} ORDER BY ALL"
        if name in OF_RARE_EVENTS or name not in (EVENTS, *VIEWS):
            assert query_tables(tables, asked) == before[name]
        else:
            with pytest.raises(CoordError):
                query_tables(tables, asked)


def test_a_second_run_finds_nothing_to_do(tables: str) -> None:
    """It is run every day, and a year of dates must not be written again each time."""
    maintain(tables, {}, now=LATER)
    versions = [version_of(tables, table) for table in TABLES]

    told = maintain(tables, {}, now=LATER)

    assert [version_of(tables, table) for table in TABLES] == versions
    assert [(each.rewritten, each.dropped_rows) for each in told] == [(0, 0)] * 3


def test_one_group_is_read_without_the_others(tables: str) -> None:
    """By Parquet's statistics: the row groups of a file do not overlap."""
    import pyarrow.parquet as pq

    maintain(tables, {}, now=LATER)

    (file,) = Path(tables, EVENTS, "date=2026-01-02").glob(f"{ORDERED}commits-*")
    names = pq.read_table(file, columns=["group_id"], partitioning=None)["group_id"].to_pylist()
    assert names == sorted(names)
    whole = pq.ParquetFile(file)
    place = whole.schema_arrow.names.index("group_id")
    statistics = whole.metadata.row_group(0).column(place).statistics
    assert statistics.min == group_name(0)


def test_what_is_kept_answers_as_before(tables: str) -> None:
    """Commits, samples and snapshots of before the kept time go, and nothing else does: also
    positions as of any kept time are those of before."""
    until = START + timedelta(days=2)
    of_kept = f"time >= TIMESTAMPTZ '{until}'"
    current = ("current_groups", "current_offsets", "current_lag")
    before = {name: query_tables(tables, f"SELECT * FROM {name} ORDER BY ALL") for name in current}
    asked = (
        f"SELECT * FROM offset_history WHERE {of_kept} ORDER BY ALL",
        f"SELECT * FROM lag WHERE {of_kept} ORDER BY ALL",
        "SELECT * FROM events WHERE type <> 'OffsetsCommitted' ORDER BY ALL",
        "SELECT * FROM ownership ORDER BY ALL",
        'SELECT group_id, topic, partition, arg_max("offset", time) FROM offset_history '
        f"WHERE time < TIMESTAMPTZ '{until}' GROUP BY ALL ORDER BY ALL",
    )
    whole = [query_tables(tables, sql) for sql in asked]
    keep = kept(["commits=2d", "lag=2d", "snapshots=1d"])

    told = {each.table: each.dropped_rows for each in maintain(tables, keep, now=LATER)}

    assert [query_tables(tables, sql) for sql in asked] == whole
    after = {name: query_tables(tables, f"SELECT * FROM {name} ORDER BY ALL") for name in current}
    assert after == before
    of_two_days = 2 * SHAPE.commits_per_day
    assert told[EVENTS] == of_two_days - 4 * SHAPE.groups
    assert told[LAG] == 4 * SHAPE.groups
    assert told[SNAPSHOTS] > 2 * SHAPE.commits_per_day
    again = maintain(tables, keep, now=LATER)
    assert [each.dropped_rows for each in again] == [0, 0, 0]


def test_a_dry_run_tells_the_same_and_changes_nothing(tables: str) -> None:
    """An operator looks before rows go."""
    before, versions = answers(tables), [version_of(tables, table) for table in TABLES]
    keep = kept(["commits=2d"])

    told = maintain(tables, keep, now=LATER, is_dry_run=True)

    assert [version_of(tables, table) for table in TABLES] == versions
    assert answers(tables) == before
    done = maintain(tables, keep, now=LATER)
    same = [(each.table, each.dropped_rows, each.rewritten) for each in told]
    assert [(each.table, each.dropped_rows, each.rewritten) for each in done] == same


def _append_one_more(tables: str) -> None:
    """A row of a date that is over, as an archive that was away brings it."""
    path = path_of(tables, EVENTS)
    days = DeltaTable(path).to_pyarrow_table(filters=[("date", "=", START.date() + DAY)])
    row = days.slice(0, 1)
    place = row.column_names.index("event_id")
    row = row.set_column(place, "event_id", [["late-r0-1-0"]])
    write_deltalake(path, row, mode="append")


def test_rows_that_are_appended_meanwhile_stay(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive commits while the files are being written."""
    ((before,),) = query_tables(tables, "SELECT count(*) FROM events").rows
    replace, late = Rewriter.replace, []

    def beside(self: Rewriter, *args: Any) -> None:
        if not late:
            late.append(True)
            _append_one_more(tables)
        replace(self, *args)

    monkeypatch.setattr(Rewriter, "replace", beside)

    maintain(tables, {}, now=LATER)

    found = "SELECT count(*), count(*) FILTER (event_id = 'late-r0-1-0') FROM events"
    assert query_tables(tables, found).rows == ((before + 1, 1),)


@pytest.mark.parametrize("keep", [[], ["commits=2d"]])
def test_a_run_beside_another_doubles_and_loses_nothing(
    tables: str, keep: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the same files; the second to commit finds them replaced, and looks anew."""
    replace, others = Rewriter.replace, []

    def beside(self: Rewriter, *args: Any) -> None:
        if not others:
            others.append(True)
            maintain(tables, kept(keep), now=LATER)
        replace(self, *args)

    monkeypatch.setattr(Rewriter, "replace", beside)
    before = query_tables(tables, "SELECT * FROM generations ORDER BY ALL")

    maintain(tables, kept(keep), now=LATER)

    assert others
    assert query_tables(tables, "SELECT * FROM generations ORDER BY ALL") == before
    twice = "SELECT event_id FROM events GROUP BY ALL HAVING count(*) > 1"
    assert query_tables(tables, twice).rows == ()
    commits = SHAPE.commits_per_day * (2 if keep else 4) + (4 * SHAPE.groups if keep else 0)
    counted = "SELECT count(*) FROM events WHERE type = 'OffsetsCommitted'"
    assert query_tables(tables, counted).rows == ((commits,),)


def test_who_is_never_first_gives_up_in_words(tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two timers at one minute: it must not go on for ever."""

    def fail(*_: Any) -> None:
        raise Overtaken("conflict")

    monkeypatch.setattr(Rewriter, "replace", fail)

    with pytest.raises(CoordError, match="Another writer") as told:
        maintain(tables, {}, now=LATER)
    assert "what was done stays" in told.value.hint


def test_unneeded_files_go_after_a_week_and_the_archives_own_stay(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position of the archive lies in a folder of its own below the table."""
    position = Path(tables, EVENTS, "_coord_archive", "00000000000000000001-one.json")
    position.parent.mkdir()
    position.write_text("{}")
    maintain(tables, {}, now=LATER)
    stray = Path(tables, EVENTS, "date=2026-01-02", "part-of-a-writer-that-died.parquet")
    stray.write_bytes(b"PAR1")
    long_ago = time.time() - 8 * 86_400
    for path in (stray, position):
        os.utime(path, (long_ago, long_ago))
    left = len(list(Path(tables, EVENTS).rglob("part-*")))

    told = maintain(tables, {}, now=LATER)

    assert told[0].deleted_files == 1
    assert position.exists()
    assert not stray.exists()
    assert len(list(Path(tables, EVENTS).rglob("part-*"))) == left - 1  # younger than a week


def test_a_table_that_comes_back_meanwhile_is_not_tidied_up_by_another_ones_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-120: the archive had begun a table of that name while the true one was away. None of its
    files is in the log that was read, and all of them are older than a week."""
    for name in ("here", "true"):
        make(tmp_path / name, SHAPE, is_archived=True)
    here, true = (path_of(str(tmp_path / name), EVENTS) for name in ("here", "true"))
    long_ago = time.time() - 30 * DAY.total_seconds()
    for file in Path(true).rglob("*.parquet"):
        os.utime(file, (long_ago, long_ago))
    before = answers(str(tmp_path / "true"))
    order = upkeep._Upkeep._order

    def comes_back(self: Any) -> None:
        order(self)
        Path(here).rename(tmp_path / "made meanwhile")
        Path(true).rename(here)

    monkeypatch.setattr(upkeep._Upkeep, "_order", comes_back)

    with pytest.raises(AnotherTable, match="Another table"):
        maintain(str(tmp_path / "here"), {}, now=LATER)

    Path(here).rename(true)
    assert answers(str(tmp_path / "true")) == before
    assert not list(Path(true).glob("_delta_log/*checkpoint*"))


def test_an_old_copy_that_has_grown_meanwhile_is_not_tidied_up(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-157: the dates in order were written beside the table of before. A commit that names them
    would leave the copy without those rows."""
    table, copy = Path(path_of(tables, EVENTS)), Path(tables, "copy")
    shutil.copytree(table, copy)
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})
    write = Rewriter._actions

    def comes_back(self: Rewriter, *args: Any) -> Any:
        written = write(self, *args)
        if copy.exists():
            table.rename(Path(tables, "true"))
            copy.rename(table)
            for _ in range(3):
                DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})
        return written

    monkeypatch.setattr(Rewriter, "_actions", comes_back)

    before = answers(tables)
    with pytest.raises(AnotherTable, match="old copy"):
        maintain(tables, {}, now=LATER)
    assert answers(tables) == before


def test_tables_of_another_prefix_are_refused(tables: str) -> None:
    """A typing error in --tables must not drop another fleet's history."""
    versions = [version_of(tables, table) for table in TABLES]

    with pytest.raises(SetupError, match="another prefix") as told:
        maintain(tables, {}, prefix="coord")

    assert "prefix coord" in told.value.where
    assert [version_of(tables, table) for table in TABLES] == versions


def test_a_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotReach, match="no history"):
        maintain(str(tmp_path), {})


def test_tables_with_column_mapping_are_refused(tables: str) -> None:
    """Their files alone do not determine their rows."""
    log = Path(tables, EVENTS, "_delta_log", f"{0:020d}.json")
    mapped = '"configuration":{"delta.columnMapping.mode":"name",'
    log.write_text(log.read_text().replace('"configuration":{', mapped))

    with pytest.raises(SetupError, match="cannot be maintained"):
        maintain(tables, {}, now=LATER)


def test_a_checkpoint_is_written(tables: str) -> None:
    """A reader opens a table by it, and not by each commit since the beginning."""
    maintain(tables, {}, now=LATER)

    assert all(Path(tables, table, "_delta_log", "_last_checkpoint").exists() for table in TABLES)


def test_the_command_says_what_was_done(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "maintain", "--tables", tables, "--keep", "commits=1d"]) == OK

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "TABLE",
        "DROPPED-ROWS",
        "REWRITTEN",
        "DELETED-FILES",
        "FILES",
        "BYTES",
    ]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["events", str(4 * SHAPE.commits_per_day - 4 * SHAPE.groups), "4"],
        ["group_snapshots", "0", "1"],
        ["lag", "0", "4"],
    ]


@pytest.mark.parametrize(
    "given",
    [
        "commits",
        "commits=",
        "commits=30",
        "commits=0d",
        "commits=-1d",
        "commits=1.5d",
        "commits=1h",
        "all=1d",
        "events=400d",
        "=1d",
        "commits=9999999d",
        "",
        "commits=٣d",
    ],
)
def test_what_does_not_say_a_time_is_wrong_usage(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is dropped for a word that was misunderstood."""
    assert main(["history", "maintain", "--tables", str(tmp_path), "--keep", given]) == USAGE

    assert "kept" in capsys.readouterr().err


def test_a_time_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = ["--keep", "lag=1d", "--keep", "lag=2d"]
    assert main(["history", "maintain", "--tables", str(tmp_path), *keep]) == USAGE
    assert main(["history", "maintain", "--tables", str(tmp_path)]) == UNREACHABLE
    assert "no history" in capsys.readouterr().err


def test_times_are_days() -> None:
    assert kept(["commits=30d", "lag=7d"]) == {
        "commits": timedelta(days=30),
        "lag": timedelta(days=7),
    }
    assert timedelta(days=7) == upkeep.VACUUM_AFTER


def test_rare_events_and_frequent_ones_are_in_files_of_their_own(tables: str) -> None:
    """A question about generations passes over the commits, which are a hundred times as many."""
    import pyarrow.parquet as pq

    maintain(tables, {}, now=LATER)

    day = Path(tables, EVENTS, "date=2026-01-01")
    found = {
        file.name.removeprefix(ORDERED).split("-")[0]: set(
            pq.read_table(file, columns=["type"], partitioning=None)["type"].to_pylist()
        )
        for file in day.glob(f"{ORDERED}*")
    }
    assert found.keys() == {"turns", "commits"}
    assert found["commits"] == {"OffsetsCommitted"}
    assert "OffsetsCommitted" not in found["turns"]


@pytest.mark.parametrize("when", ["replace", "_commit"])
def test_files_that_delta_packs_meanwhile_are_not_doubled(
    tables: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's own compaction says that it changes no data, and so does putting in order: the
    library sees no conflict in two such commits. Before the files are looked at, and at the last
    moment."""
    before, whole = answers(tables), getattr(Rewriter, when)
    packed: list[Any] = []

    def beside(self: Rewriter, *args: Any) -> None:
        if not packed:
            packed.append(DeltaTable(path_of(tables, EVENTS)).optimize.compact())
        whole(self, *args)

    monkeypatch.setattr(Rewriter, when, beside)

    maintain(tables, {}, now=LATER)

    assert packed[0]["numFilesRemoved"] > 0
    assert answers(tables) == before


def test_the_checkpoint_keeps_the_number_of_the_archives_commit(tables: str) -> None:
    """Delta cleans commits after 30 days; the number tells an archive that starts where it stands,
    and the command whose tables these are."""
    path = path_of(tables, EVENTS)
    row = DeltaTable(path).to_pyarrow_table(filters=[("date", "=", START.date())]).slice(0, 1)
    number = CommitProperties(app_transactions=[Transaction("coord-archive", 7)])
    write_deltalake(path, row, mode="append", commit_properties=number)
    before = answers(tables)

    maintain(tables, {}, prefix="coord", now=LATER)

    log = Path(path, "_delta_log")
    for file in sorted(log.glob("0*.json"))[:-1]:
        file.unlink()
    assert DeltaTable(path).transaction_version("coord-archive") == 7
    assert answers(tables) == before


def _of_transactions(folder: Path) -> tuple[str, datetime]:
    """A life of transactions, and what was decided late: an entry that waits still, of which a
    younger transaction has taken a partition, and one that was decided three days later. Also the
    beginning of what is kept."""
    life = a_life_of_transactions()
    life.at(50, life.pending("kafka", p4=1, p5=1))
    younger = life.talk.next_offset + 1
    life.at(51, life.pending("kafka", p4=2))
    life.at(52, driving.ended(committed=[younger]))
    late = life.talk.next_offset + 1
    life.at(60, life.pending("kafka", p6=1))
    life.at(3 * 86_400, driving.ended(committed=[late]))
    return str(life.write(folder)), datetime(2026, 3, 3, tzinfo=UTC)


def test_what_waits_for_a_decision_stays(tmp_path: Path) -> None:
    """A transaction may be open for longer than commits are kept: who looks for it must find it.
    What had ended before is neither open again, nor kept for ever."""
    tables, until = _of_transactions(tmp_path)
    waited = (
        'SELECT group_id, topic, partition, "offset", transaction, since FROM pending_offsets '
        f"WHERE until IS NULL OR until >= TIMESTAMPTZ '{until}' ORDER BY ALL"
    )
    of_kept = "SELECT * FROM offset_history WHERE time >= TIMESTAMPTZ '2026-03-03' ORDER BY ALL"
    rows = "SELECT count(*) FROM events WHERE type = 'OffsetsPending'"
    before = [query_tables(tables, sql).rows for sql in (waited, of_kept)]
    ((pending,),) = query_tables(tables, rows).rows

    told = maintain(tables, kept(["commits=8d"]), now=until + 8 * DAY)

    assert [query_tables(tables, sql).rows for sql in (waited, of_kept)] == before
    assert {("kafka", 3), ("kafka", 5), ("kafka", 6)} <= {(row[0], row[2]) for row in before[0]}
    assert ("kafka", 4) not in {(row[0], row[2]) for row in before[0]}
    ((left,),) = query_tables(tables, rows).rows
    assert (left < pending, told[0].dropped_rows > 0) == (True, True)
    assert maintain(tables, kept(["commits=8d"]), now=until + 8 * DAY)[0].dropped_rows == 0


def test_dates_are_dropped_a_few_in_each_commit(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run over a long history would begin all of its work anew where another writer was
    first. Slices drop what one commit would."""
    keep, dates = kept(["commits=1d"]), list[int]()
    planned = maintain(tables, keep, now=LATER, is_dry_run=True)
    replace = Rewriter.replace

    def counted(self: Rewriter, some: Any, why: str) -> None:
        dates.extend([len(some)] if why == "drop" else [])
        replace(self, some, why)

    monkeypatch.setattr(Rewriter, "replace", counted)
    monkeypatch.setattr(upkeep, "DATES_PER_COMMIT", 2)

    told = maintain(tables, keep, now=LATER)

    assert dates == [2, 1]
    assert told[0].dropped_rows == planned[0].dropped_rows > 0


@pytest.mark.parametrize("keep", [[], ["commits=1d"]])
def test_dates_of_before_a_conflict_are_told(
    tables: str, keep: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second commit comes too late; the first one is done nevertheless."""
    planned = maintain(tables, kept(keep), now=LATER, is_dry_run=True)
    calls, replace = list[str](), Rewriter.replace

    def second_fails(self: Rewriter, some: Any, why: str) -> None:
        calls.append(why)
        if len(calls) == 2:
            raise Overtaken("conflict")
        replace(self, some, why)

    monkeypatch.setattr(Rewriter, "replace", second_fails)
    monkeypatch.setattr(upkeep, "DATES_PER_COMMIT", 1)

    told = maintain(tables, kept(keep), now=LATER)

    assert told[0].rewritten == planned[0].rewritten == SHAPE.days
    assert told[0].dropped_rows == planned[0].dropped_rows


def test_a_commit_that_fails_otherwise_says_why(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no other writer: its files are there, and it is not tried for ever."""

    def fail(*_: Any) -> None:
        raise CommitFailedError("no space left\non the device")

    monkeypatch.setattr(Rewriter, "_commit", fail)

    with pytest.raises(CoordError, match="no commit") as told:
        maintain(tables, {}, now=LATER)

    assert isinstance(told.value.__cause__, CommitFailedError)
    assert "no space left on the device" in told.value.where


def test_who_was_overtaken_knows_the_commit_that_failed(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer packs the files while each commit is tried."""

    def beside(*_: Any) -> None:
        DeltaTable(path_of(tables, EVENTS)).optimize.compact()
        raise CommitFailedError("a version is there")

    monkeypatch.setattr(Rewriter, "_commit", beside)
    monkeypatch.setattr(upkeep, "ATTEMPTS", 1)

    with pytest.raises(CoordError, match="Another writer") as told:
        maintain(tables, {}, now=LATER)

    assert isinstance(told.value.__cause__, Overtaken)
    assert isinstance(told.value.__cause__.__cause__, CommitFailedError)
