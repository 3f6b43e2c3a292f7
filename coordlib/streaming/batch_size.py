"""How many records a batch may have, so that a Python worker can hold them.

Spark's Kafka source plans a batch by its number of records, and a planned batch is run again after
every restart. A request may have 1 MiB, so a number that suits heartbeats is far too large for a
backlog of such requests. Two bounds follow from the memory of a worker:

- a batch is *planned* so that its records fit into a quarter of the memory, and into 1 GiB, by
  their mean size: that of the backlog before the start (`backlog.py`), that of the batches
  afterwards;
- a worker that was given more than half of the memory ends with `BatchTooLarge`, before the kernel
  ends it without a word.

All records of a batch may be of one shard, hence of one task: the bounds count one worker, not all.
"""

from typing import Final

from coordlib import limits

#: Of a worker's memory. A record is held as Arrow's bytes and as Python's; the shard's state, its
#: outputs and the interpreter need the rest.
PLANNED_SHARE: Final = 4
HELD_SHARE: Final = 2
#: Spark gathers a shard's part of a batch in one buffer, which has 2 GiB at most. Half of them, as
#: a mean size is no bound.
PLANNED_MAX: Final = 1024 * limits.MIB
#: Less than this share of the planned bytes says nothing about a backlog: one large JoinGroup among
#: a few records must not slow the job down. Batches that bring less are added up for a while: what
#: comes in few records at a time comes all at once when the job has stood still.
_TELLING_SHARE: Final = 32
#: A bound that was lowered is raised after batches of small records for this long.
_CALM_S: Final = 60.0


class BatchTooLarge(MemoryError):
    """A batch has more bytes than a worker may hold. Known by its name: see `failures`."""


def held_bytes_max(worker_memory_bytes: int) -> int:
    """How many bytes of one shard's records a worker takes, before it ends with BatchTooLarge."""
    return worker_memory_bytes // HELD_SHARE


def too_large(
    part: str, records: int, size_bytes: int, bytes_max: int, is_out_of_memory: bool = False
) -> BatchTooLarge:
    """The error, with the setting that would hold such a batch (`failures` reads it).

    Args:
        is_out_of_memory: what comes behind these records could not be counted, and Arrow's copies
            need more than their share: at least four times the memory is named.
    """
    needed_bytes = max(size_bytes, 4 * bytes_max) if is_out_of_memory else size_bytes
    return BatchTooLarge(
        f"{part}: {size_bytes:,} bytes of requests in its first {records:,} records, and a Python "
        f"worker holds {min(size_bytes, bytes_max):,} (enough: {needed_bytes * HELD_SHARE})"
    )


class BatchSize:
    """The number of records that a batch may have, for as long as a driver runs.

    Args:
        records_max: the setting; never exceeded.
        worker_memory_bytes: of one Python worker.
        mean_bytes: of the records that are waiting; 0: none are.
        now_s: monotonic.
    """

    def __init__(
        self, records_max: int, worker_memory_bytes: int, mean_bytes: float = 0.0, now_s: float = 0
    ) -> None:
        self._records_max = records_max
        self._planned_bytes = min(worker_memory_bytes // PLANNED_SHARE, PLANNED_MAX)
        #: What the running query plans with.
        self.records = self._fitting(mean_bytes)
        #: The largest mean size since `_since_s`, of a telling batch or of several together.
        self._largest_mean, self._since_s = mean_bytes, now_s
        #: Of batches since then that were too small to count alone.
        self._untold_records = self._untold_bytes = 0

    def batch_ended(self, records: int, size_bytes: int) -> None:
        """One shard's part of a batch has ended."""
        if not self._is_telling(size_bytes):  # by itself
            self._untold_records += records
            self._untold_bytes += size_bytes
            records, size_bytes = self._untold_records, self._untold_bytes
            if not self._is_telling(size_bytes):
                return
            self._forget_untold()
        self._largest_mean = max(self._largest_mean, size_bytes / records)

    def _is_telling(self, size_bytes: int) -> bool:
        return size_bytes * _TELLING_SHARE >= self._planned_bytes

    def _forget_untold(self) -> None:
        self._untold_records = self._untold_bytes = 0

    def next(self, now_s: float) -> int:
        """What the next batches are to be planned with; differs from `records` by twice at least.

        Every other value needs a new query, which costs a second or two without answers.
        """
        fitting = self._fitting(self._largest_mean)
        if fitting * 2 <= self.records:
            return fitting
        if now_s - self._since_s < _CALM_S:
            return self.records
        self._largest_mean, self._since_s = 0.0, now_s
        self._forget_untold()
        return fitting if fitting >= self.records * 2 else self.records

    def renewed(self, records: int, now_s: float) -> None:
        """The query plans with another number from now on."""
        self.records, self._since_s = records, now_s

    def _fitting(self, mean_bytes: float) -> int:
        if mean_bytes <= 0:
            return self._records_max
        return max(1, min(self._records_max, int(self._planned_bytes / mean_bytes)))
