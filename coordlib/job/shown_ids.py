"""The ids of topics as the driver has listed them, kept in `coord.progress` for a rebuild.

They are noted before the listing is written, and stand in the transaction of the next batch: so no
shard has judged a listing of which a rebuild would not have the ids.  # INV-150
"""

import threading
from collections.abc import Collection

from coordlib.core.groups.topics import learn_ids
from coordlib.core.wire import topic_ids
from coordlib.core.wire.requests import TopicMetadata


class ShownIds:
    """Noted by the thread that watches topics, written by that of the batches.

    Args:
        ids: as they are kept.
    """

    def __init__(self, ids: topic_ids.Ids) -> None:
        self._ids = dict(ids)
        self._changed: set[int] = set()
        self._lock = threading.Lock()

    def note(self, record: TopicMetadata, present: Collection[str]) -> None:
        """A listing is about to be written; `present`: all topics that are there."""
        with self._lock:
            before = self._ids
            self._ids, _ = learn_ids(before, record, present)
            names = before.keys() | self._ids.keys()
            changed = (name for name in names if before.get(name) != self._ids.get(name))
            self._changed.update(map(topic_ids.page_of, changed))

    def take(self) -> list[tuple[bytes, bytes]]:
        """Keys and values that have changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return topic_ids.written(self._ids, changed) if changed else []
