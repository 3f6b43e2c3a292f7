"""`coord claims history`, over tables that lie there without any job or JVM."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Cli
from tests.cli.tables import write_events
from tests.history.rows import Log


def add(log: Log, type_: str, seconds: float, **fields: Any) -> None:
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


def test_the_events_of_a_group_are_shown_oldest_first(tables: str, cli: Cli) -> None:
    _, first, second = cli("claims history g --tables", tables).out.splitlines()
    assert first.split()[1:8] == ["ClaimWon", "g", "orders", "2", "a", "40", "7"]
    assert second.split()[1] == "ClaimExpired"


def test_the_events_of_a_partition_are_shown_for_all_groups(tables: str, cli: Cli) -> None:
    out = cli("claims history orders:2 --format json --tables", tables).out
    types = [row["type"] for row in json.loads(out)["events"]]
    assert types == ["ClaimWon", "ClaimExpired", "ClaimWon"]
    assert "\x1b" not in out


def test_a_pause_is_shown_once_and_not_for_each_coordination_partition(
    tmp_path: Path, cli: Cli
) -> None:
    """It is written to all 50 of them, since the group's topics may stand in any: a pause and its
    end were all that the newest 100 lines had."""
    log, parts = Log(), range(50)
    add(log, "ClaimWon", 0, group="g", member="a")
    for second, type_ in ((10, "GroupPaused"), (20, "GroupResumed"), (30, "GroupPaused")):
        for each in parts:
            said = {"skew_ms": -each, "pause_ms": 60_000}
            of = {"group": "g", "member": "ops", "space": "claims", "kind": "claims"}
            log.event(type_, second + each / 1_000, partition=each, **of, **said)
    write_events(log, tmp_path)
    events = cli.json("claims history g --tables", str(tmp_path))["events"]
    assert [row["type"] for row in events] == [
        "ClaimWon",
        "GroupPaused",
        "GroupResumed",
        "GroupPaused",
    ]


def test_what_is_not_there_is_said(tables: str, cli: Cli, tmp_path: Path) -> None:
    assert "has no claims of nobody" in cli("claims history nobody --tables", tables).err


def types_of(log: Log, folder: Path, cli: Cli) -> list[str]:
    """Types and clients of the events of the partition, as they are shown."""
    write_events(log, folder)
    events = cli.json("claims history orders:2 --tables", str(folder))["events"]
    return [f"{row['type']} {row['client-id']}" for row in events]


def test_an_expiry_is_shown_before_the_claim_that_follows_it(tmp_path: Path, cli: Cli) -> None:
    """A consumer with a dozen partitions died: the attempt by which all of its claims were found
    expired won one of them, so that this is the eleventh event, or a later one, of its record."""
    log = Log()
    add(log, "ClaimWon", 0, group="g", member="dead")
    add(log, "ClaimExpired", 20, group="g", member="dead", of_record=(140, 3))
    add(log, "ClaimWon", 20, group="g", member="waits", of_record=(140, 12))

    told = types_of(log, tmp_path, cli)
    assert told == ["ClaimWon dead", "ClaimExpired dead", "ClaimWon waits"]


def test_the_log_gives_the_order_when_the_brokers_clock_goes_back(tmp_path: Path, cli: Cli) -> None:
    """Another broker leads the partition from now on, and its clock is half a second behind."""
    log = Log()
    add(log, "ClaimWon", 10, group="g", member="a")
    add(log, "ClaimReleased", 20, group="g", member="a")
    add(log, "ClaimWon", 19.5, group="g", member="b")

    told = types_of(log, tmp_path, cli)
    assert told == ["ClaimWon a", "ClaimReleased a", "ClaimWon b"]
