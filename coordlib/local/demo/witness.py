"""What a member consumed, in a file of its own: one line per record, written when it is read.

    assigned <generation> <partition,…>
    record <partition> <offset> <number> <generation> <monotonic ns>
    commit <generation>            what stands above is committed, or will be
    revoked <generation>  lost <generation>
    error <text>

A line is handed to the operating system before the next message is asked for, so a SIGKILL takes
nothing away, and no record can be committed that is not in the file. The clock is the machine's
monotonic one, the same for all processes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Consumed:
    """One record, read by one member."""

    member: str
    partition: int
    offset: int
    number: int
    generation: int
    at_ns: int


class WitnessFile:
    """Written by a member."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)  # by the line
        self._generation = -1

    def assigned(self, generation: int, partitions: Sequence[int]) -> None:
        self._generation = generation
        self._write(f"assigned {generation} {','.join(map(str, sorted(partitions)))}")

    def record(self, partition: int, offset: int, number: int) -> None:
        at_ns = time.monotonic_ns()
        self._write(f"record {partition} {offset} {number} {self._generation} {at_ns}")

    def commit(self) -> None:
        self._write(f"commit {self._generation}")

    def revoked(self) -> None:
        self._write(f"revoked {self._generation}")

    def lost(self) -> None:
        self._write(f"lost {self._generation}")

    def error(self, text: object) -> None:
        self._write(f"error {' '.join(str(text).split())}")

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")


class Witness:
    """Read by the demo while it grows."""

    def __init__(self, member: str, path: Path) -> None:
        self.member, self.path = member, path
        self.consumed: list[Consumed] = []
        #: Of the last assignment; -1 before the first.
        self.generation = -1
        #: What it owns now; None: nothing was assigned, or it was taken back.
        self.partitions: tuple[int, ...] | None = None
        #: Records since it last asked for a commit.
        self.uncommitted = 0
        self.errors: list[str] = []
        self._read_bytes = 0

    def read_on(self) -> None:
        """Take what was written since the last call, complete lines only."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(new)
        for line in new.decode().splitlines():
            kind, _, rest = line.partition(" ")
            self._take(kind, rest)

    def _take(self, kind: str, rest: str) -> None:
        if kind == "record":
            partition, offset, number, generation, at_ns = map(int, rest.split(" "))
            self.consumed.append(
                Consumed(self.member, partition, offset, number, generation, at_ns)
            )
            self.uncommitted += 1
        elif kind == "assigned":
            generation_text, _, partitions = rest.partition(" ")
            self.generation = int(generation_text)
            self.partitions = tuple(int(each) for each in partitions.split(",") if each)
            self.uncommitted = 0
        elif kind == "commit":
            self.uncommitted = 0
        elif kind in ("revoked", "lost"):
            self.partitions = None
        elif kind == "error":
            self.errors.append(rest)
