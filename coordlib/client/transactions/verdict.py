"""How a transaction has ended, as the coordinator says it, and what readers raise about it."""

from typing import Final

from msgspec import UNSET

from coordlib.core.wire.data_headers import Txn
from coordlib.core.wire.producers import DescribeTransactionResponse
from coordlib.errors import CoordError, ErrorCode

#: What the coordinator says of a transaction, beside "commit" and "abort".
OPEN: Final = "open"
#: It is over, or was never begun: its marker is in the log by now, or never will be.
GONE: Final = "gone"


class TornTransaction(CoordError):
    """A committed transaction lacks records: the cluster has lost what it had acknowledged.

    Raised again until the reader is told to `give_up` the transaction.
    """

    def __init__(self, transaction: Txn, why: str, where: str) -> None:
        self.transaction = transaction
        super().__init__(
            f"A committed transaction of {transaction.transactional_id} is not complete: {why}.",
            where,
            "Find out what the cluster has lost. To go on without them: give_up(error, partition).",
        )


class UndecidedTransaction(CoordError):
    """A transaction of another coordinator has no marker yet: nobody here can be asked.

    Args:
        is_read_on: False: as much is kept behind it as may be. Its marker is not among that, and
            nothing more is read.
    """

    def __init__(self, transaction: Txn, is_read_on: bool = True) -> None:
        self.transaction = transaction
        why = "Its marker cannot be waited for: no more is read behind so many records."
        wait = "Call again to wait for its marker. Or: "
        super().__init__(
            f"A transaction of {transaction.transactional_id} is undecided, and another "
            f"coordinator decides it (incarnation {transaction.incarnation}).",
            "" if is_read_on else why,
            f"{wait if is_read_on else ''}Name that coordinator: coord.bootstrap.servers and "
            "coord.prefix.",
        )


def verdict_of(answer: DescribeTransactionResponse, asked: Txn) -> str | None:
    """What the coordinator's answer means for a transaction; None: ask again."""
    if answer.error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name:
        return GONE
    if answer.error != ErrorCode.NONE.name:
        return None
    ended, named = answer.ended, (asked.producer_id, asked.epoch)
    if ended is not UNSET and (ended.producer_id, ended.epoch) == named:
        return ended.result
    is_current = (answer.producer_id, answer.epoch) == named
    return OPEN if is_current and answer.state == "Ongoing" else GONE
