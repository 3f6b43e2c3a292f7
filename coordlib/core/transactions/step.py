"""One transactional id during one step."""

from typing import Any

import msgspec

from coordlib.config import TransactionsConfig
from coordlib.core.engine.step import Step
from coordlib.core.transactions import states
from coordlib.core.transactions.states import State
from coordlib.core.transactions.transaction import Transaction
from coordlib.core.wire import stored


class AroundTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a step may read beside its id."""

    config: TransactionsConfig
    #: How long until one more id may be made; 0: now.
    throttle_ms: int


class TransactionStep(Step[Transaction]):
    """A transactional id, or none, while it judges something."""

    family: AroundTransaction

    @property
    def own_producer_id(self) -> int:
        """The producer id that this record may give: no other record gives it, ever.  # INV-98"""
        return self.at.offset * self.at.shards + self.at.shard

    def make(self, value: Transaction, reason: str) -> None:
        """An id that was not there."""
        states.move(None, value.state)
        self.hold(value)
        self.record(
            stored.EVENT_TRANSACTIONAL_ID_CREATED,
            reason=reason,
            detail={"producer_id": value.producer_id, "client": value.client},
        )

    def alter(self, state: State, **fields: Any) -> None:
        """Go to a state that may follow. Raises BrokenInvariant.  # INV-92"""
        states.move(self.live.state, state)
        self.change(state=state, updated_clock_ms=self.at.clock_ms, **fields)
