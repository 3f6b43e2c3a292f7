"""The job of a local stack: launched as `coord submit` does, found again from any shell."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coordlib.errors import NotReady
from coordlib.job.process import BEGIN_VARIABLE
from coordlib.local import home
from coordlib.local.home import command_for
from coordlib.local.processes import Program, belonging_to, environment_of
from coordlib.local.stack_folder import PRIVATE_UMASK
from coordlib.local.submission import COORDINATE
from coordlib.local.submit import EXIT_FILE_VARIABLE, PID_FILE_VARIABLE

READY_TIMEOUT_S = 120.0  # Spark starts in 5-8 s, its first batch takes 2-4 s; a busy machine more
STOP_TIMEOUT_S = 60.0  # one batch, at worst after a backlog, and Spark's own stop


class Job:
    """One job in a stack's folder."""

    def __init__(self, stack: Path) -> None:
        self.stack = stack
        self.log = stack / "logs" / "job.log"
        self.status_file = stack / "job.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # earlier runs' lines would mislead

    @property
    def launcher(self) -> Program | None:
        """The running supervisor of spark-submit (submit.py)."""
        return Program.recorded(self.stack / "launcher.json")

    @property
    def is_running(self) -> bool:
        """Whether its launcher runs, starting and stopping included."""
        return self.launcher is not None

    @property
    def driver_pid(self) -> int | None:
        """Process id of the Python driver; None while it is not up."""
        try:
            pid = int((self.stack / "driver.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        ours = {program.pid for program in belonging_to(self.stack, "job")}
        return pid if pid in ours else None

    @property
    def state(self) -> str:
        """running, starting, stopped, or down: it ended without being asked, or with an error."""
        if self.is_running:
            return "running" if self.last_status().get("state") == "running" else "starting"
        ended_well = self.exit_code == 0 or not (self.stack / "launcher.json").exists()
        return "stopped" if ended_well else "down"

    @property
    def exit_code(self) -> int | None:
        """Of the last run; None while it runs, or if it was killed."""
        try:
            return int((self.stack / "exit-code").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def last_status(self) -> dict[str, Any]:
        """The job's newest status file; empty before its first batch."""
        try:
            last_status = json.loads(self.status_file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return last_status if isinstance(last_status, dict) else {}

    def start(
        self,
        arguments: Sequence[str],
        spark_args: Sequence[str] = (),
        script: str | Path = COORDINATE,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        """Launch, and return when the job reports that it runs.

        Raises:
            SetupError: it runs already, ended, or is not ready in time; with its last lines.
        """
        self.launch(arguments, spark_args, script)
        self.wait_until_ready(timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """SIGTERM; SIGKILL to all of it after `timeout_s`. Returns the driver's exit code."""
        launcher = self.launcher
        if launcher is not None:
            launcher.signal(signal.SIGTERM)
            if not self._wait_until_gone(launcher, timeout_s):
                self.kill()
        self._reap()
        code = self.exit_code
        (self.stack / "launcher.json").unlink(missing_ok=True)
        return code

    def kill(self) -> None:
        """SIGKILL all processes of the job; returns when none is left."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while (left := belonging_to(self.stack, "job")) and time.monotonic() < deadline:
            for program in left:
                program.signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait_for_child(0.05)
        self._reap()

    def last_lines(self, count: int) -> str:
        """The end of the job's log, of the run that was started here if any."""
        return home.last_lines(self.log, count, self._log_start)

    def launch(
        self,
        arguments: Sequence[str],
        spark_args: Sequence[str] = (),
        script: str | Path = COORDINATE,
        begin_file: Path | None = None,
    ) -> None:
        """Launch, and return at once.

        Args:
            begin_file: the job waits for this file before it asks for the broker.

        Raises:
            NotReady: it runs already.
        """
        if self.is_running:
            hint = f"Stop it first: {command_for(self.stack, 'down')}"
            raise NotReady("The job runs already.", str(self.stack), hint)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        for stale in (self.status_file, self.stack / "driver.pid", self.stack / "exit-code"):
            stale.unlink(missing_ok=True)
        environment = environment_of(self.stack, "job")
        if begin_file is not None:
            environment[BEGIN_VARIABLE] = str(begin_file)
        environment[PID_FILE_VARIABLE] = str(self.stack / "driver.pid")
        environment[EXIT_FILE_VARIABLE] = str(self.stack / "exit-code")
        command = [
            sys.executable,
            "-m",
            "coordlib.local.submit",
            *spark_args,
            str(script),
            *arguments,
        ]
        self._log_start = home.size_of(self.log)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                umask=PRIVATE_UMASK,
                start_new_session=True,  # it outlives the terminal
            )
        launcher = Program.of(self._child.pid)
        assert launcher is not None  # our own child, not yet reaped
        launcher.record(self.stack / "launcher.json")

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when a launched job reports that it runs. Raises as `start`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._child is not None and self._child.poll() is not None:
                raise self._not_ready(f"The job ended with exit code {self._child.returncode}")
            if self._child is None and not self.is_running:  # launched by another command
                code = self.exit_code
                raise self._not_ready(
                    "The job was killed" if code is None else f"The job ended with exit code {code}"
                )
            if self.last_status().get("state") == "running":
                return
            time.sleep(0.1)
        error = self._not_ready(f"The job is not ready after {timeout_s:.0f} s")
        self.kill()
        raise error

    def _not_ready(self, what: str) -> NotReady:
        return NotReady(what, self.last_lines(12), f"The whole log is in {self.log}")

    def _wait_until_gone(self, program: Program, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait_for_child(0.05)
            if not program.is_running:
                return True
        return False

    def _wait_for_child(self, timeout_s: float) -> None:
        if self._child is None:
            time.sleep(timeout_s)
        else:
            self._child.wait(timeout_s)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None
