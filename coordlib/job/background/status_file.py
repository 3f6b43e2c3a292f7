"""The status file of the job, for `coord status`; it is replaced as a whole."""

import os
import threading
import time
from pathlib import Path

import msgspec
import structlog

from coordlib.job.background.troubles import Trouble

_log = structlog.get_logger()


class ClaimsStatus(msgspec.Struct, kw_only=True):
    """The newest state of the claims query. Times are epoch milliseconds."""

    #: The coordination topic.
    topic: str
    #: starting, running, stopped or failed; why stands among the troubles.
    state: str = "starting"
    batch_id: int = -1
    batch_records_max: int = 0
    last_batch_ms: int = 0
    #: Coordination partition -> next offset to read.
    next_offsets: dict[str, int] = {}
    #: Log time of the newest judged message.
    judged_ms: int = 0
    state_bytes: int = 0
    outputs: int = 0
    #: Folder or URI.
    checkpoint: str = ""


class JobStatus(msgspec.Struct, kw_only=True):
    """The newest state of a running driver. Times are epoch milliseconds."""

    state: str
    pid: int
    batch_id: int = -1
    #: How many records Spark plans for a batch, at most.
    batch_records_max: int = 0
    last_batch_ms: int = 0
    #: topic -> partition -> next offset to read: with the log's ends, the job's lag.
    next_offsets: dict[str, dict[str, int]] = {}
    #: Log time of the newest judged request.
    judged_ms: int = 0
    state_bytes: int = 0
    outputs: int = 0
    ticks: int = 0
    #: Mirrored groups that are behind.
    offsets_failing: dict[str, Trouble] = {}
    #: Other failures beside the batches: the watch of topics, of lag.
    watches_failing: dict[str, Trouble] = {}
    #: What the start was spent on: phase -> seconds.
    start_s: dict[str, float] = {}
    #: Folder or URI.
    checkpoint: str = ""
    #: Of a cell, as `0-7`; empty: all.
    shards: str = ""
    #: None: the job has no such query.
    claims: ClaimsStatus | None = None
    updated_ms: int = 0


class StatusFile:
    """Writes JobStatus; does nothing without a path.

    Hold `lock` from changing `status` until it is written: two threads do both.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lock = threading.RLock()
        self.status = JobStatus(state="starting", pid=os.getpid())

    def write(self) -> None:
        if self._path is not None:
            with self.lock:
                self._replace(self._path)

    def _replace(self, path: Path) -> None:
        self.status.updated_ms = time.time_ns() // 1_000_000
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.write_bytes(msgspec.json.encode(self.status))
            fresh.replace(path)
        except OSError as problem:
            # It only informs: a full disk here must not end the job in the middle of a batch.
            _log.warning("the status file cannot be written", error=str(problem))
