"""One query of a `SparkGroupReader`: its start, its positions, and its end."""

import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from coordlib.client.kit.signals import TopicPartition
from coordlib.client.spark.beginnings import Begin
from coordlib.client.spark.positions import finished
from coordlib.client.spark.share import Share
from coordlib.spark_stopping import LOOK_EVERY_S, Gap

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger()


class Run:
    """A query that was started, and the share that it reads.

    Args:
        ended: set as soon as the run may not act any more; its share's `may_work` looks at it.
        begin: where each partition begins; these offsets are committed already.
    """

    def __init__(
        self,
        query: "StreamingQuery",
        share: Share,
        ended: threading.Event,
        begin: Begin,
    ) -> None:
        self.query, self.share = query, share
        self._ended, self._begin = ended, begin
        #: The newest offset of each partition that was written to the log, and not refused so far.
        self._said = dict(begin.committed)
        self._stopper: threading.Thread | None = None
        #: Whether its batch may be as long as any other once it was stopped, as no member waits for
        #: its partitions.
        self.takes_any_time = False
        #: Whether the log has a line that its batch goes on and on.
        self.has_warned = False
        self._stopped_s = 0.0

    def reads_any(self, partitions: Iterable[TopicPartition]) -> bool:
        return not self.share.fences.keys().isdisjoint(partitions)

    def unsaid(self) -> dict[TopicPartition, int]:
        """Positions of finished batches that are not written to the log yet."""
        return {
            each: offset
            for each, offset in finished(self.query).items()
            if each in self.share.fences and offset != self._said.get(each)
        }

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition."""
        read = finished(self.query)
        return {each: read.get(each, at) for each, at in self._begin.offsets.items()}

    def said(self, offsets: dict[TopicPartition, int]) -> None:
        self._said.update(offsets)

    def refused(self, offsets: dict[TopicPartition, int]) -> None:
        """Write these again, unless a newer position was written meanwhile."""
        for each, offset in offsets.items():
            if self._said.get(each) == offset:
                del self._said[each]

    @property
    def numbers_used(self) -> int:
        """A bound of the numbers that its batches have used, also of one that was given up.

        A batch begins after the progress of the one before it was reported: at most one more has
        begun than the newest progress shows. Its number is `batch + 1`; 0 is the claim's.
        """
        newest = self.query.lastProgress
        return (int(newest["batchId"]) if newest is not None else -1) + 3

    def stop(self, patience_s: float) -> bool:
        """Wait up to this time for the end of the batch, then stop; returns whether it ended.

        A batch that takes longer is cut short, and has a quarter of that time to end.
        """
        gap, until = Gap(self.query), time.monotonic() + patience_s
        while not gap.is_here and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
        self.stop_now()
        return self.is_over(patience_s / 4)

    def stop_now(self) -> None:
        """Returns at once. Spark interrupts its own thread, but Python code in foreachBatch goes on
        until it returns: from now on its share's `may_work` is false.
        """
        self._ended.set()
        if self._stopper is None:
            self._stopped_s = time.monotonic()
            self._stopper = threading.Thread(target=self._stop_query, daemon=True)
            self._stopper.start()

    def is_over(self, timeout_s: float = 0.0) -> bool:
        """Whether nothing of it runs any more; only after `stop_now`."""
        stopper = self._stopper
        if stopper is None:
            return False
        stopper.join(max(0.0, timeout_s))
        return not stopper.is_alive()

    @property
    def ends_since_s(self) -> float:
        """Seconds since it was stopped."""
        return time.monotonic() - self._stopped_s if self._stopper is not None else 0.0

    def clean_up(self) -> None:
        """Delete its checkpoint, which is not read again: its offsets are in the log."""
        shutil.rmtree(Path(self.share.checkpoint), ignore_errors=True)

    def _stop_query(self) -> None:
        try:
            self.query.stop()
        except Exception as problem:  # noqa: BLE001  # of a batch that was cut short, in any words
            _log.info("a batch was cut short", group=self.share.group, error=repr(problem)[:500])
