"""Heartbeats of a generation: when the next is due, and the newest one that the log took.

One at a time: behind an unacknowledged heartbeat a second proves nothing more, and a broker that
comes back must not find a queue of old ones.
"""

from coordlib.client.kit.fence import Fence
from coordlib.client.kit.signals import Acknowledged


class Heartbeats:
    """The row of one member, begun anew with each generation."""

    def __init__(self, interval_ms: int, fence: Fence) -> None:
        self._interval_ms, self._fence = interval_ms, fence
        #: The heartbeat that the log has not taken yet.
        self._open_id: str | None = None
        self._sent_ms = 0
        #: produce() of the newest acknowledged sign of life (rule 8).
        self.sign_ms = 0

    def begin(self, now_ms: int, sign_ms: int) -> None:
        """A JoinGroup was answered; it counts as the first of the row."""
        self._open_id, self._sent_ms, self.sign_ms = None, now_ms, sign_ms

    def due_ms(self) -> int | None:
        """When the next may be sent; None: not before something else happens."""
        due_ms = self._sent_ms + self._interval_ms
        return due_ms if self._open_id is None and self._fence.may_heartbeat(due_ms) else None

    def is_due(self, now_ms: int) -> bool:
        is_time = self._open_id is None and now_ms - self._sent_ms >= self._interval_ms
        return is_time and self._fence.may_heartbeat(now_ms)  # rule 9: not without reading

    def sent(self, id_: str, now_ms: int) -> None:
        self._open_id, self._sent_ms = id_, now_ms

    def is_open(self, id_: str) -> bool:
        """Whether this is the heartbeat that waits for its acknowledgement."""
        return id_ == self._open_id

    def acknowledged(self, event: Acknowledged) -> None:
        self._open_id = None
        self.sign_ms = max(self.sign_ms, event.produced_ms)
        self._fence.acknowledged(event.now_ms, event.produced_ms, event.offset)

    def not_written(self) -> None:
        """The next one comes at its time."""
        self._open_id = None
