"""Member processes of one group (`tests.stack.member`), what they wrote down."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from coordlib.client.shell.clock import boottime_ns

#: Longer than any wait should be, on a machine that does much else; who reaches it fails.
PATIENCE_S = 180.0
LOOK_EVERY_S = 0.03

ROOT = Path(__file__).parents[2]
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """One record, read by one process."""

    process: str
    member: str
    place: Place
    offset: int
    fence: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Tenure:
    """One process had one partition, from being told so to its last sign of having it."""

    process: str
    place: Place
    since_ns: int
    until_ns: int


class Member:
    """One process, by its witness."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.witness, self.log = folder / f"{name}.jsonl", folder / f"{name}.log"
        self.go, self.hold = folder / f"{name}.go", folder / f"{name}.hold"
        self.work, self.deaf = folder / f"{name}.work", folder / f"{name}.deaf"
        self.lines: list[dict[str, Any]] = []
        self.readings: list[Reading] = []
        self.tenures: list[Tenure] = []
        #: Partition -> since when.
        self.owned: dict[Place, int] = {}
        self.member, self.generation, self.fence = "", -1, -1
        #: When it was killed; None: it was not.
        self.killed_ns: int | None = None
        self._read_bytes, self._active_ns = 0, 0

    def told(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["what"] == what]

    def partitions(self, what: str) -> list[Place]:
        """Those of all lines of a kind."""
        return [_place(row) for line in self.told(what) for row in line["partitions"]]

    def mark(self) -> int:
        """For `since`."""
        return len(self.lines)

    def since(self, mark: int, *kinds: str) -> list[dict[str, Any]]:
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
            line = json.loads(text)
            self.lines.append(line)
            self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        what, at_ns = line["what"], line["at_ns"]
        if what == "record":
            place = line["topic"], line["partition"]
            self.readings.append(
                Reading(self.name, self.member, place, line["offset"], line["fence"], at_ns)
            )
        elif what == "assigned":
            self.member, self.generation = line["member"], line["generation"]
            self.fence = line["fence"]
            for row in line["partitions"]:
                assert _place(row) not in self.owned, f"{self.name} was given {row} twice"
                self.owned[_place(row)] = at_ns
        elif what == "query":
            self.member, self.generation = line["member"], line["generation"]
        elif what in ("revoked", "lost"):
            # Who lost something stopped before it was told: at the latest after its last deed.
            self._end(map(_place, line["partitions"]), self._active_ns if what == "lost" else at_ns)
        if what in ("assigned", "record", "revoked"):
            self._active_ns = at_ns

    def died(self) -> None:
        """It was killed: it did nothing after its last line."""
        self.killed_ns = boottime_ns()
        self._end(list(self.owned), self._active_ns)

    def _end(self, places: Iterable[Place], until_ns: int) -> None:
        for place in places:
            self.tenures.append(Tenure(self.name, place, self.owned.pop(place), until_ns))


def _place(row: list[Any]) -> Place:
    return row[0], row[1]


class Crew(AbstractContextManager["Crew"]):
    """The processes of one group; none outlives it.

    Args:
        folder: for witnesses and logs.
        topic: what they share.
        config: of all of them.
    """

    def __init__(self, folder: Path, topic: str, config: dict[str, Any]) -> None:
        self.folder, self._topic, self._config = folder, topic, config
        self.members: dict[str, Member] = {}
        #: What was broken and mended: (boot time, fault or healed, what it was).
        self.faults: list[tuple[int, str, str]] = []
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def start(
        self,
        *names: str,
        waits: bool = False,
        may_be_deaf: bool = False,
        program: str = "tests.stack.member",
        **config: Any,
    ) -> None:
        """Start processes, `a__b` for a key `a.b`; with `waits` they connect after `go` only.

        A key that is None is left out. `program` is the module that they run.
        """
        for name in names:
            member = self.members[name] = Member(name, self.folder)
            own = {key.replace("__", "."): value for key, value in config.items()}
            settings = {k: v for k, v in (self._config | own).items() if v is not None}
            command = [
                *(sys.executable, "-m", program, "--topics", self._topic),
                *("--config", json.dumps({"client.id": name} | settings)),
                *("--witness", str(member.witness), "--hold", str(member.hold)),
                *("--work", str(member.work)),
                *(("--deaf", str(member.deaf)) if may_be_deaf else ()),
                *(("--go", str(member.go)) if waits else ()),
            ]
            path = os.pathsep.join([str(ROOT), *_path()])
            with member.log.open("ab") as log:
                self._running[name] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"PYTHONPATH": path},
                    cwd=ROOT,
                )

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

    def until_shared(self, places: set[Place], *names: str) -> None:
        """Wait until these have these partitions among them, evenly, by one assignment."""
        members = [self.members[name] for name in names]

        def is_shared() -> bool:
            counts = [len(member.owned) for member in members]
            owned = [place for member in members for place in member.owned]
            is_even = max(counts) - min(counts) <= 1
            return (
                is_even and sorted(owned) == sorted(places) and len({m.fence for m in members}) == 1
            )

        self.until(f"{', '.join(names)} share {len(places)} partitions", is_shared)

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

    def kill(self, name: str) -> None:
        """SIGKILL: no commit, no leave, no last word."""
        killed = self._running.pop(name)
        killed.kill()
        killed.wait()
        self.read_on()
        self.members[name].died()

    def note(self, what: str, detail: str) -> None:
        """For the history: a `fault`, or that something is `healed`."""
        self.faults.append((boottime_ns(), what, detail))

    def suspend(self, name: str) -> None:
        self.note("fault", f"{name} is suspended")
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.note("healed", f"{name} goes on")
        self._running[name].send_signal(signal.SIGCONT)

    def read_on(self) -> None:
        for member in self.members.values():
            member.read_on()

    @property
    def readings(self) -> list[Reading]:
        """Of all, in the order of time."""
        found = [reading for member in self.members.values() for reading in member.readings]
        return sorted(found, key=lambda each: each.at_ns)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._running.values():
            running.kill()  # also of one that is stopped by SIGSTOP
            running.wait()

    def _state(self) -> str:
        return "; ".join(
            f"{name}: generation {m.generation}, {sorted(m.owned)}, last told {m.lines[-1:]}"
            for name, m in self.members.items()
        )

    def _end_of(self, name: str) -> str:
        return self.members[name].log.read_text()[-2_000:] or str(self.members[name].lines[-3:])


def _path() -> list[str]:
    given = os.environ.get("PYTHONPATH", "")
    return given.split(os.pathsep) if given else []
