"""Whether the tests that rows of the seeds' pages name fail without what the rows say.

    python -m tests.tools.seed_rows [--only PAGE-ROW]

`seed_rows.toml` has, for a row, the line that keeps it and the line without it. The package is
copied with that one line changed, and the row's test must fail there. A row without an entry has no
single line that could be taken out (several keep it, or what is absent), or none is written yet.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.tools.mutants import ROOT, Mutant, copy_to

TABLE: Final = Path(__file__).with_suffix(".toml")


class Break(NamedTuple):
    """What one row loses."""

    #: `003-21`: the page's name and the row's number.
    row: str
    #: Below coordlib/, as the row names it.
    file: str
    old: str
    new: str
    #: Below tests/, as the row names it.
    test: str


def breaks() -> list[Break]:
    """All of the table."""
    return [Break(**each) for each in tomllib.loads(TABLE.read_text())["break"]]


def is_caught(each: Break) -> bool:
    """Whether the row's test fails without the line."""
    with tempfile.TemporaryDirectory(prefix="coord-row-") as made:
        folder = Path(made).resolve()
        copy_to(folder, Mutant(each.row, "", "", (), 1, "", compares=False, test="x", patch=None))
        file = folder / "coordlib" / each.file
        text = file.read_text()
        assert text.count(each.old) == 1, f"{each.row}: the line is not there once"
        file.write_text(text.replace(each.old, each.new))
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        ran = subprocess.run(
            [sys.executable, "-m", *_command(each.test)],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{each.row} does not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    return ran.returncode == 1


def _command(test: str) -> list[str]:
    if test.endswith(".txt"):
        return ["tests.tools.transcript", f"tests/{test}"]
    return ["pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{test}"]


def _numbers_of_rows() -> Iterator[int]:
    for page in (ROOT / "coordlib/docs/seeds").glob("*.md"):
        yield sum(line[:3].strip("| ").isdecimal() for line in page.read_text().splitlines())


def main() -> int:
    """0: each of them is caught."""
    parser = argparse.ArgumentParser(description="Rows of the seeds' pages, each without its line.")
    parser.add_argument("--only", metavar="PAGE-ROW", help="a part of the row's name")
    wanted = parser.parse_args().only or ""
    chosen = [each for each in breaks() if wanted in each.row]
    missed = []
    for each in chosen:
        caught = is_caught(each)
        missed += [] if caught else [each.row]
        print(f"{each.row:22}{'caught' if caught else 'NOT CAUGHT'}  {each.test}", flush=True)
    rows = len({each.row for each in chosen})
    print(f"{rows} rows of {sum(_numbers_of_rows())} are broken, {rows - len(missed)} are caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
