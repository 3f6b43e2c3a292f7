"""What the job of one transport reads: asked once, and cached.

The question is the first request that has a field which an older job refuses. Until the answer is
here, or `WAIT_MS` are over, all requests of the transport wait, so that their order stays. A job
that is down, or older than the question, reads no such field.  # INV-84
"""

import threading
from collections import deque
from collections.abc import Callable

from coordlib.client.machine import signals as sg
from coordlib.client.machine.later_fields import Types, as_read, has_later_fields
from coordlib.client.machine.wording import Identity
from coordlib.records import requests as rq
from coordlib.records import responses as rs

#: How long requests wait for the answer. A batch takes a few tenths of a second; what is lost
#: after that is a name to be shown, and a session's timeout is six seconds at least.
WAIT_MS = 1_000


class JobReads:
    """A gate before the producer; and the handler to which the answer is delivered.

    Args:
        identity: of this question alone; its group is empty.
        write: writes a request for an identity's shard, without waiting.
        now_ms: the transport's clock.
    """

    def __init__(
        self,
        identity: Identity,
        ask: Callable[["JobReads", rq.Request], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.identity = identity
        self._ask, self._now_ms = ask, now_ms
        self._lock = threading.RLock()
        self._types: Types = {}
        #: When the question was written; None: not yet, or the job has started anew since.
        self._asked_ms: int | None = None
        self._is_held = False
        self._count = 0
        self._held: deque[tuple[Callable[[rq.Request], None], rq.Request]] = deque()

    def pass_on(self, write: Callable[[rq.Request], None], request: rq.Request) -> None:
        """Write a request as the job reads it, now or when that is known; in order."""
        with self._lock:
            if self._asked_ms is None and has_later_fields(request):
                self._is_held = self._count == 0  # only a start is worth a wait
                self._count += 1
                self._asked_ms = self._now_ms()
                self._ask(self, self._question())
            if self._is_held:
                self._held.append((write, request))
            else:
                write(as_read(request, self._types))

    def open(self) -> None:
        """Write all that waits, by what is known."""
        with self._lock:
            self._is_held = False
            while self._held:
                write, request = self._held.popleft()
                write(as_read(request, self._types))

    # ---- the transport's side: a handler --------------------------------------------------------

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.Received(message=rs.CoordinatorLoading()):
                self._forget()
            case sg.Received(message=rs.Response() as answer) if answer.id == self._id:
                self._answered(answer)
            case sg.NotWritten(id=id_) if id_ == self._id:
                self.open()
            case sg.Elapsed():
                self.open()

    def wake_ms(self) -> int | None:
        asked_ms = self._asked_ms
        return asked_ms + WAIT_MS if self._is_held and asked_ms is not None else None

    def fail(self, problem: Exception) -> None:  # noqa: ARG002  # logged by the transport
        """What was asked is not known: no later field is sent."""
        with self._lock:
            self._types = {}
            self.open()

    def _answered(self, answer: rs.Response) -> None:
        """An older job refuses the question: it reads no later field."""
        with self._lock:
            found = answer.types if isinstance(answer, rs.ApiVersionsResponse) else {}
            self._types = found if isinstance(found, dict) else {}
            self.open()

    def _forget(self) -> None:
        """The job has started anew, perhaps with older code: ask once more when it matters."""
        with self._lock:
            self._types = {}
            if not self._is_held:
                self._asked_ms = None

    @property
    def _id(self) -> str:
        return f"{self.identity.token}-{self._count}"

    def _question(self) -> rq.ApiVersions:
        identity = self.identity
        return rq.ApiVersions(v=1, id=self._id, client=identity.client, reply=identity.reply)
