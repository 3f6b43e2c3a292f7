"""Each of Kafka's tests of groups, offsets, controllers has one of ours or a reason (table.py)."""

from pathlib import Path

import msgspec
import pytest

from tests.conformance.table import (
    HERE,
    Name,
    Row,
    collect,
    faults,
    read_names,
    read_rows,
)


def test_every_test_of_kafka_has_a_row_and_every_row_a_test_of_ours() -> None:
    """A behaviour of Kafka that nobody has looked for, or a test that went without a word."""
    rows = read_rows()

    assert faults(read_names(), rows, collect(rows)) == []


FOO: Name = ("S", "testFoo")
OURS = "core/engine/test_shard.py::test_foo"


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([], "S testFoo has no row"),
        ([Row("J", "testFoo", (OURS,))], "is no test of Kafka's"),
        ([Row(*FOO, (OURS,)), Row(*FOO, why="It is not so.")], "has another row"),
        ([Row(*FOO)], "needs tests of ours or a reason"),
        ([Row(*FOO, why=" ")], "needs tests of ours or a reason"),
        ([Row(*FOO, (OURS,), why="It is not so.")], "needs tests of ours or a reason"),
        ([Row(*FOO, ("core/engine/test_shard.py::test_bar",))], "which is no test of ours"),
        (
            [Row(*FOO, ("core/engine/test_shard.py::test_foo[b]",))],
            "which is no test of ours",
        ),
        ([Row(*FOO, ("transcripts/none.txt",))], "which is no test of ours"),
    ],
)
def test_a_table_that_lies_is_found_out(rows: list[Row], fault: str) -> None:
    """A check that finds nothing may be blind."""
    found = faults([FOO], rows, frozenset({OURS, f"{OURS}[a]"}))

    assert [fault for each in found if fault in each] == [fault]


def test_a_name_that_is_listed_twice_is_told() -> None:
    """A list that was put together from two."""
    found = faults([FOO, FOO], [Row(*FOO, (OURS,))], frozenset({OURS}))

    assert found == ["S testFoo is listed twice"]


def test_what_is_collected_is_what_there_is() -> None:
    """Cases by pytest's own names; what is not there is left out, not invented."""
    named = ("core/wire/test_partitioner.py::x", "transcripts/poison-records.txt", "gone.py::y")
    table = "core/groups/classic/by_state/dynamic/first-join.txt"
    named += (f"{table}::Nowhere",)

    found = collect([Row(*FOO, named)])

    assert "transcripts/poison-records.txt" in found
    assert {table, f"{table}::absent", f"{table}::Stable"} <= found
    assert f"{table}::Nowhere" not in found
    assert "core/wire/test_partitioner.py::test_hashes_as_java_does" in found
    assert "core/wire/test_partitioner.py::test_hashes_as_java_does[a-97]" in found
    assert not any(test.startswith("gone.py") or test.endswith("::x") for test in found)


def test_files_of_the_table_hold_nothing_else(tmp_path: Path) -> None:
    """A misspelt key would hide a deviation."""
    (tmp_path / "a.toml").write_text('[ours.S]\ntestFoo.tests = "x"\ntestFoo.difers = "y"\n')

    with pytest.raises(msgspec.ValidationError):
        read_rows(tmp_path)


def test_every_suite_is_explained() -> None:
    """S, J and C mean nothing to who has not read Kafka's tests."""
    text = (HERE / "names.txt").read_text()
    headings = [block.splitlines()[0] for block in text.split("\n\n")[1:]]

    assert all(heading.startswith("# ") for heading in headings)
    assert len(headings) == len({suite for suite, _ in read_names()})
