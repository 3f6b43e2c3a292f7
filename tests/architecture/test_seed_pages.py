"""The pages about the seeds: every row names files and tests that are there, and a verdict."""

import re
from pathlib import Path

import pytest

from tests.architecture.test_tidy import ROOT, name_of
from tests.tools.seed_rows import Break, breaks, without

FOLDER = ROOT / "tests/conformance/designs"
PAGES = sorted(FOLDER.glob("*.md"))
VERDICTS = ("As said", "Differs", "Missing", "Kafka's own")
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"^(async )?def (test_\w+)", re.MULTILINE)

Row = tuple[int, str, list[str], list[str], str]


def rows(page: Path) -> list[Row]:
    """Number, statement, files below coordlib/, tests below tests/, verdict."""
    found = _ROW.findall(page.read_text())
    return [
        (int(n), said.strip(), re.findall("`([^`]+)`", kept), re.findall("`([^`]+)`", tests), end)
        for n, said, kept, tests, end in found
    ]


ROWS = [pytest.param(row, id=f"{page.stem}-{row[0]}") for page in PAGES for row in rows(page)]


def is_there(test: str) -> bool:
    """Whether `path::name`, or a transcript, is among the tests."""
    path, _, name = test.partition("::")
    file = ROOT / "tests" / path
    if not file.is_file():
        return False
    names = {found for _, found in _TEST.findall(file.read_text())}
    return name in names if path.endswith(".py") else not name


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("architecture/test_seed_pages.py::test_a_check_can_fail", True),
        ("architecture/test_seed_pages.py::test_nothing", False),
        ("architecture/test_seed_pages.py", False),
        ("transcripts/seed-slow-consumers.txt", True),
        ("transcripts/seed-fast-consumers.txt", False),
    ],
)
def test_a_check_can_fail(test: str, expected: bool) -> None:
    """A check that finds everything may be blind."""
    assert is_there(test) is expected


def test_each_seed_that_is_built_has_a_page() -> None:
    """Those to come get theirs with what they bring."""
    built = {"000", "001", "002", "003", "004-membership", "004-controller", "004-transactions"}
    assert {page.stem for page in PAGES} >= built


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_rows_are_numbered_without_a_gap(page: Path) -> None:
    """A statement that was dropped would be missed by nobody; a row of another form is not read."""
    numbers = [row[0] for row in rows(page)]

    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == len(re.findall(r"^\| \d", page.read_text(), re.MULTILINE))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_what_is_there(row: Row) -> None:
    """Files move and tests are renamed: the row follows, or this fails."""
    _, _, kept, tests, _ = row

    rooms = {name: ROOT if name.startswith("examples/") else ROOT / "coordlib" for name in kept}
    assert [name for name in kept if not (rooms[name] / name).exists()] == []
    assert [test for test in tests if not is_there(test)] == []


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_whether_it_holds(row: Row) -> None:
    """What is kept has a file and a test; what is not, or otherwise, has a reason."""
    _, said, kept, tests, end = row
    verdict = next((each for each in VERDICTS if end.strip().startswith(each)), None)

    assert said
    assert verdict is not None, f"begin with one of {', '.join(VERDICTS)}"
    if verdict in ("As said", "Differs"):
        assert kept
        assert tests
    if verdict != "As said":
        assert len(end.strip()) > len(verdict) + 10, "and the reason?"


@pytest.mark.parametrize("each", breaks(), ids=lambda each: each.row)
def test_a_row_that_can_be_broken_names_the_line_s_file_and_the_test(each: Break) -> None:
    """`python -m tests.tools.seed_rows` breaks them, one by one: each of these tests must fail."""
    page, _, number = each.row.rpartition("-")
    (row,) = (row for row in rows(FOLDER / f"{page}.md") if row[0] == int(number))

    assert each.file in row[2]
    assert each.test in row[3]
    assert (ROOT / "coordlib" / each.file).read_text().count(each.old) == 1


def test_each_row_can_be_broken_or_says_why_not() -> None:
    """A row without an entry, and without a reason, is one that nobody has looked at."""
    broken = {each.row for each in breaks()}
    excused = [row for rows in without().values() for row in rows]
    on_pages = {f"{page.stem}-{row[0]}" for page in PAGES for row in rows(page)}

    assert sorted(set(excused)) == sorted(excused)
    assert broken & set(excused) == set()
    assert broken | set(excused) == on_pages
