"""Two jobs with a shard each on one broker: one killed, one moved, and one that takes from both."""

import gc
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from coordlib import exit_codes
from coordlib.cli.main.main import main
from coordlib.core.wire.envelope import shard_of
from coordlib.job import crash
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.conftest import JOB_ARGS
from tests.stack.test_transactions_by_coordinator import OFFSETS, Producer, committed, waits
from tests.stack.truths import outputs_are_exactly_once
from tests.stack.wire import RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

Cell = Callable[..., Stack]
#: A group of each shard.
LOW, HIGH = (next(g for g in map(str, range(99)) if shard_of(g, 2) == shard) for shard in (0, 1))

#: Where a cell is killed: so many batches after its start, or as soon as it writes there.
#: At `decided` a transaction with markers would be needed.
PLACES = {
    place: 0 if place in ("fed", "tick") else 3 for place in crash.PLACES if place != "decided"
}


@pytest.fixture
def cell(own_stack: Stack, tmp_path: Path) -> Iterator[Cell]:
    """Launch a job with these shards, in a folder of its own."""
    made: list[Stack] = []

    def launch(name: str, shards: str, *more: str, fault: str = "") -> Stack:
        stack = Stack(tmp_path / name)
        stack.broker = own_stack.broker
        made.append(stack)
        with patch.dict(os.environ, {crash.VARIABLE: fault}):
            stack.launch_job((*JOB_ARGS, "--without-archive", "--shards", shards, *more))
        return stack

    yield launch
    for stack in made:
        stack.kill_job()
    gc.collect()


def status(stack: Stack, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    where = ["--bootstrap-servers", stack.bootstrap_servers, "--format", "json"]
    code = main(["status", *where])
    return code, json.loads(capsys.readouterr().out)


def test_cells(own_stack: Stack, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    """A transaction of groups in both; one dies and the other answers; its range is moved to a
    third job; a fourth one, started by mistake over both, ends them, and each says so."""
    low, high = cell("low", "0-0"), cell("high", "1-1")
    for each in (low, high):
        each.job.wait_until_ready()
    with Wire(own_stack.bootstrap_servers) as wire:
        _commit_everywhere(wire, own_stack)
        code, told = status(own_stack, capsys)
        assert [row["shards"] for row in told["job_instances"]] == ["0-0", "1-1"]
        assert (told["shards_without_job"], code) == ([], exit_codes.OK)

        high.kill_job()
        member = RawMember(wire, LOW, "a")
        settle([member])
        member.start_heartbeats()
        asked = RawMember(wire, HIGH, "b").ask_join()
        assert wire.answer(member.commit(7))["error"] == "NONE"
        assert wire.answers(asked) == []
        wait_until("one cell alone is behind", lambda: _behind(own_stack, capsys) == ["1-1"])

        moved = cell("moved", "1-1", "--rebuild")
        assert wire.answer(member.commit(8))["error"] == "NONE"
        moved.job.wait_until_ready()
        assert wire.answer(asked)["error"] == "NONE"
        assert committed(wire) == {**OFFSETS, LOW: 8}

        both = cell("both", "0-1", "--rebuild")
        both.job.wait_until_ready()
        for older in (low, moved):
            wait_until("the older job ends", lambda job=older.job: not job.is_running)
            assert older.job.exit_code == exit_codes.FENCED
            assert "A later job, with shards 0-1, has taken over" in older.last_job_lines(40)
        assert "an earlier job of these shards is fenced" in both.job.log.read_text()
        assert wire.answer(member.commit(9))["error"] == "NONE"
        assert committed(wire) == {**OFFSETS, LOW: 9}


def test_messages_that_others_wrote_before_a_first_start_do_nothing(
    own_stack: Stack, cell: Cell
) -> None:
    """Whoever may write requests used up the numbers of messages between shards before any job ran,
    and again before the second range had its first one: the true messages must still count."""
    with Wire(own_stack.bootstrap_servers) as wire:
        _forge_messages(wire, 0, 1)
        cell("low", "0-0").job.wait_until_ready()
        _forge_messages(wire, 1)
        cell("high", "1-1").job.wait_until_ready()
        _commit_everywhere(wire, own_stack)


def _forge_messages(wire: Wire, *shards: int) -> None:
    """As many as the transaction's messages have numbers, from each shard."""
    body = {"type": "TxnMarker", "group": "x", "transactional_id": "x"}
    body |= {"producer_id": 1, "epoch": 0, "result": "abort"}
    for shard, source, number in product(shards, range(wire.shards), range(1, 41)):
        forged = {"v": 1, "type": "FromShard", "from": source, "seq": number, "body": body}
        wire.send_raw(json.dumps(forged).encode(), "x", shard=shard)


@pytest.mark.timeout(1_200)
def test_a_cell_that_is_killed_anywhere_says_everything_once(
    own_stack: Stack, cell: Cell, tmp_path: Path
) -> None:
    """Wherever one of two cells dies, it is started again and a transaction over both is whole.

    # INV-34, INV-95
    """
    cell("low", "0-0").job.wait_until_ready()
    high = cell("high", "1-1")
    with Wire(own_stack.bootstrap_servers) as wire, ThreadPoolExecutor(1) as beside:
        for number, (place, after) in enumerate(PLACES.items()):
            high.job.wait_until_ready()
            batch = high.job.last_status()["batch_id"] or 0
            high.kill_job()
            high = cell("high", "1-1", fault=f"{place}:{after and batch + after}")
            whole = beside.submit(_commit_everywhere, wire, own_stack, number)
            wait_until(f"the cell dies at {place}", lambda job=high.job: not job.is_running, 120)
            assert f"{place} in batch" in high.job.log.read_text()
            high = cell("high", "1-1")
            whole.result(180)
            outputs_are_exactly_once(wire)


def _behind(stack: Stack, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Cells that records wait for."""
    _, told = status(stack, capsys)
    return [row["shards"] for row in told["job_instances"] if row["lag"]["records"]]


def _commit_everywhere(wire: Wire, stack: Stack, number: int = 0) -> None:
    """One transaction over two groups of each shard, so that each cell tells the other."""
    names = (f"copier-{number}-{n}" for n in range(99))
    copier = Producer(wire, next(name for name in names if shard_of(name, 2) == 1))
    copier.said("InitProducerId", timeout_ms=60_000)
    wanted = {group: offset + 10 * number for group, offset in OFFSETS.items()}
    for request, (group, offset) in enumerate(wanted.items()):
        row = {"topic": "t", "partition": 0, "offset": offset}
        copier.said("TxnOffsetCommit", group=group, number=request, offsets=[row])
    copier.said("EndTxn", result="commit", accepted=len(wanted))
    wire.wait("the transaction is complete", lambda: len(copier.completed()) > number, 150)
    assert committed(wire) == wanted
    client = {"bootstrap.servers": stack.bootstrap_servers}
    wait_until("nothing waits", lambda: not any(waits(client)))
