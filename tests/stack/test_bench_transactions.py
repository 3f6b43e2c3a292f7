"""The transactions benchmark against a real broker and job: both sides do what is measured."""

import json
from uuid import uuid4

import pytest

from coordlib.kafka.cluster import create_topic
from coordlib.local.stack import Stack
from tests.tools.bench import transactions
from tests.tools.bench.stand import Stand
from tests.tools.bench.transactions import Turn
from tests.tools.bench.transactions_sides import KAFKAS, OURS, opened

pytestmark = [pytest.mark.stack, pytest.mark.chaos]


@pytest.mark.parametrize(
    ("name", "way"), [(OURS, "kafka"), (OURS, "coordinator"), (KAFKAS, "kafka")]
)
def test_both_sides_commit_and_their_successors_find_it(
    name: str,
    way: str,
    shared_stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A successor that were told too early would have another position: the run itself looks."""
    monkeypatch.setattr(transactions, "CLEAN_ENDS", 2)
    config = {"bootstrap.servers": shared_stack.bootstrap_servers}
    topic = f"transactions-{uuid4().hex[:8]}"
    create_topic(config, topic, 2)
    side = opened(name, config, shared_stack.prefix, way)
    turn = Turn(name, side, Stand(config, shared_stack.prefix, None), way, topic)
    try:
        median = turn.load(producers=2, records=5, seconds=1.0)
        turn.after_commits()
        turn.after_restarts(1)
    finally:
        side.close()

    assert median is not None
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {(line["what"], line.get("after")): line for line in lines}
    load = told["load", None]
    assert load["transactions"] >= 2
    assert load["failed"] == {}
    assert ("batches" in load) is (name == OURS)
    assert told["successor", "commit"]["times"] == 2
    assert told["successor", "kill, and the same id again"]["wait_s"]["p100"] > 0
