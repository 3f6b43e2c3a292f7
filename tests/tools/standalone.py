"""Spark's standalone cluster as processes on this machine: a master, and workers of one core each.

Its classes are among pyspark's jars, so nothing is installed for it. Executors are processes that a
worker starts; they get what the job ships, and nothing else: no PYTHONPATH of the tests.

All its processes have COORD_STACK=<folder> and COORD_ROLE=cluster in their environment, executors
and their Python workers too, so `stop` finds what was left behind.
"""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from coordlib.errors import NotReady
from coordlib.local import home
from coordlib.local.home import pyspark_home
from coordlib.local.java import find_java
from coordlib.local.processes import (
    LOOPBACK,
    Program,
    belonging_to,
    environment_of,
    free_ports,
    is_answering,
)

START_TIMEOUT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.1
_ROLE: Final = "cluster"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
#: C1 only: these JVMs do little, and start in half the time.
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
#: What a worker offers executors; nobody counts what they use.
WORKER_MEMORY: Final = "1g"


class Standalone:
    """One cluster in a folder of its own.

    Args:
        folder: for logs, and for what executors fetch and unpack.
        workers: how many, of one core each.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self._port = free_ports(1)[0]
        self._names = [f"worker-{number}" for number in range(workers)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """For --master."""
        return f"spark://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Returns when every worker has registered. Raises NotReady."""
        self.start_master()
        for name in self._names:
            self.launch_worker(name)
        for name in self._names:
            self.wait_for_worker(name)

    def start_master(self) -> None:
        """Returns when it accepts connections."""
        place = ("--host", LOOPBACK, "--port", str(self._port), "--webui-port", "0")
        self._launch("master", _MASTER, place)
        self._wait("master", lambda: is_answering(self._port))

    def launch_worker(self, name: str, *before: str) -> None:
        """Start one, and return at once.

        Args:
            before: a command that runs the worker's, such as `unshare`.
        """
        place = ("--host", LOOPBACK, "--webui-port", "0", "--work-dir", str(self.folder / name))
        size = ("--cores", "1", "--memory", WORKER_MEMORY)
        self._launch(name, _WORKER, (*place, *size, self.master), before)

    def wait_for_worker(self, name: str) -> None:
        """Returns when it has registered with the master. Raises NotReady."""
        self._wait(name, lambda: "Successfully registered with master" in self.log(name))

    def log(self, name: str) -> str:
        """What the master or a worker has printed."""
        return self._log_file(name).read_text()

    def executors(self, worker: str | None = None) -> list[Program]:
        """The executors that run, of one worker or of all."""
        parent = self._running[worker].pid if worker else None
        return [
            program
            for program in belonging_to(self.folder, _ROLE)
            if _is_executor(program.pid, parent)
        ]

    def application(self, name: str) -> str:
        """The id of the newest application of this name that has registered, by the master."""
        registered = re.findall(
            rf"Registered app {re.escape(name)} with ID (\S+)", self.log("master")
        )
        return str(registered[-1])

    def executors_of(self, application: str) -> list[Program]:
        """Of one application, by its id."""
        return [each for each in self.executors() if application in _command_of(each.pid)]

    def at_work(self) -> list[Program]:
        """The executors that have got a task: environment and jars are there."""
        return [each for each in self.executors() if "Got assigned task" in _printed_by(each.pid)]

    def kill(self, name: str) -> None:
        """SIGKILL to the master, or to a worker with its executors: as if the machine were gone."""
        doomed = self.executors(name) if name != "master" else []
        self._running.pop(name).kill()
        for executor in doomed:
            _kill_tree(executor)

    def kill_executor(self, worker: str) -> None:
        """SIGKILL to the executors of a worker, with their Python workers; it goes on."""
        for executor in self.executors(worker):
            _kill_tree(executor)

    def suspend(self, worker: str) -> None:
        """SIGSTOP to a worker and all below it: a machine that is cut off, whose connections stay
        open."""
        for process in _tree(self._running[worker].pid):
            process.suspend()

    def resume(self, worker: str) -> None:
        for process in _tree(self._running[worker].pid):
            process.resume()

    def stop(self) -> None:
        """SIGKILL to all that this cluster has started; returns when nothing of it is left."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while (left := belonging_to(self.folder, _ROLE)) and time.monotonic() < deadline:
            for program in left:
                program.signal(signal.SIGKILL)
            for child in self._running.values():
                child.poll()
            time.sleep(LOOK_EVERY_S)
        for child in self._running.values():
            child.wait()
        self._running.clear()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(
        self, name: str, main_class: str, arguments: Sequence[str], before: Sequence[str] = ()
    ) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = environment_of(self.folder, _ROLE)
        for ours in ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV"):
            environment.pop(ours, None)
        environment |= {
            "SPARK_HOME": str(pyspark_home()),
            "SPARK_SCALA_VERSION": _scala_version(),  # or a worker looks for Spark's own sources
            "SPARK_LOCAL_IP": LOOPBACK,
        }
        java = (str(find_java().path), *_JVM, "-cp", f"{pyspark_home()}/jars/*", main_class)
        with self._log_file(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*before, *java, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def _wait(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_ready():
            if self._running[name].poll() is not None or time.monotonic() > deadline:
                raise NotReady(
                    f"The {name} of the cluster did not start.",
                    home.last_lines(self._log_file(name), 12, 0),
                    f"The whole log is in {self._log_file(name)}",
                )
            time.sleep(LOOK_EVERY_S)

    def _log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _scala_version() -> str:
    (core,) = (pyspark_home() / "jars").glob("spark-core_*.jar")
    return core.name.split("_")[1].split("-")[0]


def _is_executor(pid: int, parent: int | None) -> bool:
    try:
        return _EXECUTOR in _command_of(pid) and parent in (None, psutil.Process(pid).ppid())
    except psutil.NoSuchProcess:
        return False


def _command_of(pid: int) -> list[str]:
    """Empty: it is gone."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return []


def _printed_by(pid: int) -> str:
    """By an executor: its worker keeps that in the folder that it runs in."""
    try:
        return (Path(psutil.Process(pid).cwd()) / "stderr").read_text(errors="replace")
    except (psutil.NoSuchProcess, FileNotFoundError):
        return ""


def _tree(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill_tree(executor: Program) -> None:
    for process in _tree(executor.pid):
        Program(process.pid, process.create_time()).signal(signal.SIGKILL)
