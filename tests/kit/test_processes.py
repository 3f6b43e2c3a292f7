"""Processes of tests do what tests take for granted of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.processes import Processes, Witness
from tests.kit.program import Program


class Counter(Program):
    """Counts while its switch is off, and ends as it was asked to."""

    def run(self) -> int:
        number = 0
        while not self.is_over:
            self.wait_while_on("hold", "held", at=number)
            number += 1
            self.tell("counted", number=number)
            self.stopped.wait(0.01)
        self.tell("closed")
        return int(self.given["exit_code"])


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes[Witness]]:
    with Processes[Witness](tmp_path) as processes:
        yield processes


def start(processes: Processes[Witness], name: str, exit_code: int = 0) -> Witness:
    witness = Witness(name, processes.folder)
    return processes.launch(witness, "tests.kit.test_processes", exit_code=exit_code)


def test_a_switch_holds_a_program_and_a_signal_ends_it(processes: Processes[Witness]) -> None:
    one = start(processes, "one")
    processes.until("it counts", lambda: one.told("counted"))
    one.switch("hold").touch()
    processes.until("it is held", lambda: one.told("held"))
    assert one.lines[-1] == one.told("held")[0], "nothing comes behind it"
    processes.stop("one")

    assert one.lines[-1]["what"] == "closed"
    assert processes.running == []
    assert one.killed_ns is None


def test_who_is_suspended_or_killed_tells_nothing_more(processes: Processes[Witness]) -> None:
    one = start(processes, "one")
    processes.until("it counts", lambda: one.told("counted"))
    processes.suspend("one")
    processes.resume("one")
    mark = one.mark()
    processes.until("it goes on", lambda: one.since(mark, "counted"))
    at_ns = processes.kill("one")

    assert not one.told("closed")
    assert one.killed_ns is not None
    assert one.lines[-1]["at_ns"] <= one.killed_ns
    assert at_ns <= one.killed_ns


def test_who_ends_badly_or_by_itself_fails_the_test(processes: Processes[Witness]) -> None:
    bad, gone = start(processes, "bad", exit_code=1), start(processes, "gone")
    processes.until("both count", lambda: bad.told("counted") and gone.told("counted"))
    with pytest.raises(AssertionError, match="closed"):
        processes.stop("bad")
    processes._running["gone"].terminate()
    with pytest.raises(AssertionError, match="gone ended by itself"):
        processes.until("never", lambda: False)

    assert processes.ended("gone") == 0


if __name__ == "__main__":
    sys.exit(Counter.main())
