"""What passes between the core and the driver: state compressed, outputs many to a row."""

from collections.abc import Iterator

import pandas as pd
import pytest

from coordlib.core.engine.effects import Output
from coordlib.job.batch import (
    EMPTY_ROW,
    PACKED_BYTES,
    PACKED_OUTPUTS,
    BatchTooLarge,
    UnreadableState,
    assemble,
    held_bytes_max,
    judge_readable,
    pack_outputs,
)
from coordlib.job.operator import gather, pack_state, pieces, take_over, unpack_state
from coordlib.job.pipelines import fold_groups
from tests.tools.driving import SETTINGS, Conversation, join


def flooded(joins: int) -> Conversation:
    talk = Conversation()
    for number in range(joins):
        talk.send(join(f"c{number}", group=f"g{number}"))
    return talk


def test_outputs_come_out_of_their_rows_as_the_shard_wrote_them() -> None:
    """Spark collects rows in any order; a flood fills many of them."""
    log = flooded(200).log
    blob, rows = judge_readable(fold_groups, None, log, SETTINGS)
    _, others = judge_readable(fold_groups, None, log[:1], SETTINGS)
    talk = Conversation()
    for record in log:
        talk.shard.judge(record)
    expected = talk.shard.close()

    batch = assemble(7, [*reversed(rows), *((1, *row[1:]) for row in others)])

    assert len(rows) == -(-len(expected) // PACKED_OUTPUTS) + 1 > 3
    assert batch.outputs[: len(expected)] == expected
    assert len(batch.outputs) > len(expected)
    assert batch.reports[0].state_bytes == len(blob)


def test_a_tombstone_is_no_empty_value() -> None:
    """A deleted group's record has no value; an empty one would be a group that cannot be read."""
    batch = assemble(0, [(0, 0, b"\x91\x94\xa6groups\x00\xc4\x01g\xc0", None)])

    assert batch.outputs == [Output("groups", 0, b"g", None)]


@pytest.mark.parametrize("blob", [b"", b"x", bytes(10**6), bytes(range(256)) * 99])
def test_a_stored_state_is_the_same_when_it_is_read(blob: bytes) -> None:
    """Compressed, because the JVM copies it several times in every batch."""
    assert unpack_state(pack_state(blob)) == blob


def test_the_state_of_a_flood_is_much_smaller_where_it_is_stored() -> None:
    """Groups of one client are alike."""
    talk = flooded(500)
    talk.end_batch()
    blob = talk.shard.encode()

    assert len(pack_state(blob)) < len(blob) / 5


@pytest.mark.parametrize("damage", ["cut", "bytes", "empty", "size", "huge", "short", "unknown"])
def test_a_damaged_state_is_known_as_such(damage: str) -> None:
    """A disk that lies: the job must say so, and not go on from something else."""
    stored = pack_state(b"state" * 1_000)
    damaged = {
        "cut": stored[:-5],
        "bytes": stored[:8] + b"\x00\x01" + stored[10:],
        "empty": b"",
        "size": stored[:8] + b"\x01" + stored[9:],
        "huge": stored[:1] + b"\x7f" + stored[2:],
        "short": stored[:3],
        "unknown": b"\x02" + stored[1:],
    }[damage]

    with pytest.raises(UnreadableState):
        unpack_state(damaged)


def frame(first: int, sizes: list[int]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "topic": "r",
            "offset": range(first, first + len(sizes)),
            "timestamp_ms": 1,
            "is_log_append": True,
            "value": [bytes(size) for size in sizes],
        }
    )


def test_a_worker_that_is_given_too_much_says_how_much_it_is() -> None:
    """The kernel would end it without a word, and Spark would run the same batch again for ever.

    The rest is counted too, but not kept: a setting that holds only the beginning fixes nothing.
    """
    given = iter([frame(0, [400, 400]), frame(2, [400, 0]), frame(4, [1_000])])

    with pytest.raises(BatchTooLarge, match=r"batch 7, shard 1: 2,200 bytes .* first 5 records"):
        gather(given, 1_000, "batch 7, shard 1")


@pytest.mark.parametrize(("fails_at", "enough"), [(1, 8_000), (9, 10_800)])
def test_a_worker_without_memory_to_count_on_says_what_it_has_counted(
    fails_at: int, enough: int
) -> None:
    """Spark limits the worker's memory, and Arrow has none left for the next piece. Four times
    the memory of now is named at least: 1 GiB held 534 MB of a batch,
    2 GiB 677 MB, 4 GiB all of it."""

    def given() -> Iterator[pd.DataFrame]:
        for number in range(fails_at):
            yield frame(number, [600])
        raise MemoryError

    with pytest.raises(BatchTooLarge, match=rf"first {fails_at} records, .*\(enough: {enough}\)"):
        gather(given(), 1_000, "batch 7, shard 1")


@pytest.mark.parametrize("size", [501, 100_000])
def test_the_memory_that_is_named_would_hold_the_batch(size: int) -> None:
    """An operator sets what the error says, and starts the job on the same folder."""
    with pytest.raises(BatchTooLarge) as caught:
        gather(iter([frame(0, [size, size])]), 1_000, "batch 7, shard 1")

    enough = int(str(caught.value).rpartition(" ")[2].rstrip(")"))
    assert len(gather(iter([frame(0, [size, size])]), held_bytes_max(enough), "the same")) == 2


def test_a_worker_takes_what_it_can_hold() -> None:
    records = gather(iter([frame(0, [500]), frame(1, [500])]), 1_000, "batch 7, shard 1")

    assert [record.offset for record in records] == [0, 1]


def test_large_outputs_share_a_row_with_few_others() -> None:
    """200 pages of an OffsetFetch in one row would be 100 MB, and there are copies of it."""
    large = [Output("responses", 0, b"", bytes(PACKED_BYTES // 2)) for _ in range(5)]

    batch = assemble(0, [(0, n, row, None) for n, row in enumerate(pack_outputs(large))])

    assert len(list(pack_outputs(large))) == 3
    assert batch.outputs == large


def test_a_batch_that_other_code_has_judged_is_taken_over() -> None:
    """Its outcome is committed: nothing is written again, and the state is that of the topics."""
    talk = flooded(3)
    for record in talk.log:
        talk.shard.judge(record)
    talk.shard.close()
    blob = talk.shard.encode()

    fresh, rows = take_over(fold_groups, blob, talk.log, SETTINGS)
    batch = assemble(4, rows)

    assert batch.outputs == []
    assert batch.reports[0].ranges == {"r": (0, 2)}
    assert batch.reports[0].status == talk.shard.status()
    assert judge_readable(fold_groups, fresh, [], SETTINGS)[0] == fresh


def test_large_outputs_leave_a_task_in_pieces() -> None:
    """All of a shard's outputs were one buffer, which grows by doubling beside a JVM of 1 GB, and
    ends at 2 GiB anywhere. Spark ends a buffer by its rows alone."""
    rows = [(3, number, bytes(PACKED_BYTES - 1), None) for number in range(4)]
    rows.append((3, 4, None, b"report"))

    found = list(pieces(rows, rows_per_batch=10))

    assert [row for piece in found for row in piece if row is not EMPTY_ROW] == rows
    assert all(len(piece) > 10 for piece in found[:-1])
    assert max(sum(len(row[2] or b"") for row in piece) for piece in found) < 2 * PACKED_BYTES
    assert len(found) == 3


def test_small_outputs_leave_it_in_one_piece() -> None:
    """Nearly all: rows that are filled up cost as many empty ones."""
    rows = [(3, 0, b"few", None), (3, 1, None, b"report")]

    assert list(pieces(rows, rows_per_batch=10_000)) == [rows]


def test_empty_rows_are_no_outputs() -> None:
    """The driver puts the pieces together as if there were none."""
    log = flooded(3).log
    _, rows = judge_readable(fold_groups, None, log, SETTINGS)

    assert assemble(0, [EMPTY_ROW, *rows, EMPTY_ROW]) == assemble(0, rows)
    assert assemble(0, rows).reports[0].output_bytes == sum(len(row[2] or b"") for row in rows)
