"""The switch that tests crash the job with: it must crash where it says, and nowhere else."""

import os
import signal
import subprocess
import sys
from typing import Final

import pytest

from coordlib.job.crash import DRIVER_PLACES, PLACES, VARIABLE, WORKER_PLACES, CrashPoint

STEPS = """
from coordlib.job.crash import CrashPoint
crash = CrashPoint.from_environment()
for batch in (5, 7, 8):
    for place in ("batch-judged", "before-commit"):
        crash.maybe_crash(place, batch)
        print(place, batch, flush=True)
"""


def test_it_kills_at_its_place_in_the_first_batch_that_is_not_before_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches without input have no number, so the one that is named may never come by."""
    monkeypatch.setenv(VARIABLE, "before-commit:6")
    ended = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, timeout=60)

    assert ended.returncode == -signal.SIGKILL
    assert ended.stderr.splitlines() == [b"COORD_FAULT: before-commit in batch 7"]
    assert ended.stdout.splitlines()[-1] == b"batch-judged 7"


IN_A_THREAD: Final = """
import os, signal, threading
from coordlib.job.crash import CrashPoint
def strikes():
    for number in range(50):
        CrashPoint("tick", 0, signal.SIGSTOP).maybe_crash("tick", number)
        os.write(1, b"x")
thread = threading.Thread(target=strikes)
thread.start()
while thread.is_alive():
    thread.join(0.0001)
"""


def test_who_is_suspended_does_nothing_more_until_it_is_continued() -> None:
    """A batch is written in a thread of its own, and the kernel suspends a process by whichever
    thread it likes: the driver committed its transaction before it stood still, and no scenario
    about an open transaction was one."""
    running = subprocess.Popen(
        [sys.executable, "-c", IN_A_THREAD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert running.stdout is not None
    os.set_blocking(running.stdout.fileno(), False)
    written = []
    try:
        for _ in range(50):
            _, status = os.waitpid(running.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            written.append(running.stdout.read() or b"")
            running.send_signal(signal.SIGCONT)
    finally:
        running.kill()
        running.wait()
        running.stdout.close()

    assert written == [b""] + [b"x"] * 49


@pytest.mark.parametrize(
    "given", ["before-comit:3", "before-commit", "tick:1:wait", "tick:soon", "tick:1@brokers"]
)
def test_a_switch_that_names_nothing_is_an_error(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that crashes nothing would pass."""
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ValueError, match=f"{VARIABLE}={given} "):
        CrashPoint.from_environment()


@pytest.mark.parametrize(("given", "struck"), [("tick:1", "groups"), ("tick:1@claims", "claims")])
def test_one_plane_is_struck_and_the_other_is_not(
    given: str, struck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queries run in one process: a test of one of them must not end by the other's batch."""
    monkeypatch.setenv(VARIABLE, given)
    places = {
        pipeline: CrashPoint.from_environment(pipeline)._place for pipeline in ("groups", "claims")
    }

    assert {pipeline for pipeline, place in places.items() if place} == {struck}


def test_each_place_says_who_ends_there() -> None:
    """A test that waits for the driver's end at a place where only a worker ends waits for ever."""
    beside = {*PLACES} - {*DRIVER_PLACES} - {*WORKER_PLACES}

    assert not {*DRIVER_PLACES} & {*WORKER_PLACES}
    assert {*DRIVER_PLACES, *WORKER_PLACES} < {*PLACES}
    assert beside == {"decided", "fed", "tick"}
