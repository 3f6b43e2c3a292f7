"""The conformance table: each of Kafka's tests with ours, or with the reason why there is none.

`names.txt` lists Kafka's tests, one "SUITE name" a line. `rows/*.toml` say, block by block:

    [ours.S]                        suite; several when their tests of one name mean the same
    testFoo = "FOLDER/FILE.py::test_foo[Stable]"    below tests/; or a transcript; or a list; or a
                                                    file of `by_state`: "FOLDER/FILE.txt::Stable"
    testBar.tests = "…"
    testBar.differs = "What is deliberately not as in Kafka, and why."

    [[none]]
    why = "Why these do not apply."
    names = ["S testBaz"]

A test without brackets stands for all its cases, a file without a state for all states.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.tools import by_state

HERE = Path(__file__).parent
TESTS = HERE.parent

Name = tuple[str, str]


class Row(msgspec.Struct, frozen=True):
    """What becomes of one of Kafka's tests: tests of ours, or why there are none."""

    suite: str
    name: str
    tests: tuple[str, ...] = ()
    differs: str = ""
    why: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.suite} {self.name}"


class _Ours(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tests: str | list[str]
    differs: str


class _Reason(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    why: str
    names: list[str]


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    ours: dict[str, dict[str, str | list[str] | _Ours]] = {}
    none: list[_Reason] = []


def read_names(path: Path = HERE / "names.txt") -> list[Name]:
    """Kafka's tests, as (suite, name)."""
    lines = (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))
    return [(suite, name) for suite, name in filter(None, lines)]


def read_rows(folder: Path = HERE / "rows") -> list[Row]:
    """Every row of the table. Raises msgspec.ValidationError on anything else in its files."""
    return [row for path in sorted(folder.glob("*.toml")) for row in _rows_of(path)]


def _rows_of(path: Path) -> Iterable[Row]:
    block = msgspec.convert(tomllib.loads(path.read_text()), _File)
    for suites, rows in block.ours.items():
        for name, ours in rows.items():
            tests, differs = (ours.tests, ours.differs) if isinstance(ours, _Ours) else (ours, "")
            given = (tests,) if isinstance(tests, str) else tuple(tests)
            for suite in suites.split():
                yield Row(suite, name, given, differs, file=path.name)
    for reason in block.none:
        for name in reason.names:
            suite, _, test = name.partition(" ")
            yield Row(suite, test, why=reason.why, file=path.name)


def faults(names: list[Name], rows: list[Row], collected: frozenset[str]) -> list[str]:
    """What is wrong with the table, one sentence each."""
    return [*_faults_of_names(names, rows), *_faults_of_rows(rows, collected)]


def _faults_of_names(names: list[Name], rows: list[Row]) -> Iterable[str]:
    told: dict[Name, Row] = {}
    for row in rows:
        key = (row.suite, row.name)
        if key in told:
            yield f"{row} has another row in {told[key].file}"
        elif key not in names:
            yield f"{row} is no test of Kafka's in names.txt"
        told[key] = row
    yield from (f"{suite} {name} has no row" for suite, name in names if (suite, name) not in told)
    yield from (
        f"{s} {n} is listed twice" for s, n in sorted({n for n in names if names.count(n) > 1})
    )


def _faults_of_rows(rows: list[Row], collected: frozenset[str]) -> Iterable[str]:
    for row in rows:
        if bool(row.tests) == bool(row.why.strip()):
            yield f"{row} needs tests of ours or a reason, and not both"
        for test in row.tests:
            if test not in collected:
                yield f"{row} names {test}, which is no test of ours"


def collect(rows: list[Row]) -> frozenset[str]:
    """The tests that there are in the files which the rows name, with and without their cases."""
    places = {test.partition("::")[0] for row in rows for test in row.tests}
    files = sorted(place for place in places if (TESTS / place).is_file())
    texts = {place for place in files if place.endswith(".txt")}
    states = {
        f"{place}::{state}"
        for place in texts
        if TESTS / place in by_state.files()
        for state in by_state.read(TESTS / place).lines
    }
    ids = _collected([place for place in files if place.endswith(".py")])
    return frozenset(texts | states | ids | {test.partition("[")[0] for test in ids})


def _collected(files: list[str]) -> set[str]:
    """Node ids below tests/, by pytest itself: only it knows how cases are called."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/{file}" for file in files)],
        cwd=TESTS.parent,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line for line in done.stdout.splitlines() if "::" in line)
    return {line.removeprefix("tests/") for line in lines}
