"""Transactional ids as a kind: their requests, their one deadline, and their expiry."""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from coordlib.core.engine.clock import NEVER, Due
from coordlib.core.engine.kind import NOT_INDEXED, Facts, Handler, Kind, Known
from coordlib.core.engine.transition import At
from coordlib.core.transactions import ending, states
from coordlib.core.transactions.abort_transaction import abort_transaction
from coordlib.core.transactions.add_offsets_to_txn import add_offsets_to_txn
from coordlib.core.transactions.add_partitions_to_txn import add_partitions_to_txn
from coordlib.core.transactions.describe_transaction import describe_transaction
from coordlib.core.transactions.end_txn import end_txn
from coordlib.core.transactions.init_producer_id import init_producer_id
from coordlib.core.transactions.settings import TransactionsSettings
from coordlib.core.transactions.states import AT_REST, State
from coordlib.core.transactions.step import TransactionStep
from coordlib.core.transactions.transaction import TIMEOUT, Transaction, check_invariants
from coordlib.core.transactions.txn_markers_written import txn_markers_written
from coordlib.core.transactions.txn_offset_commit import txn_offset_commit
from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.core.wire.producers import ABORT, TRANSACTION

_encode = msgspec.msgpack.Encoder().encode
_decode_waits = msgspec.msgpack.Decoder(dict[int, int]).decode


class Producers(Kind):
    """Transactional ids: the head has all of one."""

    NAME = "producer"
    SPACE = TRANSACTION
    VALUE = Transaction
    STEP = TransactionStep
    APIS: ClassVar[Mapping[type[rq.Request], Handler]] = {
        rq.InitProducerId: init_producer_id,
        rq.AddPartitionsToTxn: add_partitions_to_txn,
        rq.AddOffsetsToTxn: add_offsets_to_txn,
        rq.TxnOffsetCommit: txn_offset_commit,
        rq.EndTxn: end_txn,
        rq.TxnMarkersWritten: txn_markers_written,
        rq.AbortTransaction: abort_transaction,
        rq.DescribeTransaction: describe_transaction,
    }

    def create(self, name: str, at: At) -> Transaction:
        """What is left of an id whose first producer nobody can write any more: a new one."""
        return Transaction(
            group=name,
            producer_id=at.offset * at.shards + at.shard,
            timeout_ms=TransactionsSettings().config.timeout_max_ms,
            updated_clock_ms=at.clock_ms,
            client="",
            init_id="",
            reply=0,
        )

    def is_empty(self, value: Transaction) -> bool:
        return value.state in AT_REST

    def generation(self, value: Transaction) -> int:
        return value.epoch

    def facts(self, value: Transaction, known: Known) -> Facts:
        is_open = value.state is State.ONGOING
        settings: TransactionsSettings = known.settings
        kept_until_ms = value.updated_clock_ms + settings.config.retention_ms
        return Facts(
            next_due_ms=self.next_due(value, {}).due_ms,
            timeout_ms=value.timeout_ms if is_open else 0,
            look_at_ms=kept_until_ms if value.state in AT_REST else NEVER,
            size_bytes=value.size_bytes(),
            index=msgspec.Raw(_encode(value.waits)) if value.waits else NOT_INDEXED,
        )

    def next_due(self, value: Transaction, _heard: Mapping[str, int]) -> Due:
        if value.state is not State.ONGOING:
            return Due(NEVER)
        return Due(value.started_clock_ms + value.timeout_ms, TRANSACTION)

    def fire(self, step: TransactionStep, due: Due) -> None:
        step.cause = due.name
        ending.decide(step, ABORT, TIMEOUT)

    def restart(self, value: Transaction, clock_ms: int) -> Transaction:
        if value.state is not State.ONGOING:
            return value
        return msgspec.structs.replace(value, started_clock_ms=clock_ms)

    def look(self, step: TransactionStep, checked_ms: int) -> None:
        """An id that nobody used for long is forgotten, unless it has something to tell."""
        value, kept_ms = step.live, step.family.config.retention_ms
        if value.state not in AT_REST or value.updated_clock_ms + kept_ms > checked_ms:
            return
        states.move(value.state, State.DEAD)
        step.cause = "retention"
        detail = {"producer_id": value.producer_id, "epoch": value.epoch, "client": value.client}
        step.record(stored.EVENT_TRANSACTIONAL_ID_EXPIRED, detail=detail)
        step.delete()

    def released(self, step: TransactionStep) -> None:
        """Shards may have judged its messages while it was set aside."""
        ending.complete(step)

    def check(self, value: Transaction) -> None:
        check_invariants(value)


def waits_for(index: msgspec.Raw, shard: int, number: int) -> bool:
    """Whether an id waits until a shard has judged this message; `index`: of its facts."""
    return index != NOT_INDEXED and 0 < _decode_waits(index).get(shard, 0) <= number


PRODUCERS: Final = Producers()
