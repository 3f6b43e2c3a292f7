"""The archive: each record once in the tables, whatever crashes, repeats or is foreign."""

import contextlib
import json
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordlib.errors import StartRefused
from coordlib.history.sql import query_tables
from tests.history.rows import INCARNATION, KAFKA_SCHEMA, START_MS, Log, a_life_of_a_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from coordlib.history.archive import ArchiveBatch, ArchiveOptions
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack

EVENT_COUNT = 17


@pytest.fixture
def options(tmp_path: Path) -> "ArchiveOptions":
    from coordlib.history.archive import ArchiveOptions

    return ArchiveOptions(
        bootstrap_servers="", tables=str(tmp_path / "tables"), checkpoint=str(tmp_path / "check")
    )


def _batch(spark: "SparkSession", options: "ArchiveOptions", identity: str) -> "ArchiveBatch":
    from coordlib.history.archive import ArchiveBatch

    return ArchiveBatch(spark, options, identity)


def _frame(spark: "SparkSession", log: Log, first: int = 0, last: int | None = None) -> "DataFrame":
    return spark.createDataFrame(log.rows[first:last], KAFKA_SCHEMA)


def _counts(options: "ArchiveOptions") -> tuple[int, int, int]:
    sql = (
        "SELECT (SELECT count(*) FROM events), (SELECT count(DISTINCT event_id) FROM events), "
        "(SELECT count(*) FROM group_snapshots)"
    )
    return query_tables(options.tables, sql).rows[0]


def test_a_repeated_batch_adds_nothing(spark: "SparkSession", options: "ArchiveOptions") -> None:
    """The driver died after the commits to Delta and before Spark's own commit log."""
    log = a_life_of_a_group()
    _batch(spark, options, "one")(_frame(spark, log), 7)

    _batch(spark, options, "one")(_frame(spark, log), 7)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)


def test_tables_of_an_older_version_get_their_lag_from_the_beginning(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """The job was upgraded: its checkpoint and the other tables are there, the table lag is not."""
    import shutil

    log = a_life_of_a_group()
    _batch(spark, options, "one")(_frame(spark, log, 0, 8), 0)
    shutil.rmtree(f"{options.tables}/lag")

    _batch(spark, options, "one")(_frame(spark, log), 1)
    _batch(spark, options, "one")(_frame(spark, log), 1)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)
    assert query_tables(options.tables, "SELECT count(*) FROM lag").rows == ((5,),)


def test_a_new_checkpoint_reads_all_again_and_adds_only_what_is_new(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """The checkpoint was lost: batch ids start at 0 and topics at their beginning, and batches are
    cut elsewhere."""
    log = a_life_of_a_group()
    _batch(spark, options, "old")(_frame(spark, log, 0, 8), 0)
    new = _batch(spark, options, "new")

    new(_frame(spark, log, 0, 3), 0)
    new(_frame(spark, log, 3, 10), 1)
    new(_frame(spark, log, 10), 2)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)


def test_a_crash_between_the_two_tables_is_made_good(
    spark: "SparkSession", options: "ArchiveOptions", monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-39: events was committed, group_snapshots was not: the repeat writes only the latter."""
    from coordlib.history import archive

    log = a_life_of_a_group()
    crashing = _batch(spark, options, "one")
    with monkeypatch.context() as patch, contextlib.suppress(OSError):
        patch.setattr(archive.parse, "snapshot_rows", _fail)
        crashing(_frame(spark, log), 0)
    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 0)

    _batch(spark, options, "one")(_frame(spark, log), 0)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)


def _fail(*_: Any) -> None:
    raise OSError("the disk is gone")


def _event(**fields: Any) -> bytes:
    good = {
        "v": 1, "event_id": f"{INCARNATION}-r0-5-0", "time_ms": START_MS, "group": "g",
        "protocol": "classic", "type": "GroupCreated", "generation": 0, "member": "",
        "cause": "r0-5", "reason": "", "detail": {},
    }  # fmt: skip
    return json.dumps(good | fields).encode()


def test_foreign_records_are_skipped_and_counted(
    spark: "SparkSession", options: "ArchiveOptions", capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody writes into our topics: one bad record must not stop the archive for ever."""
    log = Log()
    bad_events = [
        b"\xff\xfe\x00", b"", None, b"[]", b"{", b"7", b'"text"', b"null",
        _event(time_ms=10**18), _event(time_ms=-1), _event(time_ms="soon"), _event(time_ms=1.5),
        _event(event_id="x"), _event(event_id=f"a-r0-{10**30}-0"), _event(event_id=None),
        _event(group=None), _event(type=None), _event(generation=10**12), _event(generation=None),
    ]  # fmt: skip
    for value in bad_events:
        log.put("events", b"g", value, 0)
    for key, value in ((b"\xff", b"\xff"), (b"g", b"{}"), (b"g", b"[1]")):
        log.put("groups", key, value, 0)
    for key, value in (
        (b"\xff", b"{}"),
        (b'["g"]', b"{}"),
        (b'["g","t","x"]', b"{}"),
        (b"7", None),
    ):
        log.put("committed", key, value, 0)
    for value in (
        *(b"\xff", None, b"{}", b'{"time_ms":1,"group":"g"}', b'{"time_ms":"x","lines":[]}'),
        *(b'{"time_ms":-1,"group":"g","lines":[]}', b'{"time_ms":1,"group":"g","lines":7}'),
    ):
        log.put("lag", b"g", value, 0)
    lines = b'[{},null,{"topic":"t"},{"topic":"t","partition":1,"lag":"many","new":{}}]'
    log.put("lag", b"g", b'{"time_ms":1,"group":"g","new":1,"lines":' + lines + b"}", 0)
    log.put("events", b"g", _event(unknown=[1]), 0)
    batch = _batch(spark, options, "one")

    batch(_frame(spark, log), 0)

    assert query_tables(options.tables, "SELECT event_id FROM events").rows == (
        (f"{INCARNATION}-r0-5-0",),
    )
    shown = capsys.readouterr().out
    assert "skipped records that the engine did not write" in shown
    assert "coord.events-0@0" in shown
    assert f"count={len(bad_events)}" in shown
    assert batch._tables["events"].newest.skipped == len(bad_events)
    assert batch._tables["lag"].newest.skipped == 7
    lag = query_tables(options.tables, "SELECT group_id, topic, partition, lag FROM lag").rows
    assert lag == (("g", "t", 1, None),)


def test_a_batch_without_anything_new_makes_no_commit(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    from deltalake import DeltaTable

    batch = _batch(spark, options, "one")
    log = Log()
    log.event("GroupCreated", 0)
    batch(_frame(spark, log), 0)

    batch(_frame(spark, log), 1)

    assert DeltaTable(f"{options.tables}/events").version() == 1
    assert DeltaTable(f"{options.tables}/group_snapshots").version() == 0


def test_two_archives_at_once_double_nothing(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """jobs/archive.py was started beside a coordinator that brings its own archive."""
    log = a_life_of_a_group()
    first, second = _batch(spark, options, "first"), _batch(spark, options, "second")
    first(_frame(spark, log, 0, 8), 0)

    with pytest.raises(StartRefused, match="Another archive writes these tables"):
        second(_frame(spark, log), 0)
    first(_frame(spark, log, 8), 1)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)


def test_archives_that_miss_each_other_double_nothing(
    spark: "SparkSession", options: "ArchiveOptions", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either wrote: Delta skips the later one's commit, which notices."""
    from coordlib.history.delta_table import ArchivedTable

    log = a_life_of_a_group()
    first, second = _batch(spark, options, "first"), _batch(spark, options, "second")
    first(_frame(spark, log), 0)
    look, looks = ArchivedTable._refuse_others, iter([False, True])
    monkeypatch.setattr(ArchivedTable, "_refuse_others", lambda *args: next(looks) and look(*args))

    with pytest.raises(StartRefused, match="Another archive"):
        second(_frame(spark, log, 0, 8), 0)

    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)


def test_an_optimized_table_is_written_on(spark: "SparkSession", options: "ArchiveOptions") -> None:
    """Commits of others, such as OPTIMIZE, are no other archive."""
    from delta.tables import DeltaTable

    log = a_life_of_a_group()
    batch = _batch(spark, options, "one")
    batch(_frame(spark, log, 0, 4), 0)
    batch(_frame(spark, log, 4, 8), 1)
    DeltaTable.forPath(spark, f"{options.tables}/events").optimize().executeCompaction()

    batch(_frame(spark, log, 8), 2)

    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)
    again = _batch(spark, options, "two")
    again(_frame(spark, log), 0)
    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)


def test_tables_of_somebody_else_are_refused(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """How far they are complete cannot be told: going on could double rows."""
    spark.range(3).write.format("delta").save(f"{options.tables}/events")

    with pytest.raises(StartRefused, match="cannot be told how far"):
        _batch(spark, options, "one")


def test_the_checkpoint_keeps_its_id(spark: "SparkSession", tmp_path: Path) -> None:
    from coordlib.history.archive import checkpoint_id

    first = checkpoint_id(spark, str(tmp_path / "a"))

    assert checkpoint_id(spark, str(tmp_path / "a")) == first
    assert checkpoint_id(spark, str(tmp_path / "b")) != first


def test_a_foreign_checkpoint_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    from coordlib.history.archive import checkpoint_id

    (tmp_path / "offsets").mkdir()

    with pytest.raises(StartRefused, match="not made by the archive"):
        checkpoint_id(spark, str(tmp_path))


def test_it_follows_a_real_broker_and_stops_between_batches(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    """Kafka to Delta, only what was committed; stopped and started again, then from nothing."""
    from confluent_kafka import Producer

    from coordlib import topics
    from coordlib.history.archive import ArchiveOptions, start_archive
    from coordlib.streaming.lifecycle import run_until_stopped

    prefix = f"t{uuid.uuid4().hex[:8]}"
    topics.create({"bootstrap.servers": broker.bootstrap_servers}, prefix, 2, 1, 1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": prefix, "log_level": 0}
    )
    producer.init_transactions()
    log = a_life_of_a_group()
    _produce(producer, log, prefix, slice(0, 6), commit=False)
    _produce(producer, log, prefix, slice(0, 6), commit=True)

    def run(checkpoint: str, events: int) -> None:
        options = ArchiveOptions(
            bootstrap_servers=broker.bootstrap_servers,
            prefix=prefix,
            tables=str(tmp_path / "tables"),
            checkpoint=str(tmp_path / checkpoint),
            interval_seconds=0.5,
        )
        stop_flag = threading.Event()
        query = start_archive(spark, options)
        waiting = threading.Thread(target=_stop_when, args=(options, events, stop_flag))
        waiting.start()
        run_until_stopped([query], stop_flag)
        waiting.join()
        assert not query.isActive
        assert query.exception() is None
        assert _counts(options)[:2] == (events, events)

    run("one", 6)
    _produce(producer, log, prefix, slice(6, None), commit=True)
    run("one", EVENT_COUNT)
    run("two", EVENT_COUNT)


def _produce(producer: Any, log: Log, prefix: str, part: slice, commit: bool) -> None:
    producer.begin_transaction()
    for key, value, topic, partition, *_ in log.rows[part]:
        producer.produce(topic.replace("coord.", f"{prefix}."), value, key, partition)
    producer.commit_transaction() if commit else producer.abort_transaction()


def _stop_when(options: "ArchiveOptions", events: int, stop_flag: threading.Event) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if _counts(options)[0] >= events:
                break
        time.sleep(0.2)
    time.sleep(1.0)  # long enough for a batch that would double rows
    stop_flag.set()
