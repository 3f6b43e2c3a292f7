"""Whether the tests that rows of the seeds' pages name fail without what the rows say.

    python -m tests.tools.seed_rows [--only PAGE-ROW]

`seed_rows.toml` has, for a row, the line that keeps it and the line without it. In a copy of the
package that one line is changed, and the row's test must fail there. Each row without an entry is
listed there below the reason why it has none.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from tests.tools.mutants import Mutant, copy_to

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


def without() -> dict[str, list[str]]:
    """The rows that have no entry, by the reason."""
    found: dict[str, list[str]] = tomllib.loads(TABLE.read_text())["without"]
    return found


def is_caught(each: Break, folder: Path) -> bool:
    """Whether the row's test fails without the line; `folder`: a copy, which stays as it is."""
    file = folder / "coordlib" / each.file
    text = file.read_text()
    assert text.count(each.old) == 1, f"{each.row}: the line is not there once"
    file.write_text(text.replace(each.old, each.new))
    # Python tells a changed file by its second and size: no compiled module may be left behind.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", *_command(each.test)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    file.write_text(text)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{each.row} does not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    return ran.returncode == 1


def _command(test: str) -> list[str]:
    if test.endswith(".txt"):
        return ["tests.tools.transcript", f"tests/{test}"]
    return ["pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{test}"]


def main() -> int:
    """0: each of them is caught."""
    parser = argparse.ArgumentParser(description="Rows of the seeds' pages, each without its line.")
    parser.add_argument("--only", metavar="PAGE-ROW", help="a part of the row's name")
    wanted = parser.parse_args().only or ""
    chosen = [each for each in breaks() if wanted in each.row]
    missed = []
    with tempfile.TemporaryDirectory(prefix="coord-rows-") as made:
        folder = Path(made).resolve()
        copy_to(folder, Mutant("", "", "", (), 1, "", compares=False, test="all", patch=None))
        for each in chosen:
            caught = is_caught(each, folder)
            missed += [] if caught else [each.row]
            print(f"{each.row:22}{'caught' if caught else 'NOT CAUGHT'}  {each.test}", flush=True)
    rows = {each.row for each in chosen}
    print(f"{len(rows)} rows are broken, {len(rows - set(missed))} are caught")
    for reason, others in without().items():
        print(f"{len(others):4} rows without an entry: {reason}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
