"""Processes of a test, and what each of them wrote down: started, waited for, stopped, killed."""

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from coordlib.client.kit.process import boottime_ns

#: Longer than any wait should be, on a machine that does much else; who reaches it fails.
PATIENCE_S = 180.0
LOOK_EVERY_S = 0.03

ROOT = Path(__file__).parents[2]
Place = tuple[str, int]


def launch(log: Path, module: str, *arguments: str, **options: str) -> "subprocess.Popen[bytes]":
    """Start a module of the tests; what it prints goes to the end of `log`.

    Args:
        options: behind the arguments: `work_s="1"` is `--work-s 1`.
    """
    for name, value in options.items():
        arguments += (f"--{name.replace('_', '-')}", value)
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


class Witness(ABC):
    """One process, by the lines of JSON that it writes."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.witness, self.log = folder / f"{name}.jsonl", folder / f"{name}.log"
        self.lines: list[dict[str, Any]] = []
        self._read_bytes = 0

    def told(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["what"] == what]

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

    @abstractmethod
    def take(self, line: dict[str, Any]) -> None:
        """It has written this line."""


WitnessT = TypeVar("WitnessT", bound=Witness)


class Processes(AbstractContextManager[Any], Generic[WitnessT]):
    """Some processes, by name; none outlives them.

    Args:
        folder: for witnesses and logs.
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

    def launch(self, member: WitnessT, module: str, *arguments: str) -> None:
        """Start a process that writes down what its witness reads."""
        self.members[member.name] = member
        self._running[member.name] = launch(member.log, module, *arguments)

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
        """SIGTERM to these (to all), and wait until they have left: each ends well."""
        stopping = {name: self._running.pop(name) for name in names or list(self._running)}
        for running in stopping.values():
            running.terminate()
        for name, running in stopping.items():
            try:
                assert running.wait(PATIENCE_S) == 0, self._end_of(name)
            finally:
                running.kill()
                running.wait()
        self.read_on()

    def ended(self, name: str) -> int:
        """Wait until a process has ended by itself; its exit code."""
        code = self._running[name].wait(PATIENCE_S)
        del self._running[name]
        self.read_on()
        return code

    def kill(self, name: str) -> int:
        """SIGKILL: no last word. Returns when (boot time, ns)."""
        killed = self._running.pop(name)
        at_ns = boottime_ns()
        killed.kill()
        killed.wait()
        self.read_on()
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
        return self.members[name].log.read_text()[-2_000:] or str(self.members[name].lines[-3:])
