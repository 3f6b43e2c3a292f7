"""Batches of Spark that a Delta table decides: how long they take, and how long a successor waits.

`--producers` readers in one Spark of one core, each with a group, a topic of one partition and a
table of its own; each batch has `--records` records. First by `share.write_once`, then the same
batches as plain appends of a reader that commits its progress: what the unit costs is the
difference. `written_s` is from a batch's read until the table has it, `claimed_s` until the group's
offsets count for everybody.

`wait_s` of a successor, a Python consumer of the same group that waits for partitions, is from the
reader's close, or from the kill of its process, until it has its first record. A process is killed
before its batch is in the table, and after: then nobody has said that it is.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import structlog
from confluent_kafka import Consumer, Producer, TopicPartition

from coordlib.cli.kit.where import Where
from coordlib.client import CoordinatedConsumer
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.errors import CannotReach
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase, to_stderr
from tests.stack.lake_member import DELTA, TIMING
from tests.stack.spark_member import session
from tests.tools.bench.delta_batches import Batches, added
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.settle import load_1m
from tests.tools.bench.stand import Stand, standing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BENCH: Final = "transactions"
WAY: Final = "delta"
ROOT: Final = Path(__file__).parents[3]
#: More than any reader has batches in a second.
BATCHES_PER_S_MAX: Final = 4
WARM_BATCHES: Final = 8
WAIT_S: Final = 180.0
LOOK_EVERY_S: Final = 0.05
#: A consumer that waits for partitions has joined by then.
JOIN_S: Final = 4.0
CLEAN_ENDS: Final = 3
RECORD: Final = bytes(100)
#: Where a process is killed -> whether its batch is in the table.
POINTS: Final = {"accepted": False, "written": True}


class Lake:
    """Topics, tables and readers, all in one folder."""

    def __init__(self, stand: Stand, spark: "SparkSession", folder: Path) -> None:
        self.stand, self.spark, self.folder = stand, spark, folder

    def topic(self, records: int) -> str:
        """A new one, with so many records in one partition."""
        topic = f"lake-{uuid4().hex[:8]}"
        create_topic(self.stand.config, topic, 1)
        producer = Producer({**self.stand.config, "linger.ms": 20})
        for _ in range(records):
            producer.produce(topic, RECORD, partition=0)
            producer.poll(0)
        if producer.flush(60):
            raise CannotReach("The records cannot be written", topic)
        producer.close()
        return topic

    def reader(
        self, topic: str, batches: Batches, append: Callable[..., None], commits: Any
    ) -> SparkGroupReader:
        """A member of a group that is called as its topic."""

        def start(rows: "DataFrame", share: Share) -> "DataStreamWriter":
            def each(batch: "DataFrame", _number: int) -> None:
                number = batches.read(topic, time.monotonic())
                append(share, batch, self._table(topic))
                batches.written(topic, number, time.monotonic())

            return rows.writeStream.foreachBatch(each)

        return SparkGroupReader(
            self.spark,
            topic,
            [topic],
            start,
            config=self.stand.config,
            prefix=self.stand.prefix,
            folder=self.folder / f"reader-{topic}",
            kafka={"maxOffsetsPerTrigger": str(batches.records)},
            timing=TIMING,
            commits=commits,
        )

    def _table(self, topic: str) -> str:
        return str(self.folder / f"table-{topic}")


def write_once(share: Share, batch: "DataFrame", table: str) -> None:
    """Rows and offsets in one unit."""
    share.write_once(batch, batch.selectExpr("value", "partition", "offset"), table)


def append_plainly(_share: Share, batch: "DataFrame", table: str) -> None:
    """The same rows, and no offsets."""
    rows = batch.selectExpr("value", "partition", "offset")
    rows.write.format("delta").mode("append").save(table)


class Watch:
    """Reads what is committed, in a thread of its own."""

    def __init__(self, stand: Stand, batches: Batches) -> None:
        self._batches, self._is_over = batches, threading.Event()
        self._consumer = Consumer(
            {
                **stand.config,
                "group.id": f"coordlib-unused-{uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        topic = f"{stand.prefix}.committed"
        partitions = self._consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in partitions]
        for each in places:
            _, each.offset = self._consumer.get_watermark_offsets(each, timeout=10)
        self._consumer.assign(places)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._batches.committed(message.key(), message.value(), time.monotonic())


# -- load -------------------------------------------------------------------------------------


def load(
    lake: Lake, producers: int, records: int, seconds: float, commits: Any, append: Any
) -> dict[str, Any]:
    """Readers at work, all at once; what came of it. Raises CannotReach."""
    batches = Batches(records)
    enough = int(records * (seconds * BATCHES_PER_S_MAX + 2 * WARM_BATCHES))
    with ExitStack() as open_:
        open_.enter_context(closing(Watch(lake.stand, batches)))
        with phase(to_stderr, f"{producers} readers begin"):
            for _ in range(producers):
                reader = lake.reader(lake.topic(enough), batches, append, commits)
                open_.enter_context(reader)
            _until("batches", lambda: batches.count >= WARM_BATCHES * producers)
        with phase(to_stderr, f"They work for {seconds:g} s"):
            began = time.monotonic()
            time.sleep(seconds)
            ended = time.monotonic()
        if commits == "with-writes":
            _until("claims", lambda: batches.written_between(began, ended)["not_claimed"] == 0)
    return batches.written_between(began, ended)


# -- successors -------------------------------------------------------------------------------


class Waiting:
    """A consumer of a group that has no partition yet."""

    def __init__(self, stand: Stand, topic: str) -> None:
        self._consumer = CoordinatedConsumer(
            {
                **stand.config,
                "group.id": topic,
                "group.protocol": "assigned",
                "auto.offset.reset": "earliest",
                "coord.prefix": stand.prefix,
                "session.timeout.ms": TIMING.session_timeout_ms,
                "heartbeat.interval.ms": TIMING.heartbeat_interval_ms,
            }
        )
        self._consumer.subscribe([topic])
        until = time.monotonic() + JOIN_S
        while time.monotonic() < until:
            if self._consumer.consume(1, 0.1):
                raise CannotReach("A successor read while another one had the partition", topic)

    def first(self) -> int:
        """The offset of its first record. Raises CannotReach."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            for message in self._consumer.consume(1, 0.1):
                if message.error() is None and (offset := message.offset()) is not None:
                    return int(offset)
        raise CannotReach("A successor has read nothing", f"within {WAIT_S:.0f} s")

    def close(self) -> None:
        self._consumer.close()


def after_close(lake: Lake, records: int) -> float:
    """Seconds from a reader's close until its successor has read. Raises CannotReach."""
    batches = Batches(records)
    topic = lake.topic(records * 1_000)
    with ExitStack() as open_:
        open_.enter_context(lake.reader(topic, batches, write_once, "with-writes"))
        _until("batches", lambda: batches.count >= 2)  # it is at work
        with closing(Waiting(lake.stand, topic)) as successor:
            began = time.monotonic()
            closer = threading.Thread(target=open_.close, daemon=True)
            closer.start()
            found = successor.first()
            took_s = time.monotonic() - began
            closer.join()
    if found != records * batches.count:
        raise CannotReach(f"A successor began at {found}", f"{batches.count} batches are written")
    return took_s


def after_kill(lake: Lake, point: str, is_written: bool) -> float:
    """Seconds from the kill of a member's process until its successor has read."""
    topic = lake.topic(1_000)
    with _victim(lake, topic, point) as victim, closing(Waiting(lake.stand, topic)) as successor:
        began = time.monotonic()
        victim.kill()
        found = successor.first()
        took_s = time.monotonic() - began
    if (found > 0) is not is_written:
        raise CannotReach(f"A successor began at {found}", f"killed when {point}")
    return took_s


@contextmanager
def _victim(lake: Lake, topic: str, point: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A process of `tests.stack.lake_member` that stands still at this point of its first batch."""
    name, folder = f"dies-{topic}", lake.folder
    (folder / f"{name}.hold").write_text(point)
    given = {
        "bootstrap": lake.stand.config["bootstrap.servers"],
        "group": topic,
        "topic": topic,
        "table": str(folder / f"table-{topic}"),
        "folder": str(folder),
        "name": name,
    }
    options = [word for key, value in given.items() for word in (f"--{key}", value)]
    command = [sys.executable, "-m", "tests.stack.lake_member", *options]
    with (folder / f"{name}.log").open("ab") as log:
        victim = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        held = folder / f"{name}.held"
        _until("it stands still", lambda: held.exists() or victim.poll() is not None)
        if not held.exists():
            raise CannotReach("A member that was to be killed has failed", str(log.name))
        yield victim
    finally:
        victim.kill()
        victim.wait()


def _until(what: str, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > until:
            raise CannotReach(f"Not within {WAIT_S:.0f} s: {what}")
        time.sleep(LOOK_EVERY_S)


# -- all of it --------------------------------------------------------------------------------


def run(
    *,
    where: Where,
    producers: int,
    records: int,
    seconds: float,
    kills: int,
    peers: Sequence[str],
) -> int:
    """Load by the unit and plainly, then successors. Raises CannotReach."""
    # The readers' own lines would stand among the figures.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    tell_machine(BENCH)
    if "kafka" in peers:
        to_stderr("Kafka's own groups have no such way: there is nothing beside it")
    with standing(where) as stand, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spark = session(folder / "spark", DELTA)
        try:
            lake = Lake(stand, spark, folder)
            size = {"producers": producers, "records": records}
            once = load(lake, producers, records, seconds, "with-writes", write_once)
            _tell("load", **size, **once)
            plain = load(lake, producers, records, seconds, "progress", append_plainly)
            _tell("plain appends", **size, **{k: v for k, v in plain.items() if "claimed" not in k})
            _tell("unit", adds_p50_s=added(once, plain))
            _tell_waits("close", [after_close(lake, records) for _ in range(CLEAN_ENDS)])
            for point, is_written in POINTS.items():
                waits = [after_kill(lake, point, is_written) for _ in range(kills)]
                _tell_waits(f"kill, batch {point}", waits, session_ms=TIMING.session_timeout_ms)
        finally:
            spark.stop()
    return 0 if once["batches"] and not once["not_claimed"] else 1


def _tell_waits(after: str, waits: Sequence[float], **more: Any) -> None:
    waits_s = spread(waits, 0.5, 1.0)
    _tell("successor", after=after, times=len(waits), wait_s=waits_s, **more)


def _tell(what: str, **fields: Any) -> None:
    tell(BENCH, what, side="ours", way=WAY, load_1m=load_1m(), **fields)
