"""What a Progress proves about reading: its reader need not ask for the end of the log. Pure.

A Progress that names a request's offset was written after that request, which was written after
its produce(). A partition is read in order. So whoever reads such a Progress has read all that
could be read when produce() was called: the same as if the end had been asked for then (rule 9).

And what an acknowledgement proves about the log: a request is written behind all that stood there
when produce() was called. If it is not, the log has lost its end since.  # INV-105
"""

import threading
from collections import deque
from enum import Enum
from typing import Final, NamedTuple

#: Requests that were produced so soon after the one before prove nothing more.
STEP_MS: Final = 100
#: While the job is away, requests are kept for so many steps; the newest ones prove the most.
KEPT: Final = 600


class Written(Enum):
    """What an acknowledgement says of a request."""

    #: It stands behind everything that was known of the log.
    NEWEST = "newest"
    #: The log has lost its end. What was judged there counts, so this request will not be judged.
    CUT = "cut"
    #: The same, of a request that was produced before that was found out.
    LOST = "lost"


class Mark(NamedTuple):
    """What was known of a shard's log at a first produce()."""

    produced_ms: int = 0
    #: The newest record; -1: none.
    newest: int = -1
    #: How often the log had been found cut.
    cuts: int = 0


class Proofs:
    """Acknowledged requests of one transport that no Progress has covered yet.

    Used by two threads: acknowledgements come in one, what is read in the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Per shard (offset, first produce()), in the order of both.
        self._uncovered: dict[int, deque[tuple[int, int]]] = {}
        self._known: dict[int, Mark] = {}

    def mark(self, shard: int, now_ms: int) -> Mark:
        """What is known of the log; to be asked before produce()."""
        return self._known.get(shard, Mark())._replace(produced_ms=now_ms)

    def acknowledged(self, shard: int, offset: int, mark: Mark) -> Written:
        """The log took a request of this transport; `mark`: as of its produce()."""
        produced_ms = mark.produced_ms
        with self._lock:
            known = self.mark(shard, produced_ms)
            if offset <= mark.newest:
                if mark.cuts < known.cuts:
                    return Written.LOST
                # What stands above is forgotten: the next requests stand behind this one.
                self._known[shard] = Mark(produced_ms, offset, known.cuts + 1)
                self._uncovered.pop(shard, None)
                return Written.CUT
            self._known[shard] = known._replace(newest=max(known.newest, offset))
            waiting = self._uncovered.setdefault(shard, deque(maxlen=KEPT))
            if not waiting or produced_ms - waiting[-1][1] >= STEP_MS:
                waiting.append((offset, produced_ms))
            return Written.NEWEST

    def progressed(self, shard: int, offset: int) -> int | None:
        """A Progress was read: as of when all has been read by now; None: it proves nothing new."""
        asked_ms = None
        with self._lock:
            known = self.mark(shard, 0)
            self._known[shard] = known._replace(newest=max(known.newest, offset))
            waiting = self._uncovered.get(shard, ())
            while waiting and waiting[0][0] <= offset:
                _, asked_ms = waiting.popleft()
        return asked_ms
