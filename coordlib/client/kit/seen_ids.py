"""Which topic of a name is there now, by what brokers answer; some of them lag.

Ids have no order. But no topic comes back: an id that this client has seen replaced is old for
good, and a broker that answers it lags, however long.  # INV-149
"""

import sys
from typing import Final

from coordlib import limits

#: A broker is taken to lag at most so long behind the first answers that a client gets: one of them
#: may have been newer than the next. So an id that had not stood so long is old for so long only.
LAG_MS: Final = 30_000


class SeenIds:
    """The ids of topics, as one client has seen them. Where two threads take at a time, one of the
    ids may be taken again."""

    def __init__(self) -> None:
        self._present: dict[str, str] = {}
        #: When the present one was first seen.
        self._since_ms: dict[str, int] = {}
        #: Topic -> those that were replaced -> until when they are old.
        self._old: dict[str, dict[str, int]] = {}

    def take(self, topic: str, topic_id: str, now_ms: int) -> None:
        """This one is there now, unless it is old. Empty: it is not known."""
        present = self._present.get(topic, "")
        if not topic_id or topic_id == present or self.is_old(topic, topic_id, now_ms):
            return
        if present:
            has_stood = now_ms - self._since_ms[topic] >= LAG_MS
            old = self._old.setdefault(topic, {})
            old.pop(topic_id, None)
            old[present] = sys.maxsize if has_stood else now_ms + LAG_MS
            for each in list(old)[: -limits.TOPIC_IDS_MAX]:
                del old[each]
        self._since_ms[topic], self._present[topic] = now_ms, topic_id

    def suppose(self, topic: str, topic_id: str, now_ms: int) -> None:
        """This one was there, by an offset that names it; it counts where nothing else is known."""
        if topic not in self._present:
            self.take(topic, topic_id, now_ms)

    def is_old(self, topic: str, topic_id: str, now_ms: int) -> bool:
        """Whether it was replaced: who answers it lags."""
        return now_ms < self._old.get(topic, {}).get(topic_id, now_ms)

    def present(self, topic: str, otherwise: str) -> str:
        """The one that is there now; `otherwise` where none is known."""
        return self._present.get(topic, otherwise)

    def copy(self) -> dict[str, str]:
        """The present ones of all topics."""
        return self._present.copy()
