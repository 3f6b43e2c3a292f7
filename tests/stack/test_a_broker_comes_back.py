"""A broker that was killed leads in newer epochs: clients that last ask it where logs end."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.job.background.decisions import KafkaDecisions
from coordlib.job.background.ticks import KafkaTicks
from coordlib.job.control import ControlWriter
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.logs import Bounds, Place
from coordlib.local.broker import Broker
from coordlib.local.jars import ensure_jars
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("own stack")]
TOPIC = "coord.requests"
Options = dict[str, Any]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path, ensure_jars().broker)
    running.start()
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    yield running
    gc.collect()  # clients that are not closed would tell that the broker is gone
    running.stop()


@pytest.mark.chaos
def test_where_logs_end_is_known_again_after_the_broker_was_killed(broker: Broker) -> None:
    """librdkafka's cache has the leader's former epoch for 15 minutes, and each question with it is
    refused: offsets in transactions waited as long for their decisions, and lag had no samples."""
    options: Options = {"bootstrap.servers": broker.bootstrap_servers}
    no_writer = cast(ControlWriter, None)
    decisions = KafkaDecisions("coord", no_writer, options)
    ticks = KafkaTicks(no_writer, options)
    admin = open_admin(options)
    asked: dict[str, Callable[[], object]] = {
        "of decisions": lambda: decisions.stable_ends([0]) == {0: 0},
        "of ticks": lambda: ticks.ends([(TOPIC, 0)], visible=True) == {(TOPIC, 0): -1},
        "of lag": lambda: log_bounds(admin, [Place(TOPIC, 0)]) == {Place(TOPIC, 0): Bounds(0, 0)},
    }
    for who, is_known in asked.items():
        wait_until(f"the end is known, {who}", answered(is_known), 30.0)

    broker.kill()
    broker.start()

    for who, is_known in asked.items():
        wait_until(f"the end is known again, {who}", answered(is_known), 30.0)


def answered(is_known: Callable[[], object]) -> Callable[[], bool]:
    """As those who ask: a question that is refused is asked again."""

    def ask() -> bool:
        try:
            return bool(is_known())
        except KafkaException:
            return False

    return ask
