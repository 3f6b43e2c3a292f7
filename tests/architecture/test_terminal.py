"""Commands print through `cli/kit/output.py` alone: what others have named acts on no terminal."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_tidy import ROOT, SOURCES, name_of

COMMANDS = [each for each in SOURCES if ROOT / "coordlib" / "cli" in each.parents]
SAFE = "output.py"
_STREAMS = {"stdout", "stderr"}


def ways_out(tree: ast.AST) -> Iterator[str]:
    """Calls that send a text to the terminal as it is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "print":
            yield f"line {node.lineno}: print"
        if isinstance(called, ast.Attribute) and called.attr in ("write", "writelines"):
            stream = called.value
            if isinstance(stream, ast.Attribute) and stream.attr in _STREAMS:
                yield f"line {node.lineno}: {stream.attr}.{called.attr}"


@pytest.mark.parametrize("path", [p for p in COMMANDS if p.name != SAFE], ids=name_of)
def test_a_command_prints_by_output_alone(path: Path) -> None:
    """A group's name may read backwards, or be invisible: sentences printed it as it was."""
    assert list(ways_out(ast.parse(path.read_text()))) == []


def test_there_are_commands() -> None:
    """Else the folder has moved, and nothing is checked any more."""
    assert len(COMMANDS) > 30


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("print(name)", True),
        ("sys.stdout.write(name)", True),
        ("sys.stderr.writelines([name])", True),
        ("print_line(name)", False),
        ("sys.stdout.flush()", False),
        ("file.write(name)", False),
    ],
)
def test_the_check_sees(source: str, is_found: bool) -> None:
    """What prints as it is, and what does not."""
    assert bool(list(ways_out(ast.parse(source)))) == is_found
