"""Kafka's consumers under one handle: they run, and tell what they hold by their own account."""

import json
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import confluent_kafka

Rows = dict[str, list[int]]


class TalkingConsumer(Protocol):
    """A consumer of one group, of whatever client."""

    @property
    def client(self) -> str:
        """Its program and version."""

    def held(self) -> Rows:
        """What it holds at this moment; to be asked often, because some live in that."""

    def close(self) -> None: ...


def by_topic(partitions: Iterable[tuple[str, int]]) -> Rows:
    rows: Rows = {}
    for topic, partition in sorted(partitions):
        rows.setdefault(topic, []).append(partition)
    return rows


class Librdkafka:
    """confluent-kafka's consumer, on the C library."""

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str]) -> None:
        self.client = f"librdkafka {confluent_kafka.libversion()[0]}"
        self._consumer = confluent_kafka.Consumer(dict(settings))
        self._consumer.subscribe(list(topics))

    def held(self) -> Rows:
        self._consumer.poll(0.05)
        return by_topic((each.topic, each.partition) for each in self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


#: The Java assignors' classes, by the names under which they join.
ASSIGNORS = {
    name: f"org.apache.kafka.clients.consumer.{kind}Assignor"
    for name, kind in {
        "range": "Range",
        "roundrobin": "RoundRobin",
        "sticky": "Sticky",
        "cooperative-sticky": "CooperativeSticky",
    }.items()
}


class KafkaClients:
    """Kafka's Java consumer, in a process of its own."""

    def __init__(
        self, command: Sequence[str], settings: Mapping[str, Any], topics: Sequence[str]
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        assignor = ASSIGNORS[settings["partition.assignment.strategy"]]
        java = {**settings, "partition.assignment.strategy": assignor}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"settings": java, "topics": list(topics)}) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        (version,) = json.loads(self._process.stdout.readline())
        self.client = f"kafka-clients {version}"
        self._held: Rows = {}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._held = by_topic((topic, number) for topic, number in json.loads(line))

    def held(self) -> Rows:
        if self._process.poll() is not None:
            raise ChildProcessError(f"The Java consumer ended with {self._process.returncode}.")
        return self._held

    def close(self) -> None:
        self._process.communicate()  # closes its input, which makes it leave
