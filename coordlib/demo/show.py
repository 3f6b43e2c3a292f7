"""Output of the demo: the line with its progress, the tables, the verdict."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from coordlib.demo.verdict import EXAMPLES_MAX, Check, Facts
from coordlib.demo.witness import Witness
from coordlib.local.progress import Progress

PrintTable = Callable[[Sequence[str], Iterable[Sequence[object]]], None]

TERMINAL_EVERY_S = 1.0
PLAIN_EVERY_S = 3.0  # in a log, every line stays


class Live:
    """Progress with the time since the start, and one line that is written over on a terminal."""

    def __init__(self, progress: Progress, stream: TextIO = sys.stderr) -> None:
        self._progress, self._stream = progress, stream
        self._is_terminal = stream.isatty()
        self._began = time.monotonic()
        self._shown_at = float("-inf")
        self._is_open = False

    def __call__(self, line: str) -> None:
        """A line that stays."""
        self.end()
        self._progress(self._timed(line))

    def show(self, text: str) -> None:
        """Show progress, at most once a second."""
        every_s = TERMINAL_EVERY_S if self._is_terminal else PLAIN_EVERY_S
        if time.monotonic() - self._shown_at < every_s:
            return
        self._shown_at = time.monotonic()
        if not self._is_terminal:
            self._progress(self._timed(text))
            return
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r{self._timed(text)[:width]}\x1b[K")
        self._stream.flush()
        self._is_open = True

    def end(self) -> None:
        """Keep the newest line of progress; the next one starts below."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def _timed(self, line: str) -> str:
        return f"{self.elapsed_s():6.1f} s  {line}"


def act(title: str) -> None:
    print(f"\n{title}\n{'=' * len(title)}")


def generations(facts: Facts, print_table: PrintTable) -> None:
    print("\nGenerations, from Delta")
    print_table(
        ["TIME", "GENERATION", "CAUSE", "DURATION", "MEMBERS"],
        [
            (each.time, each.number, each.cause, _seconds(each.duration_ms), " ".join(each.members))
            for each in facts.generations
        ],
    )


def owners(facts: Facts, print_table: PrintTable) -> None:
    print("\nOwners of each partition, from Delta")
    print_table(["GENERATION", *(f"P{each}" for each in facts.partitions)], _owners(facts))


def tenures(facts: Facts, print_table: PrintTable) -> None:
    """The tenures in a server-assigned group, where each partition moves on its own."""
    print("\nOwners of each partition, from Delta")
    print_table(
        ["PARTITION", "FENCE", "OWNER", "SINCE", "UNTIL"],
        [
            (each.partition, each.fence, each.member, each.since, each.until)
            for each in facts.tenures
        ],
    )


def partitions(facts: Facts, last: Mapping[int, int], print_table: PrintTable) -> None:
    """`last`: committed offsets of the killed member's partitions when it was removed."""
    print("\nPartitions at the end, from the members' witnesses, Delta and Kafka")
    read = Counter((each.partition, each.offset) for each in facts.consumed)
    twice = Counter(partition for (partition, _), count in read.items() if count > 1)
    readings = Counter(each.partition for each in facts.consumed)
    print_table(
        ["PARTITION", "READ", "TWICE", "COMMITTED-BEFORE-KILL", "COMMITTED", "LOG-END"],
        [
            [p, readings[p], twice[p], last.get(p), facts.committed.get(p), facts.log_ends[p]]
            for p in facts.partitions
        ],
    )


def verdict(checks: Sequence[Check]) -> None:
    """A line for each check, with what contradicts it."""
    print("\nVerdict")
    for check in checks:
        print(f"{'ok' if check.is_ok else 'FAILED':6}  {check.what}: {check.numbers}")
        for offence in check.offences[:EXAMPLES_MAX]:
            print(f"{'':8}{offence}")
        if len(check.offences) > EXAMPLES_MAX:
            print(f"{'':8}and {len(check.offences) - EXAMPLES_MAX:,} more")


def end(checks: Sequence[Check], elapsed_s: float) -> None:
    """The last line."""
    failed = sum(not check.is_ok for check in checks)
    how = f"{failed} of {len(checks)} checks FAILED" if failed else f"all {len(checks)} checks hold"
    print(f"\nDemo: {how}, after {elapsed_s:.0f} s")


def partitions_text(witness: Witness) -> str:
    """`2,3`, or `-` for none."""
    return ",".join(map(str, witness.partitions or ())) or "-"


def _owners(facts: Facts) -> list[list[object]]:
    """A row per generation, a field per partition; "-": superseded before it was assigned."""
    cells: dict[tuple[int, int], list[str]] = {}
    for owner in facts.owners:
        cells.setdefault((owner.generation, owner.partition), []).append(owner.member)
    return [
        [each.number, *("+".join(cells.get((each.number, p), [])) for p in facts.partitions)]
        for each in facts.generations
        if each.members
    ]


def _seconds(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else f"{duration_ms / 1000:.1f}s"
