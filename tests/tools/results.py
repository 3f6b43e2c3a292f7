"""What a long run has found so far, by commit: one that was cut goes on where its file ends.

One that has ended well leaves no file, so that the next begins anew.
"""

import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


@cache
def commit() -> str:
    """Of the sources here. Changed sources have a name that no other run has."""
    command = ["git", "describe", "--always", "--abbrev=40", f"--dirty=-{time.time_ns()}"]
    named = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return named.stdout.strip()


class PassedTests:
    """A pytest plugin: tests that the file has as passed are not run again. For one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = (line.split(" ", 1) for line in lines)
        self._passed = {test for of, test in pairs if of == commit()}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        done = [each for each in items if each.nodeid in self._passed]
        config.hook.pytest_deselected(items=done)
        items[:] = [each for each in items if each.nodeid not in self._passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            with self._path.open("a") as file:
                file.write(f"{commit()} {report.nodeid}\n")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            self._path.unlink(missing_ok=True)


if __name__ == "__main__":
    print(commit())
