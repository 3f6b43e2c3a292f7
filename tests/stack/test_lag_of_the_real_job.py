"""Lag and mirror of a real job: positions of a Spark query, seen by tools that know only Kafka."""

import time
from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import LagLine, LagSample
from coordlib.kafka.reading import newest_by_key
from tests.stack.flow import Flow
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack


def test_what_a_query_commits_is_sampled_and_mirrored(wire: Wire, flow: Flow, group: str) -> None:
    """A Spark query was invisible to lag tools: it never joins, it only tells how far it is."""
    name = f"mirrored-{group}"
    row = {"topic": flow.topic, "partition": 2, "offset": 0}
    assert wire.answer(wire.commit_position(name, offsets=[row]))["failed"] == []
    options = {"bootstrap.servers": wire.bootstrap_servers, "group.id": name, "log_level": 0}
    consumer = Consumer(options)
    try:
        place = TopicPartition(flow.topic, 2)
        _wait(lambda: consumer.committed([place], 20)[0].offset == 0)
    finally:
        consumer.close()

    flow.begin()
    _wait(lambda: flow.ends[2] >= 3)
    flow.pause()
    _wait(lambda: (line := _newest(wire, name)) is not None and line.lag == flow.ends[2])

    line = _newest(wire, name)
    assert line is not None
    assert (line.topic, line.partition, line.committed) == (flow.topic, 2, 0)
    assert line.lag_seconds is not None


def _newest(wire: Wire, group: str) -> LagLine | None:
    """The line of the newest sample; this group has only one."""
    options = {"bootstrap.servers": wire.bootstrap_servers}
    found = newest_by_key(options, f"{wire.prefix}.lag", shard_of(group, wire.shards))
    value = found.get(group.encode())
    return None if value is None else msgspec.json.decode(value, type=LagSample).lines[0]


def _wait(is_so: Callable[[], bool]) -> None:
    """The test's own time limit ends what never comes true."""
    while not is_so():
        time.sleep(0.1)
