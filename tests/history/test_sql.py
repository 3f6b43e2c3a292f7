"""SQL over Delta tables of every kind that other writers may have made, without Spark or a JVM."""

import base64
import json
import struct
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.history import sql as sandbox
from coordlib.history.delta_files import native_files
from coordlib.history.sql import asked, query_tables
from coordlib.history.tables import COLUMNS, EVENTS, LAG

MANY = 400
START = datetime(2026, 3, 1, 12, 30, 5, 123456, tzinfo=UTC)
KINDS = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


def rows_of(count: int, **more: Any) -> pa.Table:
    """Events, one a day, each with another group."""
    schema = pa.schema([(name, KINDS[kind]) for name, kind in COLUMNS[EVENTS].items()])
    rows = [
        dict.fromkeys(COLUMNS[EVENTS])
        | {"event_id": f"i-r0-{n}-0", "group_id": f"g{n}", "log_offset": n, "detail": "{}"}
        | {"time": START + timedelta(days=n), "date": date(2026, 3, 1) + timedelta(days=n)}
        | {"type": "GenerationStarted", "generation": n, "shard": 0}
        | more
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, schema)


def write(tables: Path | str, rows: pa.Table, **options: Any) -> str:
    write_deltalake(f"{tables}/{EVENTS}", rows, partition_by=["date"], **options)
    return str(tables)


def edit_log(tables: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change every action of the first commit, as another writer would have made it."""
    log = tables / EVENTS / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def groups_in(tables: Path | str) -> list[str]:
    return [row[0] for row in query_tables(tables, "SELECT group_id FROM events ORDER BY 1").rows]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 400 files: nearly a day of the archive before anything packs them."""
    return write(tmp_path_factory.mktemp("many"), rows_of(MANY))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM events LIMIT 1",
        "SELECT * FROM events LIMIT 150",
        "SELECT a.* FROM events AS a JOIN events AS b USING (event_id) LIMIT 5",
        "SELECT * FROM generations LIMIT 2",
    ],
)
def test_a_limit_over_hundreds_of_files_ends_well(many: str, sql: str) -> None:
    """The scan is cut short while threads still read. When another library scanned, 7 of 14 such
    processes crashed or hung after their answer."""
    for _ in range(2):
        assert 1 <= len(query_tables(many, sql).rows) <= 150


def test_rows_that_nobody_takes_end_well(many: str) -> None:
    """Whoever reads may have enough at any row."""
    for taken in (0, 1, 3):
        with asked(many, "SELECT * FROM events") as question:
            chunks = question.chunks(10)
            assert [len(next(chunks)) for _ in range(taken)] == [10] * taken


def test_all_rows_of_all_files_come_once(many: str) -> None:
    sql = "SELECT count(*), count(DISTINCT event_id), min(date), max(time) FROM events"
    last = START + timedelta(days=MANY - 1)

    assert query_tables(many, sql).rows == ((MANY, MANY, date(2026, 3, 1), last),)


@pytest.mark.parametrize("is_spark", [True, False])
def test_columns_have_the_types_that_the_views_expect(tmp_path: Path, is_spark: bool) -> None:
    """Spark stores times as INT96, without a zone; a rollout adds a column; a row has no date."""
    tables = write(tmp_path, rows_of(2))
    wider = rows_of(1, date=None, group_id="later").append_column("extra", pa.array(["x"]))
    write(tables, wider, mode="append", schema_mode="merge")
    if is_spark:
        for file in tmp_path.rglob("*.parquet"):
            pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    types = query_tables(tables, "SELECT column_name, column_type FROM (DESCRIBE events)").rows
    spelled = {"STRING": "VARCHAR", "INT": "INTEGER", "TIMESTAMP": "TIMESTAMP WITH TIME ZONE"}

    expected = [(name, spelled.get(kind, kind)) for name, kind in COLUMNS[EVENTS].items()]
    assert list(types) == [*expected, ("extra", "VARCHAR")]
    rows = query_tables(tables, "SELECT group_id, time, date, extra FROM events ORDER BY 1, 2").rows
    assert rows == (
        ("g0", START, date(2026, 3, 1), None),
        ("g1", START + timedelta(days=1), date(2026, 3, 2), None),
        ("later", START, None, "x"),
    )
    no_date = "SELECT group_id FROM events WHERE date IS NULL"
    assert query_tables(tables, no_date).rows == (("later",),)
    before = "SELECT group_id FROM events WHERE time < ? AND date = ?"
    assert query_tables(tables, before, [START + timedelta(hours=1), date(2026, 3, 1)]).rows == (
        ("g0",),
    )


def test_columns_that_no_file_has_yet_are_null(tmp_path: Path) -> None:
    """Delta lets a table have columns that none of its files has."""
    tables = write(tmp_path, rows_of(1).drop_columns(["reason", "cause"]))

    assert query_tables(tables, "SELECT group_id, reason FROM events").rows == (("g0", None),)
    assert query_tables(tables, "SELECT count(*) FROM rejected").rows == ((0,),)


def test_a_table_without_files_has_no_rows(tmp_path: Path) -> None:
    tables = write(tmp_path, rows_of(1))
    DeltaTable(f"{tables}/{EVENTS}").delete()

    assert groups_in(tables) == []
    assert query_tables(tables, f"SELECT count(*) FROM {LAG}").rows == ((0,),)


@pytest.mark.parametrize("name", ["it's", "a [b] c", "*", "a%b", 'x"y', "ünïcode", "a;--b"])
def test_folders_and_files_may_have_any_name(tmp_path: Path, name: str) -> None:
    """They go into a text of SQL, in which quotes end it and brackets are patterns."""
    write(tmp_path / "plain", rows_of(2))
    tables = (tmp_path / "plain").rename(tmp_path / name)

    def renamed(action: dict[str, Any]) -> None:
        if "add" in action:
            old = action["add"]["path"]
            new = f"{Path(old).parent}/it's [a] *{name[:1]} file.parquet"
            (tables / EVENTS / old).rename(tables / EVENTS / new)
            action["add"]["path"] = urllib.parse.quote(new)

    edit_log(tables, renamed)
    assert groups_in(tables) == ["g0", "g1"]
    (tmp_path / "link").symlink_to(tables)
    assert groups_in(tmp_path / "link") == ["g0", "g1"]
    assert groups_in(f"file://{urllib.parse.quote(str(tables))}") == ["g0", "g1"]


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def vector(*deleted: int) -> dict[str, Any]:
    """A deletion vector inside the log (Delta's protocol, "Deletion Vector Format")."""
    rows = struct.pack(f"<{len(deleted)}H", *deleted)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + rows
    bytes_ = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    text = base64.b85encode(bytes_ + bytes(-len(bytes_) % 4)).decode()
    text = text.translate(str.maketrans(B85, Z85))
    sizes = {"sizeInBytes": len(bytes_), "cardinality": len(deleted)}
    return {"storageType": "i", "pathOrInlineDv": text, **sizes}


def protocol(*features: str) -> dict[str, Any]:
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return versions | {"readerFeatures": list(features), "writerFeatures": list(features)}


def test_rows_that_a_deletion_vector_deletes_are_gone(tmp_path: Path) -> None:
    """The file still has them: read alone it would show what was deleted."""
    tables = Path(write(tmp_path, rows_of(3, date=date(2026, 3, 1))))

    def delete(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = protocol("deletionVectors")
        if "add" in action:
            action["add"]["deletionVector"] = vector(0, 2)

    edit_log(tables, delete)
    assert native_files(EVENTS, DeltaTable(f"{tables}/{EVENTS}")) is None
    assert groups_in(tables) == ["g1"]


def test_a_table_that_may_have_deletion_vectors_and_has_none(tmp_path: Path) -> None:
    """Some services declare them for every table: that alone must not cost the fast way."""
    tables = Path(write(tmp_path, rows_of(1)))

    def declare(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = protocol("deletionVectors")

    edit_log(tables, declare)
    assert len(native_files(EVENTS, DeltaTable(f"{tables}/{EVENTS}")) or ()) == 1
    assert groups_in(tables) == ["g0"]


def test_columns_that_have_other_names_in_files_are_found(tmp_path: Path) -> None:
    """Somebody renamed a column: its name stands in the log alone."""
    tables = Path(
        write(
            tmp_path,
            rows_of(1).rename_columns(
                ["col-7" if name == "group_id" else name for name in COLUMNS[EVENTS]]
            ),
        )
    )

    def rename(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                physical = {"delta.columnMapping.physicalName": field["name"]}
                field["metadata"] = physical | {"delta.columnMapping.id": number}
                field["name"] = "group_id" if field["name"] == "col-7" else field["name"]
            action["metaData"]["schemaString"] = json.dumps(schema)
            action["metaData"]["configuration"] |= {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
            }

    edit_log(tables, rename)
    assert native_files(EVENTS, DeltaTable(f"{tables}/{EVENTS}")) is None
    assert groups_in(tables) == ["g0"]


def test_files_that_lie_elsewhere_than_their_dates_say(tmp_path: Path) -> None:
    """`delta.randomizeFilePrefixes`: the date of a row stands in the log alone."""
    tables = Path(write(tmp_path, rows_of(2)))

    def move(action: dict[str, Any]) -> None:
        if "add" in action:
            old = Path(action["add"]["path"])
            new = f"{old.parent.name[-1]}-{old.name}"
            (tables / EVENTS / old).rename(tables / EVENTS / new)
            action["add"]["path"] = new

    edit_log(tables, move)
    rows = query_tables(tables, "SELECT group_id, date FROM events ORDER BY 1").rows
    assert rows == (("g0", date(2026, 3, 1)), ("g1", date(2026, 3, 2)))


def test_a_table_of_a_newer_kind_is_refused(tmp_path: Path) -> None:
    tables = Path(write(tmp_path, rows_of(1)))

    def declare(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = protocol("rowsInAnotherUniverse")

    edit_log(tables, declare)
    with pytest.raises(CannotReach, match="rowsInAnotherUniverse"):
        groups_in(tables)


def test_tables_of_somebody_else_are_no_history(tmp_path: Path) -> None:
    """--tables named another project's folder, which has a table of that name."""
    write_deltalake(f"{tmp_path}/{EVENTS}", pa.table({"time": ["noon"], "price": [1.5]}))

    with pytest.raises(SetupError, match="This is no table of a history"):
        query_tables(tmp_path, "SELECT max(time) FROM events")


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


ATTACKS = (
    "COPY (SELECT 1) TO '{file}'",
    "COPY (SELECT 1) TO '{table}/evil.parquet'",
    "WITH x AS (COPY (SELECT 1) TO '{table}/evil.parquet') SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO '{table}/evil.parquet') SELECT * FROM x",
    "SELECT (WITH x AS (COPY (SELECT 1) TO '{table}/evil.parquet') SELECT 1)",
    "SELECT 1 UNION ALL (WITH x AS (COPY (SELECT 1) TO '{table}/evil.parquet') SELECT 2)",
    "WITH RECURSIVE y AS (WITH x AS (COPY (SELECT 1) TO '{table}/evil.parquet') SELECT 1 AS a "
    "UNION ALL SELECT a + 1 FROM y WHERE a < 3) SELECT * FROM y",
    "SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{table}/evil.parquet'') SELECT 1')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql("
    "'WITH x AS (COPY (SELECT 1) TO ''{table}/evil.parquet'') SELECT 1'))",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{table}/evil.parquet'",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{table}/evil.parquet') SELECT 1",
    "COPY (SELECT 1) TO '{parquet}' (FORMAT parquet, USE_TMP_FILE false)",
    "WITH x AS (COPY (SELECT 1) TO '{parquet}' (USE_TMP_FILE false)) SELECT 1",
    "EXPORT DATABASE '{table}/dump'",
    "ATTACH '{table}/evil.db' AS evil",
    "CALL enable_logging(storage = 'file', storage_config = {{'path': '{table}'}})",
    "FROM enable_logging(storage = 'file', storage_path = '{table}')",
    "SELECT * FROM enable_logging()",
    "FROM enable_profiling(format = 'json', save_location = '{table}/p.json')",
    "CREATE TABLE t AS SELECT 1",
    "WITH x AS (INSERT INTO lag SELECT * FROM lag) SELECT 1",
    "WITH x AS (DELETE FROM events) SELECT 1",
    "DROP VIEW events",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "RESET lock_configuration",
    "PRAGMA enable_profiling",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FROM read_text('/etc/hostname')",
    "FROM read_csv('/etc/hostname')",
    "FROM glob('/etc/*')",
    "FROM '/etc/hostname'",
    "FROM read_parquet('{table}/../../**')",
    "FROM import_database('{table}')",
    "FROM register_external_resource('a', 'b', 'c')",
    "FROM force_checkpoint()",
    "SELECT 1; COPY (SELECT 1) TO '{table}/evil.parquet'",
    "SELECT getenv('HOME')",
    "PREPARE p AS SELECT 1",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_query_can_write_nowhere_and_reads_only_the_tables(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that somebody pasted, or a program put together. Where DuckDB may read a folder it
    may write there, and what writes may stand inside a SELECT."""
    tables = Path(write(tmp_path / "tables", rows_of(1)))
    monkeypatch.chdir(tmp_path)
    (parquet,) = tables.rglob("*.parquet")
    places = {"file": tmp_path / "out", "table": tables / EVENTS, "parquet": parquet}
    before = everything(tmp_path)

    with pytest.raises(CoordError):
        query_tables(tables, attack.format(**places))

    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "place", ["./.tmp/x.csv", "{here}/.tmp/x.csv", "{here}/tables/../.tmp/x.csv"]
)
def test_what_lies_where_the_command_runs_is_not_read(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB spills into `.tmp` below the working directory, and may read what it could spill."""
    tables = write(tmp_path / "tables", rows_of(1))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "x.csv").write_text("a\nREADME\n")

    with pytest.raises(CoordError):
        query_tables(tables, f"FROM '{place.format(here=tmp_path)}'")


def test_a_query_that_spills_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It spills beside the tables' folders, where no other query looks, and cleans up."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(sandbox, "gettempdir", lambda: str(tmp_path / "temp"))
    monkeypatch.chdir(tmp_path)
    connection = duckdb.connect(config={"memory_limit": "30MB", "threads": 1})
    sandbox.close_in(connection, [])

    rows = connection.execute(
        "SELECT count(*) FROM (SELECT DISTINCT hash(i), i::VARCHAR FROM range(600000) AS r(i))"
    ).fetchall()
    (spilled,) = (tmp_path / "temp").iterdir()
    connection.close()

    assert rows == [(600_000,)]
    assert spilled.name.startswith("coord-sql-")
    assert not spilled.exists()
    assert not (tmp_path / ".tmp").exists()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;",
        "-- a comment\nSELECT 1 /* another */",
        "WITH x AS (SELECT 1 AS a) FROM x SELECT a",
        "VALUES (1)",
        "FROM range(1, 2)",
        "SELECT unnest([1])",
        "SELECT max(a) FROM (SELECT 1 AS a UNION ALL SELECT 0)",
        "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x WHERE a < 1) FROM x",
        "SELECT list_transform([0], lambda x: x + 1)[1]",
        "SELECT shard + 1 FROM events QUALIFY row_number() OVER (ORDER BY shard) = 1",
        "SELECT e.generation + 1 FROM events AS e, LATERAL (SELECT e.generation) AS l",
        'SELECT "0" FROM (PIVOT events ON shard IN (0) USING count(*) GROUP BY group_id)',
        "SELECT CAST(value AS INT) FROM json_each('[1]')",
    ],
)
def test_what_reads_is_answered(tmp_path: Path, sql: str) -> None:
    """All of SELECT, in DuckDB's dialect."""
    assert query_tables(write(tmp_path, rows_of(1)), sql).rows == ((1,),)


def test_a_variable_of_the_program_is_no_table(tmp_path: Path) -> None:
    """DuckDB looks for tables among the callers' variables, unless told not to."""
    secrets = pa.table({"password": ["hush"]})

    with pytest.raises(CoordError, match="secrets"):
        query_tables(write(tmp_path, rows_of(1)), "SELECT * FROM secrets")
    assert secrets.num_rows == 1


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("", "There is no query"),
        (" ; ", "There is no query"),
        ("-- nothing", "There is no query"),
        ("SELECT 1; SELECT 2", "These are several queries"),
        ("DESCRIBE events; SHOW TABLES", "These are several queries"),
        ("EXPLAIN SELECT 1", "Only a SELECT is answered"),
        ("UPDATE EXTENSIONS", "Only a SELECT is answered"),
    ],
)
def test_what_is_not_one_select_is_wrong_usage(tmp_path: Path, sql: str, what: str) -> None:
    with pytest.raises(SetupError) as refused:
        query_tables(write(tmp_path, rows_of(1)), sql)
    assert refused.value.what == what


@pytest.mark.parametrize("text", ["(" * 20_000, "SELECT " + "(" * 3_000 + "1" + ")" * 3_000])
def test_a_query_out_of_brackets_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(CoordError):
        query_tables(write(tmp_path, rows_of(1)), text)


ENDLESS = "SELECT count(*) FROM range(1000000000000) AS a, range(1000) AS b"


def test_a_query_ends_when_its_time_is_over(tmp_path: Path) -> None:
    tables = write(tmp_path, rows_of(1))
    with pytest.raises(CoordError, match=r"ended after 0\.2 s"):
        query_tables(tables, ENDLESS, timeout_s=0.2)


def test_ctrl_c_ends_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a thread, in which no signal arrives; the user presses the keys twice."""
    tables = write(tmp_path, rows_of(1))
    waits = iter([KeyboardInterrupt, KeyboardInterrupt])

    class Impatient(Future):  # type: ignore[type-arg]
        def result(self, timeout: float | None = None) -> Any:
            time.sleep(0.1)
            raise next(waits)

        def exception(self, timeout: float | None = None) -> Any:
            raise next(waits, TimeoutError)

    monkeypatch.setattr("coordlib.history.sql.Future", Impatient)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        query_tables(tables, ENDLESS)
    assert threading.active_count() == before


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A bucket of an object store, on this machine; the environment leads there."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        made = urllib.request.Request(f"{endpoint}/history", method="PUT")
        urllib.request.urlopen(made, timeout=60).close()
        yield "s3://history"
    server.stop()


def test_tables_on_an_object_store_are_read_to_their_end(store: str) -> None:
    """DuckDB has no client for it: delta-rs reads every row first, and a LIMIT stops nothing."""
    tables = write(f"{store}/tables", rows_of(20))

    for _ in range(5):
        assert len(query_tables(tables, "SELECT * FROM events LIMIT 1").rows) == 1
    assert len(groups_in(tables)) == 20
    sql = "SELECT time, date FROM events WHERE group_id = ?"
    day = timedelta(days=1)
    assert query_tables(tables, sql, ["g1"]).rows == ((START + day, date(2026, 3, 2)),)
    with pytest.raises(CoordError):
        query_tables(tables, "FROM '/etc/hostname'")


def test_an_object_store_without_tables_is_told_in_words(store: str) -> None:
    """Its client answers in coloured lines and pages of XML."""
    with pytest.raises(CannotReach) as told:
        query_tables("s3://no-such-bucket/tables", "SELECT 1")

    assert len(str(told.value).splitlines()) == 3
    assert "\x1b" not in str(told.value)
    assert "no-such-bucket" in told.value.where
    with pytest.raises(CannotReach, match="There is no history yet"):
        query_tables(f"{store}/nothing", "SELECT 1")
