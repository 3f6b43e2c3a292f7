"""What all groups of a shard wait for, at a glance: whose deadline is next, who waits for a tick,
how long the clock's steps may be, and how large they are together. Everything here can be
recomputed from the rows.  # INV-15
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from coordlib import limits
from coordlib.coordinators.shard.clock import NEVER
from coordlib.coordinators.shard.row import StoredRow


class Agenda:
    """An index over the rows of a shard, kept in step by `note`."""

    __slots__ = (
        "_check_interval_ms",
        "_timeouts",
        "cap_ms",
        "due",
        "expiring",
        "size_bytes",
        "uncovered",
    )

    def __init__(self, rows: Iterable[StoredRow], check_interval_ms: int) -> None:
        rows = list(rows)
        self._check_interval_ms = check_interval_ms
        #: (not later than the earliest deadline, group); rows may be stale, the cell knows.
        self.due = [(row.next_due_ms, row.name) for row in rows if row.next_due_ms < NEVER]
        heapify(self.due)
        #: (check at which retention may take something, group); likewise. No deadline, so no
        #: tick is written for it.
        self.expiring = [(self.check_of(row), row.name) for row in rows if row.expires_ms < NEVER]
        heapify(self.expiring)
        #: Groups that wait for a covering tick.
        self.uncovered = {row.name for row in rows if row.uncovered_min >= 0}
        #: How many groups have which shortest timeout.
        self._timeouts = Counter(row.timeout_ms for row in rows if row.timeout_ms)
        #: Rule 1: the longest step of the clock.
        self.cap_ms = self._find_cap()
        #: Upper bound of what the rows have in the blob.
        self.size_bytes = sum(row.size_bytes for row in rows)

    def note(
        self,
        row: StoredRow,
        timeout_before_ms: int,
        due_before_ms: int,
        expires_before_ms: int,
        before_bytes: int,
    ) -> None:
        """A row has changed: its bounds, its cover, its shortest timeout, its size."""
        self.size_bytes += row.size_bytes - before_bytes
        if row.timeout_ms != timeout_before_ms:
            self._timeouts[timeout_before_ms] -= 1
            self._timeouts[row.timeout_ms] += 1
            self.cap_ms = self._find_cap()
        if row.next_due_ms != due_before_ms:
            self.schedule(row)
        if row.expires_ms != expires_before_ms:
            self.schedule_expiry(row)
        if row.uncovered_min >= 0:
            self.uncovered.add(row.name)
        else:
            self.uncovered.discard(row.name)

    def forget(self, row: StoredRow) -> None:
        """The group is deleted; bounds that are left of it name nobody."""
        self.uncovered.discard(row.name)
        self.size_bytes -= row.size_bytes
        self._timeouts[row.timeout_ms] -= 1
        self.cap_ms = self._find_cap()

    def schedule(self, row: StoredRow) -> None:
        if row.next_due_ms < NEVER:
            heappush(self.due, (row.next_due_ms, row.name))

    def schedule_expiry(self, row: StoredRow) -> None:
        if row.expires_ms < NEVER:
            heappush(self.expiring, (self.check_of(row), row.name))

    def check_of(self, row: StoredRow) -> int:
        """The first check that is not before the row's bound."""
        return -(-row.expires_ms // self._check_interval_ms) * self._check_interval_ms

    def has_expiring(self, clock_ms: int) -> bool:
        return bool(self.expiring) and self.expiring[0][0] <= clock_ms

    def is_quiet(self, clock_ms: int) -> bool:
        """Whether neither a deadline nor retention has anything to do. Asked for every record."""
        due, expiring = self.due, self.expiring
        return not ((due and due[0][0] <= clock_ms) or (expiring and expiring[0][0] <= clock_ms))

    def pop_expiring(self) -> tuple[int, str]:
        return heappop(self.expiring)

    def has_due(self, clock_ms: int) -> bool:
        return bool(self.due) and self.due[0][0] <= clock_ms

    def pop(self) -> tuple[int, str]:
        """The earliest bound, and whose it was when it was noted."""
        return heappop(self.due)

    def _find_cap(self) -> int:
        """A fifth of the shortest timeout of any live member."""
        shortest = min((ms for ms, count in self._timeouts.items() if ms and count), default=0)
        return shortest // 5 if shortest else limits.CLOCK_CAP_IDLE_MS
