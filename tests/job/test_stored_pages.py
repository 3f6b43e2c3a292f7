"""What Spark's state store has of a shard in pages, and what a worker keeps of it."""

import zlib

import msgspec
import pytest

from coordlib.core.engine.state import InputRecord
from coordlib.job import operator
from coordlib.job.batch import UnreadableState
from coordlib.job.operator import (
    Judging,
    KeptPages,
    pack_pages,
    pack_state,
    unpack_pages,
    unpack_state,
)
from coordlib.job.pipelines import fold_group_pages, fold_groups
from tests.tools.driving import SETTINGS, Conversation, join

MEMORY = 1 << 30
JUDGING = Judging(fold_groups, fold_group_pages, "groups", MEMORY, pack_state)
WHOLE = JUDGING._replace(fold_pages=None)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptPages:
    """A worker that has just started."""
    fresh = KeptPages()
    monkeypatch.setattr(operator, "KEPT", fresh)
    return fresh


def log(groups: int = 30) -> list[InputRecord]:
    talk = Conversation()
    for number in range(groups):
        talk.send(join("a", group=f"g{number}"))
    return talk.log


def test_a_state_in_one_piece_goes_on_in_pages() -> None:
    """A rebuild gives the job such a one."""
    records = log()
    before, _ = fold_and_rows(records[:20])

    stored, rows = JUDGING.begin(before, records[20:], SETTINGS)

    assert unpack_pages(stored)
    assert without_report(rows) == without_report(fold_and_rows(records[20:], before)[1])


def fold_and_rows(
    records: list[InputRecord], blob: bytes | None = None
) -> tuple[bytes, list[tuple[object, ...]]]:
    packed, rows = (
        WHOLE.begin(None, records, SETTINGS)
        if blob is None
        else WHOLE.judge(pack_state(blob), records, SETTINGS)
    )
    return unpack_state(packed), rows


def without_report(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The report says how many bytes the state has, which differ with its form."""
    return [row[:3] for row in rows]


def test_a_worker_that_kept_the_pages_of_a_failed_task_writes_the_same() -> None:
    """Spark runs the task again in any worker: in this one, or in one that has kept nothing."""
    records = log()
    stored, _ = JUDGING.begin(None, records[:20], SETTINGS)
    JUDGING.judge(stored, records[20:25], SETTINGS)  # never committed

    warm = JUDGING.judge(stored, records[20:], SETTINGS)
    operator.KEPT.take("groups", SETTINGS.shard)
    cold = JUDGING.judge(stored, records[20:], SETTINGS)

    assert warm == cold


def test_a_batch_that_raises_leaves_nothing_kept(kept: KeptPages) -> None:
    """Rows that a broken batch has half changed must not be found by the next one."""
    records = log()
    stored, _ = JUDGING.begin(None, records[:20], SETTINGS)
    broken = InputRecord("?", 0, 0, b"")  # of no input

    with pytest.raises(KeyError):
        JUDGING.judge(stored, [*records[20:], broken], SETTINGS)

    assert kept.take("groups", SETTINGS.shard) == {}


def test_every_damaged_byte_is_found_at_once() -> None:
    """A page that is read as something else would be written again as if it were sound."""
    stored, _ = JUDGING.begin(None, log(), SETTINGS)
    JUDGING.judge(stored, [], SETTINGS)  # this worker has kept them: it must look all the same

    for at in range(0, len(stored), max(1, len(stored) // 60)):
        damaged = bytearray(stored)
        damaged[at] ^= 0x10
        with pytest.raises(UnreadableState):
            JUDGING.judge(bytes(damaged), [], SETTINGS)
    with pytest.raises(UnreadableState):
        JUDGING.judge(stored[:-1], [], SETTINGS)


def test_parts_of_another_form_are_refused() -> None:
    """The checksum fits, since other code wrote it; what it wrote is not known here."""
    parts = msgspec.msgpack.encode([b"", b"", [], b"more"])
    stored = b"\x02" + zlib.crc32(parts).to_bytes(4, "big") + parts

    with pytest.raises(UnreadableState, match="pages"):
        unpack_pages(stored)


def test_parts_of_another_version_name_the_shard() -> None:
    """An operator must know which shard it is."""
    stored, _ = JUDGING.begin(None, log(), SETTINGS)
    pages = unpack_pages(stored)
    newer = msgspec.structs.replace(pages, shard=pack_state(msgspec.msgpack.encode([99])))

    with pytest.raises(UnreadableState, match=f"shard {SETTINGS.shard}: .*99"):
        JUDGING.judge(pack_pages(newer), [], SETTINGS)


def test_a_worker_keeps_the_newest_pages_that_fit() -> None:
    """A worker may judge many large shards in turn, and has memory for few."""
    worker = KeptPages()
    for shard in range(3):
        worker.put("groups", shard, {b"page": None}, 40, 100)  # type: ignore[dict-item]

    assert [bool(worker.take("groups", shard)) for shard in range(3)] == [False, True, True]
    worker.put("groups", 0, {b"page": None}, 101, 100)  # type: ignore[dict-item]
    assert worker.take("groups", 0) == {}
