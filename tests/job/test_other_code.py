"""A batch is committed to Kafka, its driver dies, and the next one judges it differently."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from coordlib.config import CoordinatorConfig, GroupConfig
from coordlib.core.engine.effects import Output
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from coordlib.job.sink import TransactionalSink
from coordlib.kafka import topics
from coordlib.local.broker import Broker
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack
#: The code of before lets a group have two members, the code of today one.
BEFORE = CoordinatorConfig(group=GroupConfig(max_size=2, initial_rebalance_delay_ms=0))
TODAY = CoordinatorConfig(group=GroupConfig(max_size=1, initial_rebalance_delay_ms=0))


class Killed(Exception):
    """Stands for SIGKILL between Kafka's commit and Spark's."""


def test_its_outcome_is_taken_over(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OOM kill in a batch, then a roll-out with another setting or newer code: the marker finds
    that the outputs differ. The job says so once; the start after it takes the state from the
    topics: the member that the older code let in is there, and nothing is written twice.

    # INV-34
    """
    prefix = f"p{uuid4().hex[:8]}"
    topics.create({"bootstrap.servers": broker.bootstrap_servers}, prefix, 2, 2, 1)

    def started(config: CoordinatorConfig) -> Coordinator:
        options = CoordinatorOptions(
            bootstrap_servers=broker.bootstrap_servers,
            prefix=prefix,
            checkpoint=str(tmp_path / "checkpoint"),
            config=config,
        )
        coordinator = Coordinator(spark, options)
        coordinator.start()
        return coordinator

    def ended(coordinator: Coordinator) -> Exception | None:
        query = coordinator.query
        assert query is not None
        wait_until("it has ended", lambda: not query.isActive)
        coordinator.close()
        return coordinator.failure

    with Wire(broker.bootstrap_servers, prefix) as wire:
        join = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000}
        join |= {"protocol_type": "demo", "protocols": [{"name": "p", "metadata": ""}]}
        first = started(BEFORE)
        wire.answer(wire.send("JoinGroup", "g", client="first", **join))
        with monkeypatch.context() as killing:
            write = TransactionalSink.write

            def write_and_die(sink: TransactionalSink, batch: Any, *rest: Any) -> Any:
                written = write(sink, batch, *rest)
                if any(is_join_of(output) for output in batch.outputs):
                    raise Killed
                return written

            killing.setattr(TransactionalSink, "write", write_and_die)
            wire.send("JoinGroup", "g", client="second", **join)
            ended(first)
        wire.read_everything()
        committed = len(wire.seen["events"])

        differing = ended(started(TODAY))
        assert differing is not None
        assert "is committed, and it ran again with other outputs" in str(differing)

        now = started(TODAY)
        described = wire.answer(wire.send("DescribeGroup", "g"))
        third = wire.answer(wire.send("JoinGroup", "g", client="third", **join))
        query = now.query
        assert query is not None
        query.stop()
        now.close()

        members = [member["client"] for member in described["members"]]
        assert sorted(members) == ["first", "second"]
        assert third["error"] == "GROUP_MAX_SIZE_REACHED"
        wire.read_everything()
        new = [value["type"] for _, value in wire.seen["events"][committed:]]
        assert new == ["RequestRejected"]


def is_join_of(output: Output) -> bool:
    return output.topic == "events" and b'"second' in (output.value or b"")
