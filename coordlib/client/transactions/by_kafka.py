"""Transactions that Kafka decides: confluent-kafka's transactional producer, and groups' answers.

It is confluent-kafka's with two differences. The offsets of a transaction go to the job, which
answers before the transaction may commit. And a transaction that may still have a request under way
is followed by a new producer, whose epoch fences it: Kafka's clients of before 4.0, and librdkafka,
may else end the next transaction by the late end of the one before (KIP-890).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from coordlib.client.kit.coordinator_options import DECIDED_BY, PREFIX, SERVERS, whole
from coordlib.client.transactions.errors import (
    Severity,
    TransactionError,
    TransactionNotAllowed,
)
from coordlib.client.transactions.metadata import GroupMetadata
from coordlib.client.transactions.question import OffsetsNotWritten, OffsetsQuestion
from coordlib.client.transactions.transactional import (
    TIMEOUT,
    TRANSACTION_TIMEOUT_MS,
    Transactional,
    not_delivered,
    transaction_error,
)
from coordlib.client.transactions.way import OnDelivery
from coordlib.core.wire import requests as rq
from coordlib.errors import NotAllowed, SetupError
from coordlib.kafka.denied import is_denied, missing, unwritable, writing
from coordlib.kafka.fatal_errors import is_fatal
from coordlib.kafka.late_ends import DOUBTFUL_AFTER_MS
from coordlib.kafka.roles import Kind, Operation, Right

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


class ByKafka:
    """The way in which Kafka decides.

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
            mend = f"Leave it out, or let the coordinator decide: {DECIDED_BY}."
            raise SetupError("Kafka decides within one cluster.", _OURS + SERVERS, mend)
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
        self, rows: tuple[rq.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
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
        """Something went wrong on the way to the brokers: requests may have been sent twice."""
        self._is_doubtful = True

    def _ended(self) -> None:
        took_s = time.monotonic() - self._begun_s
        self._is_doubtful = self._is_doubtful or took_s >= self._doubtful_after_s
        self._forget_questions()

    def _question_of(
        self, rows: tuple[rq.CommittedOffset, ...], metadata: GroupMetadata
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
        mend = "Abort, then begin another one. Look whether the job runs: coord status."
        return TransactionError(Severity.ABORTABLE, what, self.where, mend)

    @contextmanager
    def _noting(self, doing: str, ends_s: float = math.inf) -> Iterator[None]:
        """Turns what confluent-kafka raises into what it means for the transaction."""
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
