"""A request that ends each start, on a broker and in Spark: it is found, and the job goes on."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from coordlib.config import CoordinatorConfig, GroupConfig
from coordlib.core.engine.effects import Output
from coordlib.core.wire import codec
from coordlib.errors import CoordError, TooMuchAtOnce
from coordlib.job import query as plane_query
from coordlib.job.batch import Batch, assemble
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from coordlib.kafka import topics
from coordlib.local.broker import Broker
from tests.stack.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack
DEADLY = "deadly"
#: So few starts find it: a batch is halved from a few records on, and each of them is probed.
STARTS_MAX = 12
CONFIG = CoordinatorConfig(group=GroupConfig(initial_rebalance_delay_ms=0))


def is_judged(output: Output) -> bool:
    """Whether it is of the request that is too much, and no rejection of it."""
    value = output.value or b""
    return DEADLY.encode() in value and b"POLICY_VIOLATION" not in value


def collected(number: int, rows: Iterable[tuple[Any, ...]]) -> Batch:
    """As a driver collects that has too little memory for one request's outputs."""
    batch = assemble(number, rows)
    if any(map(is_judged, batch.outputs)):
        raise TooMuchAtOnce("too much")
    return batch


@pytest.mark.parametrize("topic", ["requests", "offsets"])
def test_it_is_found_and_rejected_and_others_are_answered(
    spark: "SparkSession",
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
) -> None:
    """INV-144: it was in the smallest batch that can be planned, and each start ended with it."""
    prefix = f"p{uuid4().hex[:8]}"
    topics.create({"bootstrap.servers": broker.bootstrap_servers}, prefix, 2, 2, 1)
    monkeypatch.setattr(plane_query, "assemble", collected)
    options = CoordinatorOptions(
        bootstrap_servers=broker.bootstrap_servers,
        prefix=prefix,
        checkpoint=str(tmp_path / "checkpoint"),
        config=CONFIG,
    )

    def run(wire: Wire, wanted: list[str]) -> bool:
        """A start, until these have an answer; whether it has not ended before."""
        coordinator = Coordinator(spark, options)
        with suppress(CoordError):
            query = coordinator.start()
            while query.isActive:
                told = {value.get("cause") for value in wire.values("responses")}
                if told.issuperset(wanted):
                    query.stop()
                    break
                time.sleep(0.1)
        coordinator.note_end(coordinator.failure)
        coordinator.close()
        return coordinator.failure is None

    with Wire(broker.bootstrap_servers, prefix) as wire:
        first = wire.send("OffsetFetch", "g")
        assert run(wire, [first])
        rows = [{"topic": "t", "partition": 0, "offset": 5}]
        commit = {"v": 1, "type": "OffsetCommit", "id": "1", "client": DEADLY, "group": "g"}
        commit |= {"generation": -1, "member": "", "offsets": rows}
        asked = [wire.send_raw(codec.encode(commit), "g", topic)]
        asked += [wire.send("OffsetFetch", name) for name in ("g", "h", "i")]

        starts = 1
        while not run(wire, asked):
            starts += 1
            assert starts <= STARTS_MAX
        wire.read_everything()

        told = {v["cause"]: v for v in wire.values("responses") if "cause" in v}
        assert told[asked[0]]["error"] == "POLICY_VIOLATION"
        assert [told[each].get("error", "NONE") for each in asked[1:]] == ["NONE"] * 3
        lines = [v for v in wire.values("events") if v["type"] == "RequestRejected"]
        assert [v["cause"] for v in lines] == [asked[0]]
        # The next starts judge alike, with nothing to be noted any more.
        last = wire.send("OffsetFetch", "g")
        assert run(wire, [last])
        assert not (tmp_path / "checkpoint" / "probe.json").exists()
