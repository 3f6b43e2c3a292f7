"""A PendingCommit, written with the user's transactional producer, until it is answered.

The record is part of the user's transaction, and the answer comes by the consumer's transport. The
question stays attached to it until the transaction has ended, so that an answer between two calls
is not lost: it comes once. Silence is not asked again: the job is away then, and the record stands
in the log. A refusal for now is asked again, and so is what the producer could not take.
"""

import queue
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from coordlib.client.kit import signals as sg
from coordlib.client.kit.asks import backoff_ms, throttle_ms
from coordlib.client.kit.later_fields import as_read
from coordlib.client.kit.unfenced import Unfenced
from coordlib.client.transactions.errors import Severity, TransactionError
from coordlib.client.transactions.machine import severity_of
from coordlib.client.transactions.metadata import GroupMetadata
from coordlib.core.wire import codec
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire.transactions import KAFKA, TRANSACTIONAL_ID

_POLL_S: Final = 0.02
_LATE: Final = "The coordinator has not answered yet."
_LATE_MEND: Final = "Call it again: it goes on. Look whether the job runs: coord status."
_FULL: Final = "The offsets could not be written yet: the producer's queue is full."
_FULL_MEND: Final = "Call it again: it goes on. Produce less at once, or see that brokers are up."


class Produces(Protocol):
    """As much of a producer as a question uses."""

    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes,
        partition: int,
        *,
        on_delivery: Any,
        headers: list[tuple[str, str]],
    ) -> Any: ...

    def poll(self, timeout: float) -> Any: ...


class _Lost(NamedTuple):
    """The request was not written: Kafka's error."""

    error: Any


class OffsetsNotWritten(TransactionError):
    """The log has not taken the offsets; `error` is Kafka's."""

    def __init__(self, error: Any, where: str) -> None:
        self.error = error
        what = f"The offsets could not be written: {error.str()}"
        super().__init__(Severity.ABORTABLE, what, where, "Abort, and begin.")


class OffsetsQuestion(Unfenced):
    """One commit of one transaction. Not to be shared among threads."""

    def __init__(
        self,
        metadata: GroupMetadata,
        rows: tuple[rq.CommittedOffset, ...],
        now_s: Callable[[], float] = time.monotonic,
        transactional_id: str = "",
    ) -> None:
        self.metadata, self.rows, self._now_s = metadata, rows, now_s
        #: Whose transaction it is; empty: not known.
        self._headers = [(TRANSACTIONAL_ID, transactional_id)] if transactional_id else []
        #: The key under which the offsets wait; None: not accepted yet.
        self.key: str | None = None
        self.identity = metadata.asking()
        self._heard: queue.SimpleQueue[rs.Response | Exception | _Lost] = queue.SimpleQueue()
        self._id, self._attempt = "", 0
        self._is_attached = False
        #: When to ask again; None: asked, and waiting.
        self._again_s: float | None = now_s()
        #: Whether the producer could not take it, the last time.
        self._is_full = False

    def wait(self, producer: Produces, timeout_s: float) -> str:
        """Ask, or go on waiting for the answer; returns the key.

        Raises TransactionError: retriable when time is up, and a later call goes on.
        """
        transport, until = self.metadata.transport, self._now_s() + timeout_s
        if not self._is_attached:
            transport.attach(self)
            self._is_attached = True
        while self.key is None:
            if self._again_s is not None and self._now_s() >= self._again_s:
                self._ask(producer)
            producer.poll(_POLL_S)
            self._hear()
            if self.key is None and self._now_s() >= until:
                transport.check()
                what, mend = (_FULL, _FULL_MEND) if self._is_full else (_LATE, _LATE_MEND)
                raise TransactionError(Severity.RETRIABLE, what, self.where, mend)
        return self.key

    def close(self) -> None:
        """The transaction has ended, or the answer does not matter any more."""
        if self._is_attached:
            self.metadata.transport.detach(self)
            self._is_attached = False

    def replaces(self, older: "OffsetsQuestion") -> bool:
        """Whether nothing of an older one of the same transaction holds beside this."""
        places = {(row.topic, row.partition) for row in self.rows}
        return self.metadata == older.metadata and places.issuperset(
            (row.topic, row.partition) for row in older.rows
        )

    # ---- the transport's side -----------------------------------------------------------------

    def feed(self, event: sg.Input) -> None:
        if isinstance(event, sg.Received) and isinstance(event.message, rs.Response):
            self._heard.put(event.message)

    def wake_ms(self) -> int | None:
        return None

    def fail(self, problem: Exception) -> None:
        self._heard.put(problem)

    # ---- small things -------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Whose offsets these are."""
        return f"group {self.identity.group}, member {self.metadata.member}"

    def _ask(self, producer: Produces) -> None:
        identity, metadata = self.identity, self.metadata
        id_ = f"{identity.token}-{self._attempt + 1}"
        request = rq.PendingCommit(
            v=1,
            id=id_,
            client=identity.client,
            group=identity.group,
            reply=identity.reply,
            generation=metadata.generation,
            member=metadata.member,
            instance=identity.instance,
            decided_by=KAFKA,
            offsets=self.rows,
        )
        try:
            value = codec.encode_request(as_read(request, metadata.transport.place.features))
        except ValueError as problem:
            mend = "Abort. Then commit fewer partitions in one transaction, or shorter metadata."
            what = f"The offsets cannot be written: {problem}."
            raise TransactionError(Severity.ABORTABLE, what, self.where, mend) from problem
        try:
            producer.produce(
                f"{identity.prefix}.requests",
                value,
                identity.group.encode(),
                identity.shard,
                on_delivery=self._delivered,
                headers=self._headers,
            )
        except BufferError:
            self._is_full = True  # still to be asked: `poll` makes room
            return
        self._id, self._attempt = id_, self._attempt + 1
        self._again_s, self._is_full = None, False

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._heard.put(_Lost(error))

    def _hear(self) -> None:
        while not self._heard.empty():
            heard = self._heard.get_nowait()
            if isinstance(heard, Exception):
                raise heard
            if isinstance(heard, _Lost):
                raise OffsetsNotWritten(heard.error, self.where)
            if heard.id == self._id:
                self._answered(heard)

    def _answered(self, answer: rs.Response) -> None:
        if isinstance(answer, rs.PendingCommitResponse) and isinstance(answer.pending, str):
            self.key = answer.pending
            return
        severity = severity_of(answer.error)
        if severity is Severity.RETRIABLE:
            wait_ms = max(backoff_ms(self._attempt), throttle_ms(answer))
            self._again_s = self._now_s() + wait_ms / 1000
            return
        said = answer.message if isinstance(answer.message, str) else ""
        what = f"The group has refused the offsets: {answer.error}."
        raise TransactionError(severity, what, self.where, said)
