"""The copy of new positions in Kafka's group, and how it is taken back. Without IO.

All positions go in one commit, and one commit is under way at a time: whatever is taken back
follows the answer to what it takes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coordlib.client.kit.signals import TopicPartition


@dataclass(frozen=True, slots=True)
class Copy:
    """Commit these positions to Kafka's group if `Copying.begin` lets it; then feed `Copied`."""

    id: int
    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Copied:
    """The outcome of a commit that was begun."""

    now_ms: int
    id: int
    #: Whether Kafka's group has all of them. If not, it may have some: an answer may be lost.
    is_done: bool


@dataclass(slots=True)
class Copying:
    """What Kafka's group was asked to take, and what it has answered."""

    #: Whether Kafka's group has all new positions for certain.
    is_done: bool = False
    #: Whether it may have a new position that was not taken back.
    is_suspected: bool = False
    #: The commit that waits for a worker or for its answer.
    _open: Copy | None = None
    _is_begun: bool = False
    _is_return: bool = False

    @property
    def is_open(self) -> bool:
        """Whether an answer is still to come."""
        return self._open is not None

    @property
    def can_return(self) -> bool:
        """Whether there is something to take back, nothing is under way, and it was not tried."""
        return self.is_suspected and not self.is_open and not self._is_return

    def ask(self, copy: Copy, is_return: bool = False) -> Copy:
        """To be committed now: new positions, or those of before."""
        self._open, self._is_begun, self._is_return = copy, False, is_return
        return copy

    def begin(self, copy: Copy) -> bool:
        """Whether this commit is still wanted. If so it is under way from now on."""
        if copy is not self._open:
            return False
        self._is_begun = True
        if not self._is_return:
            self.is_suspected = True
        return True

    def drop(self) -> None:
        """Forget a commit that was not begun: later it might undo what the next owner copied."""
        if not self._is_begun:
            self._open = None

    def answered(self, event: Copied) -> None:
        if self._open is None or event.id != self._open.id:
            return
        self._open = None
        if self._is_return:
            self.is_suspected = not event.is_done
        else:
            self.is_done = event.is_done
