"""Entries that are searched by what they hold: the replicas of one broker among 100,000 rows."""

from collections import Counter
from random import Random

import msgspec
import pytest

from coordlib.core.engine.tables import BLOCK_ENTRIES, Entries, Place, Table


class Line(msgspec.Struct, frozen=True, array_like=True):
    on: tuple[int, ...]


LINES = Table("lines", "lines", Line, Line, lambda each: each, lambda _: 32, lambda each: each.on)


def decoded_blocks(entries: Entries) -> int:
    return sum(
        isinstance(block, dict) for blocks in entries._names.values() for block in blocks.values()
    )


def stored(count: int = 10) -> Entries:
    """`count` blocks; entry n is on broker n // 64, and the first of each block on 99, too."""
    entries = Entries(LINES)
    for n in range(count * BLOCK_ENTRIES):
        block, place = divmod(n, BLOCK_ENTRIES)
        entries.apply(("t", n), Line((block, 99) if place == 0 and block % 2 else (block,)))
    return Entries(LINES, entries.stored())


def places(entries: Entries, mark: int) -> list[Place]:
    return [place for place, _ in entries.marked(mark)]


def test_the_first_search_keeps_only_what_it_found() -> None:
    """One broker dies in a batch: nothing else of the table is written anew for it."""
    entries = stored()

    assert places(entries, 3) == [("t", 3 * 64 + n) for n in range(64)]
    assert decoded_blocks(entries) == 1
    assert entries._blocks_of_mark is None


def test_the_second_search_makes_an_index_and_decodes_no_more_than_it_finds() -> None:
    """Three hundred die at once: each looks into its own blocks only."""
    entries = stored()
    places(entries, 3)

    assert places(entries, 99) == [("t", block * 64) for block in (1, 3, 5, 7, 9)]
    assert decoded_blocks(entries) == 5
    assert places(entries, 12345) == []


def test_a_search_for_many_reads_each_entry_once() -> None:
    """A commit of 10,000 rows beside a pending one of as many: rows were read once for each row,
    for eleven minutes, and again after every restart."""
    read = Counter[int]()

    def marks(each: Line) -> tuple[int, ...]:
        read.update(each.on)
        return each.on

    entries = Entries(LINES._replace(marks=marks), stored().stored())
    for _ in range(2):
        found = [place for place, _ in entries.marked(*range(50))]
        assert found == [("t", n) for n in range(10 * BLOCK_ENTRIES)]
    assert read[0] == 3 * BLOCK_ENTRIES  # each search, and the index


@pytest.mark.parametrize("seed", range(20))
def test_a_search_finds_what_reading_everything_finds(seed: int) -> None:
    """INV-15: entries come, change and go between searches, and the batch may end anywhere."""
    rnd = Random(seed)
    entries, model = Entries(LINES), {}
    for _ in range(300):
        place = (rnd.choice("tu"), rnd.randrange(3 * BLOCK_ENTRIES))
        line = Line(tuple(rnd.sample(range(5), 2))) if rnd.random() < 0.7 else None
        entries.apply(place, line)
        model[place] = line
        if rnd.random() < 0.2:
            mark = rnd.randrange(5)
            there = [p for p in sorted(model) if model[p] is not None and mark in model[p].on]
            assert places(entries, mark) == there
        if rnd.random() < 0.02:
            entries = Entries(LINES, entries.stored())


def test_a_search_changes_no_bytes() -> None:
    """INV-03: what was decoded to be searched is encoded as it was."""
    entries = stored()
    before = entries.stored()
    places(entries, 3)
    places(entries, 99)

    assert entries.stored() == before


def test_a_table_without_marks_has_nothing_to_find() -> None:
    """Offsets are never searched."""
    entries = Entries(LINES._replace(marks=None))
    entries.apply(("t", 0), Line((1,)))

    assert entries.marked(1) == []
