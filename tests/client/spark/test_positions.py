"""Positions in Spark's words, now and as of a past time."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark import positions as spark_positions
from coordlib.client.spark.positions import (
    end_offsets,
    spark_offsets,
    spark_partitions,
    starting_offsets,
)
from coordlib.core.wire import api
from coordlib.errors import SetupError
from tests.client.world import t

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

#: As `query.lastProgress` of pyspark 4.2.0 has it, after `StreamingQueryProgress.fromJObject`.
TOLD: dict[str, Any] = {
    "batchId": 0,
    "timestamp": "2026-11-21T21:25:49.513Z",
    "sources": [
        {
            "description": "KafkaV2[Assign[t-0, t-1]]",
            "startOffset": "null",
            "endOffset": '{"t": {"0": 3, "1": 0}}',
            "latestOffset": '{"t": {"0": 3, "1": 0}}',
        }
    ],
}


def test_where_a_batch_has_ended() -> None:
    assert end_offsets(TOLD) == dict(zip(t(0, 1), (3, 0), strict=True))


def test_the_same_of_sparks_own_json() -> None:
    """`progress.json`, in logs and from other languages, has an object there."""
    source = TOLD["sources"][0] | {"endOffset": {"t": {"0": 3, "1": 0}}}

    assert end_offsets({"sources": [source]}) == end_offsets(TOLD)


@pytest.mark.parametrize("told", ["null", None], ids=repr)
def test_before_there_is_an_offset_nothing_is_known(told: Any) -> None:
    assert end_offsets({"sources": [TOLD["sources"][0] | {"endOffset": told}]}) == {}


def test_other_sources_are_passed_over() -> None:
    """A stream joined with a rate source or a Delta table."""
    rate = {"description": "RateStreamV2[rowsPerSecond=1]", "endOffset": "5"}

    assert end_offsets({"sources": [rate, *TOLD["sources"]]}) == end_offsets(TOLD)


def test_offsets_and_partitions_are_sparks_json() -> None:
    other = TopicPartition("a", 10)
    offsets = {**dict(zip(t(1, 0), (7, -1), strict=True)), other: 0}

    assert json.loads(spark_offsets(offsets, "earliest")) == {
        "a": {"10": 0},
        "t": {"0": -2, "1": 7},
    }
    assert json.loads(spark_offsets(offsets, "latest"))["t"] == {"0": -1, "1": 7}
    assert json.loads(spark_partitions(offsets)) == {"a": [10], "t": [0, 1]}


# ---- as of ------------------------------------------------------------------------------------


class History:
    """A table of events, written without Spark."""

    def __init__(self, folder: Path) -> None:
        self.tables = folder
        self._rows: list[dict[str, Any]] = []

    def event(
        self, type_: str, minute: float, *offsets: tuple[int, int | None], group: str = "g"
    ) -> None:
        rows = [{"topic": "t", "partition": p, "offset": at} for p, at in offsets]
        self._rows.append(
            {
                "event_id": f"e{len(self._rows)}",
                "time": NOON + timedelta(minutes=minute),
                "date": NOON.date(),
                "shard": 0,
                "log_offset": len(self._rows),
                "group_id": group,
                "protocol": "assigned",
                "type": type_,
                "generation": 1,
                "member_id": "m",
                "cause": "r0-1",
                "reason": "",
                "detail": json.dumps({"offsets": rows}),
            }
        )

    def write(self) -> Path:
        # In any order: the archive's files are not sorted.
        write_deltalake(str(self.tables / "events"), pa.Table.from_pylist(self._rows[::-1]))
        return self.tables


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(spark_positions, "partitions_of", lambda _config, _topics: t(0, 1, 2))
    return History(tmp_path)


def as_of(history: History, minute: float, **more: Any) -> dict[str, int]:
    told = starting_offsets(
        "g",
        ["t"],
        NOON + timedelta(minutes=minute),
        config={},
        tables=history.tables,
        **more,
    )
    found: dict[str, int] = json.loads(told)["t"]
    return found


def test_where_a_group_stood_at_a_past_time(history: History) -> None:
    """Yesterday's run had a bug: read again from where the group was at noon."""
    history.event("OffsetsCommitted", 0, (0, 5), (1, 6))
    history.event("OffsetsCommitted", 1, (0, 9))
    history.event("OffsetsCommitted", 1, (0, 77), group="other")
    history.event("OffsetsCommitted", 9, (0, 100), (2, 100))
    history.write()

    assert as_of(history, 0) == {"0": 5, "1": 6, "2": -2}
    assert as_of(history, 5) == {"0": 9, "1": 6, "2": -2}
    assert as_of(history, 5, otherwise="latest") == {"0": 9, "1": 6, "2": -1}


@pytest.mark.parametrize("gone", ["OffsetsDeleted", "OffsetsExpired"])
def test_what_was_deleted_by_then_is_not_committed(history: History, gone: str) -> None:
    """Deleted, and committed anew later: the old position must not come back in between."""
    history.event("OffsetsCommitted", 0, (0, 5), (1, 6))
    history.event(gone, 2, (0, None))
    history.event("OffsetsCommitted", 4, (0, 1))
    history.write()

    assert as_of(history, 1) == {"0": 5, "1": 6, "2": -2}
    assert as_of(history, 3) == {"0": -2, "1": 6, "2": -2}
    assert as_of(history, 4) == {"0": 1, "1": 6, "2": -2}


def test_what_happened_in_one_millisecond_has_the_order_of_the_log(history: History) -> None:
    """A batch of the job gives many records the same time."""
    history.event("OffsetsDeleted", 1, (0, None))
    history.event("OffsetsCommitted", 1, (0, 5), (1, 5))
    history.event("OffsetsCommitted", 1, (0, 8), (1, 8))
    history.event("OffsetsDeleted", 1, (1, None))
    history.write()

    assert as_of(history, 1) == {"0": 8, "1": -2, "2": -2}


def test_a_past_time_needs_tables_and_a_time_zone(history: History) -> None:
    with pytest.raises(SetupError, match="answered from the history"):
        starting_offsets("g", ["t"], NOON, config={})
    with pytest.raises(SetupError, match="time zone"):
        starting_offsets("g", ["t"], NOON.replace(tzinfo=None), config={}, tables=history.tables)


def test_now_is_answered_by_the_coordinator(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeAdmin:
        def __init__(self, config: Any, prefix: str) -> None:
            assert (config, prefix) == ({"bootstrap.servers": "b"}, "coord")

        def __enter__(self) -> "FakeAdmin":
            return self

        def __exit__(self, *_: object) -> None: ...

        def committed(self, group: str) -> tuple[api.FetchedOffset, ...]:
            assert group == "g"
            return (
                api.FetchedOffset("t", 1, 6, -1, ""),
                api.FetchedOffset("not asked for", 0, 6, -1, ""),
            )

    monkeypatch.setattr(spark_positions, "Admin", FakeAdmin)

    told = starting_offsets("g", ["t"], config={"bootstrap.servers": "b"})

    assert json.loads(told) == {"t": {"0": -2, "1": 6, "2": -2}}
