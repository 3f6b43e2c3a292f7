"""Times that clients wrote, in place of the broker's own: they are nobody's clock."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from coordlib.core.wire.envelope import shard_of
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, Scene

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

HOUR_MS = 3_600_000


def test_times_written_by_clients_move_no_clock_and_are_refused_one_by_one(
    scene: Scene, tell: Tell
) -> None:
    """Somebody sets the topic to CreateTime while the job runs, and clients whose clocks are an
    hour ahead, or of 1970, write (F-11). No session may end by that."""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    now_ms = time.time_ns() // 1_000_000
    _timestamps(scene, "CreateTime")
    foreign = [
        _write(scene, at_ms) for at_ms in (now_ms + HOUR_MS - 60_000, 1_000, now_ms, 2_000) * 2
    ]
    _timestamps(scene, "LogAppendTime")
    scene.wire.judged(foreign[-1])
    scene.is_undisturbed()

    scene.wire.read_everything()
    for coordinate in foreign:
        told = [e["type"] for e in scene.wire.values("events") if e["cause"] == coordinate]
        assert told == ["RequestRejected"], coordinate
    assert scene.expelled() == []
    tell(f"{len(foreign)} refused, nobody told: {scene.ends_well()}")


def _timestamps(scene: Scene, type_: str) -> None:
    entry = ConfigEntry(
        "message.timestamp.type", type_, incremental_operation=AlterConfigOpType.SET
    )
    topic = ConfigResource(ConfigResource.Type.TOPIC, "coord.requests", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": scene.stack.bootstrap_servers})
    admin.incremental_alter_configs([topic])[topic].result(30)


def _write(scene: Scene, at_ms: int) -> str:
    """A join with a time of its own; its coordinate."""
    shard = shard_of(GROUP, scene.wire.shards)
    producer = Producer({"bootstrap.servers": scene.stack.bootstrap_servers, "linger.ms": 0})
    value: dict[str, Any] = {"v": 1, "type": "LeaveGroup", "id": "x", "client": "c", "group": GROUP}
    taken: list[Message] = []
    producer.produce(
        "coord.requests",
        json.dumps(value | {"members": []}).encode(),
        partition=shard,
        timestamp=at_ms,
        on_delivery=lambda error, message: taken.append(error or message),
    )
    producer.flush(30)
    assert isinstance(taken[0], Message), taken[0]
    return f"r{shard}-{taken[0].offset()}"
