"""Who leads which partition and since when, by what the brokers themselves were told. Pure.

kill ─▶ the session ends ─▶ the next leader is told            moved
on_resign ─▶ the next leader is told                           pauses
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int]


class Term(NamedTuple):
    """A leadership, from the moment at which its leader was told."""

    broker: int
    epoch: int
    since_s: float


@dataclass
class Terms:
    """The newest term of each partition. Callbacks of all brokers come here, from two threads."""

    now_s: Callable[[], float] = time.monotonic
    #: How often a door was closed in all, by its reason.
    fenced: dict[str, int] = field(default_factory=dict)
    #: From letting go until the next leader was told, seconds, since `begin`.
    pauses_s: list[float] = field(default_factory=list)
    _terms: dict[Place, Term] = field(default_factory=dict)
    _resigned_s: dict[Place, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._terms)

    def begin(self) -> None:
        """Forget what was measured; who leads what stays."""
        with self._lock:
            self.pauses_s = []
            self._resigned_s.clear()

    def leads(self, broker: int, place: Place, epoch: int) -> None:
        """A broker was told to lead. What is told late, of an older epoch, changes nothing."""
        with self._lock:
            before = self._terms.get(place)
            if before is not None and epoch <= before.epoch:
                return
            now_s = self.now_s()
            self._terms[place] = Term(broker, epoch, now_s)
            if (resigned_s := self._resigned_s.pop(place, None)) is not None:
                self.pauses_s.append(now_s - resigned_s)

    def resigned(self, places: Iterable[Place]) -> None:
        """A broker has let go of these."""
        with self._lock:
            now_s = self.now_s()
            for place in places:
                self._resigned_s.setdefault(place, now_s)

    def was_fenced(self, reason: str) -> None:
        """A broker's door was closed."""
        with self._lock:
            self.fenced[reason] = self.fenced.get(reason, 0) + 1

    def led_by(self, broker: int) -> list[Place]:
        """What it leads."""
        with self._lock:
            return [place for place, term in self._terms.items() if term.broker == broker]

    def leader(self, place: Place) -> int:
        """Who leads it. Raises KeyError: nobody was told."""
        with self._lock:
            return self._terms[place].broker

    def left(self, places: Collection[Place], broker: int) -> list[Place]:
        """Those of them that have no other leader yet."""
        with self._lock:
            return [place for place in places if self._terms[place].broker == broker]

    def took_s(self, places: Collection[Place], since_s: float) -> list[float]:
        """From then until the leader of now was told, of each."""
        with self._lock:
            return [self._terms[place].since_s - since_s for place in places]
