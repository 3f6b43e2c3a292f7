"""How clients are opened, and how their errors are raised, the same for all callers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from coordlib.errors import CannotReach, SetupError
from coordlib.kafka.admin import Admin
from coordlib.kafka.client_keys import shared
from coordlib.kafka.options import wrong_option

#: Every consumer needs a group. This one is never joined, and no offset is committed for it.
READER_GROUP: Final = "coordlib-reader"
#: Another broker leads a partition than the client believes, or the same one in another epoch.
LEADER_MOVED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


def reader_config(
    options: Mapping[str, Any], *, is_committed: bool = True, log_level: int = 0
) -> dict[str, Any]:
    """The configuration of a consumer that reads assigned partitions and leaves no trace.

    Args:
        options: librdkafka's, with `bootstrap.servers`.
        is_committed: whether it leaves out records of uncommitted transactions.
        log_level: 0: librdkafka's own lines on stderr would repeat what our error says.
    """
    return {
        **options,
        "group.id": READER_GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed" if is_committed else "read_uncommitted",
        "auto.offset.reset": "earliest",  # retention may have passed the position meanwhile
        "enable.partition.eof": True,
        "log_level": log_level,
    }


def open_admin(options: Mapping[str, Any], log_level: int = 0) -> Admin:
    """An admin client. Keep it in a variable: its answers are lost when it is collected.

    Raises SetupError: an option is wrong.
    """
    with opening():
        return Admin({**shared(options), "log_level": log_level})


@contextmanager
def opening() -> Iterator[None]:
    """Where a client is made of a user's keys. Raises SetupError for one that is wrong."""
    try:
        yield
    except (KafkaException, TypeError, ValueError) as problem:
        wrong = wrong_option(problem) if isinstance(problem, KafkaException) else None
        what = "A key cannot be used for a client of Kafka."
        raise wrong or SetupError(what, reason_of(problem), "Keys are librdkafka's.") from problem


def has_moved(problem: KafkaException) -> bool:
    """Whether a partition's leader is another than the client believes: see `Admin.forget`."""
    return problem.args[0].code() in LEADER_MOVED


def reason_of(problem: BaseException | KafkaError) -> str:
    """An error in words: Kafka's in librdkafka's. A future that is late has none of its own."""
    error = problem.args[0] if isinstance(problem, KafkaException) else problem
    if isinstance(error, KafkaError):
        return str(error.str() or error.name())
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return str(error) or repr(error)


@contextmanager
def reaching(what: str, mend: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Raise CannotReach, with this text and Kafka's own reason, where Kafka does not answer.

    Args:
        options: librdkafka's, for a first contact: wrong passwords and certificates are looked for.
    """
    try:
        yield
    except (KafkaException, TimeoutError) as problem:
        if options is not None:
            from coordlib.kafka.contact import unreachable  # which needs what is above

            raise unreachable(options, f"{what}.", problem, mend) from problem
        raise CannotReach(what, reason_of(problem), mend) from problem
