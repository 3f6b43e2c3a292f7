"""Transactional ids of a shard: their requests, their one deadline, their expiry, their rate."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from coordlib import limits
from coordlib.config import TransactionsConfig
from coordlib.core.engine.effects import TRANSACTIONS, At
from coordlib.core.engine.protocol import Family
from coordlib.core.engine.rows import Row
from coordlib.core.engine.step import NOT_INDEXED, Decide, Facts, Handler, Kind, Known
from coordlib.core.engine.time import NEVER, Due, Rate
from coordlib.core.transactions import ending, transaction
from coordlib.core.transactions.ending import abort_transaction, end_txn, txn_markers_written
from coordlib.core.transactions.producer_ids import init_producer_id
from coordlib.core.transactions.requests import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transaction,
    txn_offset_commit,
)
from coordlib.core.transactions.transaction import (
    AT_REST,
    TIMEOUT,
    AroundTransaction,
    State,
    Transaction,
    TransactionStep,
    invariants,
)
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire.transactions import ABORT, TRANSACTION


class TransactionsSettings(msgspec.Struct, frozen=True):
    """The section `transactions`, and the rate of new groups, which new ids have, too."""

    config: TransactionsConfig = TransactionsConfig()
    new_per_second_max: int = limits.NEW_GROUPS_PER_SECOND_MAX


_encode = msgspec.msgpack.Encoder().encode
_decode_waits = msgspec.msgpack.Decoder(dict[int, int]).decode


class Producers(Kind):
    """Transactional ids: the head has all of one."""

    NAME = "producer"
    SPACE = TRANSACTION
    VALUE = Transaction
    STEP = TransactionStep
    APIS: ClassVar[Mapping[type[api.Request], Handler]] = {
        api.InitProducerId: init_producer_id,
        api.AddPartitionsToTxn: add_partitions_to_txn,
        api.AddOffsetsToTxn: add_offsets_to_txn,
        api.TxnOffsetCommit: txn_offset_commit,
        api.EndTxn: end_txn,
        api.TxnMarkersWritten: txn_markers_written,
        api.AbortTransaction: abort_transaction,
        api.DescribeTransaction: describe_transaction,
    }

    def create(self, name: str, at: At) -> Transaction:
        """A new id in the place of one whose first producer cannot be written any more."""
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
            next_maintenance_ms=kept_until_ms if value.state in AT_REST else NEVER,
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

    def maintain(self, step: TransactionStep, checked_ms: int) -> None:
        """Forget an id that was not used for long, unless a decision is under way."""
        value, kept_ms = step.live, step.family.config.retention_ms
        if value.state not in AT_REST or value.updated_clock_ms + kept_ms > checked_ms:
            return
        transaction.check_transition(value.state, State.DEAD)
        step.cause = "retention"
        detail = {"producer_id": value.producer_id, "epoch": value.epoch, "client": value.client}
        step.record(stored.EVENT_TRANSACTIONAL_ID_EXPIRED, detail=detail)
        step.delete()

    def released(self, step: TransactionStep) -> None:
        """Shards may have judged its messages while it was set aside."""
        ending.complete(step)

    def invariants(self, value: Transaction) -> Iterator[tuple[str, bool]]:
        return invariants(value)


def waits_for(index: msgspec.Raw, shard: int, number: int) -> bool:
    """Whether an id waits until a shard has judged this message; `index`: of its facts."""
    return index != NOT_INDEXED and 0 < _decode_waits(index).get(shard, 0) <= number


PRODUCERS: Final = Producers()


#: First part of the key of a head; other keys of the topic are of pending offsets.
ID: Final = "id"


class TransactionsState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What all ids of a shard share, in its blob."""

    #: The setting from which the rows' `next_maintenance_ms` were computed.
    retention_ms: int = 0
    #: Until when new ids have booked the shard's clock, in microseconds of it.
    free_us: int = 0


_decode: Final = msgspec.msgpack.Decoder(TransactionsState).decode
_decode_key: Final = msgspec.json.Decoder(tuple[str, ...]).decode


class Transactions(Family):
    """The transactional ids of a shard during one batch."""

    SPACE = TRANSACTION
    KINDS: ClassVar[tuple[Producers, ...]] = (PRODUCERS,)
    HEADS = TRANSACTIONS
    IS_ALWAYS_STORED = False
    SETTINGS = TransactionsSettings
    settings: TransactionsSettings

    def __init__(self, stored: msgspec.Raw, settings: TransactionsSettings) -> None:
        self.settings = settings
        self._is_stored = stored != NOT_INDEXED
        self._state = TransactionsState() if stored == NOT_INDEXED else _decode(stored)
        self._new = Rate(self._state.free_us, settings.new_per_second_max)
        self.context = AroundTransaction(config=settings.config, throttle_ms=0)

    @property
    def entities_max(self) -> int:
        return self.settings.config.ids_per_shard_max

    def limits(self) -> Mapping[str, int]:
        config = self.settings.config
        return {
            "txn_timeout_min_ms": config.timeout_min_ms,
            "txn_timeout_max_ms": config.timeout_max_ms,
            "txn_partitions_max": config.partitions_max,
            "txn_groups_max": config.groups_max,
        }

    def state(self) -> TransactionsState | None:
        if not self._is_stored and not self._new.free_us:
            return None  # no id was ever made here: the blob stays as it is without transactions
        return TransactionsState(self.settings.config.retention_ms, self._new.free_us)

    @classmethod
    def restored(
        cls, _values: Mapping[str, tuple[Kind, Any]], _progress: Mapping[bytes, bytes]
    ) -> TransactionsState | None:
        return TransactionsState() if _values else None

    @classmethod
    def head_key(cls, name: str) -> bytes:
        return codec.encode([ID, name])

    @classmethod
    def head_name(cls, key: bytes) -> str | None:
        what, name, *_ = _decode_key(key)
        return name if what == ID else None

    def must_look_again(self) -> bool:
        return self._state.retention_ms != self.settings.config.retention_ms

    def context_of_new(self, at: At) -> AroundTransaction:
        throttle_ms = self._new.wait_ms(at.clock_ms)
        return AroundTransaction(config=self.settings.config, throttle_ms=throttle_ms)

    def created(self, at: At) -> None:
        self._new.book(at.clock_ms)

    def heard(
        self, shard: int, number: int, rows: Iterable[tuple[str, Row]]
    ) -> list[tuple[str, Decide]]:
        """Ids whose groups in that shard have the marker: their transactions may be complete."""
        names = (name for name, row in rows if waits_for(row.facts.index, shard, number))
        return [(name, ending.complete) for name in sorted(names)]
