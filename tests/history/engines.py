"""Spark and DuckDB over the same tables: one question must not have two answers."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordlib.history.engines import register_spark
from coordlib.history.sql import query_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session_over(spark: "SparkSession", tables: Path | str) -> "SparkSession":
    """A session of its own with all views; to make them takes seconds, so share it in a module."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    register_spark(session, str(tables))
    return session


def assert_engines_agree(
    session: "SparkSession", tables: Path | str, name: str, rows_min: int = 0
) -> None:
    """The same columns and the same rows in any order, of the same types."""
    answer, expected = query_tables(tables, f"SELECT * FROM {name}"), session.table(name)

    assert answer.columns == tuple(expected.columns)
    assert len(answer.rows) >= rows_min
    assert Counter(map(_plain, answer.rows)) == Counter(_rows_of(expected))


def _rows_of(frame: "DataFrame") -> list[str]:
    return [_plain(tuple(row)) for row in frame.collect()]


def _plain(value: Any) -> str:
    """A value as text that no other one has, whichever engine gave it: 1, 1.0 and True differ."""
    match value:
        case datetime():  # Spark's are naive, in the zone of this process
            return f"time {value.astimezone(UTC).isoformat()}"
        case tuple() if hasattr(value, "asDict"):  # a struct of Spark's
            return _plain(value.asDict())
        case list() | tuple():
            return f"[{', '.join(map(_plain, value))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {_plain(value[name])}' for name in sorted(value))}}}"
        case _:
            return repr(value)
