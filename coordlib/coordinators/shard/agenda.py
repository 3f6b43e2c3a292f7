"""What all entities of a shard wait for, at a glance: the next deadline, who waits for a tick, how
long the clock's steps may be, and how large they are together. Everything here can be recomputed
from the rows.  # INV-15
"""

from collections import Counter
from collections.abc import Collection
from heapq import heapify, heappop, heappush

from coordlib import limits
from coordlib.coordinators.shard.clock import NEVER
from coordlib.coordinators.shard.kind import Facts
from coordlib.coordinators.shard.transition import Key


class Agenda:
    """An index over the facts of a shard's rows, kept in step by `replace`."""

    __slots__ = (
        "_check_interval_ms",
        "_timeouts",
        "cap_ms",
        "due",
        "looks",
        "size_bytes",
        "uncovered",
    )

    def __init__(self, rows: Collection[tuple[Key, Facts, int]], check_interval_ms: int) -> None:
        """`rows`: key, facts, and the bytes of the row's tables."""
        self._check_interval_ms = check_interval_ms
        #: (not later than the earliest deadline, key); may be stale, the row's facts decide.
        self.due = [(facts.next_due_ms, key) for key, facts, _ in rows if facts.next_due_ms < NEVER]
        heapify(self.due)
        #: (check at which a look may find something, key); likewise. No deadline, so no tick is
        #: written for it.
        self.looks = [
            (self.check_of(facts), key) for key, facts, _ in rows if facts.look_at_ms < NEVER
        ]
        heapify(self.looks)
        #: Entities that wait for a covering tick.
        self.uncovered = {key for key, facts, _ in rows if facts.waits_from >= 0}
        #: How many entities have which shortest timeout.
        self._timeouts = Counter(facts.timeout_ms for _, facts, _ in rows if facts.timeout_ms)
        #: Rule 1: the longest step of the clock.
        self.cap_ms = self._find_cap()
        #: Upper bound of what the rows have in the blob.
        self.size_bytes = sum(facts.size_bytes + entries for _, facts, entries in rows)

    def replace(self, key: Key, before: Facts | None, after: Facts | None) -> None:
        """A row has other facts now; None: it was not there before, or is gone.

        What is left in the heaps of a row that is gone names nobody.
        """
        self.size_bytes += (after.size_bytes if after else 0) - (before.size_bytes if before else 0)
        timeout_before_ms = before.timeout_ms if before else 0
        timeout_ms = after.timeout_ms if after else 0
        if timeout_ms != timeout_before_ms:
            self._timeouts[timeout_before_ms] -= 1
            self._timeouts[timeout_ms] += 1
            self.cap_ms = self._find_cap()
        if after is None or after.waits_from < 0:
            self.uncovered.discard(key)
        else:
            self.uncovered.add(key)
        if after is None:
            return
        if before is None or after.next_due_ms != before.next_due_ms:
            self.schedule(key, after)
        if before is None or after.look_at_ms != before.look_at_ms:
            self.schedule_look(key, after)

    def schedule(self, key: Key, facts: Facts) -> None:
        if facts.next_due_ms < NEVER:
            heappush(self.due, (facts.next_due_ms, key))

    def schedule_look(self, key: Key, facts: Facts) -> None:
        if facts.look_at_ms < NEVER:
            heappush(self.looks, (self.check_of(facts), key))

    def check_of(self, facts: Facts) -> int:
        """The first check that is not before the row's bound."""
        return -(-facts.look_at_ms // self._check_interval_ms) * self._check_interval_ms

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
