"""What runs beside the batches: its threads, its failures, and the status file that shows them."""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog
from confluent_kafka import KafkaException

from coordlib.errors import CannotReach
from coordlib.kafka.clients import reason_of

_log = structlog.get_logger()
_PAUSE_S: Final = 0.02
_RETRY_PAUSE_S: Final = 0.5


class Periodic(Protocol):
    """What has turns."""

    def turn(self) -> None:
        """Do what is due now. Raises KafkaException, TimeoutError: it is tried again later."""


class BackgroundThread(ABC):
    """A thread beside the batches, whose `_run` ends soon after `_stop` is set.

    Args:
        stop_s: how long `stop` waits for its end.
    """

    def __init__(self, name: str, stop_s: float = 15.0) -> None:
        self._stop, self._stop_s = threading.Event(), stop_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:  # else the start failed before
            self._thread.join(self._stop_s)

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""


class BackgroundLoop(BackgroundThread):
    """Lets it have its turns.

    Args:
        name: of the thread, and in messages: a plural.
        without: what a job without it would lack, and that the next start fixes it.
    """

    def __init__(self, turning: Periodic, name: str, without: str) -> None:
        super().__init__(name)
        self._periodic, self._name, self._without = turning, name, without
        self._failure: Exception | None = None

    def check(self) -> None:
        """Raises CannotReach when the thread has ended."""
        if self._failure is not None:
            raise CannotReach(
                f"The {self._name} have ended: {self._failure!r}",
                "requests topic",
                self._without,
            ) from self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                try:
                    self._periodic.turn()
                except (KafkaException, TimeoutError) as problem:
                    _log.warning(f"{self._name} wait for the broker", error=reason_of(problem))
                    self._stop.wait(_RETRY_PAUSE_S)
        except Exception as problem:  # noqa: BLE001  raised by check(), which ends the job
            _log.exception(f"{self._name} have ended")
            self._failure = problem


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A part that fails. Times are epoch milliseconds of the driver's clock."""

    since_ms: int
    #: When it failed the last time.
    last_ms: int
    #: The reason of the last failure.
    error: str


class HealthReport:
    """Each thread notes its failures and recoveries; the job's status is made of `now`."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms, self._lock = now_ms, threading.Lock()
        #: By the name of the failing part; parts that work are not there.
        self._known: dict[str, Trouble] = {}

    @property
    def now(self) -> dict[str, Trouble]:
        with self._lock:
            return dict(self._known)

    def of(self, part: str) -> "HealthReport":
        """The same store, for a part of the job: what it notes has the part's name before it."""
        return _PartOf(self, part)

    def failed(self, what: str, error: str) -> None:
        """Note a failure, perhaps not the first one."""
        with self._lock:
            now_ms = self._now_ms()
            known = self._known.get(what)
            since_ms = known.since_ms if known else now_ms
            self._known[what] = Trouble(since_ms=since_ms, last_ms=now_ms, error=error)

    def works(self, what: str, quiet_ms: int = 0) -> None:
        """Note a success.

        Args:
            quiet_ms: how long it must not have failed to count as working. 0 for a part whose
                success proves that it works; more for one that also succeeds without work.
        """
        with self._lock:
            known = self._known.get(what)
            if known and self._now_ms() - known.last_ms >= quiet_ms:
                del self._known[what]

    def note(self, what: str, error: str) -> None:
        """`failed`, or `works` where there is no error."""
        if error:
            self.failed(what, error)
        else:
            self.works(what)


class _PartOf(HealthReport):
    """Those of a part, kept with all others."""

    def __init__(self, whole: HealthReport, part: str) -> None:
        super().__init__()
        self._whole, self._part = whole, part

    @property
    def now(self) -> dict[str, Trouble]:
        before = f"{self._part}: "
        found = self._whole.now.items()
        return {name.removeprefix(before): each for name, each in found if name.startswith(before)}

    def failed(self, what: str, error: str) -> None:
        self._whole.failed(f"{self._part}: {what}", error)

    def works(self, what: str, quiet_ms: int = 0) -> None:
        self._whole.works(f"{self._part}: {what}", quiet_ms)


class ClaimsStatus(msgspec.Struct, kw_only=True):
    """The newest state of the claims query. Times are epoch milliseconds."""

    #: The coordination topic.
    topic: str
    #: starting, running, stopped or failed; why stands among the failures.
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
    #: Of a job instance, as `0-7`; empty: all.
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
