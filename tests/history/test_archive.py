"""The archive: each record once in the tables, whatever crashes, repeats or is foreign."""

import contextlib
import json
import shutil
import uuid
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordlib.errors import CannotReach, CoordError, StartRefused
from coordlib.history.plan import Backlog
from coordlib.history.sql import query_tables
from coordlib.history.tables import EVENTS, LAG, SNAPSHOTS, path_of
from tests.history.rows import INCARNATION, KAFKA_SCHEMA, SOURCE, START_MS, Log, a_life_of_a_group
from tests.kit.logs import delete_records
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from coordlib.history.archive import Archive, ArchiveBatch
    from coordlib.history.plan import ArchiveOptions
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack

EVENT_COUNT = 18


@pytest.fixture
def options(tmp_path: Path) -> "ArchiveOptions":
    from coordlib.history.plan import ArchiveOptions

    return ArchiveOptions(
        bootstrap_servers="", tables=str(tmp_path / "tables"), checkpoint=str(tmp_path / "check")
    )


def _batch(spark: "SparkSession", options: "ArchiveOptions", identity: str) -> "ArchiveBatch":
    from coordlib.history.archive import ArchiveBatch

    return ArchiveBatch(spark, options, identity, SOURCE)


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


def test_a_table_that_is_begun_anew_gets_its_rows_from_the_beginning(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """One was lost for ever, and its file was deleted; checkpoint and other tables are there."""
    log = a_life_of_a_group()
    _batch(spark, options, "one")(_frame(spark, log, 0, 8), 0)
    shutil.rmtree(f"{options.tables}/lag")
    Path(options.checkpoint, "coord-archive-table-lag").unlink()

    _batch(spark, options, "one")(_frame(spark, log), 1)
    _batch(spark, options, "one")(_frame(spark, log), 1)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)
    assert query_tables(options.tables, "SELECT count(*) FROM lag").rows == ((5,),)


@pytest.mark.chaos
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

    again = _batch(spark, options, "one")
    assert again.next.keys() == {"events"}
    assert again.begun.keys() == {"events", "groups", "committed", "lag"}
    again(_frame(spark, log), 0)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)


@pytest.mark.chaos
def test_what_came_last_is_current_though_its_drivers_clock_is_behind(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """The job was started again on another machine, whose clock is two minutes behind. The former
    state and offset were told as those of now, and upkeep would have kept them alone."""
    log = Log()
    log.event("GroupCreated", 0)
    log.group("Stable", 120, generation=1)
    log.committed("orders", 0, 100, 121)
    log.group("Empty", 1, generation=1)
    log.committed("orders", 0, 200, 2)
    log.committed("orders", 0, 300, 3)
    log.committed("orders", 0, 400, 500)
    cuts = (0, 3, 5, 6, 7)

    told = []
    for number, (first, last) in enumerate(pairwise(cuts)):
        _batch(spark, options, "one")(_frame(spark, log, first, last), number)  # each a new start
        current = 'SELECT state, "offset" FROM current_groups, current_offsets'
        told += query_tables(options.tables, current).rows
    times = "SELECT epoch_ms(as_of_time) - ? FROM group_snapshots ORDER BY 1"

    assert told == [("Stable", 100), ("Empty", 200), ("Empty", 300), ("Empty", 400)]
    assert [at for (at,) in query_tables(options.tables, times, [START_MS]).rows] == [
        *(121_000, 121_001, 121_002, 500_000)
    ]


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


@pytest.mark.chaos
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


@pytest.mark.chaos
def test_archives_that_miss_each_other_double_nothing(
    spark: "SparkSession", options: "ArchiveOptions", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either wrote: of two appends under one app id Delta takes one. This is the
    only thing that keeps the rows of both from being in the table."""
    from deltalake import DeltaTable

    from coordlib.history.delta_table import ArchivedTable

    log = a_life_of_a_group()
    first, second = _batch(spark, options, "first"), _batch(spark, options, "second")
    seen_before = second._tables["events"]._snapshot()
    first(_frame(spark, log), 0)
    look, looks = ArchivedTable._refuse_others, iter([lambda *_: seen_before])
    monkeypatch.setattr(ArchivedTable, "_refuse_others", lambda *args: next(looks, look)(*args))

    with pytest.raises(StartRefused, match="Another archive"):
        second(_frame(spark, log, 0, 8), 0)

    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)
    versions = DeltaTable(f"{options.tables}/events").history()
    assert len(versions) == 2, "that it was made, and what the first one has committed"


@pytest.mark.chaos
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


def test_each_record_is_read_once_in_a_batch(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """Four topics and three tables: the range was fetched from Kafka four times."""
    from pyspark.sql import functions as F  # noqa: N812  # its usual name

    log = a_life_of_a_group()
    reads = spark.sparkContext.accumulator(0)

    @F.udf("long")
    def told(offset: int) -> int:
        reads.add(1)
        return offset

    _batch(spark, options, "one")(_frame(spark, log).withColumn("offset", told("offset")), 0)

    assert reads.value == len(log.rows)
    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)


def _commit_as_others(table: Path, count: int) -> None:
    """Commits of VACUUM, as Delta writes two for each run."""
    first = 1 + max(int(each.stem) for each in (table / "_delta_log").glob("*.json"))
    for version in range(first, first + count):
        info = {"timestamp": 1_800_000_000_000, "operation": "VACUUM START", "readVersion": version}
        text = json.dumps({"commitInfo": info | {"operationParameters": {}, "isBlindAppend": True}})
        (table / "_delta_log" / f"{version:020d}.json").write_text(text + "\n")


def _clean_log(spark: "SparkSession", table: Path) -> None:
    """What Delta does with commits older than 30 days: a checkpoint has what was in them."""
    log: Any = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    log.clearCache()
    log.forTable(spark._jsparkSession, str(table)).checkpoint()
    for each in sorted((table / "_delta_log").glob("0*.json"))[:-1]:
        each.unlink()
        (each.parent / f".{each.name}.crc").unlink(missing_ok=True)
        each.with_suffix(".crc").unlink(missing_ok=True)
        (each.parent / f".{each.stem}.crc.crc").unlink(missing_ok=True)
    log.clearCache()


@pytest.mark.chaos
def test_a_hundred_commits_of_others_are_no_obstacle(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """Two months of a daily VACUUM on tables that had nothing to write: the job did not start any
    more. Nor does it matter that Delta has cleaned its log since, of our commits too: while the
    archive runs, and before it starts."""
    log, tables = a_life_of_a_group(), [Path(options.tables, name) for name in (EVENTS, LAG)]
    running = _batch(spark, options, "one")
    running(_frame(spark, log, 0, 8), 0)
    for table in tables:
        _commit_as_others(table, 120)
    again = _batch(spark, options, "one")
    assert again.next == running.next
    for table in tables:
        _clean_log(spark, table)

    again(_frame(spark, log, 0, 10), 1)
    for table in tables:
        _commit_as_others(table, 3)
        _clean_log(spark, table)
    _batch(spark, options, "two")(_frame(spark, log), 0)

    assert _counts(options) == (EVENT_COUNT, EVENT_COUNT, 2)
    with pytest.raises(StartRefused, match="Another archive"):
        again(_frame(spark, log), 2)


@pytest.mark.chaos
@pytest.mark.parametrize("what", ["nothing", "another", "an old copy", "a grown copy"])
def test_a_table_that_goes_from_under_the_archive_is_not_made_anew(
    spark: "SparkSession", options: "ArchiveOptions", what: str
) -> None:
    """INV-120: a lost mount, a folder that is renamed. The archive began a table of that name, and
    wrote what Kafka still had; the true one came back without it. To begin anew, an operator
    deletes the file that names the table."""
    log = a_life_of_a_group()
    batch = _batch(spark, options, "one")
    table, away = Path(options.tables) / "events", Path(options.tables) / "away"
    shutil.copytree(table, away)
    batch(_frame(spark, log, 0, 8), 0)
    if "copy" in what:
        shutil.rmtree(table)
    else:
        shutil.rmtree(away)
        table.rename(away)
    if what == "another":
        _batch(spark, replace(options, checkpoint=f"{options.checkpoint}-2"), "two")
    elif "copy" in what:
        away.rename(table)
    if what == "a grown copy":  # INV-157: no archive has written there since, only upkeep
        for _ in range(5):
            spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('a' = 'b')")

    with pytest.raises(CannotReach) as told:
        batch(_frame(spark, log), 1)

    assert table.exists() == (what != "nothing")
    if "copy" in what:  # it names how far it is complete
        _batch(spark, options, "one")(_frame(spark, log), 1)
        assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)
        return
    with pytest.raises(CannotReach):
        _batch(spark, options, "one")
    file = Path(options.checkpoint) / "coord-archive-table-events"
    assert str(file) in told.value.hint
    if what == "another":
        shutil.rmtree(table)
    file.unlink()
    _batch(spark, options, "one")(_frame(spark, log), 1)
    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)
    shutil.rmtree(table)
    away.rename(table)
    with pytest.raises(CannotReach, match="Another table"):
        _batch(spark, options, "one")


def test_a_start_reads_the_number_from_the_log_where_there_is_no_checksum(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """Another library has made the newest commit, as `coord history maintain` does: it writes no
    checksum file."""
    log = a_life_of_a_group()
    _batch(spark, options, "one")(_frame(spark, log, 0, 8), 0)
    for each in Path(options.tables).glob("*/_delta_log/*.crc"):
        each.unlink()
    delta_log: Any = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    delta_log.clearCache()

    table = _batch(spark, options, "two")._tables["events"]

    assert (table._number_in(table._snapshot()), table.newest.number) == (1, 1)


def test_the_archive_has_settings_of_its_own(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """The coordinator runs in the same session: what is good for one may be bad for the other."""
    from coordlib.history.archive import INTERPRETED_MAX, Archive, choose_codegen

    names = ("codegen.wholeStage", "codegen.factoryMode")
    before = spark.conf.getAll
    archive = Archive(spark, options)

    found = []
    for records in (INTERPRETED_MAX, INTERPRETED_MAX + 1):
        choose_codegen(archive._spark, records)
        found.append([archive._spark.conf.get(f"spark.sql.{name}") for name in names])

    assert found == [["false", "NO_CODEGEN"], ["true", "FALLBACK"]]
    assert archive._spark.conf.get("spark.databricks.delta.allFilesInCrc.enabled") == "false"
    assert spark.conf.getAll == before


def test_tables_of_somebody_else_are_refused(
    spark: "SparkSession", options: "ArchiveOptions"
) -> None:
    """How far they are complete cannot be told: going on could double rows."""
    spark.range(3).write.format("delta").save(f"{options.tables}/events")

    with pytest.raises(StartRefused, match="unknown up to where"):
        _batch(spark, options, "one")


def test_the_checkpoint_keeps_its_id(spark: "SparkSession", tmp_path: Path) -> None:
    from coordlib.history.delta_append import checkpoint_id

    first = checkpoint_id(spark, str(tmp_path / "a"))

    assert checkpoint_id(spark, str(tmp_path / "a")) == first
    assert checkpoint_id(spark, str(tmp_path / "b")) != first


def test_a_checkpoint_that_is_removed_under_the_archive_is_written_again(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A clean-up of old folders took it. The next start goes on under the same id."""
    from coordlib.history.delta_append import checkpoint_id, keep_id

    first = checkpoint_id(spark, str(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a")
    keep_id(spark, str(tmp_path / "a"), first)

    assert checkpoint_id(spark, str(tmp_path / "a")) == first
    keep_id(spark, str(tmp_path / "a"), "another")
    assert checkpoint_id(spark, str(tmp_path / "a")) == first


def test_a_foreign_checkpoint_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    from coordlib.history.delta_append import checkpoint_id

    (tmp_path / "offsets").mkdir()

    with pytest.raises(StartRefused, match="not made by the archive"):
        checkpoint_id(spark, str(tmp_path))


class Topics:
    """Topics of the engine on a real broker, and a transactional producer as the sink's."""

    def __init__(self, broker: "Broker") -> None:
        from coordlib.kafka import topics

        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        self.client = {"bootstrap.servers": broker.bootstrap_servers}
        topics.create(self.client, self.prefix, 2, 1, 1)
        self.open_producer()

    def open_producer(self) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {**self.client, "transactional.id": self.prefix, "log_level": 0, "linger.ms": 0}
        )
        self._producer.init_transactions()

    def write(self, log: Log, part: slice, commit: bool = True) -> None:
        self._producer.begin_transaction()
        for key, value, topic, partition, *_ in log.rows[part]:
            name = topic.replace("coord.", f"{self.prefix}.")
            self._producer.produce(name, value, key, partition)
        self._producer.flush(60)  # else what is aborted would never be sent
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """As retention does."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        place = TopicPartition(f"{self.prefix}.{topic}", partition, offset)
        admin = AdminClient(self.client)
        delete_records(admin, place)

    def make_anew(self, topic: str) -> None:
        """Delete it and create it again; its records are those of a new topic."""
        from coordlib.kafka import topics
        from coordlib.kafka.clients import open_admin

        admin, name = open_admin(self.client), f"{self.prefix}.{topic}"
        admin.delete_topics([name])[name].result(60)
        wait_until("it is gone", lambda: name not in admin.list_topics(timeout=10).topics)
        topics.create(self.client, self.prefix, 2, 1, 1)

    def options(self, folder: Path, **fields: Any) -> "ArchiveOptions":
        from coordlib.history.plan import ArchiveOptions

        return ArchiveOptions(
            bootstrap_servers=self.client["bootstrap.servers"],
            prefix=self.prefix,
            tables=str(folder / "tables"),
            checkpoint=str(folder / "check"),
            **fields,
        )


@pytest.fixture
def topics(broker: "Broker") -> Topics:
    return Topics(broker)


def test_it_follows_a_real_broker(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    """Kafka to Delta, only what was committed; in small batches, started again, and then with
    another checkpoint. What is left over after a batch is told."""
    from coordlib.history.archive import Archive
    from coordlib.history.topics_read import backlog

    def behind() -> Backlog | None:
        return backlog(options.tables, topics.client, topics.prefix)

    log = a_life_of_a_group()
    topics.write(log, slice(0, 6), commit=False)
    topics.write(log, slice(0, 6))
    options = topics.options(tmp_path, max_offsets_per_trigger=10)
    archive = Archive(spark, options)
    assert behind() is None, "nobody knows of these tables yet"

    first = archive.turn()

    assert (first.records, first.ms >= 0) == (4, True)  # 14 with the ends of both transactions
    archive.catch_up()
    assert _counts(options)[:2] == (6, 6)
    topics.write(log, slice(0, 3), commit=False)
    assert behind() == Backlog(), "an aborted transaction is nobody's record"
    topics.write(log, slice(6, None))
    left = behind()
    assert left is not None
    assert (left.records >= len(log.rows) - 6, left.ms > 0) == (True, True)
    Archive(spark, topics.options(tmp_path)).catch_up()
    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)
    again = Archive(spark, replace(options, checkpoint=str(tmp_path / "other")))
    again.catch_up()
    assert _counts(options)[:2] == (EVENT_COUNT, EVENT_COUNT)


def test_history_that_retention_overtook_is_a_line_and_no_end(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """The archive was away for longer than the topics keep. It goes on behind the hole, and says in
    the tables what is missing, once for each hole: also where no later record follows, and when it
    is started again."""
    from coordlib.history.archive import Archive

    log = a_life_of_a_group()
    events = [n for n, row in enumerate(log.rows) if row[2] == "coord.events"]
    options = topics.options(tmp_path)
    topics.write(log, slice(0, 4))
    archive = Archive(spark, options)
    archive.catch_up()
    topics.write(log, slice(4, events[-1] + 1))
    topics.delete_before("events", 0, 12)
    topics.write(log, slice(events[-1] + 1, None))
    topics.delete_before("lag", 0, 4)

    archive.catch_up()
    Archive(spark, options).catch_up()

    columns = "topic, shard, from_offset, to_offset"
    lost = query_tables(options.tables, f"SELECT {columns} FROM lost_history ORDER BY topic")
    assert lost.rows == (
        (f"{topics.prefix}.events", 0, 5, 12),
        (f"{topics.prefix}.lag", 0, 0, 4),
    )
    kept = query_tables(options.tables, "SELECT count(*) FROM events WHERE type <> 'HistoryLost'")
    assert kept.rows[0][0] < EVENT_COUNT
    assert query_tables(options.tables, "SELECT count(*) FROM group_snapshots").rows == ((2,),)


def _files(folder: str) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in Path(folder).rglob("*") if each.is_file()}


def test_the_tables_of_another_prefix_are_refused_and_stay_as_they_are(
    spark: "SparkSession", topics: Topics, broker: "Broker", tmp_path: Path
) -> None:
    """Where its topics were longer, the archive of one prefix went on behind the positions of
    another one, in its tables: the beginning was missing, and nobody was told."""
    from coordlib.history.archive import Archive
    from coordlib.history.topics_read import backlog

    log = a_life_of_a_group()
    topics.write(log, slice(0, 6))
    Archive(spark, topics.options(tmp_path)).catch_up()
    other = Topics(broker)
    other.write(log, slice(None))
    before = _files(topics.options(tmp_path).tables)
    options = replace(other.options(tmp_path), checkpoint=str(tmp_path / "other"))

    with pytest.raises(StartRefused, match="of another prefix"):
        Archive(spark, options).catch_up()
    with pytest.raises(StartRefused, match="of another prefix"):
        backlog(options.tables, other.client, other.prefix)

    assert _files(options.tables) == before
    Archive(spark, other.options(tmp_path / "fresh")).catch_up()
    assert _counts(other.options(tmp_path / "fresh"))[0] == EVENT_COUNT


def test_only_one_foreign_table_among_three_is_enough(
    spark: "SparkSession", topics: Topics, broker: "Broker", tmp_path: Path
) -> None:
    """The other two are not made either."""
    from coordlib.history.archive import Archive

    topics.write(a_life_of_a_group(), slice(0, 6))
    options = topics.options(tmp_path)
    Archive(spark, options).catch_up()
    for name in (EVENTS, SNAPSHOTS):
        shutil.rmtree(path_of(options.tables, name))
    before = _files(options.tables)
    other = replace(Topics(broker).options(tmp_path), checkpoint=str(tmp_path / "other"))

    with pytest.raises(StartRefused, match="of another prefix"):
        Archive(spark, other).turn()

    assert _files(options.tables) == before


def _that_has_read_six(
    spark: "SparkSession", topics: Topics, options: "ArchiveOptions"
) -> "Archive":
    from coordlib.history.archive import Archive

    topics.write(a_life_of_a_group(), slice(0, 6))
    archive = Archive(spark, options)
    archive.catch_up()
    return archive


@pytest.mark.chaos
def test_topics_that_were_made_anew_are_refused_also_under_a_running_archive(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """They are longer than the old ones were: no position shows it. `lag` alone may be another."""
    from coordlib.history.archive import Archive

    log, options = a_life_of_a_group(), topics.options(tmp_path)
    archive = _that_has_read_six(spark, topics, options)
    topics.make_anew("lag")
    topics.write(log, slice(None))
    archive.catch_up()
    samples = query_tables(options.tables, "SELECT count(*) FROM lag").rows
    assert samples == ((5,),), "all of the new one's, and none twice"
    topics.make_anew("events")
    for _ in range(2):
        topics.write(log, slice(None))
    before = _files(options.tables)

    with pytest.raises(StartRefused, match="created again"):
        archive.turn()
    with pytest.raises(StartRefused, match="created again"):
        Archive(spark, options).turn()

    assert _files(options.tables) == before


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_written(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """Spark reads by names: its records may be of the old topic, or of the new one."""

    log, options = a_life_of_a_group(), topics.options(tmp_path)
    archive = _that_has_read_six(spark, topics, options)
    topics.write(log, slice(6, None))
    opened = archive._opened
    assert opened is not None
    reading = opened[0].read

    def read_and_made_anew(*args: Any) -> "DataFrame":
        rows = reading(*args)
        topics.make_anew("events")
        for _ in range(2):
            topics.write(log, slice(None))
        return rows

    opened[0].read = read_and_made_anew  # type: ignore[method-assign]

    with pytest.raises(CoordError, match="while it was read"):
        archive.turn()

    assert _counts(options)[:2] == (6, 6)
    with pytest.raises(StartRefused, match="created again"):
        archive.turn()
