"""The views in DuckDB and in Spark, with the functions that the one or the other lacks."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from coordlib.history.tables import COLUMNS, EVENTS, TABLES, is_frequent, path_of
from coordlib.history.views.controller import CLUSTER_VIEWS
from coordlib.history.views.groups import GROUP_VIEWS
from coordlib.history.views.transactions import TRANSACTION_VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: View name to query, in an order in which each needs only those before it.
VIEWS: Final[dict[str, str]] = {
    **{
        name: query.replace("is_frequent(type)", is_frequent("type"))
        for name, query in GROUP_VIEWS.items()
    },
    **CLUSTER_VIEWS,
    **TRANSACTION_VIEWS,
}
_WORD: Final = re.compile(r"\w+")
_COMMITTED: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "metadata": "STRING",
    "commit_ms": "BIGINT",
    "generation": "INT",
    "member": "STRING",
    "log_offset": "BIGINT",
}
_OFFSETS: Final = {name: _COMMITTED[name] for name in ("topic", "partition", "offset")}
#: Of a row of PartitionsChanged.
_CHANGED: Final = {
    "topic": "STRING",
    "partition": "INT",
    "was": "INT",
    "leader": "INT",
    "leader_epoch": "INT",
    "partition_epoch": "INT",
    "fence": "BIGINT",
    "replicas": "ARRAY<INT>",
    "isr": "ARRAY<INT>",
    "election": "STRING",
    "unproved": "BOOLEAN",
}


def _spark_rows(fields: dict[str, str]) -> str:
    return f"ARRAY<STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in fields.items())}>>"


def _duckdb_rows(fields: dict[str, str]) -> str:
    kinds = {"STRING": "VARCHAR", "INT": "INTEGER", "ARRAY<INT>": "INTEGER[]"}
    pairs = (f'"{name}":"{kinds.get(kind, kind)}"' for name, kind in fields.items())
    return f"[{{{','.join(pairs)}}}]"


#: Run once per DuckDB connection, before the views.
DUCKDB_SHIMS: Final = (
    "CREATE MACRO get_json_object(text, path) AS json_extract_string(text, path)",
    "CREATE MACRO explode(rows) AS unnest(rows)",
    "CREATE MACRO utc_date(moment) AS CAST(timezone('UTC', moment) AS DATE)",
    "CREATE MACRO millis_to_time(ms) AS make_timestamptz(ms * 1000)",
    """CREATE MACRO names_in(text) AS from_json(text, '["VARCHAR"]')""",
    "CREATE MACRO offsets_in(detail) AS "
    f"from_json(json_extract(detail, '$.offsets'), '{_duckdb_rows(_OFFSETS)}')",
    "CREATE MACRO changes_in(detail) AS "
    f"from_json(json_extract(detail, '$.partitions'), '{_duckdb_rows(_CHANGED)}')",
    f"CREATE MACRO committed_in(offsets) AS from_json(offsets, '{_duckdb_rows(_COMMITTED)}')",
    "CREATE MACRO partitions_in(detail) AS map_entries("
    "from_json(json_extract(detail, '$.partitions'), '\"MAP(VARCHAR, INTEGER[])\"'))",
)

#: Run once per Spark session, before the views.
SPARK_SHIMS: Final = (
    "CREATE OR REPLACE TEMPORARY FUNCTION utc_date(moment TIMESTAMP) RETURNS DATE "
    "RETURN date_from_unix_date(CAST(floor(unix_seconds(moment) / 86400) AS INT))",
    "CREATE OR REPLACE TEMPORARY FUNCTION millis_to_time(ms BIGINT) RETURNS TIMESTAMP "
    "RETURN timestamp_millis(ms)",
    "CREATE OR REPLACE TEMPORARY FUNCTION names_in(text STRING) RETURNS ARRAY<STRING> "
    "RETURN from_json(text, 'ARRAY<STRING>')",
    "CREATE OR REPLACE TEMPORARY FUNCTION offsets_in(detail STRING) "
    f"RETURNS {_spark_rows(_OFFSETS)} "
    f"RETURN from_json(get_json_object(detail, '$.offsets'), '{_spark_rows(_OFFSETS)}')",
    "CREATE OR REPLACE TEMPORARY FUNCTION changes_in(detail STRING) "
    f"RETURNS {_spark_rows(_CHANGED)} "
    f"RETURN from_json(get_json_object(detail, '$.partitions'), '{_spark_rows(_CHANGED)}')",
    "CREATE OR REPLACE TEMPORARY FUNCTION committed_in(offsets STRING) "
    f"RETURNS {_spark_rows(_COMMITTED)} RETURN from_json(offsets, '{_spark_rows(_COMMITTED)}')",
    "CREATE OR REPLACE TEMPORARY FUNCTION partitions_in(detail STRING) "
    "RETURNS ARRAY<STRUCT<key: STRING, value: ARRAY<INT>>> RETURN "
    "map_entries(from_json(get_json_object(detail, '$.partitions'), 'MAP<STRING, ARRAY<INT>>'))",
)


#: Views without rows of frequent events, and made of none: files that have these alone are not
#: opened for them.
OF_RARE_EVENTS: Final = frozenset(
    {
        "group_turns",
        "generations",
        "member_history",
        "ownership",
        "claims",
        "current_claims",
        "lost_history",
    }
    | {"rejected", "current_groups", "current_offsets", "current_lag"}
    | {"transactions", "fenced_producers", *CLUSTER_VIEWS}
)


def needs_frequent(names: Iterable[str]) -> bool:
    """Whether a query that has these names asks for frequent events, too."""
    return bool({EVENTS, *VIEWS}.difference(OF_RARE_EVENTS) & {*names})


def tables_behind(names: Iterable[str]) -> set[str]:
    """The tables that these tables and views read."""
    found = set(names)
    for view in reversed(VIEWS):  # each needs only those before it
        if view in found:
            found |= set(_WORD.findall(VIEWS[view]))
    return found & set(TABLES)


def register_duckdb(connection: Any) -> None:
    """Make the views on a DuckDB connection that already knows the tables by name."""
    for statement in DUCKDB_SHIMS:
        connection.execute(statement)
    for name, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {query}")


def register_spark(spark: "SparkSession", tables: str) -> None:
    """Make tables and views known to a Spark session, as temporary views.

    Args:
        tables: the folder or URI that holds the Delta tables.
    """
    from delta.tables import DeltaTable

    for table in TABLES:
        path = path_of(tables, table)
        # The archive makes a table when it has the first row for it; without events there is none.
        if table == EVENTS or DeltaTable.isDeltaTable(spark, path):
            spark.read.format("delta").load(path).createOrReplaceTempView(table)
        else:
            schema = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS[table].items())
            spark.createDataFrame([], schema).createOrReplaceTempView(table)
    for statement in SPARK_SHIMS:
        spark.sql(statement)
    for name, query in VIEWS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
