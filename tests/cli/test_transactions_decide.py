"""`coord transactions decide`: what nobody else can find out, an operator decides."""

import json
from collections.abc import Iterator

import pytest

from coordlib.cli.main.main import main
from coordlib.cli.transactions import view
from coordlib.cli.transactions.view import read_pending
from coordlib.exit_codes import FAILED, OK, USAGE
from tests.cli.shop import REACHED, WHERE
from tests.cli.till import Till, open_till

TABLE = "s3://lake/clicks"
WHY = ["--reason", "INC-512"]


@pytest.fixture
def till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """`billing` waits for a Delta table, and for Kafka; requests begin at 0."""
    monkeypatch.setattr(view, "log_starts", lambda *_: {0: 0})
    with open_till(monkeypatch) as made:
        yield made


def of_delta(till: Till) -> str:
    return till.pend("billing", 5, 6, decided_by="delta", table=TABLE)


def run(*command: str) -> int:
    return main(["transactions", "decide", "billing", *command, *WHERE])


def waiting() -> list[str]:
    return [each.key for each in read_pending({}, REACHED, "coord", "billing")]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was said."""
    return capsys.readouterr().err.splitlines()


def committed(till: Till) -> dict[int, int]:
    return {row.partition: row.offset for row in till.client.committed("billing")}


@pytest.mark.parametrize(("result", "expected"), [("commit", {0: 5, 1: 6}), ("abort", {})])
def test_what_a_table_decides_is_decided_by_hand(
    till: Till, capsys: pytest.CaptureFixture[str], result: str, expected: dict[int, int]
) -> None:
    """Its member is gone, and none comes that could look into the table."""
    key = of_delta(till)
    assert run(key, f"--{result}", *WHY, "--yes") == OK

    told = lines(capsys)
    assert told[0].startswith("2 offsets of group billing, sent by client copier-b as no member")
    assert f"decided by delta {TABLE}" in told[0]
    word = "is committed" if result == "commit" else "is dropped"
    assert told[1:3] == [f"  orders-0: 5 {word}", f"  orders-1: 6 {word}"]
    assert told[-1] == f"{key} of billing is decided: {result}"
    assert (waiting(), committed(till)) == ([], expected)


def test_history_has_who_and_why(till: Till) -> None:
    assert run(of_delta(till), "--abort", *WHY, "--yes") == OK

    events = [json.loads(each.value or b"") for each in till.log.outputs if each.topic == "events"]
    (dropped,) = [each for each in events if each["type"] == "OffsetsDropped"]
    assert dropped["reason"] == "INC-512"
    assert dropped["detail"]["by"].startswith("admin-")


def test_json_is_one_object(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    key = of_delta(till)
    assert run(key, "--commit", *WHY, "--yes", "--format", "json") == OK

    found = json.loads(capsys.readouterr().out)
    assert (found["group"], found["key"], found["result"]) == ("billing", key, "commit")


def test_kafka_is_not_forestalled(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    """The job finds out: a word of an operator could be another one."""
    key = till.pend("billing", 5)
    assert run(key, "--commit", *WHY, "--yes") == FAILED

    what, where, hint = lines(capsys)
    assert "INVALID_REQUEST" in what
    assert where == f"group billing, key {key}"
    assert hint.startswith("Kafka decides it")
    assert "find-hanging (it takes no id" in hint
    assert waiting() == [key]


def test_what_nobody_can_find_out_any_more_is_decided_by_hand(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was deleted before the job could look."""
    key = till.pend("billing", 5)
    monkeypatch.setattr(view, "log_starts", lambda *_: {0: 1_000})
    assert run(key, "--commit", *WHY, "--yes") == OK

    assert (waiting(), committed(till)) == ([], {0: 5})


def test_a_key_under_which_nothing_waits_is_told(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("r0-99", "--abort", *WHY, "--yes") == FAILED

    what, _, hint = lines(capsys)
    assert "INVALID_TXN_STATE" in what
    assert "coord transactions pending billing" in hint


def test_without_a_terminal_nothing_is_decided(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    key = of_delta(till)
    assert run(key, "--abort", *WHY) == USAGE

    assert lines(capsys)[-1] == "Nothing was done. Say --yes if it is meant."
    assert waiting() == [key]


@pytest.mark.parametrize(
    "given",
    [
        ["r0-1", "--commit"],
        ["r0-1", *WHY],
        ["r0-1", "--commit", "--abort", *WHY],
        ["r0-1", "--commit", "--reason", " "],
        ["", "--commit", *WHY],
        ["a\nb", "--commit", *WHY],
        ["--commit", *WHY],
    ],
    ids=["no reason", "no result", "two results", "blank", "no key", "control", "missing key"],
)
def test_what_cannot_be_meant_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    assert run(*given) == USAGE

    assert len(lines(capsys)) == 3
