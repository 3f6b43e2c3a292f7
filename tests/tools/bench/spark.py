"""The streaming source of a group, and the batch loop, beside Spark's own Kafka source.

`records_per_s` counts the time that Spark's batches with records took, from planning to commit.
`delay_s` is from the call of `produce` to foreachBatch, one record at a time, on an idle query.
The sides take turns.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from confluent_kafka import Producer

from coordlib.cli.kit.where import Where
from coordlib.kafka.cluster import create_topic
from coordlib.local.jars import ensure_jars
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.figures import percentile, spread, tell, tell_machine
from tests.tools.bench.stand import standing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BENCH: Final = "spark"
PARTITIONS: Final = 8
RECORD_BYTES: Final = 100
BATCH: Final = 500_000
PLAIN: Final = "kafka"
SOURCE: Final = "coord"
LOOP: Final = "loop"
SIDES: Final = (PLAIN, SOURCE, LOOP)
_PROBES: Final = 40
_PROBE_PAUSE_S: Final = 0.4


class Side:
    """One way to read a topic."""

    def __init__(self, spark: "SparkSession", config: dict[str, str], name: str) -> None:
        self._spark, self._config, self.name = spark, config, name

    def rows(self, topic: str, **more: Any) -> "DataFrame":
        """A stream of the topic's records; of the loop there is none."""
        options = {
            "kafka.bootstrap.servers": self._config["bootstrap.servers"],
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": BATCH,
            **({"group.id": f"g-{uuid4().hex[:8]}"} if self.name == SOURCE else {}),
            **more,
        }
        return self._spark.readStream.format(self.name).options(**options).load()

    def records_per_s(self, topic: str, records: int, folder: Path) -> float:
        """All that the topic has, in batches, into a sink that drops it."""
        return self._loop(topic, records) if self.name == LOOP else self._stream(topic, folder)

    def _stream(self, topic: str, folder: Path) -> float:
        writer = self.rows(topic).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / uuid4().hex)).start()
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        spent_ms = sum(each["durationMs"]["triggerExecution"] for each in batches)
        return float(1_000 * sum(each["numInputRows"] for each in batches) / spent_ms)

    def _loop(self, topic: str, records: int) -> float:
        from coordlib.spark import group_batches

        group, read, began = f"g-{uuid4().hex[:8]}", 0, 0.0
        for batch in group_batches(self._spark, group, [topic], self._config, max_records=BATCH):
            began = began or time.monotonic()
            batch.rows.write.format("noop").mode("append").save()
            batch.commit()
            read += sum(end - begin for begin, end in batch.ranges.values())
            if read >= records:
                break
        return read / (time.monotonic() - began)


def run(where: Where, records: int, repeats: int) -> int:
    """See the module; `records` are written before."""
    tell_machine(BENCH)
    with standing(where) as stand, TemporaryDirectory() as folder, session(Path(folder)) as spark:
        from coordlib.spark import register

        register(spark)
        sides = {name: Side(spark, stand.config, name) for name in SIDES}
        topic = _written(stand.config, records)
        found: dict[str, list[float]] = {name: [] for name in SIDES}
        for number in range(repeats + 1):
            for name, side in sides.items():
                with phase(to_stderr, f"{name}, {number or 'warming up'}"):
                    per_s = side.records_per_s(topic, records, Path(folder))
                if number:
                    found[name].append(per_s)
        medians = {name: percentile(each, 0.5) for name, each in found.items()}
        for name, each in found.items():
            ratio = round(medians[name] / medians[PLAIN], 2)
            tell(BENCH, name, records_per_s=[round(one) for one in each], to_plain=ratio)
        for name in (PLAIN, SOURCE):
            delays = _delays(sides[name], stand.config, Path(folder))
            tell(BENCH, f"{name}, delay", delay_s=spread(delays, 0.5, 0.9))
    return 0


@contextmanager
def session(folder: Path) -> "Iterator[SparkSession]":
    """Spark on two cores, as a program of a user would have it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    options = {
        "spark.jars": ",".join(map(str, ensure_jars().spark)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _written(config: dict[str, str], records: int) -> str:
    topic = f"bench-{uuid4().hex[:8]}"
    create_topic(config, topic, PARTITIONS)
    producer = Producer({**config, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
    value = b"x" * RECORD_BYTES
    with phase(to_stderr, f"Writing {records:,} records"):
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
    return topic


def _delays(side: Side, config: dict[str, str], folder: Path) -> list[float]:
    topic = f"bench-{uuid4().hex[:8]}"
    create_topic(config, topic, PARTITIONS)
    seen: dict[int, float] = {}

    def note(batch: "DataFrame", _number: int) -> None:
        rows = batch.select("value").collect()
        now = time.monotonic()
        seen.update({json.loads(row["value"]): now for row in rows})

    query = (
        side.rows(topic)
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(folder / uuid4().hex))
        .start()
    )
    producer, sent = Producer(config), dict[int, float]()

    def probe(number: int) -> None:
        sent[number] = time.monotonic()
        producer.produce(topic, json.dumps(number), partition=number % PARTITIONS)
        producer.flush()
        _wait(lambda: number in seen)

    with phase(to_stderr, f"One record at a time, {side.name}"):
        for number in range(-_PROBES // 2, _PROBES):  # the first half warms up
            probe(number)
            time.sleep(_PROBE_PAUSE_S)
    query.stop()
    return [seen[number] - sent[number] for number in range(_PROBES)]


def _wait(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.002)
