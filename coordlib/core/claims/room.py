"""Which slot makes room when a coordination partition is full: the one that is free the longest.

A flood of attempts must not cost a look at every slot each time. So slots wait in a heap, each
under a time before which it was not free; what has moved on meanwhile is put back under its own.
The heap follows from the slots alone: a state that is read back makes the same choices.
"""

import heapq
from typing import TYPE_CHECKING

from coordlib import limits
from coordlib.core.claims.slot import Key, Slot

if TYPE_CHECKING:
    from coordlib.core.claims.slots import Slots


class Room:
    """Of one coordination partition. It is made when the partition is full for the first time."""

    def __init__(self, slots: "Slots") -> None:
        self._slots = slots
        #: (free since, key), for every slot one that is not later; None: never was full.
        self._waiting: list[tuple[int, Key]] | None = None

    def has_any(self) -> bool:
        """Whether any slot is free now."""
        return self._first() is not None

    def longest_free(self) -> Key:
        """Take the slot that is free the longest; of several the first by name."""
        key = self._first()
        assert key is not None, "nobody asked for room"
        heapq.heappop(self._waiting or [])
        return key

    @property
    def size(self) -> int:
        """How much waits: bounded, whatever happens to slots."""
        return len(self._waiting or ())

    def wait(self, key: Key, slot: Slot) -> None:
        """A slot is new, or became free before its time."""
        if self._waiting is None:
            return
        heapq.heappush(self._waiting, (self._slots.free_since_ms(slot), key))
        if len(self._waiting) > 4 * limits.SLOTS_MAX:
            self._waiting = None  # mostly what has moved on: made anew when it is needed

    def _first(self) -> Key | None:
        if self._waiting is None:
            self._waiting = [
                (self._slots.free_since_ms(slot), key) for key, slot in self._slots.slots.items()
            ]
            heapq.heapify(self._waiting)
        while self._waiting and self._waiting[0][0] <= self._slots.clock_ms:
            since_ms, key = self._waiting[0]
            slot = self._slots.slots.get(key)
            if slot is None:
                heapq.heappop(self._waiting)
                continue
            true_ms = self._slots.free_since_ms(slot)
            if true_ms == since_ms:
                return key
            heapq.heapreplace(self._waiting, (true_ms, key))
        return None
