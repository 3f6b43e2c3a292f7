"""Batches that a Delta table decides, timed where they happen and where others can see them. Pure.

    read ─▶ written: the table has it, which is the decision ─▶ claimed: the group's offsets count

A group reads one partition, and each of its batches has the same number of records: so a committed
position tells which batch it is.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from coordlib.job.background.committed_log import read_record
from tests.tools.bench.figures import spread


@dataclass
class Batches:
    """Those of all groups. Spark's threads come here, and the one that reads what is committed."""

    #: Records of each.
    records: int
    #: (group, number of the batch) -> when it was read, and when it was written.
    _read_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _written_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _claimed_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _count: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, group: str, now_s: float) -> int:
        """A batch begins; its number in this group."""
        with self._lock:
            number = self._count.get(group, 0)
            self._count[group] = number + 1
            self._read_s[group, number] = now_s
            return number

    def written(self, group: str, number: int, now_s: float) -> None:
        """The table has it."""
        with self._lock:
            self._written_s[group, number] = now_s

    def committed(self, key: bytes | None, value: bytes | None, now_s: float) -> None:
        """A record of the topic of committed offsets was read."""
        change = read_record(key, value)
        if change is None or change.offset is None or change.offset % self.records:
            return  # of others
        with self._lock:
            self._claimed_s[change.group, change.offset // self.records - 1] = now_s

    @property
    def count(self) -> int:
        """Of written ones."""
        with self._lock:
            return len(self._written_s)

    def written_between(self, from_s: float, until_s: float) -> dict[str, Any]:
        """The figures of those that were written then."""
        with self._lock:
            some = [each for each, at in self._written_s.items() if from_s <= at < until_s]
            written = [self._written_s[each] - self._read_s[each] for each in some]
            claimed = list(self._claimed_in(some))
        return {
            "batches": len(some),
            "commits_per_s": round(len(some) / (until_s - from_s), 2),
            "written_s": spread(written, 0.5, 0.99, 1.0),
            "claimed_s": spread(claimed, 0.5, 0.99, 1.0),
            "not_claimed": len(some) - len(claimed),
        }

    def _claimed_in(self, some: list[tuple[str, int]]) -> Iterator[float]:
        for each in some:
            if (claimed_s := self._claimed_s.get(each)) is not None:
                yield claimed_s - self._read_s[each]


def added(once: dict[str, Any], plain: dict[str, Any]) -> float | None:
    """What the unit of rows and offsets adds to a batch, seconds at the median."""
    with_unit, without = once["written_s"]["p50"], plain["written_s"]["p50"]
    return None if with_unit is None or without is None else round(with_unit - without, 3)
