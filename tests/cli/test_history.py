"""`coord groups history` and `coord sql`, over tables that lie there without any job or JVM."""

import json
import time
from pathlib import Path

import pytest

from coordlib.cli.main import FAILED, OK, main
from tests.cli.tables import write_events
from tests.history.rows import a_life_of_a_group


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables")
    log = a_life_of_a_group()
    log.event("GenerationStarted", 50, group="evil\x1b[2J", members=[], reason="\x1b]0;x\x07")
    log.event("HandOverDelayed", 70, group="held", member="m1", reason="static member replaced")
    log.event("AssignmentFailed", 80, group="undivided", member="m1", reason="no such customer")
    log.event("GroupEmptied", 60, reason="member left", generation=3)
    write_events(log, folder)
    return str(folder)


def test_history_tells_generations_with_their_causes(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "history", "payments", "--tables", tables]) == OK

    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "TIME                      GENERATION  CAUSE                       MEMBERS  DURATION",
        "2026-03-01T23:59:53.000Z  1           member joined               2        2.9s",
        "2026-03-02T00:00:23.000Z  2           session expired             1        3.0s",
        "2026-03-02T00:00:50.000Z  3           group emptied: member left  0        -",
        "",
        "NEWEST                    TIMES  REQUEST       ERROR                        CLIENT  "
        "REASON",
        "2026-03-01T23:59:56.000Z  1      OffsetCommit  UNKNOWN_MEMBER_ID            É\\n     "
        "UNKNOWN_MEMBER_ID",
        "2026-03-02T00:00:33.000Z  2      JoinGroup     INCONSISTENT_GROUP_PROTOCOL  later   "
        "Offer another protocol.",
    ]
    assert told.err == "As of the newest event of this group: 2026-03-02T00:00:50.000Z\n"


def test_history_tells_whom_a_hand_over_waited_for(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new process hung after its start: the older one under its instance id was still at work."""
    assert main(["groups", "history", "held", "--tables", tables]) == OK

    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert "  waits until m1 has stopped: static member replaced  " in line


def test_history_tells_that_a_leader_could_not_divide(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All members are there, and nobody reads."""
    assert main(["groups", "history", "undivided", "--tables", tables]) == OK

    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert "  m1 could not divide: no such customer  " in line


def test_history_tells_owners(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "history", "payments", "--owners", "--tables", tables]) == OK

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("m1=orders:0,1 m2=a.b:0;orders:2")
    assert lines[2].endswith("m1=a.b:0;orders:0,1,2")


def test_history_as_json(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["groups", "history", "payments", "--owners", "--limit", "2", "--tables", tables]
    assert main([*arguments, "--format", "json"]) == OK

    told = json.loads(capsys.readouterr().out)
    assert (told["_command"], told["_version"]) == ("groups history", 1)
    assert told["generations"][0] == {
        "time": "2026-03-02T00:00:23.000Z",
        "generation": 2,
        "cause": "session expired",
        "members": ["m1"],
        "duration_ms": 3000,
        "owners": {"m1": {"a.b": [0], "orders": [0, 1, 2]}},
    }
    assert len(told["generations"]) == 2
    assert told["refused"][1] == {
        "newest": "2026-03-02T00:00:33.000Z",
        "times": 2,
        "request": "JoinGroup",
        "error": "INCONSISTENT_GROUP_PROTOCOL",
        "client": "later",
        "reason": "Offer another protocol.",
    }


def test_a_group_without_history_is_an_error(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "history", "nobody", "--tables", tables]) == FAILED

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0] == "GROUP_ID_NOT_FOUND"
    assert len(told.err.splitlines()) == 3


def test_a_hostile_group_cannot_act_on_the_terminal(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "history", "evil\x1b[2J", "--tables", tables]) == OK
    assert main(["sql", "select group_id, reason from generations", "--tables", tables]) == OK

    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\\x1b]0;x\\x07" in told.out


def test_sql_prints_columns_and_dashes(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select group_id, member_id, removed from member_history order by member_id"
    assert main(["sql", sql, "--tables", tables]) == OK

    assert capsys.readouterr().out.splitlines() == [
        "group_id  member_id  removed",
        "payments  m1         -",
        "payments  m2         2026-03-02T00:00:20.000Z",
    ]


def test_sql_as_json(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select 1 as a, null as b, 'nan'::double as c, [1, 2] as d, date '2026-01-02' as e"
    assert main(["sql", sql, "--tables", tables, "--format", "json"]) == OK

    told = json.loads(capsys.readouterr().out)
    assert told["columns"] == ["a", "b", "c", "d", "e"]
    assert told["rows"] == [{"a": 1, "b": None, "c": "nan", "d": [1, 2], "e": "2026-01-02"}]


@pytest.mark.parametrize("sql", ["selec 1", "select * from nowhere", "", "select 1/"])
def test_bad_sql_is_an_error_and_not_a_trace(
    tables: str, sql: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", sql, "--tables", tables]) == FAILED

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0] == "The query failed"
    assert "Traceback" not in told.err


def test_snapshots_are_empty_before_their_first_commit(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", "select * from current_groups", "--tables", tables]) == OK

    assert capsys.readouterr().out.startswith("group_id  state")


def test_an_answer_takes_less_than_two_seconds(tables: str, tmp_path: Path) -> None:
    began = time.monotonic()

    assert main(["sql", "select count(*) from events", "--tables", tables]) == OK

    assert time.monotonic() - began < 2
