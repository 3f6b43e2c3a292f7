"""The demo as people run it, from start to verdict.

`make test` runs one act of it, with fewer records; `make chaos` runs all of it, and interrupts it.
"""

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
from coordlib.local.processes import belonging_to
from coordlib.local.progress import silent

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]  # two demos, on a busy machine

COORD = (sys.executable, "-m", "coordlib.cli.main.main")
TOOLS = (sys.executable, "-m", "tests.tools")
SHORT = (sys.executable, str(Path(__file__).with_name("short_demo.py")))
PATIENCE_S = 480.0  # what the demo is allowed to take


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A COORD_HOME of its own, with the jars that are there already; left without a process."""
    ensure_jars(silent)
    (tmp_path / "jars").symlink_to(coord_home() / "jars")
    yield tmp_path
    for program in belonging_to(tmp_path / "stacks" / "demo"):
        program.signal(signal.SIGKILL)


def test_an_act_ends_well(home: Path) -> None:
    """What most people try first of all."""
    _ends_well(_run(*SHORT, home=home), home, "history.jsonl")


@pytest.mark.chaos
def test_interrupted_leaves_nothing_running_and_the_next_run_ends_well(home: Path) -> None:
    """Ctrl-C while members consume; whoever tries again starts clean."""
    stack = home / "stacks" / "demo"
    log = home / "interrupted.log"
    with log.open("w") as written:
        running = subprocess.Popen(
            SHORT, env=_environment(home), stdout=written, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + PATIENCE_S
        while "Producing" not in log.read_text() and time.monotonic() < deadline:
            assert running.poll() is None, log.read_text()
            time.sleep(0.1)
        assert len(belonging_to(stack, "member")) == 3
        running.send_signal(signal.SIGINT)
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)  # impatient: it must not stop the stopping
        code = running.wait(PATIENCE_S)
    assert code == 130, log.read_text()
    assert belonging_to(stack) == []

    again = _run(*SHORT, home=home)
    assert "An earlier demo was left" in again.stderr
    _ends_well(again, home, "history.jsonl")


@pytest.mark.chaos
def test_the_whole_demo_ends_well(home: Path) -> None:
    """Both acts, with all records."""
    _ends_well(_run(*COORD, "demo", home=home), home, "history.jsonl", "history-assigned.jsonl")


def _ends_well(ran: subprocess.CompletedProcess[str], home: Path, *histories: str) -> None:
    """Five checks for each act, and what is left can be looked into."""
    stack = home / "stacks" / "demo"
    assert ran.returncode == 0, ran.stdout + ran.stderr
    checks = 5 * len(histories)
    assert ran.stdout.splitlines()[-1].startswith(f"Demo: all {checks} checks hold, after ")
    assert ran.stdout.count("session expired") == len(histories)  # one in each act
    for history in histories:
        checked = _run(*TOOLS, "check", str(stack / history))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert checked.stdout.endswith(" records processed: 0 broken promises\n")
    assert belonging_to(stack) == []

    owners = "select generation, partition from ownership where group_id = 'order-readers'"
    twice = f"select count(*) from ({owners} group by all having count(*) > 1)"
    for sql, count in ((f"select count(*) > 0 from ({owners})", "true"), (twice, "0")):
        asked = _run(*COORD, "sql", "--stack", "demo", sql, home=home)
        assert asked.stdout.split()[-1] == count, asked.stdout + asked.stderr
    asked = _run(
        *COORD, "groups", "history", "order-readers", "--owners", "--stack", "demo", home=home
    )
    assert "member-4" in asked.stdout, asked.stderr


def _run(*command: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=None if home is None else _environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"COORD_HOME": str(home)}
