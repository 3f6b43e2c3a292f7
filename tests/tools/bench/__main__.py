"""`python -m tests.tools.bench NAME`; `python -m tests.tools.bench --help` lists the names.

Without a word: four of them with moderate parameters, as `make bench`, in about ten minutes.
"""

import sys

from tests.tools.commands import main

RUNS = (
    ("bench", "core"),
    ("bench", "settle", "--repeats", "10"),
    ("bench", "load", "--seconds", "60"),
    ("bench", "history", "--days", "10", "--beside", "1", "--repeats", "2"),
    ("bench", "load", "--sweep", "--seconds", "20"),
)


def run_all() -> int:
    """Every benchmark, also when one before it failed; the first failure's exit code."""
    codes = [main(run) for run in RUNS]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]) if sys.argv[1:] else run_all())
