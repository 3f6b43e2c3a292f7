"""Errors are sentences: people read them in logs, between lines of others."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib import errors
from tests.architecture.test_tidy import ROOT, SOURCES, name_of

ERRORS = {
    name
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, errors.CoordError)
} - {"GroupError"}  # its sentence is its code's
#: The core raises nothing that people read; tools of the tests speak to whoever wrote them.
SPEAKING = [
    path
    for path in SOURCES
    if not {"coordinators", "effects", "tests"} & set(path.relative_to(ROOT).parts)
]


def unended(tree: ast.AST) -> Iterator[str]:
    """What happened, of each error that is made here, where it ends with a text without a stop.

    A text of others may stand at the end: Kafka's, Spark's or the system's own words.
    """
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        end = _end_of(node.args[0]) if node.func.id in ERRORS else None
        if end is not None and not end.endswith((".", "?")):
            yield f"line {node.lineno}: {end}"


def _end_of(text: ast.expr) -> str | None:
    if isinstance(text, ast.BinOp):
        return _end_of(text.right)
    if isinstance(text, ast.JoinedStr):
        return _end_of(text.values[-1])
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None


@pytest.mark.parametrize("path", SPEAKING, ids=name_of)
def test_what_happened_ends_with_a_full_stop(path: Path) -> None:
    """Three lines follow each other; without a stop the first seems to go on in the second."""
    assert list(unended(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ('SetupError("The disk is full")', True),
        ('SetupError(f"{name} is missing", "here")', True),
        ('SetupError("The disk is full.")', False),
        ('CoordError(f"Kafka failed: {problem}")', False),
        ('print("The disk is full")', False),
    ],
)
def test_the_check_of_messages_sees(source: str, is_found: bool) -> None:
    """A check that finds nothing may be blind."""
    assert bool(list(unended(ast.parse(source)))) is is_found
