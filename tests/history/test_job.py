"""jobs/archive.py and the loop that ends a job: arguments, exit codes, an end between batches."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from coordlib.errors import CannotReach, StartRefused
from coordlib.job import process
from coordlib.job.main import archive
from coordlib.spark_stopping import stop_between_batches


class FakeQuery:
    """Stands in for a streaming query that is in a batch for the first few looks."""

    def __init__(self, busy_looks: int = 0, ends: bool = False) -> None:
        self.busy_looks, self.ends = busy_looks, ends
        self.isActive, self.stopped_while_busy = True, False
        self.failure: Exception | None = None
        self.lastProgress: Any = None

    @property
    def status(self) -> dict[str, bool]:
        self.busy_looks -= 1
        return {"isTriggerActive": self.busy_looks >= 0}

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802  # Spark's name
        if self.failure is not None:
            raise self.failure
        return self.ends

    def stop(self) -> None:
        self.stopped_while_busy = self.busy_looks > 0
        self.isActive = False


def _run(queries: list[Any], flag: threading.Event) -> None:
    process.run_until_stopped(queries, flag)


def test_a_query_is_stopped_after_its_batch() -> None:
    """stop() in the middle of foreachBatch ends in a StackOverflowError."""
    query, flag = FakeQuery(busy_looks=5), threading.Event()
    flag.set()

    _run([query], flag)

    assert not query.isActive
    assert not query.stopped_while_busy


def test_a_batch_that_never_ends_is_given_up() -> None:
    query: Any = FakeQuery(busy_looks=10**9)

    stop_between_batches(query, timeout_s=0.05)

    assert not query.isActive


def test_the_failure_of_one_query_stops_the_others() -> None:
    good, bad = FakeQuery(), FakeQuery()
    bad.failure = RuntimeError("the archive failed")

    with pytest.raises(RuntimeError, match="the archive failed"):
        _run([good, bad], threading.Event())

    assert not good.isActive


def test_a_query_that_somebody_else_stopped_ends_the_loop() -> None:
    other = FakeQuery()

    _run([FakeQuery(ends=True), other], threading.Event())

    assert not other.isActive


def test_sigterm_sets_the_flag() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        flag = process.stop_flag_on_signals()
        assert not flag.is_set()

        os.kill(os.getpid(), signal.SIGTERM)

        assert flag.wait(60)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def test_the_pid_is_told_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(process.PID_VARIABLE, str(tmp_path / "driver.pid"))

    process.write_pid()

    assert (tmp_path / "driver.pid").read_text() == f"{os.getpid()}\n"
    assert len(list(tmp_path.iterdir())) == 1


ROOT = Path(__file__).parents[2]
GIVEN = ("--bootstrap-servers", "b:1", "--checkpoint", "c", "--tables", "t")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        ([], 2),
        ([*GIVEN, "--kafka", "x"], 2),
        ([*GIVEN, "--nothing"], 2),
        ([*GIVEN, "--max-offsets-per-trigger", "0"], 2),
    ],
)
def test_wrong_arguments_are_told_before_spark_starts(arguments: list[str], code: int) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "archive.py"), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert answer.returncode == code
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (None, 0),
        (CannotReach("No broker answers"), 1),
        (RuntimeError("java.io.IOException: No space left on device"), 1),
        (StartRefused("Another archive writes these tables"), 4),
    ],
)
def test_the_exit_code_says_whether_to_start_the_archive_again(
    problem: Exception | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor restarts on 1; into tables of another archive it would do so for ever."""

    def run(_: threading.Event) -> None:
        if problem is not None:
            raise problem

    monkeypatch.setattr("pyspark.sql.SparkSession", MagicMock())
    monkeypatch.setattr(archive, "stop_flag_on_signals", threading.Event)
    monkeypatch.setattr(archive.process, "configure", lambda: None)
    monkeypatch.setattr(archive, "Archive", lambda *_: SimpleNamespace(run=run))
    given = ["archive", "--bootstrap-servers", "b:1", "--checkpoint", "c", "--tables", "t"]
    monkeypatch.setattr(sys, "argv", given)

    assert archive.main() == code
