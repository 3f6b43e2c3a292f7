"""A Spark that only says what it was told to do, and readers that drive it over the real core."""

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from coordlib import spark_stopping as stopping
from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark import group_offsets, queries
from coordlib.client.spark import reader as spark_reader
from coordlib.client.spark.delta_writes import Share
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.kafka import bounds
from coordlib.kafka.logs import Bounds, Place
from tests.client.groups.assigned.world import AssignedWorld
from tests.client.world import TIMING

DESCRIPTION = "KafkaV2[Assign[t-0, t-1, t-2, t-3]]"


class FakeRead:
    """What `spark.read…load()` gives: the options that it was made with."""

    def __init__(self) -> None:
        self.given = dict[str, str]()

    def format(self, name: str) -> Self:
        assert name == "kafka"
        return self

    def options(self, **more: str) -> Self:
        self.given |= more
        return self

    def option(self, key: str, value: str) -> Self:
        self.given[key] = value
        return self

    def load(self) -> Self:
        return self


class FakeRows(FakeRead):
    """The same of `readStream`."""

    def __init__(self, spark: "FakeSpark") -> None:
        super().__init__()
        self.spark = spark


class FakeWriter:
    def __init__(self, rows: FakeRows, share: Share) -> None:
        self.rows, self.share = rows, share
        self.checkpoint = ""

    def option(self, key: str, value: str) -> Self:
        assert key == "checkpointLocation"
        self.checkpoint = value
        return self

    def start(self) -> "FakeQuery":
        query = FakeQuery(self)
        self.rows.spark.queries.append(query)
        return query


class FakeQuery:
    """A query whose batches are ended by the test. A batch is under way between two of them."""

    def __init__(self, writer: FakeWriter) -> None:
        self.share, self.spark = writer.share, writer.rows.spark
        told = json.loads(writer.rows.given["startingOffsets"])
        self.began = {
            TopicPartition(topic, int(number)): offset
            for topic, rows in told.items()
            for number, offset in rows.items()
        }
        self.assigned = json.loads(writer.rows.given["assign"])
        self.isActive, self.is_busy = True, False
        self.failure: Exception | None = None
        self.lastProgress: dict[str, Any] | None = None
        self.batch = -1
        #: Called at every look at a busy query.
        self.on_look: Callable[[], None] = lambda: None
        #: What `stop()` waits for, as it does for Python code in foreachBatch.
        self.hangs_until = threading.Event()
        self.hangs_until.set()
        self.stopped_in_batch = False

    def begin(self) -> None:
        """A batch begins to write: its versions must never have been used before."""
        self.batch, self.is_busy = self.batch + 1, True
        for each in self.share.partitions:
            version = self.share.txn_version(each, self.batch)
            app = self.share.txn_app_id(each)
            assert version > self.spark.versions.get(app, -1), f"{app} had {version} before"
            self.spark.versions[app] = version

    def end(self, **offsets: int) -> None:
        """The batch ends, `t0=5`: 5 is the next offset to read of t-0."""
        if not self.is_busy:
            self.begin()
        self.is_busy = False
        self._tell(self.batch, offsets)

    def idle(self) -> None:
        """Nothing comes for 10 s: Spark tells so, under the number of the next batch."""
        assert self.lastProgress is not None
        self.lastProgress = {**self.lastProgress, "batchId": self.batch + 1, "timestamp": "idle"}

    def fail(self, problem: Exception) -> None:
        self.isActive, self.is_busy, self.failure = False, False, problem

    def _tell(self, batch: int, offsets: dict[str, int]) -> None:
        at = {str(each.partition): max(0, offset) for each, offset in self.began.items()}
        at |= {name[1:]: offset for name, offset in offsets.items()}
        source = {"description": DESCRIPTION, "endOffset": json.dumps({"t": at})}
        self.lastProgress = {"batchId": batch, "timestamp": f"after {batch}", "sources": [source]}

    # ---- what Spark's query has -----------------------------------------------------------------

    @property
    def status(self) -> dict[str, bool]:
        if self.is_busy:
            self.on_look()
        return {"isTriggerActive": self.is_busy}

    def exception(self) -> Exception | None:
        return self.failure

    def stop(self) -> None:
        self.stopped_in_batch = self.is_busy
        assert self.hangs_until.wait(60)
        self.isActive = self.is_busy = False


class FakeSpark:
    def __init__(self) -> None:
        self.queries: list[FakeQuery] = []
        #: Delta's memory: application -> the highest version that was written.
        self.versions: dict[str, int] = {}

    @property
    def readStream(self) -> FakeRows:  # noqa: N802  # Spark's name
        return FakeRows(self)


class ReaderWorld(AssignedWorld):
    """Members of one server-assigned group, Spark readers among them; nobody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Any) -> None:
        super().__init__({"t": 4})
        self.spark, self.folder = FakeSpark(), folder
        self.readers: list[SparkGroupReader] = []
        clock = SimpleNamespace(monotonic=lambda: self.log.now_ms / 1000, sleep=self._sleep)
        for module in (group_offsets, queries, spark_reader, stopping):
            monkeypatch.setattr(module, "time", clock)
        #: Where the logs of partitions begin and end; those that are not here are nowhere.
        self.bounds = {each: Bounds(0, 1_000) for each in range(4)}
        #: Times of looks at them, and how many more get no answer.
        self.looks_ms, self.looks_to_fail = list[int](), 0
        monkeypatch.setattr(group_offsets, "open_admin", lambda config: config)
        monkeypatch.setattr(bounds, "log_bounds", self._log_bounds)
        monkeypatch.setattr(spark_reader, "_LEAVE_S", 0.0)  # the log moves only when it is pumped

    def _sleep(self, for_s: float) -> None:
        self.log.now_ms += round(for_s * 1000)

    def _log_bounds(
        self, _admin: Any, places: list[Place], _timeout_s: float, **_: object
    ) -> dict[Place, Bounds | None]:
        self.looks_ms.append(self.log.now_ms)
        if self.looks_to_fail > 0:
            self.looks_to_fail -= 1
            raise TimeoutError("nobody answers")
        return {each: self.bounds.get(each.partition) for each in places}

    def read(self, client: str = "spark", **more: Any) -> SparkGroupReader:
        """A reader joins and is given its share."""
        reader = SparkGroupReader(
            self.spark,  # type: ignore[arg-type]
            "orders",
            ["t"],
            FakeWriter,  # type: ignore[arg-type]
            **{
                "config": {"bootstrap.servers": "nowhere:1"},
                "folder": self.folder,
                "timing": TIMING,
                "client": client,
                "transport": self.log.transport(),
                **more,
            },
        )
        self.readers.append(reader)
        reader.join()
        self.run(3_000)
        return reader

    def stop(self, reader: SparkGroupReader) -> None:
        self.readers.remove(reader)
        reader.stop()
        self.log.pump()

    def poll_all(self) -> None:
        super().poll_all()
        for reader in self.readers:
            reader.turn(0)
        working = [query.share for query in self.reading if query.share.may_work()]
        reading = [each for share in working for each in share.partitions]
        others = [each for user in self.users for each in user.member.assignment]
        assert len(set(reading + others)) == len(reading + others), "somebody reads what is not his"

    @property
    def reading(self) -> list[FakeQuery]:
        return [query for query in self.spark.queries if query.isActive]

    @property
    def query(self) -> FakeQuery:
        """The only one that runs."""
        (query,) = self.reading
        return query

    def committed(self, client: str) -> list[dict[int, int]]:
        """Partition to offset, of each record of one client that commits."""
        rows = [getattr(each, "offsets", None) for each in self.requests if each.client == client]
        return [{row.partition: row.offset for row in some} for some in rows if some]
