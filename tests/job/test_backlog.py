"""How large the requests are that wait, by samples; against a broker, because offsets have gaps."""

from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export
    AdminClient,
    NewTopic,
)

from coordlib.job.beginning import SAMPLE, mean_bytes_waiting
from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


@pytest.fixture
def options(broker: Broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic(options: dict[str, str]) -> str:
    name = f"waiting-{uuid4().hex[:8]}"
    made = NewTopic(name, 2, 1, config={"max.message.bytes": "1114112"})
    admin = AdminClient(options)
    admin.create_topics([made])[name].result(60)
    return name


def write(options: dict[str, str], topic: str, partition: int, sizes: list[int]) -> None:
    producer = Producer({**options, "message.max.bytes": 1 << 21, "log_level": 0})
    for size in sizes:
        producer.produce(topic, bytes(size), partition=partition)
    assert producer.flush(60) == 0


def test_the_heaviest_part_of_a_backlog_counts(options: dict[str, str], topic: str) -> None:
    """Heartbeats of a day, and in their midst a client that wrote large requests for a minute: a
    batch that is filled from there must fit, whatever the mean of all is."""
    write(options, topic, 0, [100] * 1_000 + [20_000] * 200 + [100] * 1_000)
    write(options, topic, 1, [150] * 500)

    assert mean_bytes_waiting(options, [topic], range(2), {}) == {topic: 20_000}
    behind = {topic: {"0": 1_200, "1": 0}}
    assert mean_bytes_waiting(options, [topic], range(2), behind) == {topic: 150}


@pytest.mark.chaos
def test_few_records_are_read_whole(options: dict[str, str], topic: str) -> None:
    """A hundred requests of 1 MiB waited at a start, and none of them was in the sample: the first
    batch was planned as if they had no bytes. The large ones may be the last."""
    write(options, topic, 0, [100] * 40 + [1_000_000] * 10)
    write(options, topic, 1, [5_000] * (SAMPLE + 1))

    few = (100 * 40 + 1_000_000 * 10) / 50
    assert mean_bytes_waiting(options, [topic], range(2), {}) == {topic: few}
    assert mean_bytes_waiting(options, [topic], range(2), {topic: {"0": 49}}) == {topic: 1_000_000}
    assert mean_bytes_waiting(options, [topic], range(2), {topic: {"0": 50}}) == {topic: 5_000}
    judged = {topic: {"0": 50, "1": SAMPLE + 1}}
    assert mean_bytes_waiting(options, [topic], range(2), judged) == {topic: 0}
