"""Transactions that Kafka decides: confluent-kafka's transactional producer, and groups' answers.

It is confluent-kafka's with two differences. The offsets of a transaction go to the job, which
answers before the transaction may commit. And a transaction that may still have a request under way
is followed by a new producer, whose epoch fences it: Kafka's clients of before 4.0, and librdkafka,
may else end the next transaction by the late end of the one before (KIP-890).

The offsets are a PendingCommit, a record of the user's transaction; the answer comes by the
consumer's transport. The question stays attached to it until the transaction has ended, so that an
answer between two calls is not lost: it comes once. Silence is not asked again: the job is away
then, and the record stands in the log. A refusal for now is asked again, and so is what the
producer could not take.
"""

import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from coordlib.client.kit import events as sg
from coordlib.client.kit.config import DECIDED_BY, PREFIX, SERVERS, whole
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.requests import backoff_ms, throttle_ms
from coordlib.client.kit.transport import NoFence
from coordlib.client.transactions.data_cluster import (
    TIMEOUT,
    TRANSACTION_TIMEOUT_MS,
    Transactional,
    not_delivered,
    transaction_error,
)
from coordlib.client.transactions.machine import (
    OnDelivery,
    Severity,
    TransactionError,
    TransactionNotAllowed,
    severity_of,
)
from coordlib.core.wire import api, codec
from coordlib.core.wire.offsets import KAFKA, TRANSACTIONAL_ID
from coordlib.errors import NotAllowed, SetupError
from coordlib.kafka.clients import is_denied, is_fatal, missing, unwritable, writing
from coordlib.kafka.roles import Kind, Operation, Right
from coordlib.kafka.transactions import DOUBTFUL_AFTER_MS

_POLL_S: Final = 0.02
_LATE: Final = "The coordinator has not answered yet."
_LATE_HINT: Final = "Call it again: it continues. Check whether the job runs: coord status."
_FULL: Final = "The offsets could not be written yet: the producer's queue is full."
_FULL_HINT: Final = "Call it again: it continues. Produce less at once, or see that brokers are up."


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


class OffsetsQuestion(NoFence):
    """One commit of one transaction. Not to be shared among threads."""

    def __init__(
        self,
        metadata: GroupMetadata,
        rows: tuple[api.CommittedOffset, ...],
        now_s: Callable[[], float] = time.monotonic,
        transactional_id: str = "",
    ) -> None:
        self.metadata, self.rows, self._now_s = metadata, rows, now_s
        #: Whose transaction it is; empty: not known.
        self._headers = [(TRANSACTIONAL_ID, transactional_id)] if transactional_id else []
        #: The key under which the offsets wait; None: not accepted yet.
        self.key: str | None = None
        self.identity = metadata.asking()
        self._heard: queue.SimpleQueue[api.Response | Exception | _Lost] = queue.SimpleQueue()
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
                what, hint = (_FULL, _FULL_HINT) if self._is_full else (_LATE, _LATE_HINT)
                raise TransactionError(Severity.RETRIABLE, what, self.where, hint)
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
        if isinstance(event, sg.Received) and isinstance(event.message, api.Response):
            self._heard.put(event.message)

    # ---- small things -------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Whose offsets these are."""
        return f"group {self.identity.group}, member {self.metadata.member}"

    def _ask(self, producer: Produces) -> None:
        identity, metadata = self.identity, self.metadata
        id_ = f"{identity.token}-{self._attempt + 1}"
        request = api.PendingCommit(
            **identity.envelope(id_),
            generation=metadata.generation,
            member=metadata.member,
            instance=identity.instance,
            decided_by=KAFKA,
            offsets=self.rows,
        )
        try:
            value = codec.encode_request(request)
        except ValueError as problem:
            hint = "Abort. Then commit fewer partitions in one transaction, or shorter metadata."
            what = f"The offsets cannot be written: {problem}."
            raise TransactionError(Severity.ABORTABLE, what, self.where, hint) from problem
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

    def _answered(self, answer: api.Response) -> None:
        if isinstance(answer, api.PendingCommitResponse) and isinstance(answer.pending, str):
            self.key = answer.pending
            return
        severity = severity_of(answer.error)
        if severity is Severity.RETRIABLE:
            wait_ms = max(backoff_ms(self._attempt), throttle_ms(answer))
            self._again_s = self._now_s() + wait_ms / 1000
            return
        message = answer.message if isinstance(answer.message, str) else ""
        what = f"The group has refused the offsets: {answer.error}."
        raise TransactionError(severity, what, self.where, message)


NEW_EPOCH: Final = "coord.new.epoch"
NEW_EPOCH_AFTER: Final = "coord.new.epoch.after.ms"
_OURS: Final = "coord."
#: Of `transaction.timeout.ms`, for the group's answer: the rest is for the end. Who asks for longer
#: is fenced by Kafka's own abort, and can do nothing any more.
_ASKING: Final = 2 / 3
_LOOK_S: Final = 5.0
#: Keys that a client which only asks must not have.
_PRODUCERS_OWN: Final = frozenset({"transactional.id", TIMEOUT, "error_cb"})
Open = Callable[[Mapping[str, Any], Callable[[KafkaError], None]], Transactional]


class KafkaTransactions:
    """The backend whose transactions Kafka decides.

    Args:
        config: as `CoordinatedProducer` has it.
        open_producer: what opens confluent-kafka's.
    """

    def __init__(self, config: Mapping[str, Any], open_producer: Open) -> None:
        rest = dict(config)
        if not rest.get("transactional.id"):
            raise SetupError("A CoordinatedProducer needs transactional.id.")
        rest.pop(DECIDED_BY, None)
        rest.pop(PREFIX, None)  # whose offsets these are, their metadata say
        brokers = rest.get(SERVERS)
        if rest.pop(_OURS + SERVERS, brokers) != brokers:
            hint = f"Leave it out, or let the coordinator decide: {DECIDED_BY}."
            raise SetupError("Kafka decides within one cluster.", _OURS + SERVERS, hint)
        how = str(rest.pop(NEW_EPOCH, "doubtful"))
        if how not in ("doubtful", "always"):
            raise SetupError(f"{NEW_EPOCH} is doubtful or always.", repr(how))
        after_ms = whole(NEW_EPOCH_AFTER, rest.pop(NEW_EPOCH_AFTER, DOUBTFUL_AFTER_MS))
        if not 0 <= after_ms <= DOUBTFUL_AFTER_MS:
            raise SetupError(f"{NEW_EPOCH_AFTER} is 0 to {DOUBTFUL_AFTER_MS}.", str(after_ms))
        if unknown := sorted(key for key in rest if key.startswith(_OURS)):
            raise SetupError("A CoordinatedProducer has no such key.", ", ".join(unknown))
        self._doubtful_after_s = 0.0 if how == "always" else after_ms / 1000
        self._timeout_s = whole(TIMEOUT, rest.get(TIMEOUT, TRANSACTION_TIMEOUT_MS)) / 1000
        self._config, self._open_producer = rest, open_producer
        self.where = f"transactional id {rest['transactional.id']}"
        #: What groups were asked in this transaction: all must have accepted when it commits.
        self._questions: list[OffsetsQuestion] = []
        self._begun_s = 0.0
        #: Topics of this transaction's records.
        self._topics: set[str] = set()
        self._is_doubtful = False
        self._producer = self._open_one()

    # ---- transactions -------------------------------------------------------------------------

    def init(self, timeout: float) -> None:
        """Get an epoch."""
        with self._noting("init_transactions"):
            self._producer.init_transactions(timeout)

    @property
    def needs_renewal(self) -> bool:
        """Whether a request of the transaction before may be under way still."""
        return self._is_doubtful

    def renew(self) -> None:
        """Throw the producer away: the epoch of the next one fences all that it has under way."""
        self._producer = self._open_one()
        self._is_doubtful = False

    def begin(self) -> None:
        """Begin a transaction."""
        self._forget_questions()
        self._topics.clear()
        self._begun_s, self._is_doubtful = time.monotonic(), False
        with self._noting("begin_transaction"):
            self._producer.begin_transaction()

    def send(
        self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
    ) -> None:
        """Let these positions wait for the end, and wait until the group has accepted."""
        question = self._question_of(rows, metadata)
        self._topics.add(f"{metadata.identity.prefix}.requests")
        left_s = max(0.0, self._begun_s + _ASKING * self._timeout_s - time.monotonic())
        try:
            with self._noting("send_offsets_to_transaction"):
                question.wait(self._producer, min(timeout, left_s))
        except TransactionError as error:
            if error.retriable() and left_s <= timeout:
                raise self._unanswered() from error
            raise

    @property
    def unaccepted(self) -> str:
        """Whose offsets are not accepted; empty: all are."""
        return next((each.where for each in self._questions if each.key is None), "")

    def commit(self, timeout: float) -> None:
        """Commit, and wait for the end."""
        with self._noting("commit_transaction", self._ends_s):
            self._producer.commit_transaction(timeout)
        self._ended()

    def abort(self, timeout: float) -> None:
        """Abort, and wait for the end."""
        with self._noting("abort_transaction", self._ends_s):
            self._producer.abort_transaction(timeout)
        self._ended()

    # ---- records ------------------------------------------------------------------------------

    def produce(
        self, topic: str, args: tuple[Any, ...], named: dict[str, Any], on_delivery: OnDelivery
    ) -> None:
        """As confluent-kafka's, which also raises BufferError: the queue is full."""
        self._topics.add(topic)
        try:
            self._producer.produce(topic, *args, on_delivery=on_delivery, **named)
        except KafkaException as problem:
            raise self.lost(problem.args[0]) from problem

    def lost(self, error: KafkaError) -> TransactionError:
        """What it means that a record was not delivered."""
        if denied := self._denied(error):
            return TransactionNotAllowed.of(Severity.ABORTABLE, denied)
        if is_fatal(error):
            return transaction_error(KafkaException(error), "A record", self.where)
        return not_delivered(error, self.where)

    def poll(self, timeout: float) -> int:
        """Call the callbacks of delivered records; how many."""
        return int(self._producer.poll(timeout) or 0)

    def flush(self, timeout: float) -> int:
        """Wait for all records; how many are left."""
        return int(self._producer.flush(timeout) or 0)

    def close(self, is_usable: bool) -> None:
        """End."""
        self._forget_questions()
        if is_usable:
            self._producer.flush(5.0)

    # ---- small things -------------------------------------------------------------------------

    def _open_one(self) -> Transactional:
        return self._open_producer(self._config, self._note_error)

    def _note_error(self, _error: KafkaError) -> None:
        """Note an error on the way to the brokers: requests may have been sent twice."""
        self._is_doubtful = True

    def _ended(self) -> None:
        took_s = time.monotonic() - self._begun_s
        self._is_doubtful = self._is_doubtful or took_s >= self._doubtful_after_s
        self._forget_questions()

    def _question_of(
        self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata
    ) -> OffsetsQuestion:
        """The question that waits for an answer to these rows, or a new one."""
        for each in self._questions:
            if each.key is None and (each.rows, each.metadata) == (rows, metadata):
                return each
        transactional_id = str(self._config["transactional.id"])
        question = OffsetsQuestion(metadata, rows, transactional_id=transactional_id)
        for each in [each for each in self._questions if question.replaces(each)]:
            each.close()
            self._questions.remove(each)
        self._questions.append(question)
        return question

    def _forget_questions(self) -> None:
        for each in self._questions:
            each.close()
        self._questions.clear()

    @property
    def _ends_s(self) -> float:
        """From when on Kafka aborts the transaction by itself, which fences its producer."""
        return self._begun_s + self._timeout_s

    def _denied(self, error: KafkaError) -> NotAllowed | None:
        """The right that is missing, if that is the reason.

        A transaction that could not begin for want of a right purges its records, and names none.
        """
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            name = str(self._config["transactional.id"])
            return missing(Right(Kind.TRANSACTIONAL_ID, name, Operation.WRITE), self._config)
        if not is_denied(error) and error.code() != KafkaError._PURGE_QUEUE:
            return None
        options = {key: self._config[key] for key in self._config if key not in _PRODUCERS_OWN}
        try:
            lacking = unwritable(options, sorted(self._topics), _LOOK_S)
        except (KafkaException, TimeoutError):
            return None  # the first failure is the one to tell
        return missing(writing(lacking[0]), self._config) if lacking else None

    def _unanswered(self) -> TransactionError:
        what = "The group has not answered for two thirds of transaction.timeout.ms."
        hint = "Abort, then begin another one. Check whether the job runs: coord status."
        return TransactionError(Severity.ABORTABLE, what, self.where, hint)

    @contextmanager
    def _noting(self, doing: str, ends_s: float = math.inf) -> Iterator[None]:
        """Turn errors of confluent-kafka into TransactionError."""
        try:
            yield
        except OffsetsNotWritten as lost:
            if denied := self._denied(lost.error):
                raise TransactionNotAllowed.of(lost.severity, denied) from lost
            raise
        except KafkaException as problem:
            error = transaction_error(problem, doing, self.where)
            if denied := self._denied(problem.args[0]):
                raise TransactionNotAllowed.of(error.severity, denied) from problem
            if error.fatal() and time.monotonic() >= ends_s:
                # Or a newer process has fenced it: the two cannot be told apart.
                error = TransactionError(Severity.FATAL, error.what, error.where, _TOO_LONG)
            raise error from problem


_TOO_LONG: Final = (
    "It took longer than transaction.timeout.ms: do less in one transaction, or raise that. "
    "Close this producer, and make a new one."
)
