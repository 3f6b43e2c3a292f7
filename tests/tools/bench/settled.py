"""When a group has settled: every partition has one owner, shares are even, all are counted.

Members tell their ownership as it changes, from threads of their own; one looks on. A group
counts as settled at the change that made it so, provided that it stays so for a moment: eager
members pass through states that look settled while the next rebalance is already under way.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

STAYS_S: Final = 0.05
LOOK_EVERY_S: Final = 0.01


def is_settled(owned: Mapping[int, frozenset[int]], members: int, partitions: int) -> bool:
    """Whether exactly these many members own all partitions, each once, evenly."""
    if not owned or len(owned) != members:
        return False
    shares = [len(each) for each in owned.values()]
    is_each_owned = frozenset[int]().union(*owned.values()) == frozenset(range(partitions))
    return is_each_owned and sum(shares) == partitions and max(shares) - min(shares) <= 1


class Ownership:
    """Who owns which partitions now, and when that last changed."""

    def __init__(self, partitions: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._partitions, self._clock = partitions, clock
        self._owned: dict[int, frozenset[int]] = {}
        self._changed_s = 0.0
        self._lock = threading.Lock()

    def owns(self, member: int, partitions: Iterable[int]) -> None:
        """A member was assigned these, and holds nothing else."""
        with self._lock:
            self._owned[member] = frozenset(partitions)
            self._changed_s = self._clock()

    def forget(self, member: int) -> None:
        """A member has left; what it owned is nobody's."""
        with self._lock:
            self._owned.pop(member, None)
            self._changed_s = self._clock()

    def settled_since(self, members: int) -> float | None:
        """When it became settled; None: it is not."""
        with self._lock:
            is_so = is_settled(self._owned, members, self._partitions)
            return self._changed_s if is_so else None

    def wait(self, members: int, limit_s: float) -> float | None:
        """When it became settled and stayed so; None: not within the limit."""
        until = self._clock() + limit_s
        while self._clock() < until:
            since = self.settled_since(members)
            if since is not None:
                time.sleep(STAYS_S)
                if self.settled_since(members) == since:
                    return since
            time.sleep(LOOK_EVERY_S)
        return None


class Share:
    """What one member owns, told to whoever looks on.

    Eager members are told everything each time, cooperative ones what changes: both add up.
    """

    def __init__(self, number: int, ownership: Ownership) -> None:
        self._number, self._ownership = number, ownership
        self._mine: set[int] = set()

    def gain(self, partitions: Iterable[Any]) -> None:
        """Partitions by their number, of whichever client's type."""
        self._mine |= {each.partition for each in partitions}
        self._ownership.owns(self._number, self._mine)

    def lose(self, partitions: Iterable[Any]) -> None:
        self._mine -= {each.partition for each in partitions}
        self._ownership.owns(self._number, self._mine)

    def end(self) -> None:
        """The member has left."""
        self._ownership.forget(self._number)
