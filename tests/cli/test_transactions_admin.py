"""`coord transactions abort|release|decide|finish`: what operators do to transactions, over the
real core. That all of them ask first is in test_asking.py."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from coordlib.cli.transactions import view
from coordlib.cli.transactions.view import find_id, read_pending
from coordlib.client.transactions import data_cluster
from coordlib.core.wire import api
from coordlib.core.wire.transactions import TopicsOfCluster
from coordlib.errors import CoordError
from coordlib.exit_codes import FAILED, USAGE
from coordlib.kafka import transactions
from tests.cli.kit import Cli
from tests.cli.shop import REACHED, WHERE
from tests.cli.till import Till, open_till
from tests.tools.defects import Defect, in_force

WHY = ("--reason", "INC-512", "--yes")


@pytest.fixture
def till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """`copier` has a transaction open, with one partition; requests begin at 0."""
    monkeypatch.setattr(view, "log_starts", lambda *_: {0: 0})
    with open_till(monkeypatch) as made:
        made.begin("copier", 0)
        yield made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "transactions", where=WHERE)


def state(name: str = "copier") -> str:
    return str(find_id({}, REACHED, "coord", name).state)


def event(till: Till, type_: str) -> dict[str, Any]:
    """The one event of this type."""
    events = [json.loads(each.value or b"") for each in till.log.outputs if each.topic == "events"]
    (found,) = [each for each in events if each["type"] == type_]
    return found


# -- abort ----------------------------------------------------------------------------------------


def test_an_operator_aborts_and_the_history_says_why(till: Till, cli: Cli) -> None:
    shown, said = cli("abort copier", *WHY).said

    assert shown.startswith("copier: open for ")
    assert "producer 0 in epoch 0, client copier-b" in shown
    assert shown.endswith("offsets of 0 groups, records in 1 partition")
    assert said == "The transaction of copier is aborted"
    assert state() == "PrepareAbort"
    prepared = event(till, "TransactionPrepared")
    assert (prepared["reason"], prepared["detail"]["comment"]) == ("operator", "INC-512")
    assert prepared["detail"]["by"].startswith("admin-")


def test_json_is_one_object(till: Till, cli: Cli) -> None:
    found = cli.json("abort copier --yes")
    assert (found["_command"], found["transactional-id"]) == ("transactions abort", "copier")


@pytest.mark.parametrize(
    ("result", "hint"),
    [
        ("commit", "It is committed, which nothing can change"),
        ("abort", "It is aborted, and not all have been told"),
    ],
)
def test_what_is_decided_is_not_aborted(till: Till, cli: Cli, result: str, hint: str) -> None:
    till.end("copier", 0, 0, result)
    what, _, told = cli.error("abort copier --yes", code=FAILED)

    assert what == "INVALID_TXN_STATE"
    assert told.startswith(hint)


@pytest.mark.parametrize("command", ["abort", "release", "finish"])
def test_what_is_not_as_the_command_needs_it_is_left(till: Till, cli: Cli, command: str) -> None:
    till.begin("idle")
    hints = {
        "abort": "No transaction is open under it: coord transactions describe idle",
        "release": "It is not quarantined: coord transactions describe idle",
        "finish": "It lacks no marker: coord transactions describe idle",
    }
    code = "INVALID_REQUEST" if command == "release" else "INVALID_TXN_STATE"
    expected = [code, "transactional id idle", hints[command]]
    assert cli.error(command, "idle", "--yes", code=FAILED) == expected
    what = cli.error(command, "nobody", "--yes", code=FAILED)[0]
    assert what == "TRANSACTIONAL_ID_NOT_FOUND"


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ids that Kafka was asked to fence."""
    found: list[Any] = []
    monkeypatch.setattr(transactions, "fence", lambda options, name: found.append(name))
    return found


def test_an_id_of_kafka_is_fenced(till: Till, fenced: list[Any], cli: Cli) -> None:
    said = cli("abort copier-k --of-kafka --yes").said
    assert fenced == ["copier-k"]
    assert said[-1].startswith("copier-k is fenced")


@pytest.mark.parametrize("name", ["coord-coordinator", "coord.claims-coordinator"])
def test_the_job_itself_is_not_fenced(till: Till, fenced: list[Any], cli: Cli, name: str) -> None:
    """An operator took its open batch for a transaction that hangs."""
    what = cli.error("abort", name, "--of-kafka", "--yes")[0]
    assert (what, fenced) == ("This is the id of the coordination job itself.", [])


# -- release --------------------------------------------------------------------------------------


def quarantine(till: Till) -> None:
    """One of the job's steps about the id fails."""
    with in_force([Defect("copier", "AddPartitionsToTxn", first=0)]), suppress(CoordError):
        rows = (api.TopicsOfCluster(cluster="c", topic="out", partitions=(7,)),)
        till.ask("copier", api.AddPartitionsToTxn, producer_id=0, epoch=0, partitions=rows)


def is_quarantined() -> bool:
    return find_id({}, REACHED, "coord", "copier").is_quarantined


def test_an_id_is_released_after_it_was_shown(till: Till, cli: Cli) -> None:
    """The job is fixed; what failed is asked for again, and the transaction goes on."""
    quarantine(till)
    assert is_quarantined()

    assert cli("release copier --yes").said == snapshot(
        [
            "copier: quarantined in state Ongoing; when it goes on, its open transaction has 1m00s again",
            "copier is released",
        ]
    )
    assert (is_quarantined(), state()) == (False, "Ongoing")
    till.end("copier", 0, 0)


def test_what_was_decided_before_the_quarantine_is_told_after_it(till: Till, cli: Cli) -> None:
    till.end("copier", 0, 0)
    quarantine(till)
    printed = cli("release copier --yes --format json")

    assert "commit is told to all that have not been told" in printed.err
    found = json.loads(printed.out)
    assert (found["_command"], found["transactional-id"]) == ("transactions release", "copier")
    assert state() == "PrepareCommit"


# -- decide ---------------------------------------------------------------------------------------


def of_delta(till: Till) -> str:
    """`billing` waits for a Delta table."""
    return till.pend("billing", 5, 6, decided_by="delta", table="s3://lake/clicks")


def waiting() -> list[str]:
    return [each.key for each in read_pending({}, REACHED, "coord", "billing")]


def committed(till: Till) -> dict[int, int]:
    return {row.partition: row.offset for row in till.client.committed("billing")}


@pytest.mark.parametrize(("result", "expected"), [("commit", {0: 5, 1: 6}), ("abort", {})])
def test_what_a_table_decides_is_decided_by_hand(
    till: Till, cli: Cli, result: str, expected: dict[int, int]
) -> None:
    """Its member is gone, and none comes that could look into the table."""
    key = of_delta(till)
    told = cli("decide billing", key, f"--{result}", *WHY).said

    assert told[0].startswith("2 offsets of group billing, sent by client copier-b as no member")
    assert "decided by delta s3://lake/clicks" in told[0]
    word = "is committed" if result == "commit" else "is dropped"
    assert told[1:3] == [f"  orders-0: 5 {word}", f"  orders-1: 6 {word}"]
    assert told[-1] == f"{key} of billing is decided: {result}"
    assert (waiting(), committed(till)) == ([], expected)


def test_a_decision_is_one_object_and_history_has_who_and_why(till: Till, cli: Cli) -> None:
    key = of_delta(till)
    found = cli.json("decide billing", key, "--abort", *WHY)

    assert (found["group"], found["key"], found["result"]) == ("billing", key, "abort")
    dropped = event(till, "OffsetsDropped")
    assert dropped["reason"] == "INC-512"
    assert dropped["detail"]["by"].startswith("admin-")


def test_kafka_is_not_forestalled(till: Till, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job finds out: a word of an operator could be another one. Only where the record was
    deleted before the job could look, nobody can find out any more."""
    key = till.pend("billing", 5)
    what, where, hint = cli.error("decide billing", key, "--commit", *WHY, code=FAILED)
    assert (what, where) == ("INVALID_REQUEST", f"group billing, key {key}")
    assert hint.startswith("Kafka decides it")
    assert "find-hanging (it takes no id" in hint
    assert waiting() == [key]

    monkeypatch.setattr(view, "log_starts", lambda *_: {0: 1_000})
    cli("decide billing", key, "--commit", *WHY)
    assert (waiting(), committed(till)) == ([], {0: 5})


def test_a_key_under_which_nothing_waits_is_told(till: Till, cli: Cli) -> None:
    what, _, hint = cli.error("decide billing r0-99 --abort", *WHY, code=FAILED)

    assert what == "INVALID_TXN_STATE"
    assert "coord transactions pending billing" in hint


# -- finish ---------------------------------------------------------------------------------------


class Clusters:
    """Clusters that take markers, by their brokers."""

    def __init__(self, *partitions: int) -> None:
        self.asked: list[str] = []
        self.unmarked: Any = None
        #: What they take.
        self.rows = (TopicsOfCluster(cluster="c", topic="out", partitions=partitions),)

    def write(self, clusters: Any, unmarked: Any) -> tuple[TopicsOfCluster, ...]:
        self.asked = [each["bootstrap.servers"] for each in clusters]
        self.unmarked = unmarked
        return self.rows


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch, till: Till) -> Clusters:
    """They take what stands in partitions 0 and 1 of `out`; the producer of `dead` has committed,
    and died before its markers."""
    made = Clusters(0, 1)
    monkeypatch.setattr(data_cluster, "write_markers", made.write)
    till.end("dead", *till.begin("dead", 0, 1))
    return made


def test_what_is_decided_is_marked_and_told(clusters: Clusters, cli: Cli) -> None:
    assert cli("finish dead --yes").said == snapshot(
        ["dead: commit into 2 partitions: out of cluster c", "2 partitions of dead marked, 0 left"]
    )
    assert clusters.asked == ["nowhere:1"]
    unmarked = clusters.unmarked
    found = (unmarked.txn.transactional_id, unmarked.txn.epoch, unmarked.result)
    assert found == ("dead", 0, "commit")
    assert state("dead") == "CompleteCommit"


def test_clusters_that_were_not_named_are_left(clusters: Clusters, cli: Cli) -> None:
    clusters.rows = Clusters(1).rows
    found = cli.json("finish dead --yes", code=FAILED)

    left = [{"cluster": "c", "topic": "out", "partition": 0}]
    assert (found["written"], found["left"]) == (1, left)
    assert state("dead") == "PrepareCommit"


def test_other_clusters_are_named_by_files(clusters: Clusters, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "other.properties"
    for text in ("security.protocol=SSL\n", None):
        if text is not None:
            file.write_text(text)
        name = str(file) if text else str(tmp_path / "none")
        cli.error("finish dead --yes --data-file", name, code=USAGE)
    assert clusters.asked == []

    file.write_text("bootstrap.servers=other:9092\n")
    cli("finish dead --yes --data-file", str(file))
    assert clusters.asked == ["nowhere:1", "other:9092"]
