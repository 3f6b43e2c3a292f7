"""Who decides about a producer's transactions: what `CoordinatedProducer` asks of each way."""

from collections.abc import Callable
from typing import Any, Protocol

from coordlib.client.transactions.errors import TransactionError
from coordlib.client.transactions.metadata import GroupMetadata
from coordlib.core.wire import requests as rq

#: Called with an error, or None, and the record.
OnDelivery = Callable[[Any, Any], None]


class Way(Protocol):
    """One producer over one way; calls come in an order that the state machine allows.

    Its calls raise TransactionError; after a retriable one the same call goes on.
    """

    #: For errors: which producer.
    where: str

    def init(self, timeout: float) -> None:
        """Get an epoch; older processes of the id are fenced, and aborted."""

    @property
    def needs_renewal(self) -> bool:
        """Whether the next transaction needs another epoch."""

    def renew(self) -> None:
        """Prepare for `init`, which is called next."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(
        self, rows: tuple[rq.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
    ) -> None:
        """Let a group's positions wait for the end; wait until it has accepted them."""

    @property
    def unaccepted(self) -> str:
        """Whose offsets are not accepted; empty: all are."""

    def commit(self, timeout: float) -> None:
        """Commit, and wait for the end."""

    def abort(self, timeout: float) -> None:
        """Abort, and wait for the end."""

    def produce(
        self, topic: str, args: tuple[Any, ...], named: dict[str, Any], on_delivery: OnDelivery
    ) -> None:
        """Write a record, later."""

    def lost(self, error: Any) -> TransactionError:
        """What it means that a record was not delivered."""

    def poll(self, timeout: float) -> int:
        """Call the callbacks of delivered records; how many."""

    def flush(self, timeout: float) -> int:
        """Wait for all records; how many are left."""

    def close(self, is_usable: bool) -> None:
        """End; `is_usable`: it has not failed for ever."""
