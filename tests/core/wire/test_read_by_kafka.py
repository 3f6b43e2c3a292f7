"""Kafka's own consumer reads what coordlib wrote, and would have written the same bytes."""

import base64
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordlib.core.wire import consumer_protocol as cp
from tests import java_peer

VALUES = 400
NAMES = ("t", "orders", "Kunde.ü", "_", "日本", "𝄞")

pytestmark = pytest.mark.stack  # the jars of the local broker


class Kafka:
    """Kafka's ConsumerProtocol in a Java process."""

    def __init__(self, folder: Path) -> None:
        command = java_peer.command_of(Path(__file__).with_name("KafkaReads.java"), folder)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def read(self, kind: str, version: int, value: bytes) -> dict[str, Any]:
        """What it reads; bytes that it does not understand end it, and so the test."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"kind": kind, "version": version, "bytes": base64.b64encode(value).decode()}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    java_peer.skip_without_compiler()
    kafka = Kafka(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.process.kill()
    kafka.process.wait()


def draw_partitions(lot: random.Random) -> dict[str, tuple[int, ...]]:
    """In the order in which both write them."""
    topics = sorted(lot.sample(NAMES, lot.randrange(4)), key=lambda name: name.encode("utf-16-be"))
    return {t: tuple(sorted(lot.sample(range(99), lot.randrange(1, 6)))) for t in topics}


def draw_user_data(lot: random.Random) -> bytes | None:
    return lot.choice([None, b"", lot.randbytes(9)])


def rows_of(partitions: dict[str, tuple[int, ...]]) -> list[list[Any]]:
    return [[topic, each] for topic, some in partitions.items() for each in some]


def base64_of(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def test_subscriptions(kafka: Kafka) -> None:
    """A group in which members of both kinds vote for one leader, in all versions."""
    lot = random.Random("subscriptions")
    for number in range(VALUES):
        version = number % 4
        told = cp.Subscription(
            version=version,
            topics=tuple(sorted(lot.sample(NAMES, 2), key=lambda name: name.encode("utf-16-be"))),
            user_data=draw_user_data(lot),
            owned=draw_partitions(lot) if version >= 1 else {},
            generation=lot.choice([-1, 0, 7, 2**31 - 1]) if version >= 2 else -1,
            rack=lot.choice([None, "zone-ü"]) if version >= 3 else None,
        )
        value = cp.encode_subscription(told)

        found = kafka.read("subscription", version, value)

        assert found == {
            "topics": list(told.topics),
            "partitions": rows_of(told.owned),
            "user_data": base64_of(told.user_data),
            "generation": told.generation,
            "rack": told.rack,
            "written": base64_of(value),
        }


def test_assignments(kafka: Kafka) -> None:
    """What a leader of coordlib would give to Kafka's own consumers, in all versions."""
    lot = random.Random("assignments")
    for number in range(VALUES):
        version = number % 4
        given = cp.Assignment(
            version=version, partitions=draw_partitions(lot), user_data=draw_user_data(lot)
        )
        value = cp.encode_assignment(given)

        found = kafka.read("assignment", version, value)

        assert found == {
            "partitions": rows_of(given.partitions),
            "user_data": base64_of(given.user_data),
            "written": base64_of(value),
        }
