"""Watch witnesses, production and job while they run; show their progress; wait for events."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic

from coordlib.demo.members import Members, WitnessT
from coordlib.demo.production import Production
from coordlib.demo.show import Live, partitions_text
from coordlib.demo.witness import Deed, Witness
from coordlib.errors import CoordError
from coordlib.local.stack import Stack

STEP_TIMEOUT_S = 90.0  # a rebalance after a session of 10 s takes 12; a busy machine more
STALL_TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.03


class Looking(ABC, Generic[WitnessT]):
    """Watches processes and job of an act, shows their progress, and waits for events."""

    def __init__(self, stack: Stack, members: Members[WitnessT], live: Live) -> None:
        self.stack, self.members, self.live = stack, members, live
        self._job_seen_at = 0.0
        #: False while the course has the job down.
        self.is_job_wanted = True

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait for a condition, and show progress meanwhile.

        Raises:
            CoordError: it did not come in time, or a process has ended.
        """
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while not self._look(is_so):
            if time.monotonic() > deadline:
                raise CoordError(
                    f"Not within {STEP_TIMEOUT_S:.0f} s: {what}",
                    self._text(),
                    f"Logs and witnesses are in {self.stack.home}",
                )
            time.sleep(LOOK_EVERY_S)

    def _look(self, is_so: Callable[[], bool]) -> bool:
        self.members.read_on()
        self._check()
        if self.is_job_wanted and time.monotonic() - self._job_seen_at > 1.0:
            self._job_seen_at = time.monotonic()
            if not self.stack.job.is_running:
                where = self.stack.last_job_lines(5)
                raise CoordError("The job has ended.", where, f"Its log: {self.stack.job.log}")
        if is_so():
            return True
        self.live.show(self._text())
        return False

    @abstractmethod
    def _check(self) -> None:
        """Raises CoordError when what gives the processes work has failed."""

    @abstractmethod
    def _text(self) -> str:
        """How far it is, in a line."""


class Watch(Looking[Witness]):
    """Watches the members of a group, and the records that they share."""

    def __init__(
        self,
        stack: Stack,
        members: Members[Witness],
        production: Production,
        live: Live,
        *,
        records: int,
        partitions: int,
    ) -> None:
        super().__init__(stack, members, live)
        self._records, self._partitions, self.production = records, partitions, production
        self._counted: dict[str, int] = {}
        self._read: set[int] = set()
        #: When positions were set back, and to where.
        self.rewound: list[Deed] = []

    def consumed(self) -> int:
        """Different records consumed so far."""
        for name, witness in self.members.witnesses.items():
            known = self._counted.get(name, 0)
            self._read.update(each.number for each in witness.consumed[known:])
            self._counted[name] = len(witness.consumed)
        return len(self._read)

    def is_shared_among(self, names: list[str] | tuple[str, ...], after: int = -1) -> bool:
        """Whether each of these owns partitions in one generation, and together they own all."""
        found = [self.members.witnesses[name] for name in names]
        if any(not each.partitions or each.generation <= after for each in found):
            return False
        owned = [each for witness in found for each in witness.partitions or ()]
        return len({each.generation for each in found}) == 1 and len(owned) == self._partitions

    def is_divided_among(self, names: Iterable[str]) -> bool:
        """Whether these own the partitions evenly, in any generations, and none has two owners."""
        found = [self.members.witnesses[name].partitions or () for name in names]
        owned = sorted(each for some in found for each in some)
        counts = [len(some) for some in found]
        return max(counts) - min(counts) <= 1 and owned == list(range(self._partitions))

    def all_consumed(self) -> None:
        """Wait until every record is consumed, or none was for a long time (the verdict fails)."""
        best, heard_at = -1, time.monotonic()
        while not self._look(lambda: self.consumed() >= self._records):
            if self.consumed() > best:
                best, heard_at = self.consumed(), time.monotonic()
            elif time.monotonic() - heard_at > STALL_TIMEOUT_S:
                self.live(f"Nothing new was consumed for {STALL_TIMEOUT_S:.0f} s: giving up")
                return
            time.sleep(LOOK_EVERY_S)
        self.live(f"All {self._records:,} records are consumed")

    def _check(self) -> None:
        self.production.check()

    def _text(self) -> str:
        found = self.members.witnesses.values()
        generation = max((each.generation for each in found), default=-1)
        owners = "  ".join(
            f"{name}: {partitions_text(self.members.witnesses[name])}"
            for name in self.members.running
        )
        percent = self.consumed() * 100 // self._records
        return (
            f"produced {len(self.production.placed):,}  consumed {self.consumed():,} "
            f"({percent} %)  generation {max(generation, 0)}  {owners}"
        )
