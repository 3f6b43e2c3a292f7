"""Launch a Spark job and forward signals to it, for `coord submit` and `spark-submit.sh`.

What spark-submit starts is a JVM; the Python driver is the JVM's child. SIGTERM to the JVM would
end it with 143 and orphan the driver. So the JVM runs in a process group of its own, which Ctrl-C
at the terminal does not reach, and SIGTERM, SIGINT and SIGHUP become one SIGTERM to the driver:
it stops between batches, and its exit code becomes ours. While there is no driver yet, the whole
group is ended. Processes of the group that are left afterwards are killed.

The driver writes its process id into the file that COORD_DRIVER_PID_FILE names, as soon as its
handlers are in place. COORD_EXIT_CODE_FILE, if set, names the file for the exit code.

All this is for client mode. With --deploy-mode cluster the driver would run on another machine: no
signal would reach it, and its exit code would stay there. It is refused.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from coordlib import exit_codes
from coordlib.errors import CoordError, SetupError
from coordlib.installation import require_job_modules
from coordlib.job.start_times import LAUNCHED_VARIABLE
from coordlib.local import class_archive, environment_archive, master, quiet_files, submission
from coordlib.local.home import coord_home
from coordlib.local.jars import ensure_jars
from coordlib.local.java import find_java
from coordlib.local.progress import to_stderr
from coordlib.redaction import in_clear, redacted, secrets_of, warning_of, without

PID_FILE_VARIABLE = "COORD_DRIVER_PID_FILE"
EXIT_FILE_VARIABLE = "COORD_EXIT_CODE_FILE"
GROUP_END_TIMEOUT_S = 10.0

_STDERR = 2
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """One running spark-submit: forwards the stop, waits, leaves nothing behind."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], pid_file: Path) -> None:
        self.command = list(command)
        self.environment = environment | {
            PID_FILE_VARIABLE: str(pid_file),
            LAUNCHED_VARIABLE: str(time.time()),
        }
        self.pid_file = pid_file
        self._child: subprocess.Popen[bytes] | None = None
        self._stop_asked = False

    def run(self) -> int:
        """Run to the end; returns the driver's exit code (128 + n if signal n ended it)."""
        self.pid_file.unlink(missing_ok=True)
        self._watch_signals()
        self._child = subprocess.Popen(
            self.command, env=self.environment, stdin=subprocess.DEVNULL, process_group=0
        )
        if self._stop_asked:  # it came between the handler and the child
            self._forward()
        code = self._child.wait()
        self._end_group(self._child.pid)
        self.pid_file.unlink(missing_ok=True)
        return code if code >= 0 else 128 - code

    def _watch_signals(self) -> None:
        for number in _STOP_SIGNALS:
            # Under nohup, SIGHUP stays ignored. SIGINT does not, though a shell's background
            # jobs start with it ignored: a SIGINT sent by hand must count.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stop_asked = True
        if self._child is not None:
            self._forward()
            _say_at_once(f"{signal.Signals(number).name}: asking the driver to stop")

    def _forward(self) -> None:
        assert self._child is not None
        with contextlib.suppress(ProcessLookupError):
            driver = self.driver_pid()
            if driver is not None:
                os.kill(driver, signal.SIGTERM)
            else:
                os.killpg(self._child.pid, signal.SIGTERM)

    def driver_pid(self) -> int | None:
        """The driver's id, if it is up. An id that is not of our group is a stale one."""
        assert self._child is not None
        try:
            pid = int(self.pid_file.read_text())
            return pid if os.getpgid(pid) == self._child.pid else None
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return None

    def _end_group(self, group: int) -> None:
        deadline = time.monotonic() + GROUP_END_TIMEOUT_S
        while time.monotonic() < deadline and _exists(group):
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _say_at_once(line: str) -> None:
    """A line on stderr from a handler of signals, where whoever reads it may be gone.

    Ctrl-C ends the `tee` behind a pipe, too, and a terminal that is closed takes no line. Nor may
    it wait for a buffer in which the next signal finds another line half-written.
    """
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{line}\n".encode())


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # macOS says so of a group of zombies
        return False
    return True


def submit(arguments: Sequence[str]) -> int:
    """Compose the command, show it on stderr without secrets, and run it.

    Raises:
        CoordError: the machine lacks something, or the command line is wrong.
    """
    if not os.environ.get("COORD_SPARK_HOME"):  # which brings a pyspark of its own
        require_job_modules()
    find_java()
    job = submission.Submission.parse(arguments)
    _refuse_driver_elsewhere(job)
    master.require_answer(job.master)
    jars = ensure_jars().spark
    with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=_run_folder()) as folder:
        properties = Path(folder) / "spark.properties"
        if job.is_local:
            made = quiet_files.jar(), class_archive.options(jars)
            submission.write_properties(properties, job.local_properties(jars, *made))
            jars = ()
        else:
            submission.write_properties(properties, job.properties())
        command = job.command(
            properties, jars, _environment_archive(job), submission.spark_home(os.environ)
        )
        to_stderr("+ " + shlex.join(redacted(command)))
        pid_file = Path(os.environ.get(PID_FILE_VARIABLE) or Path(folder) / "driver.pid")
        environment = submission.python_environment(job.is_local, os.environ)
        return Supervisor(command, environment, pid_file).run()


def _refuse_driver_elsewhere(job: submission.Submission) -> None:
    if job.runs_driver_elsewhere:
        raise SetupError(
            "The driver cannot run on the cluster: --deploy-mode cluster is not built.",
            "--deploy-mode, or spark.submit.deployMode",
            "Leave it out, and run this command under a supervisor (systemd, Kubernetes) on a "
            "machine that the executors can reach.",
        )


def _environment_archive(job: submission.Submission) -> str | None:
    if job.is_local or job.brings_environment:
        return None
    named = os.environ.get("COORD_ENV_ARCHIVE")
    if not named:
        return str(environment_archive.build(coord_home() / "env", to_stderr))
    if "://" not in named and not Path(named).is_file():
        raise SetupError(
            "There is no such environment archive.",
            f"COORD_ENV_ARCHIVE {named}",
            "Name one that is there, or unset it: then this environment is packed.",
        )
    return named


def _run_folder() -> Path:
    folder = coord_home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("[0-9]*-*"):  # of a launcher that was killed: may hold passwords
        if not _is_alive(int(left.name.split("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    return folder


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's, so it lives
        return True
    return True


def main(arguments: Sequence[str]) -> int:
    """Entry point of spark-submit.sh and of local stacks' jobs; returns the exit code."""
    for name in in_clear(arguments):
        to_stderr(warning_of(name))
    return run(arguments)


def run(arguments: Sequence[str]) -> int:
    """Submit, and print an error on stderr if that fails; returns the exit code of a job.

    The code is also written to the file that COORD_EXIT_CODE_FILE names, if it names one.
    """
    try:
        code = submit(arguments)
    except CoordError as error:
        to_stderr(without(str(error), secrets_of(arguments)))
        code = exit_codes.of_job(error)
    except OSError as error:  # a full disk, or a folder that is another user's
        to_stderr(f"The job was not started: {error.strerror or error}\n{error.filename or ''}")
        code = exit_codes.FAILED
    exit_file = os.environ.get(EXIT_FILE_VARIABLE)
    if exit_file:
        Path(exit_file).write_text(f"{code}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
