"""Batches and offsets that one commit of a Delta table decides, over real Delta, broker and Spark.

First a writer and whoever shuts it out at the same moment, in both orders: Delta's own check
decides. Then a member that is killed at each point between acceptance and its word.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from deltalake import write_deltalake

from coordlib.client import CoordinatedConsumer
from coordlib.client.spark import delta
from coordlib.client.spark.delta import How, SparkTable, uri_of
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.client.transactions.delta_commits import RETENTION, DeltaFiles, settle
from coordlib.errors import AnotherTable, CannotReach, SetupError
from coordlib.local.stack import Stack
from tests.kit.processes import Processes, Witness
from tests.kit.waiting import wait_until
from tests.stack.disks import fill, small_disk
from tests.stack.lake_member import TIMING, start_into
from tests.stack.test_claim_meets_a_late_write import FIRST, Table
from tests.stack.wire import close

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.stack
APP = "coordlib/AbCdEfGh/orders/m-1"
PATIENCE_S = 120.0
PARTITIONS, RECORDS = 4, 1_000


# -- a writer, and whoever shuts it out ------------------------------------------------------


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def seen(spark: "SparkSession", table: Table, how: str) -> Any:
    """The table as an asker opens it, with Spark or without."""
    if how == "spark":
        return SparkTable(spark, table.path, APP)
    return DeltaFiles(uri_of(spark, table.path), APP)


def write(table: SparkTable, rows: "DataFrame", token: int) -> bool:
    """As a reader does."""
    table.prepare(rows)
    return table.stage(rows).commit(token)


@pytest.mark.parametrize("how", ["spark", "deltalake"])
def test_a_writer_that_is_overtaken_writes_nothing(
    spark: "SparkSession", table: Table, how: str
) -> None:
    """It stands in the middle of its commit when it is shut out; then it tries again."""
    writer, asker = SparkTable(spark, table.path, APP), seen(spark, table, how)
    said: list[str | bool] = []

    problem = table.meanwhile(
        lambda: said.append(write(writer, table.slow(["late"]), 10)),
        lambda: said.append(settle(asker, 10, 20, 0)),
    )

    assert problem == ""
    assert said == ["abort", False]
    assert not write(writer, table.rows(["late"]), 10)
    assert table.values() == ["before"]
    assert writer.app_version(writer.newest()) == 20
    assert settle(seen(spark, table, how), 10, 30, 0) == "abort"


@pytest.mark.parametrize("how", ["spark", "deltalake"])
def test_an_asker_that_is_overtaken_finds_the_batch(
    spark: "SparkSession", table: Table, how: str
) -> None:
    """The writer's commit comes between the asker's look and its claim."""
    writer, asker = SparkTable(spark, table.path, APP), seen(spark, table, how)
    claim = asker.claim

    def late_claim(token: int) -> None:
        asker.claim = claim
        write(writer, table.rows(["in time"]), 10)
        claim(token)

    asker.claim = late_claim

    assert settle(asker, 10, 20, 0) == "commit"
    assert table.values() == ["before", "in time"]


def test_a_writer_sees_claims_in_the_commits_since_its_last(
    spark: "SparkSession", table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a table has had many members Delta lists them beside no commit, and to ask Delta for
    its state takes longer than a batch. The commits of others are read instead."""
    writer, other = (SparkTable(spark, table.path, APP) for _ in range(2))
    assert write(writer, table.rows(["first"]), 10)
    assert write(SparkTable(spark, table.path, "another"), table.rows(["of others"]), 5)
    number_in = delta.number_in
    monkeypatch.setattr(delta, "number_in", None)

    assert write(writer, table.rows(["second"]), 11)
    monkeypatch.setattr(delta, "number_in", number_in)
    other.newest()
    other.claim(30)
    monkeypatch.setattr(delta, "number_in", None)
    assert not write(writer, table.rows(["late"]), 12)

    assert table.values() == ["before", "first", "of others", "second"]


def test_a_claim_that_stands_half_done_fails_beside_the_batch(
    spark: "SparkSession", table: Table
) -> None:
    """The other order of the same moment."""
    writer, asker = SparkTable(spark, table.path, APP), SparkTable(spark, table.path, APP)

    problem = table.meanwhile(
        lambda: asker.write(table.slow([]), 20),
        lambda: write(writer, table.rows(["in time"]), 10),
    )

    assert FIRST in problem
    assert settle(asker, 10, 20, 0) == "commit"
    assert table.values() == ["before", "in time"]


@pytest.mark.parametrize(
    ("how", "landed", "result"),
    [
        ("spark", True, "commit"),
        ("deltalake", False, "abort"),
        pytest.param("spark", False, "abort", marks=pytest.mark.chaos),
        pytest.param("deltalake", True, "commit", marks=pytest.mark.chaos),
    ],
)
def test_claims_of_askers_that_died_hide_nothing(
    spark: "SparkSession", table: Table, how: str, landed: bool, result: str
) -> None:
    """Each of them knows Delta's log, of Spark's commits and of delta-rs'."""
    writer = SparkTable(spark, table.path, APP)
    if landed:
        write(writer, table.rows(["a batch"]), 10)
    for other, token in (("spark", 20), ("deltalake", 30)):
        asker = seen(spark, table, other)
        asker.newest()
        asker.claim(token)
        write(SparkTable(spark, table.path, "another"), table.rows(["of others"]), token)

    assert settle(seen(spark, table, how), 10, 40, 0) == result
    write(writer, table.rows(["late"]), 10)
    assert "late" not in table.values()


@pytest.mark.parametrize("how", ["spark", "deltalake"])
def test_a_table_that_is_not_there_decides_nothing(
    spark: "SparkSession", tmp_path: Path, how: str
) -> None:
    """Somebody has deleted it: an operator decides."""
    path = str(tmp_path / "nothing")

    def ask() -> None:
        opened: Any = SparkTable if how == "spark" else lambda _, *rest: DeltaFiles(*rest)
        settle(opened(spark, uri_of(spark, path), APP), 10, 20, 0)

    with pytest.raises(CannotReach) as told:
        ask()

    assert "coord transactions decide" in told.value.hint
    assert not Path(path).exists()


@pytest.mark.chaos  # in `make test` over deltalake: tests/client/transactions/test_in_doubt.py
@pytest.mark.parametrize("how", ["spark", "deltalake"])
def test_a_batch_that_was_taken_back_is_left_to_an_operator(
    spark: "SparkSession", table: Table, how: str
) -> None:
    """RESTORE and overwrite take its rows, and leave its token in Delta's log: to commit its
    offsets would lose it silently. A batch behind them counts."""
    writer = SparkTable(spark, table.path, APP)
    write(writer, table.rows(["a batch"]), 10)
    write(SparkTable(spark, table.path, "another"), table.rows(["of others"]), 1)
    assert settle(seen(spark, table, how), 10, 20, 0) == "commit"
    spark.sql(f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF 0")

    with pytest.raises(CannotReach, match="taken back by a later RESTORE") as told:
        settle(seen(spark, table, how), 10, 20, 0)
    assert "coord transactions decide" in told.value.hint
    write(writer, table.rows(["the next one"]), 11)
    assert settle(seen(spark, table, how), 11, 20, 0) == "commit"
    table.rows(["new"]).write.format("delta").mode("overwrite").save(table.path)
    with pytest.raises(CannotReach, match="taken back by a later"):
        settle(seen(spark, table, how), 11, 20, 0)


@pytest.mark.parametrize("how", ["spark", "deltalake"])
def test_another_table_does_not_say_that_it_lacks_the_batch(
    spark: "SparkSession", table: Table, how: str
) -> None:
    """The true one may come back. Where the offsets name none, as an older client's, it does."""
    writer = SparkTable(spark, table.path, APP)
    write(writer, table.rows(["a batch"]), 10)
    shutil.rmtree(table.path)
    SparkTable(spark, table.path, "another").prepare(table.rows([]))

    with pytest.raises(AnotherTable, match="coord transactions decide"):
        settle(seen(spark, table, how), 10, 20, 0, writer.written)
    assert seen(spark, table, how).newest() == 0, "and no claim was written there"
    assert settle(seen(spark, table, how), 10, 20, 0) == "abort"


def test_a_batch_does_not_go_into_another_table(spark: "SparkSession", table: Table) -> None:
    """INV-120: another one comes to its place while its rows' files are written, or behind that.
    They went with the old one: a commit that names them would leave the new one unreadable."""
    writer = SparkTable(spark, table.path, APP)
    write(writer, table.rows(["before"]), 10)
    writer.prepare(table.rows([]))
    staged = writer.stage(table.rows(["late"]))
    shutil.rmtree(table.path)
    for value in ("a", "b", "c"):
        write_deltalake(table.path, pa.table({"value": [value]}), mode="append")

    with pytest.raises(AnotherTable, match="Another Delta table"):
        staged.commit(11)
    with pytest.raises(AnotherTable, match="Another Delta table"):
        write(writer, table.rows(["d"]), 12)
    assert DeltaFiles(uri_of(spark, table.path), APP).newest() == 2
    assert table.values() == ["a", "b", "c"]
    heir = SparkTable(spark, table.path, APP)
    heir.written = writer.written
    assert heir.written is not None
    assert heir.write(table.rows(["e"]), 13, How(replaces=heir.written.id))
    assert table.values() == ["a", "b", "c", "e"]


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.chaos
def test_the_true_table_comes_back_behind_the_look(
    spark: "SparkSession", table: Table, is_older: bool
) -> None:
    """INV-120: a commit went into its log behind a gap, and nobody could read it any more. Or an
    old copy of the same table is put back, which has its id."""
    away, path = Path(f"{table.path}-away"), Path(table.path)
    if is_older:
        shutil.copytree(path, away)
    else:
        path.rename(away)
    writer = SparkTable(spark, table.path, APP)
    for token in (10, 11, 12):
        write(writer, table.rows(["of the other"]), token)
    writer.prepare(table.rows([]))
    staged = writer.stage(table.rows(["late"]))
    shutil.rmtree(path)
    away.rename(path)

    with pytest.raises(AnotherTable):
        staged.commit(20)
    with pytest.raises(AnotherTable, match="old copy" if is_older else "Another Delta table"):
        writer.prepare(table.rows([]))
    assert [each.name[-6:] for each in path.glob("_delta_log/*.json")] == ["0.json"]
    assert table.values() == ["before"]


@pytest.mark.parametrize("lacks", [1, 2])
def test_an_old_copy_that_has_grown_again_is_not_written_to(
    spark: "SparkSession", table: Table, lacks: int
) -> None:
    """INV-157: others have written into it since it was put back, so it has more versions than the
    table had. Who writes on is refused, who is started with the offsets of the group is refused,
    and so is who looks for the batch."""
    path, copy = Path(table.path), Path(f"{table.path}-copy")
    writer = SparkTable(spark, table.path, APP)
    written = dict[int, Any]()
    for token in (10, 11, 12):
        if token == 13 - lacks:
            shutil.copytree(path, copy)
        writer.prepare(table.rows([]))
        written[token] = writer.written
        assert writer.stage(table.rows(["lost?"])).commit(token)
    shutil.rmtree(path)
    copy.rename(path)
    for value in ("a", "b", "c"):
        write_deltalake(table.path, pa.table({"value": [value]}), mode="append")
    lies_there = sorted(each.name for each in path.glob("_delta_log/*.json"))

    with pytest.raises(AnotherTable, match="has grown"):
        write(writer, table.rows(["d"]), 13)
    heir = SparkTable(spark, table.path, "another application")
    heir.written = written[12]._replace(behind=APP)
    with pytest.raises(AnotherTable, match="lacks a batch" if lacks == 1 else "has grown"):
        write(heir, table.rows(["d"]), 13)
    if lacks == 2:
        for how in ("spark", "deltalake"):
            with pytest.raises(AnotherTable, match="has grown"):
                settle(seen(spark, table, how), 12, 20, 0, written[12])
    assert sorted(each.name for each in path.glob("_delta_log/*.json")) == lies_there


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_table_that_is_away_is_waited_for_and_never_made(
    spark: "SparkSession", table: Table, monkeypatch: pytest.MonkeyPatch, is_staged: bool
) -> None:
    """INV-120: a lost mount, before a batch or behind its files. Its rows stood in a new table, and
    those of the batches before in the one that came back."""
    writer, away = SparkTable(spark, table.path, APP), Path(f"{table.path}-away")
    write(writer, table.rows(["first"]), 10)
    writer.prepare(table.rows([]))
    staged = writer.stage(table.rows(["second"])) if is_staged else None
    Path(table.path).rename(away)
    back = Timer(1.0, lambda: away.rename(table.path))
    back.start()
    if staged is not None:
        assert staged.commit(11)
    else:
        assert write(writer, table.rows(["second"]), 11)
    assert table.values() == ["before", "first", "second"]

    monkeypatch.setattr(delta, "AWAY_S", 1.0)
    Path(table.path).rename(away)
    with pytest.raises(CannotReach, match="no Delta table") as told:
        write(writer, table.rows(["third"]), 12)
    assert writer.written is not None
    assert f'replaces="{writer.written.id}"' in told.value.hint
    assert not Path(table.path).exists()


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.chaos
def test_a_full_disk_commits_nothing(
    spark: "SparkSession", tmp_path: Path, is_staged: bool
) -> None:
    """Its files, or its commit's file behind them: nothing of the batch counts, the table stays
    readable, and with space the batch is written once."""
    with small_disk(tmp_path / "disk"):
        table = Table(spark, tmp_path / "disk")
        writer, ballast = SparkTable(spark, table.path, APP), tmp_path / "disk" / "ballast"
        write(writer, table.rows(["first"]), 10)
        writer.prepare(table.rows([]))
        staged = writer.stage(table.rows(["late"])) if is_staged else None
        fill(ballast)

        with pytest.raises(Exception, match="No space left on device"):
            staged.commit(11) if staged is not None else write(writer, table.rows(["late"]), 11)
        assert DeltaFiles(uri_of(spark, table.path), APP).app_version(1) == 10
        ballast.unlink()
        assert table.values() == ["before", "first"]
        assert write(writer, table.rows(["late"]), 11)
        assert table.values() == ["before", "first", "late"]


def test_a_batch_is_staged_anew_where_somebody_changes_the_table(
    spark: "SparkSession", table: Table
) -> None:
    """ALTER TABLE between the rows' files and their commit: Delta says "try again"."""
    writer = SparkTable(spark, table.path, APP)
    for token, change in (
        (10, "SET TBLPROPERTIES ('user.n' = '1')"),
        (11, "ADD COLUMNS (note STRING)"),
        (12, "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"),
    ):
        writer.prepare(table.rows([]))
        staged = writer.stage(table.rows([f"batch {token}"]))
        spark.sql(f"ALTER TABLE delta.`{table.path}` {change}")
        assert staged.commit(token)

    assert table.values() == ["batch 10", "batch 11", "batch 12", "before"]
    assert writer.app_version(writer.newest()) == 12


@pytest.mark.chaos
def test_options_of_the_writer_are_taken(
    spark: "SparkSession", table: Table, tmp_path: Path
) -> None:
    """A new column, and a table that is made in partitions."""
    wider = spark.createDataFrame([("a", 1)], "value string, n int")
    with pytest.raises(Exception, match=r"(?i)schema"):
        SparkTable(spark, table.path, APP).write(wider, 10)
    assert SparkTable(spark, table.path, APP).write(wider, 10, How({"mergeSchema": "true"}))
    assert spark.read.format("delta").load(table.path).columns == ["value", "n"]

    made, how = SparkTable(spark, str(tmp_path / "new"), APP), How({}, ("n",))
    assert made.write(wider, 10, how)
    assert made.write(wider, 11, how)
    assert made.write(wider, 12)
    (row,) = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path / 'new'}`").collect()
    assert row["partitionColumns"] == ["n"]
    with pytest.raises(SetupError, match="no such option"):
        How({"txnVersion": "3"}).checked()


class MakesSlowly:
    """A session whose writer of a new table stands still in the middle."""

    def __init__(self, spark: "SparkSession", table: Table) -> None:
        self._spark, self._table = spark, table

    def createDataFrame(self, _rows: Any, _schema: Any) -> Any:  # noqa: N802  # Spark's name
        return self._table.slow([])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


@pytest.mark.chaos
def test_two_members_that_make_the_table_at_once_both_go_on(
    spark: "SparkSession", table: Table, tmp_path: Path
) -> None:
    """Their first batches come at the same moment, each in a JVM of its own. The one whose commit
    is refused ended with its query: its JVM had looked before there was a table."""
    path, session = str(tmp_path / "new"), MakesSlowly(spark, table)
    late = SparkTable(session, path, APP)  # type: ignore[arg-type]
    empty = pa.table({"value": pa.array([], pa.string())})

    problem = table.meanwhile(
        lambda: late.prepare(table.rows([])), lambda: write_deltalake(path, empty)
    )

    assert problem == ""
    write(late, table.rows(["a batch"]), 10)
    assert late.app_version(late.newest()) == 10


@pytest.mark.chaos
def test_a_table_that_forgets_too_soon_is_refused(spark: "SparkSession", table: Table) -> None:
    """Delta would forget which batches it has, and they would be written again."""
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('{RETENTION}' = '1 days')")

    for how in ("spark", "deltalake"):
        with pytest.raises(SetupError, match="forgets too soon"):
            settle(seen(spark, table, how), 10, 20, 0)
    with pytest.raises(SetupError, match="forgets too soon"):
        SparkTable(spark, table.path, APP).prepare(table.rows([]))


# -- members that are killed -----------------------------------------------------------------


class Lake(Processes[Witness]):
    """A topic with records, a table for them, and processes of `tests.stack.lake_member`."""

    def __init__(self, servers: str, group: str, folder: Path) -> None:
        super().__init__(folder)
        self.servers, self.group = servers, group
        self.topic, self.table = f"records-of-{group}", str(folder / "table")
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce(self.topic, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        close(producer)

    def dies_at(self, name: str, point: str) -> None:
        """Start a member, and kill it where it stands still at this point."""
        member = Witness(name, self.folder)
        member.switch(point).touch()
        given = {"group": self.group, "topic": self.topic, "table": self.table}
        self.launch(member, "tests.stack.lake_member", bootstrap=self.servers, **given)
        self.until(f"{name} stands still", lambda: member.told(point))
        self.kill(name)

    def written(self, spark: "SparkSession") -> Counter[str]:
        """How often each record is in the table."""
        rows = spark.read.format("delta").load(self.table).select("value").collect()
        return Counter(row["value"] for row in rows)


@pytest.fixture
def lake(shared_stack: Stack, group: str, tmp_path: Path) -> Iterator[Lake]:
    with Lake(shared_stack.bootstrap_servers, group, tmp_path) as lake:
        yield lake


@pytest.mark.chaos
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(["written"], id="after the write"),
        pytest.param(["accepted", "written", "said"], id="everywhere"),
    ],
)
def test_every_record_is_in_the_table_once_wherever_a_member_is_killed(
    lake: Lake, spark: "SparkSession", tmp_path: Path, points: list[str]
) -> None:
    """INV-100: killed between acceptance, write and word; the next one finds out which."""
    for point in points:
        lake.dies_at(f"dies-{point}", point)
    heir = SparkGroupReader(
        spark,
        lake.group,
        [lake.topic],
        start_into(lake.table),
        config={"bootstrap.servers": lake.servers},
        folder=tmp_path / "heir",
        timing=TIMING,
        commits="with-writes",
    )

    with heir:
        wait_until("all is written", lambda: len(lake.written(spark)) == RECORDS, PATIENCE_S)

    assert [record for record, count in lake.written(spark).items() if count != 1] == []


@pytest.mark.chaos
def test_a_member_without_spark_finds_out_what_a_killed_one_has_written(
    lake: Lake, spark: "SparkSession"
) -> None:
    """A Python consumer joins the group: it goes on behind what is in the table."""
    lake.dies_at("dies", "written")
    written = lake.written(spark)
    config = {
        "bootstrap.servers": lake.servers,
        "group.id": lake.group,
        "group.protocol": "assigned",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    left: Counter[str] = Counter()

    with CoordinatedConsumer(config) as consumer:
        consumer.subscribe([lake.topic])

        def all_is_read() -> bool:
            left.update((m.value() or b"").decode() for m in consumer.consume(100, 0.5))
            return sum(left.values()) + sum(written.values()) >= RECORDS

        wait_until("the rest is read", all_is_read, PATIENCE_S)

    assert sum(written.values()) > 0
    assert written + left == Counter(str(number) for number in range(RECORDS))
