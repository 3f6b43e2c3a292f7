"""A single record whose outputs are more than the driver collects: each start ended."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from coordlib.core.wire.envelope import shard_of
from coordlib.errors import SetupError
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.truths import outputs_are_exactly_once
from tests.stack.wire import RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

GROUP: Final = "g" * 249
ROWS: Final = [{"topic": "t", "partition": p, "offset": p} for p in range(10_000)]
COMMIT: Final[dict[str, Any]] = {
    "v": 1,
    "type": "OffsetCommit",
    "client": "large",
    "reply": 0,
    "generation": -1,
    "member": "",
    "group": GROUP,
}
StartJob = Callable[..., None]


def test_it_is_set_aside_and_all_others_go_on(own_stack: Stack, start_job: StartJob) -> None:
    """INV-144: 7 MB of outputs, of which a driver with this memory collects 2. Its sender is
    answered, and whoever else has waited; a rebuild gives the same."""
    small = ("--conf", "spark.driver.maxResultSize=2m")
    start_job(spark_args=small)
    with Wire(own_stack.bootstrap_servers) as wire:
        honest = RawMember(wire, "honest", "honest", session_timeout_ms=600_000)
        settle([honest])
        with_rows = json.dumps({**COMMIT, "id": "large", "offsets": ROWS}, separators=(",", ":"))
        behind = json.dumps({**COMMIT, "id": "behind", "offsets": ROWS[:2]})
        client = {"bootstrap.servers": own_stack.bootstrap_servers, "log_level": 0}
        with closing(Producer(client)) as producer:
            for value in (with_rows, behind):
                producer.produce("coord.offsets", value, GROUP, partition=shard_of(GROUP, 2))
            assert producer.flush(120) == 0

        def errors() -> dict[str, str]:
            told = [v for v in wire.values("responses") if v.get("client") == "large"]
            return {v["id"]: v["error"] for v in told if "error" in v}

        def go_on() -> bool:
            if not own_stack.job.is_running:
                try:
                    start_job(spark_args=small)
                except SetupError:
                    return False
            return errors() == {"large": "POLICY_VIOLATION", "behind": "NONE"}

        wait_until("both are answered", go_on, 600)

        assert wire.answer(honest.commit(7), patience_s=120)["error"] == "NONE"
        lines = [v for v in wire.values("events") if v["type"] == "RequestRejected"]
        assert [v["group"] for v in lines] == [GROUP]
        outputs_are_exactly_once(wire)
