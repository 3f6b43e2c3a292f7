"""Signals: they reach the driver behind the JVM, its exit code comes back, nothing is left.

A short Python program stands for the JVM: it starts a child, the driver, and ends with its code.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coordlib.exit_codes import FAILED, USAGE
from coordlib.local.submit import Supervisor, run

JVM = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
DRIVER = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
pathlib.Path(os.environ["COORD_DRIVER_PID_FILE"]).write_text(str(os.getpid()))
time.sleep(60)
"""
NOT_UP_YET = """
import os, pathlib, time
pathlib.Path(os.environ["STARTED"]).write_text(str(os.getpid()))
time.sleep(60)
"""
SUPERVISOR = """
import os, pathlib, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
from coordlib.local.submit import Supervisor
pid_file, *command = sys.argv[1:]
sys.exit(Supervisor(command, dict(os.environ), pathlib.Path(pid_file)).run())
"""


def launch(tmp_path: Path, driver: str, stderr: int | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path / "driver.pid")]
    command += [sys.executable, "-c", JVM, driver]
    environment = os.environ | {"STARTED": str(tmp_path / "started")}
    return subprocess.Popen(command, env=environment, stderr=stderr)


def wait_for(path: Path) -> int:
    """The process id in a file, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_reaches_the_driver_and_its_exit_code_comes_back(
    number: signal.Signals, tmp_path: Path
) -> None:
    """A supervisor restarts the job on a machine's shutdown if the exit code is not 0."""
    running = launch(tmp_path, DRIVER.format(code=0))
    driver = wait_for(tmp_path / "driver.pid")
    running.send_signal(number)
    assert running.wait(60) == 0
    assert not is_alive(driver)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_stop_reaches_the_driver_when_nobody_reads_what_is_said(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C ends `coord submit … 2>&1 | tee job.log` together with its tee, which is faster."""
    reader, writer = os.pipe()
    running = launch(tmp_path, DRIVER.format(code=0), stderr=writer)
    os.close(writer)
    driver = wait_for(tmp_path / "driver.pid")
    os.close(reader)
    running.send_signal(number)
    code = running.wait(60)
    was_left = is_alive(driver)
    if was_left:
        os.killpg(os.getpgid(driver), signal.SIGKILL)
    assert (code, was_left) == (0, False)


def test_failing_driver_is_reported(tmp_path: Path) -> None:
    running = launch(tmp_path, "import sys; sys.exit(7)")
    assert running.wait(60) == 7


def test_stop_before_the_driver_is_up_ends_the_whole_group(tmp_path: Path) -> None:
    """Ctrl-C two seconds after the start: the JVM is up, the driver is still importing."""
    running = launch(tmp_path, NOT_UP_YET)
    starting = wait_for(tmp_path / "started")
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 128 + signal.SIGTERM
    assert not is_alive(starting)


def test_stale_pid_file_signals_nobody_else(tmp_path: Path) -> None:
    """The pid in the file of a killed run belongs to another program by now."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        running = launch(tmp_path, NOT_UP_YET)
        wait_for(tmp_path / "started")
        (tmp_path / "driver.pid").write_text(str(bystander.pid))
        running.send_signal(signal.SIGTERM)
        running.wait(60)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    ("variable", "value", "what", "code"),
    [
        ("COORD_SPARK_HOME", "/no/spark", "There is no Spark", USAGE),
        ("COORD_ENV_ARCHIVE", "/no/env.tar.gz", "There is no such environment archive", USAGE),
        ("COORD_HOME", "/proc/no", "The job was not started: No such file", FAILED),
    ],
)
def test_machine_that_lacks_something_is_told_in_words(
    variable: str,
    value: str,
    what: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A unit with a mistyped setting ended with 1, and was started again every two seconds."""
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("COORD_EXIT_CODE_FILE", str(tmp_path / "exit-code"))
    monkeypatch.setattr(Supervisor, "run", lambda _: 0)

    assert run(["--master", "yarn", "coordinate"]) == code
    assert what in capsys.readouterr().err
    assert (tmp_path / "exit-code").read_text() == f"{code}\n"


def test_script_of_a_checkout_is_found_by_a_link_and_beside_a_cdpath(tmp_path: Path) -> None:
    """/usr/local/bin/coord-submit -> /opt/coordlib/spark-submit.sh."""
    checkout = tmp_path / "opt" / "coordlib"
    checkout.mkdir(parents=True)
    script = checkout / "spark-submit.sh"
    script.write_bytes((Path(__file__).parents[2] / "spark-submit.sh").read_bytes())
    (tmp_path / "link").symlink_to(script)
    environment = {"PATH": os.environ["PATH"], "CDPATH": str(tmp_path)}

    for called in (tmp_path / "link", "opt/coordlib/spark-submit.sh"):
        told = subprocess.run(
            ["bash", str(called)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.stderr.splitlines()[1] == str(checkout / ".venv/bin/python")
