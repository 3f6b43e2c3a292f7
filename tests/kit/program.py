"""A program of a test in a process of its own, which writes down what happens to it.

    python -m MODULE NAME FOLDER '{"config": {…}, …}'

Its lines go to FOLDER/NAME.jsonl, its witness. Each is a JSON object with `what` and `at_ns`, the
time since the machine's boot, the same for all processes. A line is handed to the operating system
before anything else is done, so a SIGKILL takes nothing away. While the test keeps the file
FOLDER/NAME.SWITCH, that switch is on.
"""

import json
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

from coordlib.client.kit.process import boottime_ns
from coordlib.errors import GroupError

LOOK_EVERY_S: Final = 0.02


class Program(ABC):
    """Works until SIGTERM or SIGINT, or until whoever started it is gone.

    Args:
        given: what `Processes.launch` was given for it.
    """

    def __init__(self, name: str, folder: Path, given: dict[str, Any]) -> None:
        self.name, self.folder, self.given = name, folder, given
        self._witness = self.switch("jsonl").open("a", buffering=1)  # by the line
        self._parent, self.stopped = os.getppid(), threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopped.set())

    @classmethod
    def main(cls) -> int:
        """Run it as the command line says; its exit code."""
        name, folder, given = sys.argv[1:]
        return cls(name, Path(folder), json.loads(given)).run()

    @abstractmethod
    def run(self) -> int:
        """Work until `is_over`; the exit code, 0 when all was well."""

    @property
    def is_over(self) -> bool:
        return self.stopped.is_set() or os.getppid() != self._parent

    def tell(self, what: str, **fields: Any) -> None:
        line = {"what": what, "at_ns": boottime_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")

    def failed(self, problem: Exception) -> int:
        """Tell of it; the exit code."""
        self.tell("failed", code=code_of(problem), text=str(problem))
        print(problem, file=sys.stderr)
        return 1

    def switch(self, what: str) -> Path:
        return self.folder / f"{self.name}.{what}"

    def is_on(self, what: str) -> bool:
        return self.switch(what).exists()

    def wait_while_on(self, switch: str, what: str = "", **fields: Any) -> None:
        """Go on when this switch is off; `what` is told of if it is on."""
        if what and self.is_on(switch):
            self.tell(what, **fields)
        while self.is_on(switch) and not self.is_over:
            time.sleep(LOOK_EVERY_S)


def code_of(problem: Exception) -> str:
    """The error's name in Kafka's protocol, or else of its class."""
    return problem.code.name if isinstance(problem, GroupError) else type(problem).__name__
