"""How much history tells of a flood of refused requests: at first every one, then how many.

Every request is answered all the same. But a line of history for each would make a client in a
crash loop, or a hostile one, cost the job, the archive and the tables as much again as the
answers do. So of each group, and of all groups together that are not there, history keeps the
first refusals in a window of the shard's clock whole; of those beyond it keeps every so many,
which says how many since the line before have none. Windows and counts stand in the shard's state:
where batches end changes nothing. A rebuilt shard begins to count anew.
"""

import msgspec

from coordlib import limits
from coordlib.core.engine import effect as fx
from coordlib.core.wire import stored

REFUSALS = frozenset({stored.EVENT_REQUEST_REJECTED, stored.EVENT_COMMIT_REFUSED})


class Refusals(msgspec.Struct, array_like=True, gc=False):
    """What was refused of late."""

    #: Number of the window, on the shard's clock, in which the newest refusal was; -1: none yet.
    window: int = -1
    #: Refusals in that window.
    count: int = 0
    #: Refusals since the newest line that have none.
    untold: int = 0

    def line(self, record: fx.History, clock_ms: int) -> fx.History | None:
        """What history keeps of one of REFUSALS; None: nothing, it is only counted."""
        window = clock_ms // limits.REFUSALS_WINDOW_MS
        if window != self.window:
            self.window, self.count = window, 0
        self.count += 1
        if self.count > limits.REFUSALS_TOLD_MAX and self.count % limits.REFUSALS_TOLD_EVERY:
            self.untold += 1
            return None
        if not self.untold:
            return record
        detail = {**record.detail, "untold": self.untold}
        self.untold = 0
        return msgspec.structs.replace(record, detail=detail)
