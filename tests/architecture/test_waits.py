"""Tests wait for what must come, however busy the machine is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_tidy import ROOT, name_of

TESTS = [
    path
    for path in (ROOT / "tests").rglob("test_*.py")
    if path.parts[len(ROOT.parts) + 1] != "tools"
]
#: Calls that return when something is done, and fail or give up where that takes too long.
WAITING = frozenset(
    {"flush", "commit_transaction", "abort_transaction", "init_transactions", "result", "join"}
)
#: Less is a wait that is to be over in vain; more is as good as none.
SHORT_S, LONG_S = 0.5, 30


def impatient(tree: ast.AST) -> Iterator[str]:
    """Waits that a busy machine may exceed, though nothing is wrong."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        given = [*node.args, *(each.value for each in node.keywords)]
        if (
            node.func.attr not in WAITING
            or len(given) != 1
            or not isinstance(given[0], ast.Constant)
        ):
            continue
        seconds = given[0].value
        if isinstance(seconds, int | float) and SHORT_S <= seconds < LONG_S:
            yield f"line {node.lineno}: {node.func.attr}({seconds})"


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_wait_depends_on_how_busy_the_machine_is(path: Path) -> None:
    """A second of the wall clock was too short for an abort that had nothing to wait for."""
    assert list(impatient(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("one.commit_transaction(1.0)", True),
        ("future.result(timeout=5)", True),
        ("producer.flush(0.1)", False),
        ("future.result(60)", False),
        ("', '.join(names)", False),
    ],
)
def test_the_check_sees(source: str, is_found: bool) -> None:
    """What is too short, and what is not."""
    assert bool(list(impatient(ast.parse(source)))) == is_found
