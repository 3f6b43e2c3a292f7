"""Launch a Spark job and forward signals to it, for `coord submit` and `spark-submit.sh`."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from coordlib import exit_codes, limits
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.installation import require_job_modules
from coordlib.job.main.arguments import claims_parser, coordinate_parser
from coordlib.job.process import LAUNCHED_VARIABLE
from coordlib.local import class_archive, environment_archive, submission
from coordlib.local.home import coord_home
from coordlib.local.jars import ensure_jars
from coordlib.local.java import find_java
from coordlib.local.progress import to_stderr
from coordlib.redaction import in_clear, redacted, secrets_of, warning_of, without

_SCHEME: Final = "spark://"
_PLACE: Final = re.compile(r"(?P<host>\[[^]\s,]+\]|[^:\s,\[\]]+):(?P<port>[0-9]{1,5})")
CONNECT_TIMEOUT_S: Final = 5.0


def require_answer(master: str) -> None:
    """Check that one of the masters accepts connections; returns at once for other managers.

    Args:
        master: as --master has it, `spark://HOST:PORT[,HOST:PORT…]`.

    Raises:
        SetupError: it names no host and port.
        CannotReach: none of them answers.
    """
    if not master.startswith(_SCHEME):
        return
    places = [_place(each, master) for each in master.removeprefix(_SCHEME).split(",")]
    problems = [problem for place in places if (problem := _silence_of(*place))]
    if len(problems) == len(places):
        raise CannotReach(
            "The Spark master does not answer.",
            f"{master}: {'; '.join(problems)}",
            "Start it, or correct --master; then start the job again.",
        )


def _place(text: str, master: str) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= limits.PORT_MAX:
        raise SetupError(
            "This names no Spark master.",
            f"--master {master[:200]}",
            "Name it as spark://HOST:PORT, several with commas between them.",
        )
    return found["host"].strip("[]"), int(found["port"])


def _silence_of(host: str, port: int) -> str | None:
    """Why nothing answers there; None: something does."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


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

    If the help of one of our jobs is asked for, print it; nothing is started for it.

    Raises:
        CoordError: the machine lacks something, or the command line is wrong.
    """
    job = submission.Submission.parse(arguments)
    if not os.environ.get("COORD_SPARK_HOME"):  # which brings a pyspark of its own
        require_job_modules()
    if job.helped is not None:
        _parser(job.helped).print_help()
        return exit_codes.OK
    find_java()
    _refuse_driver_elsewhere(job)
    require_answer(job.master)
    jars = ensure_jars().spark
    with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=_run_folder()) as folder:
        properties = Path(folder) / "spark.properties"
        if job.is_local:
            made = class_archive.quiet_jar(), class_archive.options(jars)
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


def _parser(job: str) -> ArgumentParser:
    """Of the arguments of a job, whose help needs neither Java nor Spark's start."""
    if job == submission.COORDINATE:
        return coordinate_parser()
    if job == submission.CLAIMS:
        return claims_parser()
    from coordlib.job.main.archive import archive_parser

    return archive_parser()


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
