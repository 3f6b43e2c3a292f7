"""The demo as people run it: interrupted in the middle, and then from start to verdict."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.local.home import coord_home
from coordlib.local.jars import ensure_jars
from coordlib.local.programs import belonging_to
from coordlib.local.progress import silent

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]  # two demos, on a busy machine

COORD = (sys.executable, "-m", "coordlib.cli.main")
PATIENCE_S = 480.0  # what the demo is allowed to take


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A COORD_HOME of its own, with the jars that are there already; left without a process."""
    ensure_jars(silent)
    (tmp_path / "jars").symlink_to(coord_home() / "jars")
    yield tmp_path
    for program in belonging_to(tmp_path / "stacks" / "demo"):
        program.signal(signal.SIGKILL)


def test_interrupted_leaves_nothing_running_and_the_next_run_ends_well(home: Path) -> None:
    """Ctrl-C while members consume; whoever tries again starts clean."""
    environment = os.environ | {"COORD_HOME": str(home)}
    log = home / "interrupted.log"
    with log.open("w") as written:
        running = subprocess.Popen(
            [*COORD, "demo"], env=environment, stdout=written, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + PATIENCE_S
        while "Producing" not in log.read_text() and time.monotonic() < deadline:
            assert running.poll() is None, log.read_text()
            time.sleep(0.1)
        stack = home / "stacks" / "demo"
        assert len(belonging_to(stack, "member")) == 3
        running.send_signal(signal.SIGINT)
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)  # impatient: it must not stop the stopping
        code = running.wait(PATIENCE_S)
    assert code == 130, log.read_text()
    assert belonging_to(stack) == []

    again = subprocess.run(
        [*COORD, "demo"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert "An earlier demo was left" in again.stderr
    assert again.stdout.splitlines()[-1].startswith("Demo: all 12 checks hold, after ")
    assert again.stdout.count("session expired") == 2  # one in each act
    for history in ("history.jsonl", "history-assigned.jsonl"):
        checked = subprocess.run(
            [*COORD, "log", "check", str(stack / history)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert checked.stdout.endswith(" records processed: 0 broken promises\n")
    assert belonging_to(stack) == []

    asked = subprocess.run(
        [*COORD, "groups", "history", "order-readers", "--owners", "--stack", "demo"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "member-4" in asked.stdout, asked.stderr
