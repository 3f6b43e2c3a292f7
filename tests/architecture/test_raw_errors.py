"""Errors of Kafka are shown in its words, and not as Python's picture of them.

`KafkaError{code=_TRANSPORT,val=-195,str="Failed to ..."}` stood in sentences for users, in `coord
status` and in logs; a TimeoutError of a future stood there as nothing at all. `clients.reason_of`
has the words.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_tidy import ROOT, SOURCES, name_of

FILES = [path for path in SOURCES if path.is_relative_to(ROOT / "coordlib")]
_OF_KAFKA = {"KafkaException", "KafkaError"}
_SHOWS = {"repr", "str", "ascii"}
_LOGS = {"_log", "log", "logging"}


def names_in(node: ast.AST | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else set()


def caught(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names that stand for an error of Kafka, and where they do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name and names_in(node.type) & _OF_KAFKA:
            yield node.name, node
        if isinstance(node, ast.FunctionDef):
            for each in (*node.args.args, *node.args.kwonlyargs):
                if names_in(each.annotation) & _OF_KAFKA:
                    yield each.arg, node


def shown(name: str, where: ast.AST) -> Iterator[int]:
    """Lines in which it is shown as it is."""

    def is_it(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    for node in ast.walk(where):
        if isinstance(node, ast.FormattedValue) and is_it(node.value):
            yield node.lineno
        if isinstance(node, ast.Call) and any(map(is_it, node.args)):
            function = node.func
            is_shown = isinstance(function, ast.Name) and function.id in _SHOWS
            is_logged = (
                isinstance(function, ast.Attribute)
                and isinstance(function.value, ast.Name)
                and function.value.id in _LOGS
            )
            if is_shown or is_logged:
                yield node.lineno


def raw_errors(source: str) -> list[int]:
    tree = ast.parse(source)
    return sorted({line for name, where in caught(tree) for line in shown(name, where)})


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_error_of_kafka_is_shown_raw(path: Path) -> None:
    """Whoever reads it at three in the morning reads sentences."""
    assert raw_errors(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "raise CannotReach(f'No metadata: {problem}') from problem",
        "note(repr(problem))",
        "_log.info('no metadata: %s', problem)",
    ],
)
def test_what_shows_one_is_found(line: str) -> None:
    """In a handler, and in whatever is given an error."""
    handler = f"except (KafkaException, TimeoutError) as problem:\n    {line}\n"
    taken = f"def told(problem: KafkaError | None) -> None:\n    {line}\n"

    assert raw_errors(f"try:\n    ask()\n{handler}") == [4]
    assert raw_errors(taken) == [2]
