"""What all entities of a shard wait for, at a glance: the next deadline, who waits for a tick, how
long the clock's steps may be, and how large they are together. Everything here can be recomputed
from the rows.  # INV-15
"""

from collections import Counter
from collections.abc import Collection, Set
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

import msgspec

from coordlib import limits
from coordlib.core.engine.clock import NEVER
from coordlib.core.engine.kind import NOT_INDEXED, Facts
from coordlib.core.engine.transition import Key


class Noted(NamedTuple):
    """What some rows add to an agenda. Never changed: an agenda has lists of its own."""

    #: (not later than the earliest deadline, key), of rows that have one.
    due: list[tuple[int, Key]]
    #: (not later than the first time at which a look may find something, key), likewise.
    looks: list[tuple[int, Key]]
    #: (key, highest record whose answers somebody must be able to read first), likewise.
    waits: list[tuple[Key, int]]
    #: (key, requests whose transactions have to be asked about), likewise.
    reports: list[tuple[Key, msgspec.Raw]]
    #: Shortest timeouts of those who have any.
    timeouts: list[int]
    #: Partitions of the answers that members read, of each row.
    replies: list[tuple[int, ...]]
    #: Of all rows together.
    size_bytes: int


def note(rows: Collection[tuple[Key, Facts, int]]) -> Noted:
    """`rows`: key, facts, and the bytes of the row's tables."""
    return Noted(
        [(facts.next_due_ms, key) for key, facts, _ in rows if facts.next_due_ms < NEVER],
        [(facts.look_at_ms, key) for key, facts, _ in rows if facts.look_at_ms < NEVER],
        [(key, facts.waits_to) for key, facts, _ in rows if facts.waits_from >= 0],
        [(key, facts.report) for key, facts, _ in rows if facts.report != NOT_INDEXED],
        [facts.timeout_ms for _, facts, _ in rows if facts.timeout_ms],
        [facts.replies for _, facts, _ in rows],
        sum(facts.size_bytes + entries for _, facts, entries in rows),
    )


class Agenda:
    """An index over the facts of a shard's rows, kept in step by `replace`."""

    __slots__ = (
        "_check_interval_ms",
        "_replies",
        "_timeouts",
        "cap_ms",
        "deadlines",
        "due",
        "looks",
        "reports",
        "size_bytes",
        "waits",
    )

    def __init__(self, noted: Collection[Noted], check_interval_ms: int) -> None:
        self._check_interval_ms = check_interval_ms
        #: (not later than the earliest deadline, key); may be stale, the row's facts decide.
        self.due = list(chain.from_iterable(each.due for each in noted))
        #: How many entities have a deadline.
        self.deadlines = len(self.due)
        heapify(self.due)
        #: (check at which a look may find something, key); likewise. No deadline, so no tick is
        #: written for it.
        self.looks = [
            (self._check(look_at_ms), key) for each in noted for look_at_ms, key in each.looks
        ]
        heapify(self.looks)
        #: Entities that wait for a covering tick, and up to which record.
        self.waits = dict(chain.from_iterable(each.waits for each in noted))
        #: What entities report to the driver.
        self.reports = dict(chain.from_iterable(each.reports for each in noted))
        #: How many entities have which shortest timeout.
        self._timeouts = Counter(chain.from_iterable(each.timeouts for each in noted))
        #: How many entities have members that read the answers of these partitions.
        self._replies = Counter(chain.from_iterable(each.replies for each in noted))
        #: Rule 1: the longest step of the clock.
        self.cap_ms = self._find_cap()
        #: Upper bound of what the rows have in the blob.
        self.size_bytes = sum(each.size_bytes for each in noted)

    @property
    def uncovered(self) -> Set[Key]:
        """Entities that wait for a covering tick."""
        return self.waits.keys()

    @property
    def replies(self) -> set[int]:
        """Partitions of the answers that members read."""
        return {reply for some, count in self._replies.items() if count for reply in some}

    def replace(self, key: Key, before: Facts | None, after: Facts | None) -> None:
        """A row has other facts now; None: it was not there before, or is gone.

        What is left in the heaps of a row that is gone names nobody.
        """
        self.size_bytes += (after.size_bytes if after else 0) - (before.size_bytes if before else 0)
        self._count(before, after)
        if after is None or after.waits_from < 0:
            self.waits.pop(key, None)
        else:
            self.waits[key] = after.waits_to
        if after is None or after.report == NOT_INDEXED:
            self.reports.pop(key, None)
        else:
            self.reports[key] = after.report
        if after is None:
            return
        if before is None or after.next_due_ms != before.next_due_ms:
            self.schedule(key, after)
        if before is None or after.look_at_ms != before.look_at_ms:
            self.schedule_look(key, after)

    def _count(self, before: Facts | None, after: Facts | None) -> None:
        timeout_before_ms = before.timeout_ms if before else 0
        timeout_ms = after.timeout_ms if after else 0
        if timeout_ms != timeout_before_ms:
            self._timeouts[timeout_before_ms] -= 1
            self._timeouts[timeout_ms] += 1
            self.cap_ms = self._find_cap()
        for facts, one in ((before, -1), (after, 1)):
            if facts is not None:
                self.deadlines += one if facts.next_due_ms < NEVER else 0
                self._replies[facts.replies] += one

    def schedule(self, key: Key, facts: Facts) -> None:
        if facts.next_due_ms < NEVER:
            heappush(self.due, (facts.next_due_ms, key))

    def schedule_look(self, key: Key, facts: Facts) -> None:
        if facts.look_at_ms < NEVER:
            heappush(self.looks, (self.check_of(facts), key))

    def check_of(self, facts: Facts) -> int:
        """The first check that is not before the row's bound."""
        return self._check(facts.look_at_ms)

    def _check(self, look_at_ms: int) -> int:
        return -(-look_at_ms // self._check_interval_ms) * self._check_interval_ms

    def has_look(self, clock_ms: int) -> bool:
        return bool(self.looks) and self.looks[0][0] <= clock_ms

    def is_quiet(self, clock_ms: int) -> bool:
        """Whether there is neither a deadline nor a look. Asked for every record."""
        due, looks = self.due, self.looks
        return not ((due and due[0][0] <= clock_ms) or (looks and looks[0][0] <= clock_ms))

    def pop_look(self) -> tuple[int, Key]:
        return heappop(self.looks)

    def has_due(self, clock_ms: int) -> bool:
        return bool(self.due) and self.due[0][0] <= clock_ms

    def pop(self) -> tuple[int, Key]:
        """The earliest bound, and whose it was when it was noted."""
        return heappop(self.due)

    def _find_cap(self) -> int:
        """A fifth of the shortest timeout of any live member."""
        shortest = min((ms for ms, count in self._timeouts.items() if ms and count), default=0)
        return shortest // 5 if shortest else limits.CLOCK_CAP_IDLE_MS
