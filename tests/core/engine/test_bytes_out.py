"""INV-68: whatever stands in the logs, what follows from it is bounded: the table of bytes."""

import pytest

from tests.tools.bytes_out import CASES, PAGE, Case, page, types


def test_every_type_of_the_wire_has_a_row() -> None:
    """A new one is measured before it is accepted."""
    assert {each.type for each in CASES} == set(types())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}: {case.what}")
def test_the_outputs_of_a_record_are_bounded(case: Case) -> None:
    """By the plan, by waiting for readers, or by the bytes that are kept."""
    judged = case.judged()

    assert case.bound(judged), judged


def test_the_table_is_what_was_measured() -> None:
    """`python -m tests.tools.bytes_out` writes it anew."""
    assert PAGE.read_text() == page()
