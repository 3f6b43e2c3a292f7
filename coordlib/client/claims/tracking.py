"""Which messages of one claim are done: the position moves over a contiguous prefix alone."""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from coordlib.client.kit.signals import TopicPartition


class CommitToken(NamedTuple):
    """Names one message without holding it; good for the claim under which it was handed out."""

    topic: str
    partition: int
    offset: int
    #: The claim's fencing token: the offset of the record that won it.
    epoch: int
    #: The process that holds the claim: 8 hexadecimal digits.
    instance: str

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class _Handed:
    offset: int
    is_done: bool = False


class CommitTracker:
    """Messages that were handed out under one claim, in the order of the log.

    Offsets may have gaps (compaction, transactions' marks): what counts is the order of what was
    handed out. Source: Marshal's claim.go; vector V13.
    """

    def __init__(self, position: int) -> None:
        #: Next offset to read for whoever comes next: all before it is done.
        self.position = position
        self._open: deque[_Handed] = deque()
        self._by_offset: dict[int, _Handed] = {}

    @property
    def outstanding(self) -> int:
        """How many messages are handed out at or above the position."""
        return len(self._open)

    def handed_out(self, offset: int) -> None:
        """A message goes to the user. Offsets must rise."""
        assert not self._open or offset > self._open[-1].offset, "handed out of order"
        assert offset >= self.position, "handed out below the position"
        entry = _Handed(offset)
        self._open.append(entry)
        self._by_offset[offset] = entry

    def has(self, offset: int) -> bool:
        """Whether this message was handed out and is not below the position."""
        return offset in self._by_offset

    def commit(self, offset: int) -> bool:
        """Note that a message is done; False: it was never handed out.

        A message below the position was committed before: nothing changes.
        """
        entry = self._by_offset.get(offset)
        if entry is None:
            return False
        entry.is_done = True
        while self._open and self._open[0].is_done:
            done = self._open.popleft()
            del self._by_offset[done.offset]
            self.position = done.offset + 1
        return True
