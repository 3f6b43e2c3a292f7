"""Rule 17 on a real broker and a real job: others write ticks and listings, and nothing happens."""

import json
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.client.groups.member import AssignedMember
from coordlib.client.kit.requests import Timing
from coordlib.core.wire.envelope import shard_of
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack

TIMING: Final = Timing(
    session_timeout_ms=6_000, heartbeat_interval_ms=1_000, rebalance_timeout_ms=10_000
)
TICK: Final = {"type": "Tick", "v": 1, "published": 2**63 - 1}
NO_TOPICS: Final = {"type": "TopicMetadata", "v": 1, "topics": []}
TAIL: Final = 400


def test_forged_and_copied_control_records_change_nothing(
    shared_stack: Stack, wire: Wire, group: str
) -> None:
    """A client that may join a group has learnt what drivers write, and writes it too: that all can
    be heard, that there are no topics, and a copy of what the driver itself has said."""
    servers, topic = shared_stack.bootstrap_servers, f"kept-{uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    with AssignedMember(group, {"bootstrap.servers": servers}, timing=TIMING) as member:
        member.subscribe([topic])

        def owns() -> int:
            member.poll(0.1)
            return len(member.assignment)

        wait_until("it owns the topic", lambda: owns() == 3)
        generations = len(wire.events(group, "GenerationStarted"))
        shard = shard_of(group, wire.shards)
        genuine = newest_control(servers, shard)
        copies = [wire.send_raw(genuine, group, shard=each) for each in range(wire.shards)]
        forged = [
            wire.send_raw(json.dumps(record).encode(), group, shard=each)
            for record in (TICK, NO_TOPICS)
            for each in range(wire.shards)
        ]
        for coordinate in (*forged, *copies):
            wire.judged(coordinate)
        wire.read_everything()

        assert owns() == 3
        assert len(wire.events(group, "GenerationStarted")) == generations
    told = {
        event["cause"]: event["reason"]
        for event in wire.values("events")
        if event["type"] == "RequestRejected" and event["cause"] in {*forged, *copies}
    }
    moved = next(each for each in copies if not each.startswith(f"r{shard}-"))
    assert told.keys() == {*forged, moved}, "of its own shard's copy nothing is told"
    assert all("written by the job's driver alone" in reason for reason in told.values())


def newest_control(servers: str, shard: int) -> bytes:
    """What the driver has last told this shard."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "t", "log_level": 0})
    place = TopicPartition("coord.requests", shard)
    try:
        end = consumer.get_watermark_offsets(place, 10)[1]
        place.offset = max(0, end - TAIL)
        consumer.assign([place])
        newest: bytes | None = None
        while consumer.position([place])[0].offset < end:
            message: Any = consumer.poll(1.0)
            if message is not None and b'"sig":' in (message.value() or b""):
                newest = message.value()
        assert newest is not None
        return newest
    finally:
        consumer.close()
