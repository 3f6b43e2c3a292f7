"""What a Progress proves about reading: its reader need not ask for the end of the log. Pure.

A Progress that names a request's offset was written after that request, which was written after
its produce(). A partition is read in order. So whoever reads such a Progress has read all that
could be read when produce() was called: the same as if the end had been asked for then (rule 9).
"""

import threading
from collections import deque
from typing import Final

#: Requests that were produced so soon after the one before prove nothing more.
STEP_MS: Final = 100
#: While the job is away, requests are kept for so many steps; the newest ones prove the most.
KEPT: Final = 600


class Proofs:
    """Acknowledged requests of one transport that no Progress has covered yet.

    Used by two threads: acknowledgements come in one, what is read in the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Per shard (offset, first produce()), in the order of both.
        self._uncovered: dict[int, deque[tuple[int, int]]] = {}

    def acknowledged(self, shard: int, offset: int, produced_ms: int) -> None:
        """The log took a request of this transport."""
        with self._lock:
            waiting = self._uncovered.setdefault(shard, deque(maxlen=KEPT))
            if not waiting or produced_ms - waiting[-1][1] >= STEP_MS:
                waiting.append((offset, produced_ms))

    def progressed(self, shard: int, offset: int) -> int | None:
        """A Progress was read: as of when all has been read by now; None: it proves nothing new."""
        asked_ms = None
        with self._lock:
            waiting = self._uncovered.get(shard, ())
            while waiting and waiting[0][0] <= offset:
                _, asked_ms = waiting.popleft()
        return asked_ms
