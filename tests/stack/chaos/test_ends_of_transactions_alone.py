"""Kafka writes a mark at the end of each transaction: an offset of the log without a record."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from coordlib.cli.main.main import main
from coordlib.core.wire import codec
from coordlib.core.wire.envelope import shard_of
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire
from tests.tools import driving

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

GROUP, SHARDS = "copied", 2


def test_a_batch_and_a_rebuild_begin_at_the_end_of_a_transaction(
    own_stack: Stack, start_job: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch has no row then, and no shard judges anything; nothing waits behind it. A job whose
    checkpoint is lost begins at such an offset, and finds out how the transaction ended."""
    servers, shard = own_stack.bootstrap_servers, shard_of(GROUP, SHARDS)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "a stranger's"})
    producer.init_transactions(30)

    def begin(topic: str, request: Any) -> None:
        producer.begin_transaction()
        producer.produce(f"coord.{topic}", codec.encode(request), GROUP, shard)
        assert producer.flush(30) == 0

    def waits() -> Any:
        capsys.readouterr()
        main(["status", "--bootstrap-servers", servers, "--format", "json"])
        return json.loads(capsys.readouterr().out)["lag"]

    start_job()
    with Wire(servers) as wire:
        begin("offsets", driving.commit("tool", group=GROUP, offset=3))
        wire.event(GROUP, "OffsetsCommitted")
        producer.commit_transaction(30)  # the range of the next batch has nothing but this
        wait_until("nothing waits", lambda: waits() == {"records": 0, "ms": 0})

        begin("requests", driving.pending_commit("tool", group=GROUP, offset=9))
        wire.event(GROUP, "OffsetsPending")
        own_stack.kill_job()
        producer.abort_transaction(30)
        start_job("--rebuild", "--checkpoint", str(own_stack.home / "rebuilt"))

        wire.event(GROUP, "OffsetsDropped")
        wait_until("nothing waits", lambda: waits() == {"records": 0, "ms": 0})
        wire.judged(wire.send("DescribeGroup", GROUP))
        assert own_stack.status().job_state == "running"
