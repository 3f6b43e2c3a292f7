"""What a copier or writer of the act `transactions` writes down in its file, and what that says.

A line of its own is `unit {…}`: a unit of work was begun, has its records, was accepted by the
group, or has ended. The others are those of all witnesses. A line is with the operating system
before the step that follows it, so a SIGKILL loses none.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from coordlib.client.kit.process import boottime_ns
from coordlib.demo.witness import Witness, WitnessFile

#: How a unit ended. The outcome is unknown if its commit was called, and nobody said that it is
#: committed; also of a unit whose process was killed.
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of work of one copier; or a batch of one writer."""

    copier: str
    number: int
    began_ns: int
    #: Numbers of the records that it has written, in order.
    records: tuple[int, ...] = ()
    written_ns: int = -1
    #: When the group had accepted its offsets, and a writer's table had its rows; -1: not yet.
    accepted_ns: int = -1
    ended_ns: int = -1
    outcome: str = UNKNOWN


class CopyWitnessFile(WitnessFile):
    """Written by a copier, or a writer."""

    def unit(self, number: int, what: str) -> None:
        """`what`: began, written, accepted, or the outcome."""
        self._line("unit", json.dumps({"number": number, "what": what, "at_ns": boottime_ns()}))


class CopyWitness(Witness):
    """A copier's or writer's file, read by the demo while it grows."""

    def __init__(self, member: str, path: Path) -> None:
        super().__init__(member, path)
        #: By their numbers, which begin with 0.
        self.units: list[Unit] = []
        #: Readings before its newest unit.
        self._read_before = 0

    @property
    def waits_accepted(self) -> bool:
        """Whether its newest unit was accepted, and has not ended."""
        return bool(self.units) and self.units[-1].accepted_ns >= 0 > self.units[-1].ended_ns

    def _take(self, kind: str, rest: str) -> None:
        if kind != "unit":
            super()._take(kind, rest)
            return
        line = json.loads(rest)
        what, at_ns = line["what"], line["at_ns"]
        if what == "began":
            self._read_before = len(self.consumed)
            self.units.append(Unit(self.member, line["number"], at_ns))
            return
        unit = self.units[-1]
        if what == "written":
            numbers = tuple(each.number for each in self.consumed[self._read_before :])
            unit = replace(unit, records=numbers, written_ns=at_ns)
        elif what == "accepted":
            unit = replace(unit, accepted_ns=at_ns)
        else:
            unit = replace(unit, outcome=what, ended_ns=at_ns)
        self.units[-1] = unit
