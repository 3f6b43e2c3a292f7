"""A member's record of its reading, in a file of its own: one line per message, when it is read.

    started <ns>                                       closed <ns>
    assigned <ns> <generation> <fence> <partition,…>
    record <partition> <offset> <number> <generation> <ns>
    commit <ns> <generation> <partition:offset,…>      the lines above are committed, or will be
    committed <ns> <partition:offset,…>                refused <ns> <text>
    revoked <ns> <partition,…>                         lost <ns> <partition,…>
    began <ns> <run>                                   finished <ns> <run> <partition:offset,…>
    rewound <ns> <partition:offset,…>                  it reads again from there
    error <text>

A member with tokens of its own for each partition writes an `assigned` for each token. `began` and
`finished` are a Spark query's: a run of it begins; a batch of that run has ended up to there.

A line is handed to the operating system before the next message is asked for, so a SIGKILL loses
no line, and no record can be committed that is not in the file. Times are nanoseconds since
the machine's boot, the same for all processes.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coordlib.client.kit.process import boottime_ns

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Consumed:
    """One record, read by one member."""

    member: str
    partition: int
    offset: int
    number: int
    generation: int
    at_ns: int
    #: Of the assignment that gave it this partition.
    fence: int = -1
    #: Of a Spark query: the run that read it.
    run: int = -1


@dataclass(frozen=True, slots=True)
class Deed:
    """Another event of the member."""

    at_ns: int
    what: str
    generation: int = -1
    fence: int = -1
    partitions: tuple[int, ...] = ()
    offsets: Offsets = field(default_factory=dict)
    text: str = ""
    run: int = -1


class WitnessFile:
    """Written by a member, from any of its threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", buffering=1)  # by the line
        self._one_at_a_time = threading.Lock()
        self._generation = -1

    def started(self) -> None:
        self._write("started")

    def assigned(self, generation: int, partitions: Iterable[int], fence: int = -1) -> None:
        self._generation = generation
        self._write("assigned", generation, fence, _row(partitions))

    def assigned_by_fence(self, generation: int, fences: Mapping[int, int | None]) -> None:
        """A line for each token, at least one; None: there is no token."""
        for fence in sorted({-1 if each is None else each for each in fences.values()}) or [-1]:
            some = [p for p, each in fences.items() if each == (None if fence < 0 else fence)]
            self.assigned(generation, some, fence)

    def record(self, partition: int, offset: int, number: int) -> None:
        at_ns = boottime_ns()
        self._line("record", partition, offset, number, self._generation, at_ns)

    def commit(self, offsets: Offsets | None = None) -> None:
        self._write("commit", self._generation, _pairs(offsets or {}))

    def committed(self, offsets: Offsets) -> None:
        self._write("committed", _pairs(offsets))

    def refused(self, text: object) -> None:
        """A commit was refused: the next owner of the partition reads its records again."""
        self._write("refused", text)
        self.error(text)

    def revoked(self, partitions: Iterable[int] = ()) -> None:
        self._write("revoked", _row(partitions))

    def lost(self, partitions: Iterable[int] = ()) -> None:
        self._write("lost", _row(partitions))

    def rewound(self, offsets: Offsets) -> None:
        self._write("rewound", _pairs(offsets))

    def began(self, run: int) -> None:
        self._write("began", run)

    def finished(self, run: int, offsets: Offsets) -> None:
        self._write("finished", run, _pairs(offsets))

    def closed(self) -> None:
        self._write("closed")

    def error(self, text: object) -> None:
        self._line("error", text)

    def _write(self, kind: str, *fields: object) -> None:
        self._line(kind, boottime_ns(), *fields)

    def _line(self, *fields: object) -> None:
        with self._one_at_a_time:
            self._file.write(" ".join(" ".join(map(str, fields)).split()) + "\n")


def _row(partitions: Iterable[int]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _pairs(offsets: Offsets) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


class Witness:
    """A member's file, read by the demo while it grows."""

    def __init__(self, member: str, path: Path) -> None:
        self.member, self.path = member, path
        self.consumed: list[Consumed] = []
        self.deeds: list[Deed] = []
        #: Of the last assignment; -1 before the first.
        self.generation = -1
        #: The partitions that it owns now; None: none was assigned, or all were taken back.
        self.partitions: tuple[int, ...] | None = None
        #: Partition -> the token of the assignment that gave it.
        self.fences: dict[int, int] = {}
        #: Of a Spark query: the run that reads now.
        self.run = -1
        #: Records since its last assignment, and since it last asked for a commit.
        self.uncommitted = 0
        self.errors: list[str] = []
        self._read_bytes = 0

    def read_on(self) -> None:
        """Read the lines since the last call, complete ones only."""
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
            fence = self.fences.get(partition, -1)
            self.consumed.append(
                Consumed(self.member, partition, offset, number, generation, at_ns, fence, self.run)
            )
            self.uncommitted += 1
        elif kind == "error":
            self.errors.append(rest)
        else:
            deed = _deed(kind, *rest.split(" "))
            self.deeds.append(deed)
            self._follow(deed)

    def _follow(self, deed: Deed) -> None:
        if deed.what == "assigned":
            self.generation = deed.generation
            self.partitions = tuple(sorted({*(self.partitions or ()), *deed.partitions}))
            self.fences.update(dict.fromkeys(deed.partitions, deed.fence))
        if deed.what in ("revoked", "lost"):
            left = set(self.partitions or ()) - set(deed.partitions)
            self.partitions = tuple(sorted(left)) if left and deed.partitions else None
        if deed.what == "began":
            self.run = deed.run
        if deed.what in ("assigned", "commit"):
            self.uncommitted = 0


def unfinished(witness: Witness) -> list[Consumed]:
    """Readings of a Spark query in batches that did not end: these records are read again."""
    ends: dict[tuple[int, int], int] = {}
    for deed in witness.deeds:
        if deed.what == "finished":
            for partition, offset in deed.offsets.items():
                ends[deed.run, partition] = max(offset, ends.get((deed.run, partition), 0))
    return [
        each
        for each in witness.consumed
        if each.run >= 0 and each.offset >= ends.get((each.run, each.partition), 0)
    ]


def _deed(kind: str, at_ns: str, *rest: str) -> Deed:
    at = int(at_ns)
    if kind == "assigned":
        generation, fence, *row = rest
        return Deed(at, kind, int(generation), int(fence), partitions=_numbers(*row))
    if kind == "commit":
        generation, *pairs = rest
        return Deed(at, kind, int(generation), offsets=_by_partition(*pairs))
    if kind in ("committed", "rewound"):
        return Deed(at, kind, offsets=_by_partition(*rest))
    if kind in ("began", "finished"):
        run, *pairs = rest
        return Deed(at, kind, offsets=_by_partition(*pairs), run=int(run))
    if kind in ("revoked", "lost"):
        return Deed(at, kind, partitions=_numbers(*rest))
    return Deed(at, kind, text=" ".join(rest))


def _numbers(row: str = "") -> tuple[int, ...]:
    return tuple(int(each) for each in row.split(",") if each)


def _by_partition(pairs: str = "") -> dict[int, int]:
    split = (pair.split(":") for pair in pairs.split(",") if pair)
    return {int(partition): int(offset) for partition, offset in split}
