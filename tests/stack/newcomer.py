"""Somebody who starts what the pages show and what the examples are, in a folder of his own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from deltalake import DeltaTable

from coordlib.kafka.reading import read_to_end
from coordlib.local.jars import ensure_jars
from coordlib.local.stack import Stack
from tests.kit.processes import ROOT
from tests.stack.wire import close

#: Where the pages say that Kafka is.
_KAFKA = re.compile(r"HOST:PORT|\w+:9092")
_DELTA = (
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2",
)
RECORDS = 6


def _spark_options() -> str:
    """As the pages ask for: a Spark with Kafka's and Delta's jars."""
    jars = ",".join(str(jar) for jar in ensure_jars().spark)
    return f"--master local[2] --jars {jars} {' '.join(_DELTA)} pyspark-shell"


class Newcomer:
    """Somebody with a folder, who starts what the pages show, under names that nobody else uses."""

    def __init__(self, stack: Stack, folder: Path, tag: str) -> None:
        self.servers, self.folder, self.tag = stack.bootstrap_servers, folder, tag
        self._started: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = [NewTopic(self.named(topic), 2, 1) for topic in ("orders", "in", "out")]
        for made in admin.create_topics(topics).values():
            made.result(30)
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        for number in range(RECORDS):
            for topic in ("orders", "in"):
                producer.produce(self.named(topic), f"record-{number}", partition=number % 2)
        assert producer.flush(30) == 0
        close(producer)

    def named(self, name: str) -> str:
        return f"{name}-{self.tag}"

    def adapted(self, text: str) -> str:
        """With this stack's address, and names of its own for topics, groups and ids."""
        text = _KAFKA.sub(self.servers, text)
        names = r'"(orders|in|out|payments|copies|billing|clicks|copiers|copiers?-1|fleet|g)"'
        return re.sub(names, lambda found: f'"{self.named(found[1])}"', text)

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        log = self.folder / f"{len(self._started)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-u", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self.folder,
                env=os.environ | {"PYSPARK_SUBMIT_ARGS": _spark_options(), "PYTHONPATH": str(ROOT)},
            )
        self._started.append(process)
        self._logs.append(log)
        return process

    def run(self, code: str, *arguments: str) -> "subprocess.Popen[bytes]":
        return self.start("-c", self.adapted(code), *arguments)

    def shown(self, number: int = -1) -> str:
        """What one of them has printed; the newest, unless told."""
        return self._logs[number].read_text()

    def led_by(self, number: int) -> set[int]:
        """The shards that a worker of a fleet leads, by what it has printed."""
        shards: set[int] = set()
        for words in map(str.split, self.shown(number).splitlines()):
            if words[:2] == ["leads", "shard"]:
                shards.add(int(words[2]))
            elif words[:3] == ["resigned", "from", "shard"]:
                shards.discard(int(words[3]))
            elif words[:2] == ["is", "fenced:"]:
                shards.clear()
        return shards

    def must_run(self) -> None:
        """Nothing has ended that nobody has ended."""
        for process, log in zip(self._started, self._logs, strict=True):
            assert process.poll() is None, log.read_text()

    def values_of(self, topic: str) -> list[bytes]:
        """The values in a topic, in their order; markers of transactions have none."""
        options = {"bootstrap.servers": self.servers}
        read = (read_to_end(options, self.named(topic), number) for number in range(2))
        return sorted(v for each in read for record in each if (v := record.value()) is not None)

    def has(self, topic: str) -> bool:
        """Whether a topic of this name is there."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        return topic in admin.list_topics(timeout=30).topics

    def rows_in(self, table: Path) -> list[str]:
        """The values in a Delta table, in their order; none before it is made."""
        if not DeltaTable.is_deltatable(str(table)):
            return []
        return sorted(DeltaTable(table).to_pyarrow_table()["value"].to_pylist())

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
