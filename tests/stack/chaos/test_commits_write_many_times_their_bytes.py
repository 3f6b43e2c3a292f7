"""One client with a member's rights writes 120 commits of 10,000 rows: 58 MB, which write 14 times
as many. With the memory of a laptop that ended the job with exit code 52, at every start again."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from coordlib import limits
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import SetupError
from coordlib.installation import conf_file
from coordlib.local.stack import Stack
from coordlib.local.submission import read_properties
from tests.kit.waiting import wait_until
from tests.stack.truths import outputs_are_exactly_once
from tests.stack.wire import RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

COMMITS: Final = 120
GROUPS: Final = [(f"flood-{number}-" + "g" * 249)[:249] for number in range(4)]
StartJob = Callable[..., None]


@pytest.fixture(params=["spark-local.conf", "spark-defaults.conf"])
def start_job(request: pytest.FixtureRequest, start_job: StartJob) -> StartJob:
    """Start the job with the memory of a laptop, or of a cluster's driver."""
    name = "spark.driver.memory"
    memory = read_properties(conf_file(request.param))[name]
    return partial(start_job, spark_args=("--conf", f"{name}={memory}"))


def flood(stack: Stack, topic: str) -> list[str]:
    """The commits, spread over some groups with the longest names; returns their ids."""
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "queue.buffering.max.kbytes": 64 * limits.KIB,
            "message.max.bytes": 2 * limits.MIB,
            "log_level": 0,
        }
    )
    rows = [{"topic": "t", "partition": p, "offset": p} for p in range(10_000)]
    common: dict[str, Any] = {"v": 1, "type": "OffsetCommit", "client": "flood", "reply": 0}
    common |= {"generation": -1, "member": "m" * 249, "offsets": rows}
    ids = []
    for number in range(COMMITS):
        group = GROUPS[number % len(GROUPS)]
        ids.append(f"flood-{number}")
        value = json.dumps(common | {"id": ids[-1], "group": group}, separators=(",", ":"))
        producer.produce(f"coord.{topic}", value, group, partition=shard_of(group, 2))
        producer.poll(0)
    assert producer.flush(120) == 0
    return ids


def errors_of(wire: Wire, ids: list[str]) -> dict[str, str]:
    """The answer of each that has one."""
    asked = set(ids)
    told = [v for v in wire.values("responses") if v.get("id") in asked and "error" in v]
    assert len(told) == len({v["id"] for v in told})
    return {v["id"]: v["error"] for v in told}


def test_the_job_lives_and_others_are_answered(own_stack: Stack, start_job: StartJob) -> None:
    """What is too much is put off, whole, by the log alone; the job never dies of it."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        honest = RawMember(wire, "honest", "honest", session_timeout_ms=600_000)
        settle([honest])

        ids = flood(own_stack, "requests")
        wire.wait("all are answered", lambda: len(errors_of(wire, ids)) == COMMITS, 300)

        errors = set(errors_of(wire, ids).values())
        assert errors == {"NONE", "THROTTLING_QUOTA_EXCEEDED"}
        assert wire.answer(honest.commit(7), patience_s=120)["error"] == "NONE"
        assert own_stack.job.is_running
        outputs_are_exactly_once(wire)


def test_positions_of_no_member_are_written_by_starts_that_plan_less(
    own_stack: Stack, start_job: StartJob
) -> None:
    """INV-131: nothing in `coord.offsets` is put off, so one batch may be too much for the driver.
    It does not run again and again as it was: starts plan half as many records, and get further."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        honest = RawMember(wire, "honest", "honest", session_timeout_ms=600_000)
        settle([honest])
        ids = flood(own_stack, "offsets")

        def go_on() -> bool:
            if not own_stack.job.is_running:
                try:
                    start_job()
                except SetupError:
                    return False
            return len(errors_of(wire, ids)) == COMMITS

        wait_until("all are answered", go_on, 600)

        assert set(errors_of(wire, ids).values()) == {"NONE"}
        assert wire.answer(honest.commit(7), patience_s=120)["error"] == "NONE"
        outputs_are_exactly_once(wire)
