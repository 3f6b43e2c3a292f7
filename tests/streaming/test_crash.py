"""The switch that tests crash the job with: it must strike where it says, and nowhere else."""

import signal
import subprocess
import sys

import pytest

from coordlib.streaming.crash import VARIABLE, Crash

STEPS = """
from coordlib.streaming.crash import Crash
crash = Crash.from_environment()
for batch in (5, 7, 8):
    for place in ("batch-judged", "before-commit"):
        crash.strike(place, batch)
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


@pytest.mark.parametrize("given", ["before-comit:3", "before-commit", "tick:1:wait", "tick:soon"])
def test_a_switch_that_names_nothing_is_an_error(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that crashes nothing would pass."""
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ValueError, match=f"{VARIABLE}={given} "):
        Crash.from_environment()
