"""Processes of a test (`tests.kit.program`): started, waited for, suspended, killed, stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from coordlib.client.kit.process import boottime_ns

#: Longer than any wait should be, on a machine that does much else; who reaches it fails.
PATIENCE_S: Final = 180.0
LOOK_EVERY_S: Final = 0.03

ROOT: Final = Path(__file__).parents[2]
Place = tuple[str, int]
Line = dict[str, Any]


def launch(log: Path, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a module of the tests; what it prints goes to the end of `log`."""
    given = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([str(ROOT), *(given.split(os.pathsep) if given else ())])
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | {"PYTHONPATH": path},
            cwd=ROOT,
        )


class Witness:
    """One process, by the lines that it writes."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.witness, self.log = self.switch("jsonl"), self.switch("log")
        self.lines: list[Line] = []
        #: When it was killed (boot time); None: it was not.
        self.killed_ns: int | None = None
        self._read_bytes = 0

    def switch(self, what: str) -> Path:
        """While this file is there, the program does or leaves what its module says."""
        return self.folder / f"{self.name}.{what}"

    def told(self, *kinds: str) -> list[Line]:
        """The lines of these kinds."""
        return self.since(0, *kinds)

    def mark(self) -> int:
        """For `since`."""
        return len(self.lines)

    def since(self, mark: int, *kinds: str) -> list[Line]:
        """The lines of these kinds after a mark."""
        return [line for line in self.lines[mark:] if line["what"] in kinds]

    def read_on(self) -> None:
        """Take what was written since the last call, whole lines only."""
        if not self.witness.exists():
            return
        with self.witness.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(new)
        for text in new.splitlines():
            self.take(json.loads(text))

    def take(self, line: Line) -> None:
        """It has written this line."""
        self.lines.append(line)

    def died(self) -> None:
        """It was killed, and all its lines were taken."""
        self.killed_ns = boottime_ns()


WitnessT = TypeVar("WitnessT", bound=Witness)


class Processes(AbstractContextManager[Any], Generic[WitnessT]):
    """Some processes, by name; none outlives them.

    Args:
        folder: for witnesses, logs and switches.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[str, WitnessT] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            running.kill()  # also of one that is stopped by SIGSTOP
            running.wait()

    def __getitem__(self, name: str) -> WitnessT:
        return self.members[name]

    @property
    def running(self) -> list[str]:
        """Those that were neither killed nor stopped, and have not ended by themselves."""
        return [name for name, each in self._running.items() if each.poll() is None]

    def launch(self, member: WitnessT, module: str, **given: Any) -> WitnessT:
        """Start a `Program` that writes what this witness reads; paths are given as text."""
        self.members[member.name] = member
        arguments = member.name, str(self.folder), json.dumps(given, default=str)
        self._running[member.name] = launch(member.log, module, *arguments)
        return member

    def until(self, what: str, is_so: Callable[[], Any]) -> Any:
        """Wait until it is so, and return it; nobody may end meanwhile without being asked."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ended = [name for name, each in self._running.items() if each.poll() is not None]
            self.read_on()
            if found := is_so():
                return found
            assert not ended, f"{ended[0]} ended by itself: {self._end_of(ended[0])}"
            assert time.monotonic() < deadline, (
                f"{what}: not within {PATIENCE_S} s; {self._state()}"
            )
            time.sleep(LOOK_EVERY_S)

    def stop(self, *names: str) -> None:
        """SIGTERM to these, or to all, and wait until they have left: each ends well."""
        stopping = names or list(self._running)
        for name in stopping:
            self._running[name].terminate()
        for name in stopping:
            assert self.ended(name) == 0, self._end_of(name)

    def ended(self, name: str) -> int:
        """Wait until a process has ended; its exit code."""
        code = self._running[name].wait(PATIENCE_S)
        del self._running[name]
        self.read_on()
        return code

    def kill(self, name: str) -> int:
        """SIGKILL: no commit, no leave, no last word. Returns when (boot time, ns)."""
        killed = self._running.pop(name)
        at_ns = boottime_ns()
        killed.kill()
        killed.wait()
        self.read_on()
        self[name].died()
        return at_ns

    def suspend(self, name: str) -> int:
        """SIGSTOP. Returns when (boot time, ns)."""
        self._running[name].send_signal(signal.SIGSTOP)
        return boottime_ns()

    def resume(self, name: str) -> int:
        """SIGCONT. Returns when (boot time, ns)."""
        self._running[name].send_signal(signal.SIGCONT)
        return boottime_ns()

    def read_on(self) -> None:
        for member in self.members.values():
            member.read_on()

    def _state(self) -> str:
        return "; ".join(f"{name}: last {each.lines[-1:]}" for name, each in self.members.items())

    def _end_of(self, name: str) -> str:
        return self[name].log.read_text()[-2_000:] or str(self[name].lines[-3:])
