"""How large the product is, and how hard to find one's way in: one table.

    python -m tests.tools.size [--why WHAT]

`--why` lists what stands behind a row: arrows, file-circles, folder-circles, words.

Imports count wherever they stand: those for type hints and those inside functions tie files
together, too. An arrow is a pair of top folders of which one imports the other; files at the root
of the package are one folder. A circle is a set of files, or of folders down to the second
level, that all reach each other by imports. An identifier counts as often as it stands in the
product's code, if one of its words is on the list.
"""

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.tools import journey

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "coordlib"
SHORT_LINES: Final = 60
#: Words of everyday speech that name nothing, and other forms of them.
BANNED: Final = frozenset(
    {"told", "said", "asks", "wish", "door", "looker", "doubt", "way", "luck", "mend", "beside"}
    | {"whoever", "wishes", "doors", "lookers", "doubts", "ways", "mends", "mended"}
)
#: The files at the top of the package, as a folder.
TOP: Final = "(top)"
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

Graph = dict[str, set[str]]


class Row(NamedTuple):
    """One measure; `aim`: what the rebuild is to reach."""

    what: str
    now: str
    aim: str


def files(folder: str = PACKAGE) -> list[Path]:
    """The Python files below a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def lines(path: Path) -> int:
    """Of a file, blank ones too."""
    return len(path.read_text().splitlines())


# -- imports ---------------------------------------------------------------------------------


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports() -> Graph:
    """Module -> the modules of the package that it imports by name, anywhere in its text."""
    known = {_module(path): path for path in files()}
    return {
        name: {each for each in _imported(path, known) if each != name}
        for name, path in known.items()
    }


def _imported(path: Path, known: Iterable[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module


def _folder(module: str, levels: int, packages: Iterable[str]) -> str:
    """The folder of a module, down to so many levels below the package."""
    parts = module.split(".")
    folder = parts if module in packages else parts[:-1]
    return ".".join(folder[1 : 1 + levels]) or TOP


def folded(graph: Graph, levels: int) -> Graph:
    """The same of folders, down to so many levels below the package."""
    packages = {_module(path) for path in files() if path.name == "__init__.py"}
    found: Graph = {}
    for module, others in graph.items():
        mine = _folder(module, levels, packages)
        theirs = {_folder(each, levels, packages) for each in others}
        found.setdefault(mine, set()).update(theirs - {mine})
    return found


def arrows(graph: Graph) -> list[tuple[str, str]]:
    """Pairs of which the first imports the second."""
    return sorted((a, b) for a, others in graph.items() for b in others)


def circles(graph: Graph) -> list[list[str]]:
    """Strongly connected parts of more than one (Tarjan), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * len(graph) + 1_000))
    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


# -- words -----------------------------------------------------------------------------------


def words_of(identifier: str) -> list[str]:
    """`was_toldOf` has three: was, told, of."""
    return [each.lower() for each in _WORDS.findall(identifier)]


def banned(paths: Iterable[Path]) -> Counter[str]:
    """Word -> how many identifiers of these files have it."""
    found: Counter[str] = Counter()
    for path in paths:
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME:
                found.update(BANNED.intersection(words_of(token.string)))
    return found


def _section(title: str) -> list[str]:
    """Lines below a heading of architecture.md that matches."""
    text = (ROOT / "docs/contributing/architecture.md").read_text()
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    for head, body in zip(parts[1::2], parts[2::2], strict=True):
        if re.search(title, head):
            return body.splitlines()
    return []


def _rows(section: Sequence[str]) -> list[str]:
    """The rows of a section's table, or the lines of its block of code."""
    table = [line for line in section if line.startswith("|")]
    if table:
        return table[2:]
    return [line for line in section if line.startswith("  ") and line.strip()]


def private_words() -> list[str]:
    """The words that the page on how all works has to explain."""
    explained = "\n".join(_section("[Ww]ords$"))
    return re.findall(r"^\| \*\*(.+?)\*\*|(?:^|· )\*\*.+?\*\*", explained, re.MULTILINE)


# -- the table -------------------------------------------------------------------------------


def rows() -> list[Row]:
    """All measures."""
    shipped, graph = files(), imports()
    names = {path for path in shipped if path.name != "__init__.py"}
    counts = [lines(path) for path in shipped]
    of_tests = sum(map(lines, files("tests")))
    words = banned(shipped)
    top = folded(graph, 1)
    two = folded(graph, 2)
    ways = {name: journey.trace(name) for name in journey.JOURNEYS}
    return [
        *(Row(what, str(now), f"≤ {aim}") for what, now, aim in journey.table(ways)),
        Row("Python files in the wheel", str(len(shipped)), "≤ 290"),
        Row("median lines of a file", f"{statistics.median(counts):.0f}", "≥ 190"),
        Row(
            f"files below {SHORT_LINES} lines, without __init__",
            str(sum(lines(path) < SHORT_LINES for path in names)),
            "≤ 40",
        ),
        Row("lines that ship", f"{sum(counts):,}", "≤ 67,000"),
        Row("lines of tests and tools", f"{of_tests:,}", "≤ 121,000"),
        Row("arrows between top folders", str(len(arrows(top))), "≤ 46"),
        Row("circles of files", str(len(circles(graph))), "0"),
        Row("circles of folders", str(len(circles(two))), "0"),
        Row("private words", str(len(private_words())), "≤ 10"),
        Row('rows of "where to look"', str(len(_rows(_section("^Where to")))), "≤ 12"),
        Row("identifiers with `told`", str(words["told"]), "< 60"),
        Row("identifiers with a banned word", str(words.total()), "< 60"),
    ]


def why(what: str) -> list[str]:
    """What stands behind a row. Raises KeyError."""
    graph = imports()
    of = {
        "arrows": lambda: [f"{a} -> {b}" for a, b in arrows(folded(graph, 1))],
        "file-circles": lambda: [", ".join(each) for each in circles(graph)],
        "folder-circles": lambda: [", ".join(each) for each in circles(folded(graph, 2))],
        "words": lambda: [f"{word} {n}" for word, n in banned(files()).most_common()],
    }
    return of[what]()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or what stands behind a row of it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.size",
        description="How large the product is, and how hard to find one's way in.",
    )
    choices = ("arrows", "file-circles", "folder-circles", "words")
    parser.add_argument("--why", choices=choices, help="list what stands behind a row")
    given = parser.parse_args(arguments)
    if given.why:
        sys.stdout.write("".join(f"{line}\n" for line in why(given.why)))
        return
    sys.stdout.write(f"{'measure':44}{'now':>10}{'aim':>12}\n")
    for row in rows():
        sys.stdout.write(f"{row.what:44}{row.now:>10}{row.aim:>12}\n")
    bench = "python -m tests.tools bench"
    sys.stdout.write(f"Heartbeats a second: {bench} core. Times on a stack: {bench} settle, load\n")


if __name__ == "__main__":
    main()
