"""Pending offsets whose Delta table must be looked into, because nobody says what became of them.

A member that is about to read a partition meets them in the answer to its OffsetFetch. Their
sender may be on its way to say it, so it gets two seconds. After that the shell looks
(`client/transactions/in_doubt.py`), and this member says what was found.

Only for partitions that are this member's now. Other members may be in the middle of a batch, which
a look would make fail; whoever follows them looks then.
"""

from collections.abc import Container, Iterator
from typing import Final

from msgspec import UNSET

from coordlib.client.kit.signals import LookInto, TopicPartition
from coordlib.core.wire import responses as rs
from coordlib.core.wire.transactions import DELTA

#: For the sender's own word.
DOUBT_MS: Final = 2_000
#: A member meets few; older ones are decided by now.
_KNOWN_MAX: Final = 1_000


class Doubts:
    """The entries that this member waits for. Times are of the member's clock."""

    def __init__(self) -> None:
        #: Key of an entry -> when it was first met, or looked for in vain.
        self._since: dict[str, int] = {}
        #: Entries that the shell is looking for.
        self._looking: set[str] = set()

    def told(
        self, answer: rs.OffsetFetchResponse, own: Container[TopicPartition], now_ms: int
    ) -> Iterator[LookInto]:
        """What is to be looked into, after this answer.  # INV-96

        Args:
            own: the partitions that are this member's.
        """
        rows = answer.offsets if isinstance(answer.offsets, tuple) else ()
        awaited = {
            row.pending.key: row.pending
            for row in rows
            if row.pending is not UNSET
            and row.pending.decided_by == DELTA
            and TopicPartition(row.topic, row.partition) in own
        }
        if len(self._since) > _KNOWN_MAX:
            self._since.clear()
        for key, each in awaited.items():
            since_ms = self._since.setdefault(key, now_ms)
            if key not in self._looking and now_ms - since_ms >= DOUBT_MS:
                self._looking.add(key)
                yield LookInto(each, offset_of(answer.cause))

    def looked(self, key: str, now_ms: int) -> None:
        """The shell has looked; if the entry is met again, then in two seconds."""
        self._looking.discard(key)
        self._since[key] = now_ms


def offset_of(coordinate: str) -> int:
    """The log offset in a coordinate such as `r1-57`; -1: it is none."""
    text = coordinate.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
