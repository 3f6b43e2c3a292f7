"""The rules of the house that a machine can check."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.errors import ErrorCode

ROOT = Path(__file__).parents[2]
CORE = [path for folder in ("core",) for path in sorted((ROOT / "coordlib" / folder).rglob("*.py"))]
CORE_TESTS = [
    path
    for folder in ("core", "transcripts", "architecture")
    for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    if "assignors" not in path.parts
]
TESTS = [
    path
    for path in sorted((ROOT / "tests").rglob("*.*"))
    if path.suffix in (".py", ".txt") and ROOT / "tests" / "tools" not in path.parents
]
SOURCES = [
    path
    for folder in ("coordlib", "examples", "jobs", "notebooks", "tests/tools")
    for path in (ROOT / folder).rglob("*.py")
]

IMPURE_MODULES = frozenset(
    {"asyncio", "datetime", "io", "locale", "logging", "multiprocessing", "os", "pathlib"}
    | {"random", "secrets", "shutil", "socket", "subprocess", "sys", "tempfile", "threading"}
    | {"time", "urllib", "uuid"}
)
IMPURE_CALLS = frozenset({"print", "hash", "id", "open", "input", "eval", "exec", "vars"})
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
#: Files that are longer today. This list only ever gets shorter.
LONGER: dict[str, int] = {}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def impurities(tree: ast.AST) -> Iterator[str]:
    """What would let two runs over one log differ."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"imports {a.name}" for a in node.names if _top(a.name) in IMPURE_MODULES)
        elif isinstance(node, ast.ImportFrom) and _top(node.module or "") in IMPURE_MODULES:
            yield f"imports from {node.module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                yield f"line {node.lineno} calls {node.func.id}()"
            elif node.func.id in ("list", "tuple", "iter", "enumerate", "next"):
                yield from (f"line {a.lineno} orders a set" for a in node.args if _is_set(a))
        elif isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
            yield f"line {node.iter.lineno} iterates over a set"


def _top(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def _is_set(node: ast.expr) -> bool:
    """Whether an expression is a set to the eye: its order depends on PYTHONHASHSEED."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(node.left) or _is_set(node.right)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_the_core_is_pure(path: Path) -> None:
    """INV-01: no clock, randomness, ids, environment or IO; sets are sorted when they are read."""
    assert list(impurities(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "from random import Random",
        "print(1)",
        "key = hash(name)",
        "for x in {1, 2}: pass",
        "y = [x for x in set(names)]",
        "y = list(frozenset(names))",
        "for x in set(a) | b: pass",
    ],
)
def test_the_check_of_purity_sees(source: str) -> None:
    """A check that finds nothing may be blind."""
    assert list(impurities(ast.parse(source)))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_and_functions_have_a_readable_length(path: Path) -> None:
    """Files of 200 to 500 lines, functions of about 10; these are the outer bounds."""
    text = path.read_text()

    assert len(text.splitlines()) <= LONGER.get(name_of(path), FILE_LINES_MAX)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_left_undone(path: Path) -> None:
    """What is not done is an issue, not a comment."""
    text = path.read_text()

    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "why does this module exist?"


@pytest.mark.parametrize("path", CORE_TESTS, ids=name_of)
def test_every_test_tells_its_race(path: Path) -> None:
    """Test names state behaviour; docstrings what happens in real life."""
    silent = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert silent == []


def test_every_error_that_the_core_answers_is_tested() -> None:
    """A refusal that no test has seen is a guess."""
    used = {code for path in CORE for code in re.findall(r"ErrorCode\.([A-Z_]+)", path.read_text())}
    tested = "\n".join(path.read_text() for path in TESTS)

    assert used <= set(ErrorCode.__members__)
    assert [code for code in sorted(used) if not re.search(rf"\b{code}\b", tested)] == []


def test_every_invariant_in_the_code_is_in_a_test() -> None:
    """INV numbers are stable names: who reads one in the code finds the test that checks it."""
    claimed = {n for path in SOURCES for n in re.findall(r"INV-\d+", path.read_text())}
    tested = {n for path in TESTS for n in re.findall(r"INV-\d+", path.read_text())}

    assert sorted(claimed - tested) == []
