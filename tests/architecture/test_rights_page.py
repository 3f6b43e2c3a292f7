"""The page of rights has the code's own table of rights."""

from coordlib.kafka.roles import TABLE
from tests.tools.rights_page import PAGE, table, with_table


def test_the_page_has_the_table_of_the_code() -> None:
    """Who grants rights by an old page grants too much, or too little. To write it anew: `python -m
    tests.tools.rights_page`."""
    page = PAGE.read_text()

    assert page == with_table(page)
    assert table() in page


def test_every_row_is_in_the_table() -> None:
    """A check that compares nothing may be blind."""
    assert len(table().splitlines()) == 2 + sum(len(rows) for rows in TABLE.values())
