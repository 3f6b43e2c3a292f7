"""`coord transactions finish`: markers that a transaction lacks, over the real core."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordlib.cli.main.main import main
from coordlib.cli.transactions.view import find_id
from coordlib.client.transactions import data_cluster
from coordlib.core.wire.transactions import TopicsOfCluster
from coordlib.exit_codes import FAILED, OK, USAGE
from tests.cli.shop import REACHED, WHERE
from tests.cli.till import Till, open_till


class Clusters:
    """Clusters that take markers, by their brokers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.unmarked: Any = None
        #: What they have taken.
        self.rows: tuple[TopicsOfCluster, ...] = ()

    def write(self, clusters: Any, unmarked: Any) -> tuple[TopicsOfCluster, ...]:
        self.asked = [each["bootstrap.servers"] for each in clusters]
        self.unmarked = unmarked
        return self.rows


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    """They take what stands in partitions 0 and 1 of `out`."""
    made = Clusters()
    made.rows = (TopicsOfCluster(cluster="c", topic="out", partitions=(0, 1)),)
    monkeypatch.setattr(data_cluster, "write_markers", made.write)
    return made


@pytest.fixture
def till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """The producer of `copier` has committed, and died before its markers."""
    with open_till(monkeypatch) as made:
        producer = made.begin("copier", 0, 1)
        made.end("copier", *producer)
        yield made


def run(*command: str) -> int:
    return main(["transactions", "finish", *command, *WHERE])


def state() -> str:
    return str(find_id({}, REACHED, "coord", "copier").state)


def test_what_is_decided_is_marked_and_told(
    till: Till, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("copier", "--yes") == OK

    told = capsys.readouterr().err.splitlines()
    assert told == [
        "copier: commit into 2 partitions: out of cluster c",
        "2 partitions of copier marked, 0 left",
    ]
    assert clusters.asked == ["nowhere:1"]
    unmarked = clusters.unmarked
    assert (unmarked.txn.transactional_id, unmarked.txn.epoch, unmarked.result) == (
        "copier", 0, "commit",
    )  # fmt: skip
    assert state() == "CompleteCommit"


def test_clusters_that_were_not_named_are_left(
    till: Till, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.rows = (TopicsOfCluster(cluster="c", topic="out", partitions=(1,)),)
    assert run("copier", "--yes", "--format", "json") == FAILED

    found = json.loads(capsys.readouterr().out)
    assert (found["written"], found["left"]) == (
        1,
        [{"cluster": "c", "topic": "out", "partition": 0}],
    )
    assert state() == "PrepareCommit"


def test_other_clusters_are_named_by_files(till: Till, clusters: Clusters, tmp_path: Path) -> None:
    file = tmp_path / "other.properties"
    file.write_text("bootstrap.servers=other:9092\n")
    assert run("copier", "--data-file", str(file), "--yes") == OK

    assert clusters.asked == ["nowhere:1", "other:9092"]


def test_a_file_without_brokers_is_wrong_usage(
    till: Till, clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.properties"
    file.write_text("security.protocol=SSL\n")
    assert run("copier", "--data-file", str(file), "--yes") == USAGE
    assert run("copier", "--data-file", str(tmp_path / "none"), "--yes") == USAGE

    assert (len(capsys.readouterr().err.splitlines()), clusters.asked) == (6, [])


def test_what_lacks_no_marker_is_told(
    till: Till, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    till.begin("idle", 3)
    assert run("idle", "--yes") == FAILED
    assert run("nobody", "--yes") == FAILED

    told = capsys.readouterr().err.splitlines()
    assert "It lacks no marker" in told[2]
    assert "TRANSACTIONAL_ID_NOT_FOUND" in told[3]


def test_without_a_terminal_nothing_is_written(
    till: Till, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("copier") == USAGE

    assert capsys.readouterr().err.splitlines()[-1].startswith("Nothing was done.")
    assert clusters.asked == []
