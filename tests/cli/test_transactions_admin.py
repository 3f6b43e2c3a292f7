"""`coord transactions abort|release`: what operators do to transactions, over the real core."""

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from coordlib.cli.main.main import main
from coordlib.cli.transactions.view import find_id
from coordlib.core.wire import api
from coordlib.errors import CoordError
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.kafka import transactions
from tests.cli.shop import REACHED, WHERE
from tests.cli.till import Till, open_till
from tests.tools.defects import Defect, in_force


@pytest.fixture
def till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """`copier` has a transaction open, with one partition."""
    with open_till(monkeypatch) as made:
        made.begin("copier", 0)
        yield made


def run(*command: str) -> int:
    return main(["transactions", *command, *WHERE])


def state(name: str = "copier") -> str:
    return str(find_id({}, REACHED, "coord", name).state)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was said."""
    return capsys.readouterr().err.splitlines()


def test_an_operator_aborts_and_the_history_says_why(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("abort", "copier", "--reason", "INC-512", "--yes") == OK

    shown, said = lines(capsys)
    assert shown.startswith("copier: open for ")
    assert "producer 0 in epoch 0, client copier-b" in shown
    assert shown.endswith("offsets of 0 groups, records in 1 partition")
    assert said == "The transaction of copier is aborted"
    assert state() == "PrepareAbort"
    events = [json.loads(each.value or b"") for each in till.log.outputs if each.topic == "events"]
    (prepared,) = [each for each in events if each["type"] == "TransactionPrepared"]
    assert (prepared["reason"], prepared["detail"]["comment"]) == ("operator", "INC-512")
    assert prepared["detail"]["by"].startswith("admin-")


def test_json_is_one_object(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("abort", "copier", "--yes", "--format", "json") == OK

    found = json.loads(capsys.readouterr().out)
    assert (found["_command"], found["transactional-id"]) == ("transactions abort", "copier")


def test_without_a_terminal_nothing_is_aborted(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that forgot --yes."""
    assert run("abort", "copier") == USAGE

    assert lines(capsys)[1:] == [
        "Aborting its open transaction cannot be undone, and there is no terminal to ask on.",
        "transactional id copier",
        "Nothing was done. Say --yes if it is meant.",
    ]
    assert state() == "Ongoing"


def test_an_answer_other_than_yes_aborts_nothing(
    till: Till, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert run("abort", "copier") == FAILED
    assert state() == "Ongoing"


def decided(till: Till, result: str) -> None:
    till.end("copier", 0, 0, result)


@pytest.mark.parametrize(
    ("result", "hint"),
    [
        ("commit", "It is committed, which nothing can change"),
        ("abort", "It is aborted, and not all have been told"),
    ],
)
def test_what_is_decided_is_not_aborted(
    till: Till, capsys: pytest.CaptureFixture[str], result: str, hint: str
) -> None:
    decided(till, result)
    assert run("abort", "copier", "--yes") == FAILED

    told = lines(capsys)
    assert "INVALID_TXN_STATE" in told[0]
    assert told[2].startswith(hint)


def test_where_nothing_is_open_nothing_is_aborted(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    till.begin("idle")
    assert run("abort", "idle", "--yes") == FAILED

    assert "No transaction is open under it" in lines(capsys)[2]


def test_an_id_that_is_not_there_is_not_aborted(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("abort", "nobody", "--yes") == FAILED
    assert "TRANSACTIONAL_ID_NOT_FOUND" in lines(capsys)[0]


def quarantine(till: Till) -> None:
    """One of the job's steps about the id fails."""
    with in_force([Defect("copier", "AddPartitionsToTxn", first=0)]), suppress(CoordError):
        rows = (api.TopicsOfCluster(cluster="c", topic="out", partitions=(7,)),)
        till.ask("copier", api.AddPartitionsToTxn, producer_id=0, epoch=0, partitions=rows)


def is_quarantined() -> bool:
    return find_id({}, REACHED, "coord", "copier").is_quarantined


def test_an_id_is_released_after_it_was_shown(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is fixed; what failed is asked for again, and the transaction goes on."""
    quarantine(till)
    assert is_quarantined()

    assert run("release", "copier", "--yes") == OK

    shown, said = lines(capsys)
    assert shown.startswith("copier: quarantined in state Ongoing; when it goes on, ")
    assert shown.endswith("its open transaction has 1m00s again")
    assert said == "copier is released"
    assert not is_quarantined()
    assert state() == "Ongoing"
    till.end("copier", 0, 0)


def test_what_was_decided_before_the_quarantine_is_told_after_it(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    till.end("copier", 0, 0)
    quarantine(till)

    assert run("release", "copier", "--yes", "--format", "json") == OK

    told = capsys.readouterr()
    assert "commit is told to all that have not been told" in told.err
    found = json.loads(told.out)
    assert (found["_command"], found["transactional-id"]) == ("transactions release", "copier")
    assert state() == "PrepareCommit"


def test_without_a_terminal_nothing_is_released(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that forgot --yes."""
    quarantine(till)
    assert run("release", "copier") == USAGE

    assert lines(capsys)[1:] == [
        "Releasing it from quarantine cannot be undone, and there is no terminal to ask on.",
        "transactional id copier",
        "Nothing was done. Say --yes if it is meant.",
    ]
    assert is_quarantined()


def test_release_needs_a_quarantined_id(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("release", "copier", "--yes") == FAILED
    what, where, hint = lines(capsys)
    assert "INVALID_REQUEST" in what
    assert where == "transactional id copier"
    assert hint == "It is not quarantined: coord transactions describe copier"

    assert run("release", "nobody", "--yes") == FAILED
    assert "TRANSACTIONAL_ID_NOT_FOUND" in lines(capsys)[0]


# -- ids of Kafka's own ---------------------------------------------------------------------------


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ids that Kafka was asked to fence."""
    found: list[Any] = []
    monkeypatch.setattr(transactions, "fence", lambda options, name: found.append(name))
    return found


def test_an_id_of_kafka_is_fenced_after_a_question(
    till: Till, fenced: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("abort", "copier-k", "--of-kafka") == USAGE
    assert fenced == []
    assert run("abort", "copier-k", "--of-kafka", "--yes") == OK

    assert fenced == ["copier-k"]
    assert lines(capsys)[-1].startswith("copier-k is fenced")


@pytest.mark.parametrize("name", ["coord-coordinator", "coord.claims-coordinator"])
def test_the_job_itself_is_not_fenced(
    till: Till, fenced: list[Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """An operator took its open batch for a transaction that hangs."""
    assert run("abort", name, "--of-kafka", "--yes") == USAGE

    assert lines(capsys)[0] == "This is the id of the coordination job itself."
    assert fenced == []


def test_kafka_keeps_no_reason(
    till: Till, fenced: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("abort", "copier-k", "--of-kafka", "--yes", "--reason", "INC-512") == USAGE

    assert (lines(capsys)[0], fenced) == ("Kafka keeps no reason.", [])
