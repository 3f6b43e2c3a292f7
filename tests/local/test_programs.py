"""A process of a stack is found again by another command, and no other one is taken for it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from coordlib.local.processes import Program


@pytest.fixture
def running() -> Iterator[Program]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    program = Program.of(child.pid)
    assert program is not None
    yield program
    child.kill()
    child.wait()


def test_clock_that_was_set_makes_no_process_another_one(
    running: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop's virtual machine was asleep for the night. `coord status` said that the broker is
    down, and the next `coord up` killed broker and job, which were well."""
    running.record(tmp_path / "pid.json")
    by_clock = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: by_clock(self) + 8 * 3600)

    assert Program.recorded(tmp_path / "pid.json") == running


def test_process_that_has_taken_the_id_is_another_one(running: Program) -> None:
    boot, ticks = running.since_boot.split()

    assert running.is_running
    assert not replace(running, since_boot=f"{boot} {int(ticks) - 1}").is_running
    assert not replace(running, since_boot=f"other {ticks}").is_running, "before a restart"


def test_start_by_the_clock_counts_where_nothing_else_is_known(running: Program) -> None:
    """On macOS."""
    before = replace(running, since_boot="")

    assert before.is_running
    assert not replace(before, started_s=before.started_s - 60).is_running


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", "{}", '{"pid": 1}', '{"pid": "x", "started_s": 0}'),
        *('{"pid": -7, "started_s": 0}', '{"pid": 1e99, "started_s": 0}'),
    ],
)
def test_spoilt_file_names_no_process(text: str, tmp_path: Path) -> None:
    (tmp_path / "pid.json").write_text(text)

    assert Program.recorded(tmp_path / "pid.json") is None


def test_a_process_that_has_ended_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    program = Program.of(child.pid)
    assert program is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not program.is_running, "a zombie"
    child.wait()
    assert not program.is_running
