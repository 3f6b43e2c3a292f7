"""The batch benchmark's job: coordinators one after the other in one JVM, each with its levers.

It is submitted as the job is, with the same options of Spark; `batch.py` starts it and reads what
it tells, a JSON line for each block. A block has a prefix, a checkpoint and members of its own.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from coordlib.config import load_config
from coordlib.errors import NotReady
from coordlib.history.archive import Archive
from coordlib.history.plan import ArchiveOptions
from coordlib.job import process
from coordlib.job.background.loop import JobStatus, StatusFile
from coordlib.job.background.threads import ArchiveWatch
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from coordlib.kafka import topics
from coordlib.spark_stopping import stop_between_batches
from tests.tools.bench.batch_figures import of_triggers, per_batch_ms, spent_s
from tests.tools.bench.batch_levers import switched
from tests.tools.bench.batch_variants import Block

SHARDS: Final = 2
RESPONSES: Final = 4
FIRST_BATCH_TIMEOUT_S: Final = 90.0
#: Of each block that only warms the JVM: its first batches take several times as long.
JVM_WARM_S: Final = 45.0
#: Often enough that a block of some seconds has turns of the archive.
ARCHIVE_EVERY_S: Final = 5.0
#: Everybody joins at once and is answered at once; nothing but batches is measured.
SETTINGS: Final = (
    "group.initial_rebalance_delay_ms=0",
    "group.new_groups_per_second_max=1000000",
    "engine.lag_interval_ms=0",
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the benchmark asks its job to do."""

    #: Before all others, and not counted.
    warming: list[Block]
    blocks: list[Block]
    seconds: float
    #: Of each block, before it is counted.
    warm_s: float
    groups: int
    members: int
    #: Committed by each group before its block.
    offsets: int
    #: Heartbeats per second of all members together.
    heartbeats: float
    probes_per_second: float
    #: The file of JSON lines.
    told: str


class Loader:
    """The process that is the members; see `batch_load`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.tools.bench.batch_load"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """Its answer. Raises NotReady."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failed": "it has ended"}
        if "failed" in answer:
            raise NotReady("The load does not go on.", answer["failed"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


class Lab:
    """Blocks in one Spark session, on one broker."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, folder: Path) -> None:
        self._spark, self._bootstrap, self._folder = spark, bootstrap_servers, folder
        self._made = 0

    def measure(self, plan: Plan, block: Block, loader: Loader, seconds: float) -> dict[str, Any]:
        """One block; its figures. Raises NotReady, CannotReach and what ends a query."""
        self._made += 1
        prefix = f"batch{self._made}"
        status_file = self._folder / f"{prefix}.json"
        rate, probes = plan.heartbeats, plan.probes_per_second
        with self._coordinating(prefix, block.variant.on, status_file) as query:
            joined = loader.ask(
                do="join",
                bootstrap=self._bootstrap,
                prefix=prefix,
                groups=plan.groups,
                members=plan.members,
                offsets=plan.offsets,
            )
            loader.ask(do="beat", seconds=plan.warm_s, rate=rate, probes=probes)
            before = self._spent_s()
            when = loader.ask(do="beat", seconds=seconds, rate=rate, probes=probes)
            after = self._spent_s()
            found = loader.ask(do="tell")
            # Not before: the last trigger is told when it has ended.
            progress = [json.loads(each.json) for each in query.recentProgress]
            status = msgspec.json.decode(status_file.read_bytes(), type=JobStatus)
            loader.ask(do="end")
        triggers = of_triggers(progress, **when)
        return {
            "turn": block.turn,
            "variant": block.variant.name,
            "levers": block.variant.on,
            "load_1m": round(os.getloadavg()[0], 2),
            **triggers,
            **found,
            "cpu_ms": per_batch_ms(before, after, triggers["batches"]),
            "state_mb": round(status.state_bytes / 1_000_000, 2),
            **joined,
        }

    @contextmanager
    def _coordinating(
        self, prefix: str, on: tuple[str, ...], status_file: Path
    ) -> Iterator[StreamingQuery]:
        """A coordinator that has ended its first batch."""
        kafka = {"bootstrap.servers": self._bootstrap}
        topics.create(kafka, prefix, SHARDS, RESPONSES, replication=1)
        options = CoordinatorOptions(
            bootstrap_servers=self._bootstrap,
            prefix=prefix,
            checkpoint=str(self._folder / prefix),
            config=load_config(None, list(SETTINGS)),
            status_file=status_file,
        )
        with switched(self._spark, on):
            coordinator = Coordinator(self._spark, options)
            query = coordinator.start()
            archive = self._archive(options, coordinator) if "archive" in on else None
            try:
                _wait_for_first_batch(query)
                if archive is not None:
                    archive.start()
                yield query
                if archive is not None:
                    archive.stop()
                stop_between_batches(query)
            finally:
                coordinator.close()

    def _archive(self, options: CoordinatorOptions, coordinator: Coordinator) -> ArchiveWatch:
        folder = self._folder / f"{options.prefix}-history"
        archived = ArchiveOptions(
            bootstrap_servers=options.bootstrap_servers,
            prefix=options.prefix,
            tables=str(folder / "tables"),
            checkpoint=str(folder / "checkpoint"),
        )
        health = coordinator.health
        return ArchiveWatch(lambda: Archive(self._spark, archived), ARCHIVE_EVERY_S, health)

    def _spent_s(self) -> dict[str, float]:
        context = self._spark.sparkContext
        assert context._jvm is not None
        jvm = int(context._jvm.java.lang.ProcessHandle.current().pid())
        module = context.getConf().get("spark.python.daemon.module", "pyspark.daemon")
        return spent_s(jvm, os.getpid(), module)


def _wait_for_first_batch(query: StreamingQuery) -> None:
    deadline = time.monotonic() + FIRST_BATCH_TIMEOUT_S
    while query.lastProgress is None:
        if not query.isActive or time.monotonic() > deadline:
            raise NotReady("A coordinator's first batch did not end.", str(query.exception()))
        time.sleep(0.05)


def main() -> int:
    """Until all blocks are done; what fails ends the job."""
    parser = ArgumentParser()
    for name in ("--bootstrap-servers", "--plan"):
        parser.add_argument(name, required=True)
    for name in ("--checkpoint", "--status-file"):
        parser.add_argument(name, type=Path, required=True)
    given, _ = parser.parse_known_args()
    plan = msgspec.json.decode(given.plan, type=Plan)
    process.write_pid()
    process.configure()
    spark = SparkSession.builder.appName("coordlib-bench").getOrCreate()
    loader = Loader()
    try:
        status = StatusFile(given.status_file)
        status.status.state = "running"  # whoever has started it waits for that
        status.write()
        lab = Lab(spark, given.bootstrap_servers, given.checkpoint)
        given.checkpoint.mkdir(parents=True, exist_ok=True)
        for block in plan.warming:
            lab.measure(plan, block, loader, JVM_WARM_S)
        with Path(plan.told).open("a", buffering=1) as told:
            for block in plan.blocks:
                told.write(json.dumps(lab.measure(plan, block, loader, plan.seconds)) + "\n")
    finally:
        loader.close()
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
