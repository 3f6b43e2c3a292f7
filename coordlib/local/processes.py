"""Operating-system processes, also after their parent is gone, and the ports that they hold."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from coordlib.errors import NotReady
from coordlib.local.home import command_for

STACK_VARIABLE = "COORD_STACK"
ROLE_VARIABLE = "COORD_ROLE"  # broker | job

_START_TIME_SLACK_S = 2.0  # the boot time that start times count from moves when the clock is set
_START_TICKS = 19  # of /proc/PID/stat, counted behind the program's name: proc(5)


@dataclass(frozen=True, slots=True)
class Program:
    """One running or past process: its id, and when it started in epoch seconds."""

    pid: int
    started_s: float
    #: The boot, and the clock ticks from it to the start; empty: not known.
    since_boot: str = ""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this id now, if any."""
        try:
            return cls(pid, psutil.Process(pid).create_time(), _since_boot(pid))
        except psutil.NoSuchProcess:
            return None

    @classmethod
    def recorded(cls, path: Path) -> Self | None:
        """The process that a file of `record` names, if it runs still; None for a spoilt file."""
        try:
            found = json.loads(path.read_text())
            program = cls(int(found["pid"]), float(found["started_s"]), str(found["since_boot"]))
            return program if program.is_running else None
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return None

    def record(self, path: Path) -> None:
        """Keep it for other commands."""
        path.write_text(json.dumps(asdict(self)))

    @property
    def is_running(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        try:
            is_zombie = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
            return not is_zombie and self._is_same(self.of(self.pid))
        except psutil.NoSuchProcess:
            return False

    def _is_same(self, found: Self | None) -> bool:
        if found is None:
            return False
        if self.since_boot and found.since_boot:
            return self.since_boot == found.since_boot
        return abs(found.started_s - self.started_s) < _START_TIME_SLACK_S

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process is gone."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _since_boot(pid: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return f"{boot} {stat.rpartition(')')[2].split()[_START_TICKS]}"
    except (OSError, IndexError):  # not Linux, or the process has ended
        return ""


def environment_of(stack: Path, role: str) -> dict[str, str]:
    """The environment for a program of a stack, marked so that it can be found again.

    A stack may be started in any folder: the Python files there are no modules of its programs.
    """
    marks = {STACK_VARIABLE: str(stack), ROLE_VARIABLE: role}
    return os.environ | marks | {"PYTHONSAFEPATH": "1"}


def belonging_to(stack: Path, role: str | None = None) -> list[Program]:
    """Every running program of a stack, of one role or of any; never the caller itself."""

    def is_ours(environment: dict[str, str]) -> bool:
        same = environment.get(STACK_VARIABLE) == str(stack)
        return same and role in (None, environment.get(ROLE_VARIABLE))

    found = [Program.of(p.pid) for p in _search(is_ours) if p.pid != os.getpid()]
    return [program for program in found if program is not None]


def _search(is_wanted: Callable[[dict[str, str]], bool]) -> Iterable[psutil.Process]:
    for found in psutil.process_iter():
        try:
            if found.status() != psutil.STATUS_ZOMBIE and is_wanted(found.environ()):
                found.create_time()
                yield found
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # gone, or another user's
            continue


def describe(pid: int) -> str:
    """`pid 123 (java)`, as far as it can be told."""
    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return f"pid {pid}"


LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports without a listener at this moment, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def require_free(port: int, stack: Path) -> None:
    """Check that a port can be bound.

    Raises:
        NotReady: a process holds it; the message names it, as far as this user may see it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no holder
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise NotReady(
                f"Port {port} is taken by {_holder(port)}.",
                f"{LOOPBACK}:{port}, which this stack used before",
                "Stop that program, or take new ports with: "
                f"{command_for(stack, 'up --new-ports')} (nothing stored is lost).",
            ) from error


def is_answering(port: int) -> bool:
    """Whether a process accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _holder(port: int) -> str:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):  # macOS asks for root
        return "another program"
    pids = [c.pid for c in connections if c.laddr and c.laddr.port == port and c.pid]
    return describe(pids[0]) if pids else "another program"
