"""A client writes gigabytes of requests while the job is down; its workers have one gigabyte."""

import base64
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from coordlib import limits
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import SetupError
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.truths import outputs_are_exactly_once
from tests.stack.wire import RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

REQUESTS: Final = 3_000
GROUP: Final = "large"
WORKER: Final = ("--conf", "spark.executor.pyspark.memory=1g")
#: The driver plans for what it may collect, too; it ends before it needs that much.
MUCH: Final = (
    *("--conf", "spark.executor.pyspark.memory=16g"),
    *("--conf", "spark.driver.memory=10g", "--conf", "spark.driver.maxResultSize=0"),
)
SETTING: Final = ("--set", f"engine.worker_memory_bytes={16 * 1024 * limits.MIB}")
StartJob = Callable[..., None]


def write_large_requests(stack: Stack) -> list[str]:
    """JoinGroups of nearly 1 MiB each, all of one group; returns their ids."""
    metadata = base64.b64encode(bytes((limits.REQUEST_BYTES_MAX - 1_000) * 3 // 4)).decode()
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "message.max.bytes": 2 * limits.MIB,
            "queue.buffering.max.kbytes": 64 * limits.KIB,
            "log_level": 0,
        }
    )
    ids = [uuid4().hex for _ in range(REQUESTS)]
    shard = shard_of(GROUP, 2)
    for number, id_ in enumerate(ids):
        request: dict[str, Any] = {"v": 1, "type": "JoinGroup", "id": id_, "group": GROUP}
        request |= {"client": f"c{number}", "protocol_type": "test"}
        # Long enough to write all; the few that are let in are waited for no longer than that.
        request |= {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
        request |= {"protocols": [{"name": "p", "metadata": metadata}]}
        value = json.dumps(request)
        assert len(value) <= limits.REQUEST_BYTES_MAX
        while True:
            try:
                producer.produce("coord.requests", value, GROUP, partition=shard)
                break
            except BufferError:
                producer.poll(0.5)
    assert producer.flush(120) == 0
    return ids


def all_are_answered_once(wire: Wire, ids: list[str]) -> Counter[str]:
    """How many got which answer."""
    asked = set(ids)

    def answered() -> list[Any]:
        return [v for v in wire.values("responses") if v.get("id") in asked and "error" in v]

    wire.wait("all large requests answered", lambda: len(answered()) >= REQUESTS, 300)
    wire.read_everything()
    assert sorted(v["id"] for v in answered()) == sorted(ids)
    return Counter(v["error"] for v in answered())


def test_with_the_settings_as_they_are_the_job_gets_through(
    own_stack: Stack, start_job: StartJob
) -> None:
    """By number alone all of it would be one batch, three times what a worker may have."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        member = RawMember(wire, "g", "client", session_timeout_ms=600_000)
        settle([member])
        own_stack.kill_job()
        ids = write_large_requests(own_stack)
        start_job(spark_args=WORKER)

        assert wire.answer(member.commit(7), patience_s=300)["error"] == "NONE"
        errors = all_are_answered_once(wire, ids)
        assert errors["GROUP_MAX_SIZE_REACHED"] > REQUESTS * 9 // 10
        outputs_are_exactly_once(wire)


def test_a_batch_that_was_planned_too_large_is_named_and_planned_smaller(
    own_stack: Stack, start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was planned where workers had 16 GB; where they have 1 GB it ends one start, and the next
    begins anew with fewer records.  # INV-131"""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        settle([RawMember(wire, "g", "client", session_timeout_ms=600_000)])
        own_stack.kill_job()
        offsets = own_stack.checkpoint / "offsets"
        planned = 1 + max(int(each.name) for each in offsets.iterdir() if each.name.isdecimal())
        ids = write_large_requests(own_stack)
        monkeypatch.setenv("COORD_FAULT", f"batch-begins:{planned}")
        with contextlib.suppress(SetupError):  # a batch of before may tell that the job runs
            start_job(*SETTING, spark_args=MUCH)
        wait_until("the batch has begun", lambda: own_stack.job_pid is None)
        monkeypatch.delenv("COORD_FAULT")
        own_stack.kill_job()

        with pytest.raises(SetupError):
            start_job(spark_args=WORKER)
        told = (own_stack.home / "logs" / "job.log").read_text()
        assert "A batch has more bytes than a Python worker may hold: batch " in told
        assert "half as many" in told
        began = time.monotonic()
        before = (own_stack.checkpoint / "coordinator.json").read_bytes()
        start_job(spark_args=WORKER)  # as a supervisor does
        assert (own_stack.checkpoint / "coordinator.json").read_bytes() != before

        errors = all_are_answered_once(wire, ids)
        assert errors["GROUP_MAX_SIZE_REACHED"] > REQUESTS * 9 // 10
        outputs_are_exactly_once(wire)
        print(f"through after {time.monotonic() - began:.0f} s: {dict(errors)}")
