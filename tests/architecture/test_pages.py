"""Pages that the code cites by number: the numbers exist, and say where they are kept."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.architecture.test_tidy import ROOT, SOURCES, name_of

RULES = (ROOT / "docs/explanation/time-and-fencing.md").read_text()
CITING = [*SOURCES, *sorted((ROOT / "docs").rglob("*.md"))]
_NUMBERS = r"\d+(?:(?:,| and| or| to)\s+\d+)*"
#: Comments and docstrings break lines wherever they like.
_CITED = re.compile(rf"\brules?(?:\s|#:?)+({_NUMBERS})", re.IGNORECASE)


def cited(text: str) -> set[int]:
    """The numbers of the rules that a text cites; a range by its ends."""
    return {int(number) for found in _CITED.findall(text) for number in re.findall(r"\d+", found)}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("see rule 3.", {3}),
        ("Rules 5 to 7", {5, 7}),
        ("rules 2, 3 and 4", {2, 3, 4}),
        ("as rule\n    # 10 says", {10}),
        ("a ruler 5 long, 4 rules of 3", set()),
    ],
)
def test_citations_are_seen(text: str, numbers: set[int]) -> None:
    """A check that finds nothing may be blind."""
    assert cited(text) == numbers


@pytest.mark.parametrize("path", [p for p in CITING if cited(p.read_text())], ids=name_of)
def test_every_rule_that_is_cited_is_told(path: Path) -> None:
    """Whoever reads "rule 9" in the code must be able to look it up."""
    told = {int(number) for number in re.findall(r"^### Rule (\d+):", RULES, re.MULTILINE)}

    assert sorted(cited(path.read_text()) - told) == []


#: Of what is designed and not built.
RESERVED_RULES: set[int] = set()


def test_rules_have_all_their_numbers() -> None:
    """A rule that is struck out leaves its number to nobody else."""
    told = [int(number) for number in re.findall(r"^### Rule (\d+):", RULES, re.MULTILINE)]

    assert sorted({*told} | RESERVED_RULES) == list(range(1, max(told) + 1))
    assert len(told) == len({*told} - RESERVED_RULES)


INVARIANTS = (ROOT / "docs/contributing/invariants.md").read_text()
#: number -> (files below coordlib or tests/tools, files below tests).
TABLE = {
    number: (re.findall(r"`([^`]+)`", kept), re.findall(r"`([^`]+)`", tests))
    for number, kept, tests in re.findall(
        r"^\| (INV-\d{2,3}) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", INVARIANTS, re.MULTILINE
    )
}


def test_every_invariant_in_the_code_has_a_row_and_every_row_is_in_the_code() -> None:
    """Who meets a number looks it up here; who reads a row finds what keeps it."""
    in_code = {n for path in SOURCES for n in re.findall(r"INV-\d{2,3}", path.read_text())}

    assert sorted(TABLE) == sorted(in_code)
    assert len(TABLE) == INVARIANTS.count("| INV-"), "a row twice, or of another form"


@pytest.mark.parametrize("number", TABLE)
def test_the_files_of_a_row_cite_its_number(number: str) -> None:
    """Files move and tests are split: the row follows, or this fails."""
    kept, tests = TABLE[number]
    rooms = {name: "" if name.startswith("tests/tools/") else "coordlib" for name in kept}
    files = [*(ROOT / rooms[name] / name for name in kept), *(ROOT / "tests" / t for t in tests)]

    assert kept
    assert tests
    assert [name_of(file) for file in files if number not in file.read_text()] == []


PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
]


#: Shell comments in examples are no headings.
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """A page that moved leaves links behind in pages that nobody has open."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """What links may name behind a `#`: the page's headings, in GitHub's spelling."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]

    return {*names, *(f"{each}-{n}" for each in names for n in range(1, names.count(each)))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_a_heading(page: Path) -> None:
    """A chapter that got another name opens the page at its top, and nobody sees why."""
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())

    assert [
        f"{name}#{anchor}"
        for name, anchor in links
        if anchor not in anchors(page.parent / name if name else page)
    ] == []


README = ROOT / "README.md"
README_LINES_MAX = 150


def test_the_first_page_is_short_and_leads_to_the_others() -> None:
    """What a newcomer needs fits on a screen or three."""
    text = README.read_text()

    assert len(text.splitlines()) <= README_LINES_MAX
    assert "](docs/index.md)" in text


EXAMPLES = [
    (page, code)
    for page in PAGES
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if "coordlib" in code
]


@pytest.mark.parametrize(("page", "code"), EXAMPLES, ids=[name_of(page) for page, _ in EXAMPLES])
def test_examples_use_names_that_are_there(page: Path, code: str) -> None:
    """Modules move, and an example is copied before it is read."""
    imports = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coordlib")
        for alias in node.names
    ]

    assert imports
    assert [
        f"{module}.{name}"
        for module, name in imports
        if not hasattr(importlib.import_module(module or ""), name)
    ] == []


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if re.search(r"\b[\w-]+\.md\b", p.read_text())], ids=name_of
)
def test_a_page_that_the_code_names_is_there(path: Path) -> None:
    """The code said "wire.md" in many places, and there was no such page."""
    named = set(re.findall(r"\b[\w-]+\.md\b", path.read_text()))

    assert sorted(named - {page.name for page in PAGES}) == []
