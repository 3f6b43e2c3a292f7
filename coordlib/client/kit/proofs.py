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
#: Of a request that stands where nobody judges it any more.
LOST: Final = "it was lost before it was judged"


class Written(Enum):
    """What an acknowledgement proves of a request."""

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
    #: The request that is produced, if it is always answered; empty: silence may accept it.
    id: str = ""


class Proofs:
    """Acknowledged requests of one transport that no Progress has covered yet.

    Used by two threads: acknowledgements come in one, what is read in the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Per shard (offset, first produce()), in the order of both.
        self._uncovered: dict[int, deque[tuple[int, int]]] = {}
        self._known: dict[int, Mark] = {}
        #: Requests that have no answer yet, with their shards and offsets.
        self._unanswered: dict[str, tuple[int, int]] = {}

    def mark(self, shard: int, now_ms: int, id_: str = "") -> Mark:
        """What is known of the log; to be asked before produce()."""
        return self._known.get(shard, Mark())._replace(produced_ms=now_ms, id=id_)

    def answered(self, id_: str) -> None:
        """A response to this request was read."""
        with self._lock:
            self._unanswered.pop(id_, None)

    def forget(self, token: str) -> None:
        """A member has gone: nobody waits for its answers."""
        with self._lock:
            for id_ in [each for each in self._unanswered if each.startswith(f"{token}-")]:
                del self._unanswered[id_]

    def lost(self, shard: int, before: int) -> list[str]:
        """The requests of before this offset that will have no answer; they are given up."""
        with self._lock:
            found = [i for i, at in self._unanswered.items() if at[0] == shard and at[1] < before]
            for each in found:
                del self._unanswered[each]
            return found

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
            if mark.id:
                self._unanswered[mark.id] = shard, offset
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
