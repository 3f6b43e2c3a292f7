"""The transactional ids of a shard: their space, and how fast new ones are made."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from coordlib.core.engine.family import Decide, Family
from coordlib.core.engine.kind import NOT_INDEXED, Kind
from coordlib.core.engine.routing import TRANSACTIONS
from coordlib.core.engine.row import Row
from coordlib.core.engine.throttle import Rate
from coordlib.core.engine.transition import At
from coordlib.core.transactions import ending
from coordlib.core.transactions.kind import PRODUCERS, Producers, waits_for
from coordlib.core.transactions.settings import TransactionsSettings
from coordlib.core.transactions.step import AroundTransaction
from coordlib.core.wire import codec
from coordlib.core.wire.producers import TRANSACTION

#: First part of the key of a head; other keys of the topic are of pending offsets.
ID: Final = "id"


class TransactionsState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What all ids of a shard share, in its blob."""

    #: The setting by which the rows' `look_at_ms` were found; they are found anew for another one.
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

    def around(self, at: At, is_new: bool) -> AroundTransaction:
        throttle_ms = self._new.wait_ms(at.clock_ms) if is_new else 0
        return AroundTransaction(config=self.settings.config, throttle_ms=throttle_ms)

    def created(self, at: At) -> None:
        self._new.book(at.clock_ms)

    def heard(
        self, shard: int, number: int, rows: Iterable[tuple[str, Row]]
    ) -> list[tuple[str, Decide]]:
        """Ids whose groups of that shard have been told: perhaps all have been now."""
        names = (name for name, row in rows if waits_for(row.facts.index, shard, number))
        return [(name, ending.complete) for name in sorted(names)]
