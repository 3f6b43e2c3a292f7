"""The member processes: started, killed, stopped; none of them outlives the demo."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from coordlib.client.kit.process import boottime_ns
from coordlib.demo.witness import Witness
from coordlib.errors import CoordError
from coordlib.local.home import last_lines
from coordlib.local.processes import belonging_to, environment_of

WitnessT = TypeVar("WitnessT", bound=Witness)
ROLE = "member"
#: The command of a member's process.
PYTHON: Final = "coordlib.demo.member"
SPARK: Final = "coordlib.demo.spark_member"
STOP_TIMEOUT_S = (
    60.0  # a batch of a query, letting go, a last commit and its answer; a busy machine
)


class Members(AbstractContextManager["Members[WitnessT]"], Generic[WitnessT]):
    """The members of one group, by name.

    Args:
        home: the stack's folder; witnesses and logs go there.
        topic: the topic that they share.
        config: configuration of a CoordinatedConsumer, without `client.id`.
        witness_of: reads a member's file.
    """

    def __init__(
        self,
        home: Path,
        topic: str,
        config: Mapping[str, Any],
        witness_of: Callable[[str, Path], WitnessT],
    ) -> None:
        self._home, self._topic, self._config = home, topic, dict(config)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._witness_of = witness_of
        self.witnesses: dict[str, WitnessT] = {}
        #: When members were killed, by the clock of the witnesses.
        self.killed_ns: dict[str, int] = {}

    @property
    def running(self) -> list[str]:
        """Those that were started, and neither killed nor stopped."""
        return list(self._running)

    def start(self, name: str, module: str = PYTHON, **config: Any) -> None:
        """Start one, and return at once.

        Args:
            name: of the member, and its client id unless `config` has another one.
            config: what differs from the configuration of all members, with `_` for `.`.
        """
        own = {"client.id": name, **{key.replace("_", "."): each for key, each in config.items()}}
        folder = self._home / "witnesses"
        folder.mkdir(exist_ok=True)
        self.witnesses[name] = self._witness_of(name, folder / f"{name}.txt")
        command = [
            *(sys.executable, "-m", module, "--topic", self._topic),
            *("--config", json.dumps(self._config | own)),
            *("--witness", str(self.witnesses[name].path)),
        ]
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_of(self._home, ROLE),
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its members
            )

    def kill(self, name: str) -> None:
        """SIGKILL to it and, if it is a query, its JVM: no commit, no leave, no last word."""
        killed = self._running.pop(name)
        _end(killed)
        self.killed_ns[name] = boottime_ns()

    def read_on(self) -> None:
        """Read all lines that they wrote since the last call.

        Raises:
            CoordError: one has ended without being asked.
        """
        ended = [name for name, running in self._running.items() if running.poll() is not None]
        for witness in self.witnesses.values():
            witness.read_on()
        if ended:
            name = ended[0]
            reason = self.witnesses[name].errors[-1:] or [last_lines(self._log(name), 3)]
            raise CoordError(f"{name} ended by itself.", reason[0], f"Its log: {self._log(name)}")

    def stop(self, *names: str) -> None:
        """SIGTERM to these, or to all, at once; wait until they have left their group."""
        stopping = [self._running.pop(name) for name in names or list(self._running)]
        deadline = time.monotonic() + STOP_TIMEOUT_S
        try:
            for running in stopping:
                running.terminate()
            for running in stopping:
                running.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as problem:
            raise CoordError(
                f"A member did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM.",
                str(self._home / "logs"),
                "Its log has the reason.",
            ) from problem
        finally:
            for running in stopping:
                _end(running)
            for witness in self.witnesses.values():
                witness.read_on()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._running.values():
            _end(running)

    def _log(self, name: str) -> Path:
        return self._home / "logs" / f"{name}.log"


def _end(running: subprocess.Popen[bytes]) -> None:
    """Kill a member with its children; each member leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        if running.returncode is None:
            os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def end_leftovers(home: Path) -> None:
    """End members that an interrupted demo may have left."""
    for program in belonging_to(home, ROLE):
        program.signal(signal.SIGKILL)
