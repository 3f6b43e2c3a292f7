"""What operators ask about transactions of the coordinator."""

from abc import ABC, abstractmethod
from typing import Any, Final, Literal

from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs

TRANSACTION_TIMEOUT_S: Final = 30.0


class TransactionAdmin(ABC):
    """The part of `Admin` that is about transactional ids.

    All methods raise GroupError (TRANSACTIONAL_ID_NOT_FOUND; COORDINATOR_NOT_AVAILABLE: the id is
    quarantined) and CannotReach: no answer in time; the request may still be judged later.
    """

    @property
    @abstractmethod
    def incarnation(self) -> str:
        """Of the coordinator's topics; markers name it."""

    @abstractmethod
    def _ask_in_space(
        self, name: str, space: str, kind: type[rq.Request], timeout_s: float, /, **fields: Any
    ) -> list[rs.Response]:
        """All parts of the answer to this request."""

    def abort_transaction(
        self,
        transactional_id: str,
        reason: str | None = None,
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> str:
        """End the open transaction of an id: its producer finds that it was aborted, and goes on.

        The reason is kept in the history. Returns how the transaction ends: `abort`; or `commit`,
        if that was decided before, which nothing can change.

        Raises also: GroupError INVALID_TXN_STATE, where no transaction is open.
        """
        space, kind = rq.AbortTransaction.SPACE, rq.AbortTransaction
        (answer,) = self._ask_in_space(transactional_id, space, kind, timeout_s, reason=reason)
        assert isinstance(answer, rs.AbortTransactionResponse)
        return str(answer.result)

    def decide_pending(
        self,
        group: str,
        key: str,
        result: Literal["commit", "abort"],
        reason: str,
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """Decide offsets of a group that wait, as an operator: the reason is kept in the history.

        The coordinator believes it, also where Kafka knows otherwise: look first.

        Raises also: GroupError INVALID_TXN_STATE, where nothing waits under this key;
        INVALID_REQUEST, where the coordinator itself decides, or no reason is given.
        """
        fields = {"pending": key, "result": result, "reason": reason}
        self._ask_in_space(group, rq.DecidePending.SPACE, rq.DecidePending, timeout_s, **fields)

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: tuple[rq.TopicsOfCluster, ...],
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """Tell that these partitions have the marker of a transaction that has ended.

        Raises also: GroupError PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING: it is another one.
        """
        space, kind = rq.TxnMarkersWritten.SPACE, rq.TxnMarkersWritten
        fields = {"producer_id": producer_id, "epoch": epoch, "partitions": partitions}
        self._ask_in_space(transactional_id, space, kind, timeout_s, **fields)
