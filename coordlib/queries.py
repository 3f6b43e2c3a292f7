"""How a streaming query is stopped without losing or repeating more than it must."""

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_EVERY_S: Final = 0.01
#: A batch that takes longer than this is given up: it is repeated from its start by the next run.
LAST_BATCH_TIMEOUT_S: Final = 60.0


def stop_between_batches(query: "StreamingQuery", timeout_s: float = LAST_BATCH_TIMEOUT_S) -> None:
    """Stop a query when no batch of it runs, or after `timeout_s` seconds in any case.

    `stop()` while foreachBatch runs ends in a StackOverflowError inside Spark, and with a batch
    that is half done.
    """
    deadline = time.monotonic() + timeout_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    query.stop()
