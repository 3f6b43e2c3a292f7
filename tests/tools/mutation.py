"""Small changes in the core's rules, one by one: which of them does no test notice?

    python -m tests.tools.mutation [--every 20] [--of 'coordlib.core.groups.offsets.*']

mutmut makes the changes and runs the tests; this chooses which are tried, and counts. Of all
coordinators there are thousands, each of which may take a minute: so every n-th is tried, always
the same, and the score is one of a sample. Known bugs of whole protocols are `make mutants`.

It works on a copy below `.coord`. Of the same code it goes on where an interrupted run ended.
"""

import argparse
import fnmatch
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COPY: Final = ROOT / ".coord" / "mutation"
#: mutmut knows its changes only after a run: these are few.
FIRST: Final = "coordlib.core.engine.time.*"
EVERY: Final = 20
#: In the copy: of which code it is.
STAMP: Final = "copy-of.txt"
NOTICED: Final = "noticed"
#: By pytest's exit code or mutmut's own: a test failed or took far too long. All others say
#: nothing about the tests: interrupted, out of memory, a test that is not there any more.
OUTCOMES: Final[dict[int | None, str]] = {
    0: "survived",
    5: "no tests",
    33: "no tests",
    **dict.fromkeys((1, 3, -11, 24, -24, 36, 37, 152, 255), NOTICED),
}
NOT_TRIED: Final = "not tried"


def sample(names: Iterable[str], pattern: str, every: int) -> list[str]:
    """Every n-th of those that the pattern is of, in the order of their names."""
    return sorted(fnmatch.filter(names, pattern))[::every]


def module_of(name: str) -> str:
    """`coordlib.core.engine.rows.xǁAgendaǁnote__mutmut_3` -> `shard.agenda`."""
    return name.rpartition(".")[0].removeprefix("coordlib.core.")


def report(tried: Iterable[str], codes: dict[str, int | None]) -> str:
    """A line for each module, one for all, and the names of those that no test noticed."""
    found = {name: OUTCOMES.get(codes.get(name), NOT_TRIED) for name in tried}
    by_module: dict[str, Counter[str]] = {}
    for name, what in found.items():
        by_module.setdefault(module_of(name), Counter())[what] += 1
    lines = [f"{_score(counts)}  {module}" for module, counts in sorted(by_module.items())]
    lines += [f"{_score(Counter(found.values()))}  all", ""]
    lines += [f"{what}: {name}" for name, what in sorted(found.items()) if what != NOTICED]
    return "\n".join(lines)


def _score(counts: Counter[str]) -> str:
    total = counts.total() - counts[NOT_TRIED]
    return f"{counts[NOTICED]:4d} of {total:4d}"


def _codes(copy: Path) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for meta in sorted((copy / "mutants").rglob("*.meta")):
        found |= json.loads(meta.read_text())["exit_code_by_key"]
    return found


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def _copy_tree(copy: Path) -> None:
    """What git knows of, as it stands in the working tree; a copy of other code is made anew."""
    parts = ("coordlib", "tests", "conf", "jobs", "pyproject.toml")
    stamp = _git("rev-parse", "HEAD") + _git("diff", "HEAD", "--", *parts)
    if (copy / STAMP).is_file() and (copy / STAMP).read_text() == stamp:
        return
    shutil.rmtree(copy, ignore_errors=True)
    for name in filter(None, _git("ls-files", "-z", *parts).split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    (copy / "README.md").touch()  # the build names it
    (copy / STAMP).write_text(stamp)


def _mutmut(copy: Path, names: list[str], children: int) -> None:
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(children), *names]
    subprocess.run(command, cwd=copy, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=EVERY, help="try every n-th change")
    parser.add_argument("--of", default="*", help="a pattern of names, as mutmut has them")
    parser.add_argument("--children", type=int, default=2, help="tried side by side")
    given = parser.parse_args()
    _copy_tree(COPY)
    if not (codes := _codes(COPY)):
        _mutmut(COPY, [FIRST], given.children)
        codes = _codes(COPY)
    tried = sample(codes, given.of, given.every)
    if not tried:
        print(f"No change is called {given.of}; for example: {next(iter(codes), None)}")
        return 2
    if rest := [name for name in tried if codes[name] is None]:  # mutmut tries all it is told
        _mutmut(COPY, rest, given.children)
    print(report(tried, _codes(COPY)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
