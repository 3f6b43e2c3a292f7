"""The transactional producers of users' programs: how they are opened, and their errors.

As in the job's own sink, the time after which requests are sent again is fixed
(`kafka/late_ends.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from coordlib.client.transactions.errors import Severity, TransactionError
from coordlib.errors import SetupError
from coordlib.kafka.client_keys import for_producer, require_servers
from coordlib.kafka.clients import opening
from coordlib.kafka.fatal_errors import FENCED, is_fatal
from coordlib.kafka.late_ends import RETRY_OPTIONS

TIMEOUT: Final = "transaction.timeout.ms"
#: An open transaction holds up the decisions of others behind it, so it is short.
TRANSACTION_TIMEOUT_MS: Final = 15_000


class Transactional(Protocol):
    """As much of confluent-kafka's Producer as is used."""

    def init_transactions(self, timeout: float) -> Any: ...

    def begin_transaction(self) -> Any: ...

    def commit_transaction(self, timeout: float) -> Any: ...

    def abort_transaction(self, timeout: float) -> Any: ...

    def produce(self, topic: str, *args: Any, **named: Any) -> Any: ...

    def poll(self, timeout: float) -> Any: ...

    def flush(self, timeout: float) -> Any: ...


def open_transactional(
    config: Mapping[str, Any], on_error: Callable[[KafkaError], None]
) -> Transactional:
    """A producer of this transactional id. `on_error`: told of everything that error_cb is.

    Raises SetupError: a key is wrong, or one that is not the user's to set.
    """
    if given := sorted(RETRY_OPTIONS.keys() & config.keys()):
        raise SetupError(
            "The backoff is fixed: with a shorter one a late request of a transaction may end the "
            "next one.",
            ", ".join(given),
            "Leave it out.",
        )
    told = config.get("error_cb")

    def note(error: KafkaError) -> None:
        on_error(error)
        if told is not None:
            told(error)

    require_servers(config)
    usual = {TIMEOUT: TRANSACTION_TIMEOUT_MS}
    with opening():
        return Producer({**usual, **for_producer(config), **RETRY_OPTIONS, "error_cb": note})


def transaction_error(problem: KafkaException, doing: str, where: str) -> TransactionError:
    """What an error of the producer means for the transaction."""
    error = problem.args[0]
    if is_fatal(error) and error.code() in FENCED:
        severity, mend = Severity.FATAL, "End: a newer process uses this transactional id."
    elif is_fatal(error):
        mend = "Close this producer. Make a new one unless a newer process has its id."
        severity = Severity.FATAL
    elif error.txn_requires_abort():
        severity, mend = Severity.ABORTABLE, "Abort the transaction, then begin another one."
    elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # not written, so it cannot count
        severity, mend = Severity.ABORTABLE, "Abort. Write less in one record."
    elif error.retriable():
        severity, mend = Severity.RETRIABLE, "Call it again: it goes on."
    else:
        severity, mend = Severity.FATAL, "Close this producer, and make a new one."
    return TransactionError(severity, f"{doing}: {error.str()}", where, mend)


def not_delivered(error: KafkaError, where: str) -> TransactionError:
    """A record of a transaction is lost, and so the transaction cannot be committed."""
    what = f"A record was not delivered: {error.str()}"
    mend = "Abort the transaction, then begin another one."
    return TransactionError(Severity.ABORTABLE, what, where, mend)
