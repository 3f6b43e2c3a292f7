"""What a transactional id and its coordinator say to each other, as a pure state machine.

    init ─▶ (p, e)                                    begin ─▶ records and offsets
    AddPartitionsToTxn before the first record of a partition, TxnOffsetCommit ─▶ NONE
    EndTxn ─▶ NONE: decided, for ever ─▶ markers ─▶ TxnMarkersWritten ─▶ TransactionCompleted

It is driven by the program's own thread: `heard` and `not_written` take what came, `turn` gives
what is to be sent. Silence is not asked again: the job is away then, and the request stands in the
log. Where the transaction before has not ended everywhere (CONCURRENT_TRANSACTIONS), the end is
waited for, which the coordinator tells; only after two seconds it is asked by itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.requests import Identity, backoff_ms, throttle_ms
from coordlib.client.transactions.machine import Severity, TransactionError, severity_of
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Stamp, Txn
from coordlib.core.wire.transactions import (
    ABORT,
    COMMIT,
    EndedTransaction,
    Result,
    TopicsOfCluster,
    places_of,
    rows_of_places,
)
from coordlib.errors import ErrorCode


class Place(NamedTuple):
    """A partition of a topic in some cluster."""

    cluster: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A transaction that ended, and the partitions that lack its marker."""

    txn: Txn
    result: Result
    #: With the number of its records; None: not known, since another process wrote them.
    places: Mapping[Place, int | None]

    @classmethod
    def from_response(
        cls,
        incarnation: str,
        transactional_id: str,
        ended: EndedTransaction,
        rows: Iterable[TopicsOfCluster],
    ) -> "Unmarked":
        """What an answer of the coordinator says: its fields `ended` and `unwritten`."""
        txn = Txn(incarnation, transactional_id, ended.producer_id, ended.epoch)
        return cls(txn, ended.result, {Place(*each): None for each in places_of(rows)})

    def marker(self, place: Place) -> Marker:
        """The marker for one of the partitions."""
        count = self.places[place]
        named = {} if count is None else {"n": count}
        txn = self.txn
        return Marker(
            i=txn.incarnation,
            t=txn.transactional_id,
            p=txn.producer_id,
            e=txn.epoch,
            r=self.result,
            **named,
        )


@dataclass(slots=True)
class Question:
    """A request to the coordinator, until its last answer."""

    request: api.Request
    #: When to send it; None: sent, and waiting for the answer.
    send_ms: int | None
    #: Whether it is sent earlier, as soon as the transaction before has ended.
    waits_for_end: bool = False
    attempt: int = 0


@dataclass(slots=True)
class Transaction:
    """The state of the open transaction."""

    #: Records of each partition.
    counts: dict[Place, int] = field(default_factory=dict)
    #: Partitions of which the coordinator is not told yet, in order.
    new: dict[Place, None] = field(default_factory=dict)
    #: Those of which it was, and those of which it has said so.
    named: set[Place] = field(default_factory=set)
    added: set[Place] = field(default_factory=set)
    commits: int = 0
    accepted: int = 0
    #: Whether the coordinator may have begun it; it does not while the one before is not over.
    may_be_begun: bool = False
    #: What EndTxn asks; None: it was not asked.
    result: Result | None = None
    is_decided: bool = False
    is_over: bool = False


#: After this time it is asked by itself whether the transaction before has ended.
ENDS_WITHIN_MS: Final = 2_000

_CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS.name
_UNMAPPED: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING.name
_NONE: Final = ErrorCode.NONE.name
_OF_TRANSACTION: Final = api.AddPartitionsToTxn | api.TxnOffsetCommit


class TransactionMachine:
    """One process of a transactional id.

    Args:
        identity: its group is the transactional id.
        timeout_ms: after which the coordinator aborts a transaction.
    """

    def __init__(self, identity: Identity, timeout_ms: int) -> None:
        self.identity, self._timeout_ms = identity, timeout_ms
        self._where = f"transactional id {identity.group}"
        #: Producer id and epoch of this transaction, or of the next one; None: not known.
        self.producer: tuple[int, int] | None = None
        #: What it was when the coordinator did not know it any more: the id has expired, or another
        #: process has used up its epochs. It is named then, so that the latter fences this one.
        self._before: tuple[int, int] | None = None
        #: Why it cannot go on as it is: the first refusal in this transaction, or a fatal one.
        self.problem: TransactionError | None = None
        #: What ended, and lacks markers; None: nothing does.
        self.unmarked: Unmarked | None = None
        self._now = Transaction()
        self._questions: dict[str, Question] = {}
        self._count = 0
        #: Until when nothing is added, unless the end of the one before comes; None: that is over.
        self._gate_ms: int | None = None
        #: Producer id and epoch of the newest transaction that ended everywhere.
        self._completed: tuple[int, int] | None = None

    # ---- what the program does ----------------------------------------------------------------

    def init(self, now_ms: int) -> None:
        """Ask for a producer id and an epoch, unless it is asked already."""
        if self.producer is not None or self._is_asking(api.InitProducerId):
            return
        fields = {**self._envelope(), "timeout_ms": self._timeout_ms}
        if self._before is not None:
            fields["producer_id"], fields["epoch"] = self._before
        self._ask(api.InitProducerId(**fields), now_ms)

    def begin(self) -> None:
        """Begin a transaction."""
        self._now = Transaction()
        self._forget(_OF_TRANSACTION | api.EndTxn)

    def stamp(self, place: Place) -> Stamp:
        """The header of the next record of the transaction in this partition."""
        assert self.producer is not None, "initialized"
        now, (p, e) = self._now, self.producer
        number = now.counts.get(place, 0)
        now.counts[place] = number + 1
        if place not in now.named:
            now.new[place] = None
        identity = self.identity
        return Stamp(i=identity.incarnation, t=identity.group, p=p, e=e, s=number)

    def is_added(self, place: Place) -> bool:
        """Whether records may be written there."""
        return place in self._now.added

    @property
    def all_are_added(self) -> bool:
        """Whether the coordinator has all partitions of the transaction."""
        return self._now.added.issuperset(self._now.counts)

    def send_offsets(
        self, metadata: GroupMetadata, rows: tuple[api.CommittedOffset, ...], now_ms: int
    ) -> int:
        """Ask a group to let these wait for the end; returns a number for `is_accepted`."""
        number, self._now.commits = self._now.commits, self._now.commits + 1
        request = api.TxnOffsetCommit(
            **self._named(),
            of_group=metadata.identity.group,
            number=number,
            generation=metadata.generation,
            member=metadata.member,
            instance=metadata.identity.instance,
            offsets=rows,
        )
        self._ask(request, now_ms if self._gate_ms is None else self._gate_ms, is_gated=True)
        return number

    def is_accepted(self, number: int) -> bool:
        """Whether the group has accepted them."""
        return self._now.accepted > number

    @property
    def has_unaccepted(self) -> bool:
        """Whether a group has not accepted its offsets."""
        return self._now.accepted < self._now.commits

    def end(self, result: Result, now_ms: int) -> None:
        """Ask for the end of the transaction, unless that is asked already.

        For a commit all must be added, accepted and written before.

        Raises TransactionError: a commit is decided.
        """
        now = self._now
        if now.result == result:
            return
        if now.is_decided and now.result == COMMIT:
            what = "The transaction is committed, and is not aborted any more."
            raise TransactionError(Severity.FATAL, what, self._where)
        now.result = result
        if result == ABORT:
            if self.problem is not None and not self.problem.fatal():
                self.problem = None
            now.new.clear()
            if not self._is_begun:
                self._forget_unsent(_OF_TRANSACTION)
                if self._is_asking(_OF_TRANSACTION):
                    return  # the answers say whether there is anything to end
            self._forget(_OF_TRANSACTION | api.EndTxn)
        if not self._is_begun or self.producer is None:
            now.is_decided = now.is_over = True
            return
        self._ask_end(result, now_ms)

    @property
    def is_decided(self) -> bool:
        """Whether the end that was asked for stands."""
        return self._now.is_decided

    @property
    def is_over(self) -> bool:
        """Whether another transaction may begin."""
        return self._now.is_over

    def marked(self, places: Iterable[Place], now_ms: int) -> None:
        """Note partitions that have their marker, or are gone."""
        unmarked, done = self.unmarked, list(places)
        if unmarked is None or not done:
            return
        left = {place: n for place, n in unmarked.places.items() if place not in done}
        self.unmarked = Unmarked(unmarked.txn, unmarked.result, left) if left else None
        written = api.TxnMarkersWritten(
            **self._envelope(),
            producer_id=unmarked.txn.producer_id,
            epoch=unmarked.txn.epoch,
            partitions=rows_of_places(done),
        )
        self._ask(written, now_ms)

    # ---- what comes, and what is to be sent ---------------------------------------------------

    def turn(self, now_ms: int) -> list[api.Request]:
        """The requests that are due."""
        now = self._now
        if now.new and now.result is None and (self._gate_ms is None or self._gate_ms <= now_ms):
            rows = rows_of_places(now.new)
            now.named.update(now.new)
            now.new.clear()
            self._ask(api.AddPartitionsToTxn(**self._named(), partitions=rows), now_ms)
        due = [q for q in self._questions.values() if q.send_ms is not None and q.send_ms <= now_ms]
        for question in due:
            question.send_ms = None
        return [question.request for question in due]

    def heard(self, message: api.AnyResponse, now_ms: int) -> None:
        """An answer, or that a transaction of this id has ended everywhere."""
        if isinstance(message, api.TransactionCompleted):
            self._heard_of_end(message, now_ms)
        elif isinstance(message, api.Response) and message.id in self._questions:
            self._answered(self._questions[message.id], message, now_ms)

    def not_written(self, id_: str, why: str, is_final: bool, now_ms: int) -> None:
        """Take the report that a request was not written."""
        question = self._questions.get(id_)
        if question is None:
            return
        if isinstance(question.request, _OF_TRANSACTION):
            self._now.may_be_begun = True  # it may stand in the log nevertheless, and twice then
            if self._now.result == ABORT:
                self._heard_while_aborting(id_, now_ms)
                return
        question.attempt += 1
        question.send_ms = now_ms + backoff_ms(question.attempt)
        if is_final:
            what = f"A request could not be written: {why}"
            del self._questions[id_]
            if isinstance(question.request, api.TxnMarkersWritten):
                return  # the next process is told of these markers, and says it again
            self._fail(TransactionError(Severity.ABORTABLE, what, self._where))

    # ---- small things -------------------------------------------------------------------------

    def _heard_of_end(self, message: api.TransactionCompleted, now_ms: int) -> None:
        self._completed = message.producer_id, message.epoch
        self._gate_ms = None
        for waiting in self._questions.values():
            if waiting.waits_for_end and waiting.send_ms is not None:
                waiting.send_ms, waiting.waits_for_end = now_ms, False

    def _answered(self, question: Question, message: api.Response, now_ms: int) -> None:
        is_of_transaction = isinstance(question.request, _OF_TRANSACTION)
        if is_of_transaction and message.error != _CONCURRENT:
            self._now.may_be_begun = True
        if is_of_transaction and self._now.result == ABORT:
            self._heard_while_aborting(message.id, now_ms)
        elif message.error == _NONE:
            del self._questions[message.id]
            self._granted(question.request, message, now_ms)
        elif message.error == _CONCURRENT:
            self._let_wait(question, message, now_ms)
        elif severity_of(message.error) is Severity.RETRIABLE:
            question.attempt += 1
            wait_ms = max(backoff_ms(question.attempt), throttle_ms(message))
            question.send_ms = now_ms + wait_ms
        else:
            del self._questions[message.id]
            self._refused(question.request, message)

    @property
    def _is_begun(self) -> bool:
        """Whether the coordinator must be asked to end it.

        Before the transaction before has ended everywhere none begins, and an EndTxn of it is
        refused like that of an older producer.
        """
        now = self._now
        if self._gate_ms is not None and not now.may_be_begun:
            return False
        return bool(now.named) or now.commits > 0

    def _ask_end(self, result: Result, now_ms: int) -> None:
        accepted = self._now.accepted if result == COMMIT else 0
        self._ask(api.EndTxn(**self._named(), result=result, accepted=accepted), now_ms)

    def _heard_while_aborting(self, id_: str, now_ms: int) -> None:
        """Take the outcome of a request that was in flight when the abort was asked for."""
        del self._questions[id_]
        if self._now.may_be_begun:
            self._forget(_OF_TRANSACTION)
            self._ask_end(ABORT, now_ms)
        elif not self._is_asking(_OF_TRANSACTION):
            self._now.is_decided = self._now.is_over = True

    def _granted(self, asked: api.Request, answer: api.Response, now_ms: int) -> None:
        match asked, answer:
            case api.InitProducerId(), api.InitProducerIdResponse(producer_id=int(p), epoch=int(e)):
                self.producer, self._gate_ms = (p, e), None
                self.problem = None
            case api.AddPartitionsToTxn(), _:
                self._now.added.update(Place(*each) for each in places_of(asked.partitions))
            case api.TxnOffsetCommit(), _:
                self._now.accepted += 1
            case api.EndTxn(), api.EndTxnResponse(producer_id=int(p), epoch=int(e)):
                self._decide(asked, now_ms)
                self.producer, self._now.is_over = (p, e), True

    def _decide(self, asked: api.EndTxn, now_ms: int) -> None:
        now, ended = self._now, (asked.producer_id, asked.epoch)
        if now.is_decided:
            return
        now.is_decided = True
        if now.named:
            txn = Txn(self.identity.incarnation, self.identity.group, *ended)
            counts = {place: now.counts.get(place, 0) for place in sorted(now.named)}
            self.unmarked = Unmarked(txn, asked.result, counts)
        if self._completed != ended:
            self._gate_ms = now_ms + ENDS_WITHIN_MS

    def _let_wait(self, question: Question, answer: api.Response, now_ms: int) -> None:
        """The transaction before has not ended everywhere."""
        if isinstance(question.request, api.EndTxn):
            # It was asked before, and the answer is lost: it is decided as it was asked.
            self._decide(question.request, now_ms)
        if isinstance(answer, api.InitProducerIdResponse):
            self._note_unwritten(answer)
        question.send_ms, question.waits_for_end = now_ms + ENDS_WITHIN_MS, True

    def _note_unwritten(self, answer: api.InitProducerIdResponse) -> None:
        """Take over the markers that the former process of the id has not written."""
        if self.unmarked is not None or self._is_asking(api.TxnMarkersWritten):
            return  # they are being written
        ended, rows = answer.ended, answer.unwritten
        if isinstance(rows, tuple) and rows and isinstance(ended, EndedTransaction):
            me = self.identity
            self.unmarked = Unmarked.from_response(me.incarnation, me.group, ended, rows)

    def _refused(self, asked: api.Request, answer: api.Response) -> None:
        if isinstance(asked, api.TxnMarkersWritten):
            return  # the next process has written them, and goes on
        if answer.error == _UNMAPPED:
            # The id has expired, or is another process's: there is nothing of it that is open.
            self._before, self.producer = self.producer or self._before, None
            if isinstance(asked, api.EndTxn) and (asked.result == ABORT or self._now.is_decided):
                self._now.is_decided = self._now.is_over = True
                return
        message = answer.message if isinstance(answer.message, str) else ""
        what = f"The coordinator has refused {type(asked).__name__}: {answer.error}."
        self._fail(TransactionError(severity_of(answer.error), what, self._where, message))

    def _fail(self, error: TransactionError) -> None:
        if error.txn_requires_abort() and self._now.is_decided:
            # There is nothing that could be aborted, and the next epoch is not known.
            error = TransactionError(Severity.FATAL, error.what, error.where, error.hint)
        if self.problem is None or (error.fatal() and not self.problem.fatal()):
            self.problem = error

    def _is_asking(self, kinds: Any) -> bool:
        return any(isinstance(each.request, kinds) for each in self._questions.values())

    def _forget_unsent(self, kinds: Any) -> None:
        """Drop requests that are not in the log, or whose answer says that nothing changed."""
        for id_, each in list(self._questions.items()):
            if isinstance(each.request, kinds) and each.send_ms is not None:
                del self._questions[id_]

    def _forget(self, kinds: Any) -> None:
        """Drop these requests and their answers."""
        for id_, each in list(self._questions.items()):
            if isinstance(each.request, kinds):
                del self._questions[id_]

    def _ask(self, request: api.Request, send_ms: int, is_gated: bool = False) -> None:
        is_gated = is_gated and self._gate_ms is not None
        self._questions[request.id] = Question(request, send_ms, is_gated)

    def _envelope(self) -> dict[str, Any]:
        self._count += 1
        return self.identity.envelope(f"{self.identity.token}-{self._count}")

    def _named(self) -> dict[str, Any]:
        assert self.producer is not None, "initialized"
        p, e = self.producer
        return {**self._envelope(), "producer_id": p, "epoch": e}
