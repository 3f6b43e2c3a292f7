"""How a streaming query is stopped without losing or repeating more than it must."""

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S: Final = 0.01
#: A look that comes later than this says nothing about the moment: the next batch is well begun.
_LOOKED_JUST_NOW_S: Final = 0.1
#: A batch that takes longer than this is given up: it is repeated from its start by the next run.
LAST_BATCH_TIMEOUT_S: Final = 60.0


class Gap:
    """Looks out for a moment between two batches of one query.

    Where records never cease to come, a trigger is active all the time but for less than a
    millisecond. So the moment counts too in which a batch has just ended: the next one is being
    planned, and no user's code runs yet.
    """

    def __init__(self, query: "StreamingQuery") -> None:
        self._query = query
        self._newest, self._looked_s = self._newest_batch(), time.monotonic()

    @property
    def is_here(self) -> bool:
        """Look now; to be asked again every LOOK_EVERY_S."""
        query = self._query
        if not query.isActive or not query.status["isTriggerActive"]:
            return True
        before, since_s = self._newest, self._looked_s
        self._newest, self._looked_s = self._newest_batch(), time.monotonic()
        return self._newest != before and self._looked_s - since_s <= _LOOKED_JUST_NOW_S

    def _newest_batch(self) -> Any:
        # Not by its number: what Spark tells while nothing comes has the number of the next batch.
        progress = self._query.lastProgress
        return None if progress is None else progress["timestamp"]


def stop_between_batches(query: "StreamingQuery", timeout_s: float = LAST_BATCH_TIMEOUT_S) -> None:
    """Stop a query when no batch of it runs, or after `timeout_s` seconds in any case.

    `stop()` while foreachBatch runs ends in a StackOverflowError inside Spark, and with a batch
    that is half done.
    """
    gap, deadline = Gap(query), time.monotonic() + timeout_s
    while not gap.is_here and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
    query.stop()
