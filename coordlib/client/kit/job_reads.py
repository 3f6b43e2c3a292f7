"""Which later fields the job of one transport reads: those that it recorded when it started.

The record is read together with the layout, before the first request, so no request waits for it.
Who needs a field that is missing in it looks again, now and then: the job may be newer by now.
"""

import logging
import threading
from collections.abc import Callable

from coordlib.client.kit.later_fields import as_read
from coordlib.core.wire import api as rq
from coordlib.errors import CannotReach

#: From one look at the record to the next, while a field is missing in it.
LOOK_INTERVAL_MS = 60_000

_log = logging.getLogger("coordlib.client")


class JobReads:
    """The fields that may be sent to the job.  # INV-84

    Args:
        known: `stored.FEATURES` of the job, as it was recorded when the transport began.
        look: reads them again; raises CannotReach; may block.
        now_ms: the transport's clock.
    """

    def __init__(
        self, known: frozenset[str], look: Callable[[], frozenset[str]], now_ms: Callable[[], int]
    ) -> None:
        self._known, self._look, self._now_ms = known, look, now_ms
        self._looked_ms = now_ms()

    def as_read(self, request: rq.Request) -> rq.Request:
        """The request as the job reads it. Never blocks."""
        told = as_read(request, self._known)
        if told is not request and self._now_ms() - self._looked_ms >= LOOK_INTERVAL_MS:
            self._looked_ms = self._now_ms()
            threading.Thread(target=self.look, name="coord-features", daemon=True).start()
        return told

    def look(self) -> None:
        """Read the record again. When no broker answers, what was known remains."""
        try:
            self._known = self._look()
        except CannotReach as problem:
            _log.info("It is not known which fields the job reads: %s", problem)
