"""`coord claims history`, over tables that lie there without any job or JVM."""

import json
from pathlib import Path

import pytest

from coordlib.cli.main import main
from coordlib.exit_codes import OK
from tests.cli.tables import write_events
from tests.history.rows import Log


def add(log: Log, type_: str, seconds: float, **fields: str) -> None:
    """An event of claims, about partition 2 of orders."""
    log.event(type_, seconds, space="claims", kind="claims", generation=0, **fields)
    key, value, *rest = log.rows.pop()
    detail = {"topic": "orders", "partition": 2, "epoch": 40, "position": 7}
    log.rows.append((key, json.dumps(json.loads(value) | {"detail": detail}).encode(), *rest))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables")
    log = Log()
    add(log, "ClaimWon", 10, group="g", member="a")
    add(log, "ClaimExpired", 20, group="g", member="a", reason="silent")
    add(log, "ClaimWon", 30, group="g\x1b[2J", member="b")
    write_events(log, folder)
    return str(folder)


def test_the_events_of_a_group_are_shown_oldest_first(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "history", "g", "--tables", tables]) == OK

    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[1:8] == ["ClaimWon", "g", "orders", "2", "a", "40", "7"]
    assert second.split()[1] == "ClaimExpired"


def test_the_events_of_a_partition_are_shown_for_all_groups(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "history", "orders:2", "--tables", tables, "--format", "json"]) == OK

    out = capsys.readouterr().out
    assert [row["type"] for row in json.loads(out)["events"]] == [
        "ClaimWon",
        "ClaimExpired",
        "ClaimWon",
    ]
    assert "\x1b" not in out


def test_what_is_not_there_is_said(
    tables: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["claims", "history", "nobody", "--tables", tables]) == OK

    assert "has no claims of nobody" in capsys.readouterr().err
