"""What `coord status` tells of several jobs on one prefix."""

from datetime import UTC, datetime

import pytest

from coordlib import exit_codes
from coordlib.cli.kit import reading as kit_reading
from coordlib.cli.kit.listing import AsOf
from coordlib.cli.kit.reading import read_progress
from coordlib.cli.main import status
from coordlib.cli.main.status import Lag, instance_rows
from coordlib.core.wire import cells, codec
from coordlib.core.wire.cells import CellValue, Owned, ShardRange
from coordlib.core.wire.stored import REQUESTS, Layout, Marker, ShardPosition
from coordlib.errors import CoordError
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import Stamped

LOW, HIGH, MIDDLE = ShardRange(0, 1), ShardRange(2, 3), ShardRange(1, 2)
NOW_MS = 100_000
LAG = Lag(
    waiting={Place("p.requests", 0): (5, 2), Place("p.requests", 3): (7, 4)},
    times={Place("p.requests", 0): NOW_MS - 50, Place("p.requests", 3): NOW_MS - 9_000},
    now_ms=NOW_MS,
)


def marker(checkpoint: str, *shards: int) -> bytes:
    offsets = {"p.requests": {str(shard): 5 for shard in shards}}
    judged = {
        str(shard): ShardPosition(
            clock_ms=1_000 + shard, previous_ms=0, offsets={REQUESTS: 4}, published=-1
        )
        for shard in shards
    }
    return codec.encode(
        Marker(
            checkpoint=checkpoint,
            batch=3,
            ranges={},
            digest="",
            next_offsets=offsets,
            shards=judged,
        )
    )


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Stamped]:
    """The progress topic: a layout, and what a test adds."""
    layout = Layout(shards=4, reply_partitions=1, topic_ids={})
    found = {b"layout": Stamped(codec.encode(layout), 0)}
    monkeypatch.setattr(kit_reading, "newest_stamped", lambda *_: found)
    return found


def register(topic: dict[bytes, Stamped], owned: Owned, *shards: int) -> None:
    topic[cells.key_of("cell", owned)] = Stamped(codec.encode(CellValue(since_ms=7)), 0)
    if shards:
        value = marker(f"of {owned}", *shards)
        topic[cells.key_of("marker", owned)] = Stamped(value, NOW_MS - 1_000)


def test_each_cell_is_told_with_what_waits_for_it(topic: dict[bytes, Stamped]) -> None:
    """The one that died is the one whose requests wait."""
    register(topic, HIGH)
    register(topic, LOW, 0, 1)
    seen = read_progress({}, "p")

    low, high = instance_rows(seen, LAG, NOW_MS)
    assert low == {
        "shards": "0-1",
        "since_ms": 7,
        "batch_id": 3,
        "marker_age_ms": 1_000,
        "checkpoint_id": "of 0-1",
        "lag": {"records": 2, "ms": 50},
    }
    assert (high["marker_age_ms"], high["lag"]) == (None, {"records": 4, "ms": 9_000})
    assert seen.gaps == []
    assert LAG.of() == {"records": 6, "ms": 9_000}


def test_shards_whose_cell_was_fenced_are_told_as_without_a_job(
    topic: dict[bytes, Stamped],
) -> None:
    """1-2 was started over 0-1 and 2-3, which have ended."""
    for each in (LOW, HIGH, MIDDLE):
        register(topic, each, *each.shards)
    seen = read_progress({}, "p")

    assert [row["shards"] for row in instance_rows(seen, LAG, NOW_MS)] == ["1-2"]
    assert seen.gaps == ["0-0", "3-3"]
    found = status.Status(
        datetime.fromtimestamp(0, UTC),
        {"job_instances": [], "shards_without_job": seen.gaps, "late": [], "claims": None},
        is_reachable=True,
    )
    found.fields["job"] = {"state": "unknown"}
    assert status.exit_code(found) == exit_codes.UNHEALTHY
    assert (
        "No job has the shards 0-0, 3-3: start one with --shards 0-0 --rebuild"
        in (status.instance_lines(found)[0])
    )


def test_where_no_cell_ever_was_nothing_is_told_of_cells(topic: dict[bytes, Stamped]) -> None:
    topic[b"marker"] = Stamped(marker("c", 0, 1, 2, 3), 0)
    seen = read_progress({}, "p")

    assert (instance_rows(seen, LAG, NOW_MS), seen.gaps) == ([], [])
    assert seen.marker is not None
    assert seen.marker.checkpoint == "c"


def test_where_all_shards_stand_is_told_by_the_markers_of_all(topic: dict[bytes, Stamped]) -> None:
    """`coord groups` asks how far a shard is, whichever job has it."""
    register(topic, LOW, 0, 1)
    register(topic, HIGH, 2, 3)
    seen = read_progress({}, "p")

    assert seen.marker is not None
    assert seen.marker.next_offsets == {"p.requests": dict.fromkeys("0123", 5)}


def test_a_registration_that_cannot_be_read_is_told(topic: dict[bytes, Stamped]) -> None:
    topic[b"cell-0-1"] = Stamped(b'{"v":"new"}', 0)
    with pytest.raises(CoordError, match="Another version wrote it"):
        read_progress({}, "p")


def test_how_far_a_shard_is_stands_in_the_marker_of_its_job(
    topic: dict[bytes, Stamped], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coord groups` asks for any shard."""
    monkeypatch.setattr(kit_reading, "_log_end", lambda *_: 9)
    register(topic, LOW, 0, 1)
    register(topic, HIGH, 2, 3)

    assert kit_reading.read_as_of({}, "p", 3) == AsOf(offset=4, clock_ms=1_003, waiting=4)
