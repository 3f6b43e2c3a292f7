"""When the log's time alone has something to tell of a slot: a claim expired, a position forgotten.

Nobody sends an expiry. It is told at the first record whose time is beyond it, before that record
is judged, so it stands at one place of the history however the log is cut.  # INV-02
"""

import heapq
from collections.abc import Iterator
from enum import Enum
from typing import Final

from coordlib import limits
from coordlib.core.claims.slot import Key, Slot
from coordlib.core.claims.slots import Slots

_NEVER: Final = 2**63 - 1


class Due(Enum):
    """What is due."""

    EXPIRED = "expired"
    FORGOTTEN = "forgotten"


class Agenda:
    """Follows from the slots and the clock: what is due by then has been told."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        after_ms = slots.clock_ms + 1
        #: A time that is not later than the next thing to tell, for each slot that has one.
        self._dues: list[tuple[int, Key]] = [
            (due_ms, key)
            for key, slot in slots.slots.items()
            if (due_ms := self._next(slot, after_ms)) is not None
        ]
        heapq.heapify(self._dues)

    @property
    def next_ms(self) -> int:
        """On the clock: before it there is nothing to tell."""
        return self._dues[0][0] if self._dues else _NEVER

    def expect(self, key: Key, slot: Slot) -> None:
        """A slot is new here, or was not live."""
        self._wait(self._slots.clock_ms + 1, key, slot)

    def take(self) -> Iterator[tuple[Due, Key, Slot]]:
        """What is due by now, in order of time, then of name."""
        while self._dues and self._dues[0][0] <= self._slots.clock_ms:
            due = due_ms, key = heapq.heappop(self._dues)
            while self._dues and self._dues[0] == due:
                heapq.heappop(self._dues)
            slot = self._slots.slots.get(key)
            if slot is None:
                continue
            if not slot.is_released and due_ms == slot.heard_ms + self._slots.lifetime_ms:
                yield Due.EXPIRED, key, slot
            elif due_ms == slot.heard_ms + limits.POSITION_KEPT_MS:
                yield Due.FORGOTTEN, key, slot
            else:
                self._wait(due_ms, key, slot)
                continue
            self._wait(due_ms + 1, key, slot)

    def _wait(self, from_ms: int, key: Key, slot: Slot) -> None:
        due_ms = self._next(slot, from_ms)
        if due_ms is not None:
            heapq.heappush(self._dues, (due_ms, key))

    def _next(self, slot: Slot, from_ms: int) -> int | None:
        """The first time, from this one on, at which the slot has something to tell."""
        expires_ms = slot.heard_ms + self._slots.lifetime_ms
        if expires_ms >= from_ms and not slot.is_released:
            return expires_ms
        forgotten_ms = slot.heard_ms + limits.POSITION_KEPT_MS
        return forgotten_ms if forgotten_ms >= from_ms else None
