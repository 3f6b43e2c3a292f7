"""Each of Marshal's tests has one of ours, or a reason (table.py; marshal/)."""

from collections import Counter

from tests.conformance.table import HERE, collect, faults, read_names, read_rows

FOLDER = HERE / "marshal"


def test_every_test_of_marshal_has_a_row_and_every_row_a_test_of_ours() -> None:
    """A behaviour of Marshal that nobody has looked for, or a test that went without a word."""
    rows = read_rows(FOLDER / "rows")

    assert faults(read_names(FOLDER / "names.txt"), rows, collect(rows)) == []


def test_the_list_is_whole() -> None:
    """53 tests in six suites; one benchmark is none."""
    suites = Counter(suite for suite, _ in read_names(FOLDER / "names.txt"))

    assert suites == {"R": 8, "M": 2, "C": 14, "N": 24, "A": 4, "K": 1}
