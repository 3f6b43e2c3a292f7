"""`coord transactions history`: how the transactions of an id ended, from the tables."""

import json
from pathlib import Path

import pytest

from coordlib.cli.main.main import main
from coordlib.cli.transactions.app import FENCED, TRANSACTIONS
from coordlib.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tests.history.transaction_life import ID, a_life_of_transactions


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_life_of_transactions().write(tmp_path_factory.mktemp("transactions"))


def run(tables: Path, *given: str) -> int:
    return main(["transactions", "history", *given, "--tables", str(tables), "-b", "nowhere:1"])


def test_it_says_who_ended_what_and_why(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tables, ID) == OK
    printed = capsys.readouterr()

    first, second = printed.out.split("\n\n")
    rows = [line.split() for line in first.splitlines()]
    assert rows[0] == [*TRANSACTIONS.headers]
    assert [row[3:10] for row in rows[1:]] == [
        ["0", "commit", "client", "-", "-", "4.0s", "billing"],
        ["1", "abort", "operator", "ops", "INC-512", "4.0s", "billing"],
        ["2", "abort", "fenced", "b", "-", "2.0s", "-"],
        ["4", "-", "-", "-", "-", "-", "-"],
    ]
    assert [line.split()[1:] for line in second.splitlines()] == [
        [*FENCED.headers[1:]],
        ["0", "2", "a", "b"],
    ]
    assert printed.err.startswith("As of the newest event of this transactional id: 2026-03-01")


def test_json_has_lists(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tables, ID, "--limit", "2", "--format", "json") == OK

    found = json.loads(capsys.readouterr().out)
    assert [row["epoch"] for row in found["transactions"]] == [2, 4]
    assert found["transactions"][0]["groups"] == []
    assert (found["transactional-id"], len(found["fenced"]), found["refused"]) == (ID, 1, [])


def test_an_id_without_history_is_told_in_three_lines(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tables, "nobody") == FAILED

    what, where, hint = capsys.readouterr().err.splitlines()
    assert "TRANSACTIONAL_ID_NOT_FOUND" in what
    assert "nobody" in where
    assert "coord transactions list" in hint


def test_without_tables_nothing_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "none", ID) == UNREACHABLE
    assert len(capsys.readouterr().err.splitlines()) == 3

    assert main(["transactions", "history", ID, "-b", "nowhere:1"]) == USAGE
    assert len(capsys.readouterr().err.splitlines()) == 3
