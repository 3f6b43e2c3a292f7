"""Offsets of a large group: read and written in blocks, apart from its membership."""

from random import Random

import msgspec
import pytest

from coordlib.core.engine.rows import Row
from coordlib.core.engine.tables import BLOCK_ENTRIES, NO_ENTRIES, Entries, Table
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.wire import api
from coordlib.core.wire.stored import CommittedValue
from tests.tools.core import offsets_of
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    Conversation,
    commit,
    fetch,
    heartbeat,
    join,
    settled,
)


def value(offset: int) -> CommittedValue:
    return CommittedValue(
        offset=offset,
        leader_epoch=-1,
        metadata="",
        commit_ms=1,
        commit_clock_ms=1,
        generation=1,
        member="m",
    )


def decoded_blocks(table: Entries) -> int:
    return sum(
        isinstance(block, dict) for blocks in table._names.values() for block in blocks.values()
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_a_dictionary_in_any_order_and_across_any_reload(seed: int) -> None:
    """INV-03: a rebuild stores the same offsets in another order, and batches end anywhere."""
    rnd = Random(seed)
    table, model = Entries(OFFSETS), {}
    for step in range(400):
        place = (rnd.choice("tuv"), rnd.randrange(3 * BLOCK_ENTRIES))
        if rnd.random() < 0.4:
            table.apply(place, None)
            model.pop(place, None)
        else:
            table.apply(place, value(step))
            model[place] = step
        if rnd.random() < 0.05:
            table = Entries(OFFSETS, table.stored())

        assert table.count == len(model)
    assert [(t, p, kept.offset) for t, p, kept in table] == [
        (*place, model[place]) for place in sorted(model)
    ]
    fresh = Entries(OFFSETS)
    for place in rnd.sample(sorted(model), len(model)):
        fresh.apply(place, value(model[place]))
    assert fresh.stored() == table.stored()


def test_a_table_without_offsets_is_as_a_new_one() -> None:
    """INV-03: nothing is left of what was forgotten."""
    table = Entries(OFFSETS)
    table.apply(("t", 0), value(1))
    table.apply(("t", 0), None)
    table.apply(("t", 0), None)
    table.apply(("u", 5), None)

    assert (bytes(table.stored().blocks), table.count, table.names()) == (bytes(NO_ENTRIES), 0, [])


def large() -> Conversation:
    """A stable group with offsets of 1,000 partitions, at the beginning of a batch."""
    talk = settled()
    rows = tuple(api.CommittedOffset("t", p, p) for p in range(1_000))
    talk.send(commit("a", 2, LEADER, offsets=rows))
    talk.end_batch()
    return talk


def test_a_commit_reads_and_writes_only_the_blocks_that_it_names() -> None:
    """A hundred members commit every five seconds, each a hundredth of the group's partitions."""
    talk = large()
    cell = talk.shard.groups["g"]

    talk.send(commit("a", 2, LEADER))
    talk.send(fetch("a", topics=(api.TopicPartitions("t", (0, 1, 999)),)))

    assert decoded_blocks(offsets_of(cell)) == 2
    assert len(offsets_of(cell)._names["t"]) == -(-1_000 // BLOCK_ENTRIES)


def test_a_commit_does_not_write_the_group_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand members' metadata is no part of a position."""
    talk = large()
    monkeypatch.setattr(CLASSIC, "encode", None)
    monkeypatch.setattr(CLASSIC, "save", None)
    talk.send(commit("a", 2, LEADER))

    assert talk.end_batch() == [f"progress offset={talk.next_offset - 1}"]


def test_members_come_and_go_without_reading_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of a large group do not slow its rebalances."""
    talk = large()

    def touched(_: Row, table: Table) -> None:
        raise AssertionError(f"{table.name} was read")

    monkeypatch.setattr(Row, "entries", touched)
    lines = [
        *talk.send_all(join("c"), heartbeat("b", 2, FOLLOWER)),
        *talk.send_all(join("a", "j3", member=LEADER), join("b", "j3", member=FOLLOWER)),
        *talk.tick(),
        *talk.wait(30_000),
    ]

    assert "Quarantined" not in str(lines)
    assert "GenerationStarted generation=3" in str(lines)
    monkeypatch.undo()
    assert offsets_of(talk.shard.groups["g"]).count == 1_000


def test_a_thousand_offsets_are_half_as_large_as_with_names() -> None:
    """A shard's blob is rewritten every batch."""
    cell = large().shard.groups["g"]
    named = msgspec.msgpack.encode([value(p) for p in range(1_000)])

    assert len(cell.stored.tables["committed"].blocks) < len(named) / 2
