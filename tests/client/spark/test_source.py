"""The reader of `format("coord")` as Spark makes it in several processes.  # INV-147"""

import json
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark.source import GroupSource, GroupStreamReader
from coordlib.client.spark.source_offsets import Offset, PlannedRange
from coordlib.client.spark.source_reading import Task
from coordlib.errors import CoordError, SetupError

GIVEN = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "group.id": "g"}
READ = {TopicPartition("t", n): PlannedRange(0, 10 * (n + 1), 5) for n in range(5)}
START, END = Offset("g", "q", 1, {}).json(), Offset("g", "q", 2, READ).json()


def reader(tasks: int = 2, **more: str) -> GroupStreamReader:
    source = GroupSource(GIVEN | more)
    source.tasks = tasks
    return source.streamReader(source.schema())


def tasks_of(found: Any) -> list[dict[TopicPartition, PlannedRange]]:
    assert all(isinstance(each, Task) for each in found)
    return [dict(each.ranges) for each in found]


def test_a_batch_is_planned_from_its_own_offset_alone() -> None:
    """It runs again the same, whatever its member owns by then."""
    made = reader()
    planned = tasks_of(made.partitions(START, END))
    made._member = SimpleNamespace(_positions=dict.fromkeys(READ, 99))  # type: ignore[assignment]

    assert tasks_of(made.partitions(START, json.loads(json.dumps(END)))) == planned
    assert {place: each for task in planned for place, each in task.items()} == READ
    assert made.partitions(END, END) == []


def test_tasks_have_about_as_many_records_each() -> None:
    sizes = [
        sum(each.size for each in task.values())
        for task in tasks_of(reader().partitions(START, END))
    ]

    assert sorted(sizes) == [70, 80]
    assert len(reader(tasks=9).partitions(START, END)) == 5


def test_a_checkpoint_of_another_group_is_refused() -> None:
    with pytest.raises(CoordError, match="another group"):
        reader(**{"group.id": "other"}).partitions(START, END)


def test_a_reader_goes_to_other_processes_without_its_member() -> None:
    made = reader()
    made._member = SimpleNamespace(close=lambda: None)  # type: ignore[assignment]

    again = pickle.loads(pickle.dumps(made))  # as Spark does
    assert again._member is None
    assert again._options == made._options


def test_the_read_limit_is_sparks_option() -> None:
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert reader(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)


def test_a_schema_of_the_users_is_refused() -> None:
    with pytest.raises(SetupError, match="schema of their own"):
        GroupSource(GIVEN).streamReader(StructType([StructField("a", StringType())]))


def test_headers_and_fence_are_columns_on_demand() -> None:
    plain = GroupSource(GIVEN).schema().fieldNames()

    assert plain == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    more = GroupSource(GIVEN | {"includeHeaders": "true", "includefence": "TRUE"}).schema()
    assert more.fieldNames() == [*plain, "headers", "fence"]


@pytest.mark.parametrize("ends", ["SIGTERM", "its parent ends"])
def test_the_planners_process_ends_with_its_query(ends: str) -> None:
    """Spark sends SIGTERM while the process waits for its next call; a driver that is killed
    sends nothing."""
    child = f"""
import os, signal, sys, threading, time
from coordlib.client.spark import source_member
from coordlib.client.spark.source_options import parse
from coordlib.testing.fake_log import FakeLog
log = FakeLog({{"t": 1}})
log.tell_topics()
made = source_member.SourceMember(parse({GIVEN!r}), log.transport(), object())
signal.signal(signal.SIGTERM, made.end_process)
made.start()
print(os.getpid(), flush=True)
while True:
    log.advance(100)
    time.sleep(0.01)
"""
    parent = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), flush=True)
{"child.terminate(); child.wait(60)" if ends == "SIGTERM" else ""}
"""
    run = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, text=True, check=True, timeout=120
    )
    pid = int(run.stdout)

    assert _has_ended(pid)


def _has_ended(pid: int) -> bool:
    import psutil

    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return True
    return True
