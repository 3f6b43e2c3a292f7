"""What is committed now is found without unpacking every snapshot that was ever written."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordlib.history.sql import query_tables
from coordlib.history.tables import EVENTS, SNAPSHOTS, path_of

SCHEMA = pa.schema(
    [
        ("as_of_time", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("group_id", "offsets", "places")),
    ]
)
ASKED = 'SELECT group_id, partition, "offset", date FROM current_offsets ORDER BY ALL'


def snapshot(
    minute: int, offsets: dict[int, int | None] | str, places: str | None, group: str = "g"
) -> dict[str, object]:
    """A row; offsets by partition, or text that is no JSON."""
    return {
        "as_of_time": datetime(2026, 3, 1, 12, minute, tzinfo=UTC),
        "group_id": group,
        "places": places,
        "offsets": offsets
        if isinstance(offsets, str)
        else json.dumps(
            [
                {"topic": "orders", "partition": number, "offset": offset, "log_offset": offset}
                for number, offset in offsets.items()
            ]
        ),
    }


@pytest.fixture
def tables(tmp_path: Path) -> str:
    write_deltalake(path_of(str(tmp_path), EVENTS), pa.table({"group_id": pa.array([], "string")}))
    return str(tmp_path)


def write(tables: str, *rows: dict[str, object]) -> None:
    write_deltalake(path_of(tables, SNAPSHOTS), pa.Table.from_pylist([*rows], SCHEMA))


def asked(tables: str) -> list[tuple[object, ...]]:
    return [row[:3] for row in query_tables(tables, ASKED).rows]


def test_of_snapshots_of_the_same_partitions_only_the_newest_is_unpacked(tables: str) -> None:
    """A group commits its partitions every 30 s for a year. A text that cannot be unpacked shows
    which ones are."""
    write(
        tables,
        snapshot(1, "no JSON", "0,1"),
        snapshot(2, "no JSON", "0,1"),
        snapshot(3, {0: 30, 1: 31}, "0,1"),
        snapshot(1, {0: 5}, "0,1", group="other"),
    )

    assert asked(tables) == [("g", 0, 30), ("g", 1, 31), ("other", 0, 5)]
    (first, *_) = query_tables(tables, ASKED).rows
    assert str(first[3]) == "2026-03-01"


def test_partitions_that_are_committed_apart_and_together_have_their_newest_offset(
    tables: str,
) -> None:
    """One member was slow, so that its partition was in some snapshots only; another partition's
    offset was deleted last."""
    write(
        tables,
        snapshot(1, {0: 10, 1: 11, 2: 12}, "0,1,2"),
        snapshot(2, {0: 20}, "0"),
        snapshot(3, {0: 30, 1: 31}, "0,1"),
        snapshot(4, {1: None}, "1"),
        snapshot(4, {0: 40}, "0"),
    )

    assert asked(tables) == [("g", 0, 40), ("g", 2, 12)]


def test_snapshots_of_one_moment_are_told_apart_by_the_log(tables: str) -> None:
    """Two batches of the archive ended with records of the same millisecond."""
    write(tables, snapshot(1, {0: 11}, "0"), snapshot(1, {0: 10}, "0"))

    assert asked(tables) == [("g", 0, 11)]
