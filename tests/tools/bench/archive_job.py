"""The archive benchmark's job: archives in one JVM, by turns; `archive.py` starts it."""

import json
import os
import sys
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from coordlib.core.wire import codec, stored
from coordlib.history import archive, delta_table
from coordlib.history.archive import Archive
from coordlib.history.delta_append import Append
from coordlib.history.delta_table import ArchivedTable
from coordlib.history.plan import ArchiveOptions
from coordlib.history.topics_read import ArchivedTopics
from coordlib.job import process
from coordlib.job.background.loop import StatusFile
from coordlib.kafka import topics
from tests.tools.bench.archive import Plan, read
from tests.tools.bench.batch_figures import spent_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Engine:
    """What an engine writes, in the topics of one prefix."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.prefix, self._written = prefix, 0
        config = {"bootstrap.servers": bootstrap_servers, "log_level": "2"}
        topics.create(config, prefix, 2, 1, 1)
        self._producer = Producer({**config, "transactional.id": prefix, "linger.ms": 0})
        self._producer.init_transactions()

    def write(self, events: int, commits: int) -> None:
        """One transaction, as of a batch."""
        self._producer.begin_transaction()
        now_ms = time.time_ns() // 1_000_000
        for number in range(events):
            self._produce("events", b"g", codec.encode(self._event(now_ms)), number % 2)
        for number in range(commits):
            key = json.dumps(["g", "orders", number]).encode()
            self._produce("committed", key, codec.encode(self._commit(now_ms)), 0)
        self._producer.commit_transaction(30)

    def _produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        self._written += 1
        self._producer.produce(f"{self.prefix}.{topic}", value, key, partition)

    def _event(self, now_ms: int) -> stored.Event:
        at = f"r0-{self._written}"
        return stored.Event(
            event_id=f"bench-aaaa-{at}-0",
            time_ms=now_ms,
            group="g",
            protocol="classic",
            type="OffsetsCommitted",
            generation=1,
            member="m",
            cause=at,
            reason="",
            detail={"offsets": [{"topic": "orders", "partition": 0, "offset": self._written}]},
            kind="classic",
        )

    def _commit(self, now_ms: int) -> stored.CommittedValue:
        return stored.CommittedValue(
            offset=self._written,
            leader_epoch=-1,
            metadata="",
            commit_ms=now_ms,
            commit_clock_ms=now_ms,
            generation=1,
            member="m",
        )


def by_writer(
    _: SparkSession,
    snapshot: Any,
    rows: "DataFrame",
    columns: tuple[str, ...],
    what: Append,
    _digest: str,
) -> None:
    """An append as the archive made it before."""
    writer = rows.write.format("delta").mode("append").option("userMetadata", what.metadata)
    writer = writer.option("txnAppId", what.app_id).option("txnVersion", what.number)
    writer.partitionBy(*columns).save(snapshot.deltaLog().dataPath().toString())


@contextmanager
def way_of(way: str) -> Iterator[None]:
    """The archive works in this way."""
    with ExitStack() as stack:
        if way == "lookup":
            stack.enter_context(patch.object(delta_table, "append", by_writer))
        if way == "codegen":
            stack.enter_context(patch.object(archive, "INTERPRETED_MAX", 0))
        yield


#: Way to what it sets in its archive's session.
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "unpacked": {"spark.databricks.delta.autoCompact.enabled": "false"},
    "nocrc": {"spark.databricks.delta.writeChecksumFile.enabled": "false"},
}


def turns(spark: SparkSession, plan: Plan, servers: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Each way's, one after the other; every second time backwards."""
    engines = {way: Engine(servers, f"archive-{way}") for way in plan.ways}
    archives: Mapping[str, Archive] = {
        way: Archive(
            spark,
            ArchiveOptions(
                bootstrap_servers=servers,
                prefix=engine.prefix,
                tables=str(folder / way / "tables"),
                checkpoint=str(folder / way / "checkpoint"),
            ),
        )
        for way, engine in engines.items()
    }
    for way, each in archives.items():
        for name, value in SETTINGS.get(way, {}).items():
            each._spark.conf.set(name, value)
    parts = Parts()
    for owner, name in MEASURED:
        parts.wrap(owner, name)
    for number in range(1, plan.turns + 1):
        for way in plan.ways if number % 2 else reversed(plan.ways):
            engines[way].write(plan.events, plan.commits)
            known = {each.jobId() for each in _jobs(spark)}
            with way_of(way):
                spent_s, took_s = _turn(spark, archives[way])
            told: dict[str, Any] = {"took_s": round(took_s, 3), "jvm_s": round(spent_s, 3)}
            new = [each for each in _jobs(spark) if each.jobId() not in known]
            told |= {"jobs": len(new), "parts": parts.take()}
            if number == plan.turns:
                told["ran"] = [_told_of(each) for each in sorted(new, key=lambda j: j.jobId())]
            yield {"turn": number, "way": way, **told, "load_1m": round(os.getloadavg()[0], 2)}


def _turn(spark: SparkSession, archive: Archive) -> tuple[float, float]:
    """A turn that has something to do: processor time of the JVM, and what passed.

    A transaction is there for readers a moment after its commit has returned.
    """
    done = archive._number
    while True:
        before, began = _jvm_s(spark), time.monotonic()
        left = archive.turn()
        if archive._number > done:
            assert left.records == 0, "a turn takes all that is there"
            return _jvm_s(spark) - before, time.monotonic() - began


class Parts:
    """What parts of a turn take, by the wall."""

    def __init__(self) -> None:
        self.took_s: dict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str) -> None:
        """Measure a function of a module or a class from now on."""
        inner = getattr(owner, name)
        called = f"{owner.__name__.rpartition('.')[2]}.{name}"

        def measured(*given: Any, **named: Any) -> Any:
            began = time.monotonic()
            try:
                return inner(*given, **named)
            finally:
                self.took_s[called] += time.monotonic() - began

        setattr(owner, name, measured)

    def take(self) -> dict[str, float]:
        """What was measured since the last call."""
        told = {name: round(took, 3) for name, took in sorted(self.took_s.items())}
        self.took_s.clear()
        return told


#: Parts of a turn; the look is a part of the append, and happens twice in each.
MEASURED: Final = (
    (archive, "_count"),
    (archive, "_new"),
    (archive, "_rows_of"),
    (ArchivedTable, "append"),
    (ArchivedTable, "_refuse_others"),
    (ArchivedTopics, "bounds"),
    (ArchivedTopics, "read"),
    (delta_table, "append"),
    (delta_table, "write_text"),
)


def _jobs(spark: SparkSession) -> list[Any]:
    """Spark's jobs as its status store has them: the newest thousand."""
    listed = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return [listed.apply(at) for at in range(listed.size())]


def _told_of(job: Any) -> str:
    """Where in the code a job began, its tasks, and how long it took."""
    began, ended = job.submissionTime(), job.completionTime()
    is_known = began.isDefined() and ended.isDefined()
    took = f"{ended.get().getTime() - began.get().getTime()} ms" if is_known else "?"
    at = job.description().get() if job.description().isDefined() else ""
    return f"{job.name()} | {at} | tasks {job.numTasks()} | {took}"


def _jvm_s(spark: SparkSession) -> float:
    assert spark.sparkContext._jvm is not None
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    return spent_s(jvm, os.getpid(), "pyspark.daemon")["jvm"]


def main() -> int:
    """Until all turns are done; what fails ends the job."""
    parser = ArgumentParser()
    for name in ("--bootstrap-servers", "--plan"):
        parser.add_argument(name, required=True)
    for name in ("--tables", "--status-file"):
        parser.add_argument(name, type=Path, required=True)
    given, _ = parser.parse_known_args()
    plan = read(given.plan)
    process.write_pid()
    process.configure()
    spark = SparkSession.builder.appName("coordlib-bench").getOrCreate()
    try:
        status = StatusFile(given.status_file)
        status.status.state = "running"  # whoever has started it waits for that
        status.write()
        with Path(plan.told).open("a", buffering=1) as told:
            for each in turns(spark, plan, given.bootstrap_servers, given.tables):
                told.write(json.dumps(each) + "\n")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
