"""Member processes of one group (`tests.stack.member`), what they wrote down."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordlib.client.kit.process import boottime_ns
from tests.kit.processes import Line, Place, Processes, Witness


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


class Member(Witness):
    """One process, by its witness."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.wait, self.hold = self.switch("wait"), self.switch("hold")
        self.work, self.deaf = self.switch("work"), self.switch("deaf")
        self.readings: list[Reading] = []
        self.tenures: list[Tenure] = []
        #: Partition -> since when.
        self.owned: dict[Place, int] = {}
        self.member, self.generation, self.fence = "", -1, -1
        self._active_ns = 0

    def partitions(self, what: str) -> list[Place]:
        """Those of all lines of a kind."""
        return [_place(row) for line in self.told(what) for row in line["partitions"]]

    def take(self, line: Line) -> None:
        super().take(line)
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
        """It did nothing after its last line."""
        super().died()
        self._end(list(self.owned), self._active_ns)

    def _end(self, places: Iterable[Place], until_ns: int) -> None:
        for place in places:
            self.tenures.append(Tenure(self.name, place, self.owned.pop(place), until_ns))


def _place(row: list[Any]) -> Place:
    return row[0], row[1]


class Crew(Processes[Member]):
    """The processes of one group.

    Args:
        folder: for witnesses and logs.
        topic: what they share.
        config: of all of them.
    """

    def __init__(self, folder: Path, topic: str, config: dict[str, Any]) -> None:
        super().__init__(folder)
        self._topic, self._config = topic, config
        #: What was broken and fixed: (boot time, fault or healed, what it was).
        self.faults: list[tuple[int, str, str]] = []
        #: When processes had ended (boot time), and which.
        self.gone: list[tuple[int, str]] = []

    def start(
        self,
        *names: str,
        waits: bool = False,
        may_be_deaf: bool = False,
        program: str = "tests.stack.member",
        **config: Any,
    ) -> None:
        """Start processes, `a__b` for a key `a.b`; with `waits` they connect when `wait` is off.

        A key that is None is left out. `program` is the module that they run.
        """
        for name in names:
            member = Member(name, self.folder)
            if waits:
                member.wait.touch()
            own = {key.replace("__", "."): value for key, value in config.items()}
            settings = {k: v for k, v in (self._config | own).items() if v is not None}
            settings = {"client.id": name} | settings
            self.launch(member, program, config=settings, topics=self._topic, deaf=may_be_deaf)

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

    def kill(self, name: str) -> int:
        at_ns = super().kill(name)
        self.gone.append((boottime_ns(), name))
        return at_ns

    def stop(self, *names: str) -> None:
        stopping = names or tuple(self._running)
        super().stop(*names)
        self.gone += [(boottime_ns(), name) for name in stopping]

    def note(self, what: str, detail: str) -> None:
        """For the history: a `fault`, or that something is `healed`."""
        self.faults.append((boottime_ns(), what, detail))

    def suspend(self, name: str) -> int:
        self.note("fault", f"{name} is suspended")
        return super().suspend(name)

    def resume(self, name: str) -> int:
        self.note("healed", f"{name} goes on")
        return super().resume(name)

    @property
    def readings(self) -> list[Reading]:
        """Of all, in the order of time."""
        found = [reading for member in self.members.values() for reading in member.readings]
        return sorted(found, key=lambda each: each.at_ns)

    def _state(self) -> str:
        return "; ".join(
            f"{name}: generation {m.generation}, {sorted(m.owned)}, last told {m.lines[-1:]}"
            for name, m in self.members.items()
        )
