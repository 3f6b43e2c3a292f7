"""Failures beside the batches: since when, and why. The job goes on and reports them."""

import threading
import time
from collections.abc import Callable

import msgspec


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A part that fails. Times are epoch milliseconds of the driver's clock."""

    since_ms: int
    #: When it failed the last time.
    last_ms: int
    #: The reason of the last failure.
    error: str


class Troubles:
    """Each thread notes its failures and recoveries; the job's status is made of `now`."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms, self._lock = now_ms, threading.Lock()
        #: By the name of the failing part; parts that work are not there.
        self._known: dict[str, Trouble] = {}

    @property
    def now(self) -> dict[str, Trouble]:
        with self._lock:
            return dict(self._known)

    def of(self, part: str) -> "Troubles":
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


class _PartOf(Troubles):
    """Those of a part, kept with all others."""

    def __init__(self, whole: Troubles, part: str) -> None:
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
