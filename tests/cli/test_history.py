"""`coord groups history` and `coord sql`, over tables that lie there without any job or JVM."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from inline_snapshot import snapshot

from coordlib.errors import CoordError
from coordlib.exit_codes import FAILED, INTERRUPTED
from tests.cli.kit import Cli
from tests.cli.tables import write_events
from tests.history.rows import Log, a_life_of_a_group


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables")
    log = a_life_of_a_group()
    log.event("GenerationStarted", 50, group="evil\u202e", members=[], reason="\x1b]0;x\x07")
    log.event("HandOverDelayed", 70, group="held", member="m1", reason="static member replaced")
    log.event("AssignmentFailed", 80, group="undivided", member="m1", reason="no such customer")
    log.event("GroupEmptied", 60, reason="member left", generation=3)
    write_events(log, folder)
    return str(folder)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tables: str) -> Cli:
    return Cli(capsys, where=["--tables", tables])


@pytest.fixture
def over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[Log], Cli]:
    """Commands over the events of a log."""

    def made(log: Log) -> Cli:
        write_events(log, tmp_path)
        return Cli(capsys, where=["--tables", str(tmp_path)])

    return made


def test_history_tells_generations_with_their_causes(cli: Cli) -> None:
    assert cli("groups history payments").shown == snapshot("""\
TIME                      GENERATION  CAUSE                       MEMBERS  DURATION
2026-03-01T23:59:53.000Z  1           member joined               2        2.9s
2026-03-02T00:00:23.000Z  2           session expired: m2         1        3.0s
2026-03-02T00:00:50.000Z  3           group emptied: member left  0        -

NEWEST                    TIMES  REQUEST       ERROR                        CLIENT  REASON
2026-03-01T23:59:56.000Z  1      OffsetCommit  UNKNOWN_MEMBER_ID            É\\n     UNKNOWN_MEMBER_ID
2026-03-02T00:00:33.000Z  2      JoinGroup     INCONSISTENT_GROUP_PROTOCOL  later   Offer another protocol.
2026-03-02T00:00:34.000Z  1      Release       PARTITION_NOT_OWNED          c2      PARTITION_NOT_OWNED
2> As of the newest event of this group: 2026-03-02T00:00:50.000Z
""")


def test_history_tells_what_kept_a_group_from_its_work(cli: Cli) -> None:
    """A new process hung after its start: the older one under its instance id was still at work.
    In another group all members are there, and nobody reads: its leader could not assign."""
    assert cli("groups history held").shown == snapshot("""\
TIME                      GENERATION  CAUSE                                               MEMBERS  DURATION
2026-03-02T00:01:00.000Z  1           waits until m1 has stopped: static member replaced  0        -
2> As of the newest event of this group: 2026-03-02T00:01:00.000Z
""")
    assert cli("groups history undivided").shown == snapshot("""\
TIME                      GENERATION  CAUSE                                  MEMBERS  DURATION
2026-03-02T00:01:10.000Z  1           m1 could not assign: no such customer  0        -
2> As of the newest event of this group: 2026-03-02T00:01:10.000Z
""")


def test_history_that_is_lost_is_told_to_whom_it_concerns(over: Callable[[Log], Cli]) -> None:
    """The archive was away for longer than the topics keep: a rebalance that is not in the list may
    have been. What is lost of other topics is no gap among these lines."""
    log = Log()
    log.event("GenerationStarted", 0, members=[])
    for topic in ("events", "lag", "claims.events"):
        log.event(
            *("HistoryLost", 60), group="", generation=-1,
            topic=f"coord.{topic}", from_offset=5, to_offset=12,
        )  # fmt: skip
    cli = over(log)
    assert cli("groups history payments").said[0] == (
        "History is missing: Kafka deleted offsets 5 to 11 of coord.events-0 before they were "
        "archived (found 2026-03-02T00:00:50.000Z)."
    )
    hole = {"topic": "coord.events", "partition": 0, "from_offset": 5, "to_offset": 12}
    lost = json.loads(cli("groups history payments --format json").out)["lost"]
    assert lost == [{"found": "2026-03-02T00:00:50.000Z", **hole}]


def test_history_tells_owners(cli: Cli) -> None:
    lines = cli("groups history payments --owners").lines
    assert lines[1].endswith("m1=orders:0,1 m2=a.b:0;orders:2")
    assert lines[2].endswith("m1=a.b:0;orders:0,1,2")


def test_owners_are_those_of_one_life_of_the_group(over: Callable[[Log], Cli]) -> None:
    """The group was deleted, and its next members began with generation 1 once more: shown as
    owners of one generation, those of both lives would have had each partition twice."""
    log = Log()
    for member, seconds in (("m1", 0.0), ("m2", 100.0)):
        log.event("GenerationStarted", seconds, members=[member], reason="member joined")
        issued = 100 + log.ends["events", 0]
        log.event(
            *("AssignmentIssued", seconds + 1),
            member=member, fence=issued, sync=issued, partitions={"orders": [0, 1]},
        )  # fmt: skip
        log.event("GroupDeleted", seconds + 20, generation=2)
    _, first, _, second, _ = over(log)("groups history payments --owners").lines
    assert first.split()[-1] == "m1=orders:0,1"
    assert second.split()[-1] == "m2=orders:0,1"


def test_a_generation_names_who_was_removed_since_the_one_before(
    over: Callable[[Log], Cli],
) -> None:
    """`session expired`, and nobody could say whose: of those that are gone for another reason
    that one is given. What happened to an earlier generation is not told again."""
    log = Log()
    expired = "session expired"
    log.event("MemberRemoved", 5, member="m0", reason=expired)
    log.event("GenerationStarted", 10, reason=expired, generation=1)
    for second, name in enumerate(("m1", "m2", "m3", "m4")):
        log.event("MemberRemoved", 20 + second, member=name, reason=expired)
    log.event("MemberRemoved", 25, member="m5", reason="removed by ops: INC-512")
    log.event("HandOverDelayed", 26, member="m5", reason="removed by ops: INC-512")
    log.event("GenerationStarted", 30, reason=expired, generation=2)
    log.event("MemberRemoved", 40, member="m6", reason="left")
    log.event("GroupEmptied", 40, reason="member left", generation=3)

    assert over(log)("groups history payments").shown == snapshot("""\
TIME                      GENERATION  CAUSE                                                                 MEMBERS  DURATION
2026-03-02T00:00:00.000Z  1           session expired: m0                                                   0        -
2026-03-02T00:00:16.000Z  1           waits until m5 has stopped: removed by ops: INC-512                   0        -
2026-03-02T00:00:20.000Z  2           session expired: m1, m2, m3 and 1 more; m5 (removed by ops: INC-512)  0        -
2026-03-02T00:00:30.000Z  3           group emptied: member left: m6                                        0        -
2> As of the newest event of this group: 2026-03-02T00:00:30.000Z
""")


def test_what_one_record_has_caused_is_told_in_its_order(over: Callable[[Log], Cli]) -> None:
    """The last dozen members of a group fell silent together: it was emptied by the same record by
    which the newest generation had begun, many events before."""
    log = Log()
    log.event("GenerationStarted", 20, members=[], reason="session expired", of_record=(140, 9))
    log.event("GroupEmptied", 20, reason="session expired", generation=2, of_record=(140, 10))
    _, first, second = over(log)("groups history payments").rows
    assert first[2] == "session"
    assert second[2:4] == ["group", "emptied:"]


def test_history_as_json(cli: Cli) -> None:
    arguments = ["groups", "history", "payments", "--owners", "--limit", "2"]
    told = cli.json(*arguments)
    assert (told["_command"], told["_version"]) == ("groups history", 1)
    assert told["generations"][0] == {
        "time": "2026-03-02T00:00:23.000Z",
        "generation": 2,
        "cause": "session expired",
        "members": ["m1"],
        "duration_ms": 3000,
        "removed": [{"consumer-id": "m2", "reason": "session expired"}],
        "owners": {"m1": {"a.b": [0], "orders": [0, 1, 2]}},
    }
    assert len(told["generations"]) == 2
    assert [row["error"] for row in told["refused"]] == [
        "INCONSISTENT_GROUP_PROTOCOL",
        "PARTITION_NOT_OWNED",
    ]
    assert told["refused"][0] == {
        "newest": "2026-03-02T00:00:33.000Z",
        "times": 2,
        "request": "JoinGroup",
        "error": "INCONSISTENT_GROUP_PROTOCOL",
        "client": "later",
        "reason": "Offer another protocol.",
    }


def test_a_hostile_group_cannot_act_on_the_terminal(cli: Cli) -> None:
    shown = cli("groups history", "evil\u202e").shown
    told = cli("sql", "select group_id, reason from generations")
    assert not set("\x1b\u202e") & set(shown + told.shown)
    assert "\\x1b]0;x\\x07" in told.out


def test_sql_prints_columns_and_dashes(cli: Cli) -> None:
    sql = "select group_id, member_id, removed from member_history order by member_id"
    assert cli("sql", sql).out.splitlines() == [
        "group_id  member_id  removed",
        "payments  m1         -",
        "payments  m2         2026-03-02T00:00:20.000Z",
    ]


def test_sql_as_json(cli: Cli) -> None:
    sql = "select 1 as a, null as b, 'nan'::double as c, [1, 2] as d, date '2026-01-02' as e"
    told = cli.json("sql", sql)
    assert told["columns"] == ["a", "b", "c", "d", "e"]
    assert told["rows"] == [{"a": 1, "b": None, "c": "nan", "d": [1, 2], "e": "2026-01-02"}]


@pytest.mark.parametrize("sql", ["selec 1", "select * from nowhere", "select 1/"])
def test_bad_sql_is_an_error_and_not_a_trace(sql: str, cli: Cli) -> None:
    told = cli("sql", sql, code=FAILED)
    assert (told.out, told.said[0]) == ("", "The query failed.")
    assert "Traceback" not in told.err


def test_snapshots_are_empty_before_their_first_commit(cli: Cli) -> None:
    shown = cli("sql", "select * from current_groups").out
    assert shown.startswith("group_id  state")


@pytest.mark.parametrize("sql", ["", "select 1; select 2", "drop view events"])
def test_what_is_not_one_query_is_wrong_usage(sql: str, cli: Cli) -> None:
    """Of several, all ran and the last one was shown."""
    cli.error("sql", sql)


def test_columns_of_one_name_are_all_in_the_json(cli: Cli) -> None:
    sql = "select 1 a, 2 a, 3 a_1, 4 b, 5 a"
    told = cli.json("sql", sql)
    assert told["columns"] == ["a", "a_2", "a_1", "b", "a_3"]
    assert told["rows"] == [{"a": 1, "a_2": 2, "a_1": 3, "b": 4, "a_3": 5}]


def test_rows_beyond_the_limit_are_counted(cli: Cli) -> None:
    """All rows of a year would not go into memory; that some are missing must be seen."""
    command = ["sql", "select range as n from range(12000)"]
    told = cli(*command)
    assert len(told.out.splitlines()) == 10_001
    assert told.err == "10000 rows shown, 2000 rows more: --limit shows more, --lines all\n"

    found = cli.json(*command, "--limit", "2")
    assert (found["rows"], found["left_out"]) == ([{"n": 0}, {"n": 1}], 11_998)

    assert cli(*command, "--limit", "12000").err == ""


def test_rows_are_shown_also_when_there_is_no_time_to_count_the_others(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are there already; counting runs the query once more."""

    shown = []

    def too_long(*_: object) -> int:
        shown.append(capsys.readouterr().out)
        raise CoordError("The query was ended after 9 s")

    monkeypatch.setattr("coordlib.history.sql.Question.count", too_long)
    command = ["sql", "select range as n from range(12000)", "--limit", "2"]
    said = cli(*command).err
    assert shown[0].split() == ["n", "0", "1"], "before the others are counted"
    assert said == "2 rows shown of more than 2 rows: --limit shows more, --lines all\n"
    assert cli.json(*command)["left_out"] is None


@pytest.mark.parametrize("more", [[], ["--format", "json"]])
def test_counting_the_others_takes_a_second_at_most(more: list[str], cli: Cli) -> None:
    """The answer was there at once, and came after the hour that counting took."""
    sql = "select a.range as n from range(1000000000000) as a where a.range % 7 <> 3"
    began = time.monotonic()

    said = cli("sql", sql, "--limit", "2", *more).err
    assert time.monotonic() - began < 600  # and not for the hour
    assert "2 rows shown of more than 2 rows" in said


def test_rows_come_as_json_lines(cli: Cli) -> None:
    """For programs: all of them, one after the other, without building anything whole."""
    sql = "select range as n, null as t, range as n from range(12000)"
    told = cli("sql", sql, "--lines")
    lines = told.out.splitlines()
    assert len(lines) == 12_000
    assert json.loads(lines[-1]) == {"n": 11_999, "t": None, "n_1": 11_999}
    assert told.err == ""
    told = cli("sql", sql, "--lines", "--limit", "1")
    assert len(told.out.splitlines()) == 1
    assert told.err == "1 row shown of more than 1 row: --limit shows more\n"
    assert cli("sql", sql, "--lines", "--limit", "12000").err == ""


def test_a_query_has_the_time_that_it_is_given(cli: Cli) -> None:
    sql = "select count(*) from range(1000000000000) as a, range(1000) as b"
    said = cli("sql", sql, "--timeout", "0.2", code=FAILED).said
    assert said[0] == "The query was ended after 0.2 s."


def test_ctrl_c_ends_a_query_at_once(tables: str) -> None:
    """Pressed more than once, as people do. It once took longer than half a minute."""
    sql = "select count(*) from range(1000000000000) as a, range(1000) as b"
    running = subprocess.Popen(
        [sys.executable, "-m", "coordlib.cli.main.main", "sql", sql, "--tables", tables],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs, and their tests, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        _wait_until_busy(running.pid)
        deadline = time.monotonic() + 60
        while running.poll() is None and time.monotonic() < deadline:
            running.send_signal(signal.SIGINT)
            time.sleep(0.05)
        told = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode in (INTERRUPTED, -signal.SIGINT)
    assert told == ("", "")


def _wait_until_busy(pid: int) -> None:
    """DuckDB works on several threads when it is in the middle of a query."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).num_threads() > 2:
                return
        time.sleep(0.02)
    raise AssertionError("the query did not begin")
