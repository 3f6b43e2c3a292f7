"""The page of kinds of defects: every protocol and client once in each, and tests that exist."""

import re
from typing import Final, NamedTuple

import pytest

from tests.architecture.test_seed_pages import is_there
from tests.architecture.test_tidy import ROOT

PAGE: Final = ROOT / "tests/README.md"
KINDS: Final = (
    *("Interrupted call", "Outputs larger than their request", "A start that cannot make progress"),
    *("Odd names and words of others", "A topic that is deleted and made anew"),
    "Records removed before they were read",
    "Foreign, vanished or replaced tables and checkpoints",
    *("A log that was cut", "A request that is too large", "Fork", "Drop without close"),
    *("A wrong key in the configuration", "Two users of one client", "A callback that raises"),
    *("A step of the clock", "A full disk"),
)
WHO: Final = (
    *("classic groups", "assigned groups", "claims", "worker fleets", "producers, Kafka decides"),
    *("producers, the coordinator decides", "writes, Delta decides", "`CommittedReader`"),
    *("Spark readers", "admin clients", "commands", "archive", "job"),
)
_ROW: Final = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_HEADER: Final = "protocol or client"


class Row(NamedTuple):
    who: tuple[str, ...]
    tests: tuple[str, ...]
    why: str


def kinds(page: str) -> dict[str, list[Row]]:
    """The rows of each kind."""
    found: dict[str, list[Row]] = {}
    for section in page.split("\n## ")[1:]:
        name, _, text = section.partition("\n")
        rows = [row for row in _ROW.findall(text) if row[0] not in (_HEADER, "---")]
        found[name] = [
            Row(tuple(who.split("; ")), tuple(re.findall("`([^`]+::[^`]+)`", tests)), why)
            for who, tests, why in rows
        ]
    return found


ROWS: Final = kinds(PAGE.read_text())


def test_the_page_has_every_kind() -> None:
    """A kind that was met once comes again elsewhere."""
    assert tuple(ROWS) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_each_protocol_and_client_once(kind: str) -> None:
    """What was fixed in one protocol came back in the next one, which had no row."""
    named = [who for row in ROWS[kind] for who in row.who]

    assert sorted(named) == sorted(WHO)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{k}-{row.who[0]}") for k, rows in ROWS.items() for row in rows]
)
def test_a_cell_names_tests_that_are_there_or_says_why_there_is_none(row: Row) -> None:
    """Tests are renamed and moved: the row follows, or this fails."""
    assert [test for test in row.tests if not is_there(test)] == []
    assert row.tests or row.why != "-"


def test_a_cell_without_either_is_seen() -> None:
    """A check that reads no row finds nothing wrong."""
    ((row,),) = kinds("# Page\n\n## Fork\n\n| claims; job | - | - |\n").values()

    assert row == Row(("claims", "job"), (), "-")
