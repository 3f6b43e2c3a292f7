"""A whole stack, with a stand-in for the job: up, crash, leftovers, down."""

import re
import signal
from pathlib import Path

import pytest

from coordlib.errors import SetupError, StartRefused
from coordlib.local import stack_folder
from coordlib.local.processes import belonging_to
from coordlib.local.progress import silent
from coordlib.local.stack import Stack

pytestmark = pytest.mark.stack

STAND_IN = Path(__file__).with_name("stand_in_job.py")


@pytest.fixture
def with_address(stack: Stack) -> Stack:
    """A stack that knows where its broker will be: the stand-in for the job asks it nothing."""
    stack_folder.make(stack.home)
    stack.broker._choose_ports()
    stack._write_state()
    return stack


@pytest.mark.chaos
def test_job_is_stopped_cleanly_killed_wholly_and_found_again(with_address: Stack) -> None:
    stack = with_address
    started: list[str] = []
    stack.start_job(script=STAND_IN, progress=started.append)
    assert started[0] == "Starting the job ..."
    assert re.fullmatch(r"Starting the job: done in \d+\.\d s", started[1])
    assert started[2:] == ["  spent on session 2.0 s, first batch 3.5 s"]
    assert stack.status().job_state == "running"
    assert stack.job_pid == stack.job.last_status()["pid"]

    other_shell = Stack(stack.home, prefix="trial")
    assert other_shell.stop_job() == 0
    assert belonging_to(stack.home, "job") == []
    assert stack.status().job_state == "stopped"

    # The launcher alone is killed: JVM, driver and Python workers go on without it.
    stack.start_job(script=STAND_IN, progress=silent)
    launcher = stack.job.launcher
    assert launcher is not None
    launcher.signal(signal.SIGKILL)
    stack.job._reap()
    assert len(belonging_to(stack.home, "job")) > 2
    told: list[str] = []
    stack.start_broker(told.append)
    assert any("left without its launcher" in line for line in told)
    assert belonging_to(stack.home, "job") == []
    assert stack.status().job_state == "down"


def test_job_that_ends_is_told_with_its_last_lines(with_address: Stack) -> None:
    with pytest.raises(SetupError, match="ended with exit code 3") as error:
        with_address.start_job(["--exit", "3"], script=STAND_IN, progress=silent)
    assert "ending as asked" in error.value.where
    assert with_address.status().job_state == "down"


def test_down_keeps_the_records_and_wipe_deletes_them(stack: Stack) -> None:
    stack.start_broker(silent)
    first = stack.bootstrap_servers
    stack.down(progress=silent)
    assert belonging_to(stack.home) == []
    stack.start_broker(silent)
    assert stack.bootstrap_servers == first
    with pytest.raises(StartRefused, match="2 shards and 16 response partitions, not 3 and 16"):
        Stack(stack.home, prefix="trial", shards=3).start_broker(silent)
    stack.down(wipe=True, progress=silent)
    assert not stack.home.exists()


def test_two_commands_at_once_are_told_apart(stack: Stack) -> None:
    """`coord down` while `coord up` is still starting the job."""
    with stack._lock():
        stack._write_state()
        with pytest.raises(SetupError, match="Another command is starting or stopping"):
            stack.down(progress=silent)
