"""Transactions of Kafka: when an end may come late, who is fenced, what holds up readers."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordlib.core.wire.envelope import is_name
from coordlib.core.wire.offsets import TRANSACTIONAL_ID
from coordlib.errors import CannotReach, NotAllowed
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import denial, is_denied, open_admin, reaching, reason_of, refusing
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import read_range
from coordlib.kafka.roles import Kind, Operation, Right
from coordlib.limits import NAME_LENGTH_MAX

#: A transaction that took this long, from its beginning to the answer of its end, is doubtful.
DOUBTFUL_AFTER_MS: Final = 400
#: 80 % of it is above DOUBTFUL_AFTER_MS: librdkafka varies it by 20 %.
RETRY_BACKOFF_MS: Final = 600
#: A smaller bound, by an option of the user's, would cut the backoff.
RETRY_BACKOFF_MAX_MS: Final = 1_000
#: The options of every transactional producer.
RETRY_OPTIONS: Final = {
    "retry.backoff.ms": RETRY_BACKOFF_MS,
    "retry.backoff.max.ms": RETRY_BACKOFF_MAX_MS,
}


TIMEOUT_S: Final = 30.0
_SILENT: Final = "Kafka has not fenced it in time; what was asked may still be done."


def fence(options: Mapping[str, Any], transactional_id: str, timeout_s: float = TIMEOUT_S) -> None:
    """Raise the epoch of this id, as a new process under it does.

    The brokers abort the transaction that is open under it, if there is one, and refuse everything
    that its former producer still sends. An id that was never used is made.

    Args:
        options: librdkafka's, with `bootstrap.servers`.

    Raises:
        CannotReach: the brokers do not answer, or not in time.
        NotAllowed: this client may not write under the id.
    """
    where = f"transactional id {transactional_id}"
    producer = Producer({**options, "transactional.id": transactional_id, "log_level": 0})
    try:
        producer.init_transactions(timeout_s)
    except KafkaException as problem:
        right = Right(Kind.TRANSACTIONAL_ID, transactional_id, Operation.WRITE)
        if denied := denial(problem, right, options):
            raise denied from problem
        is_late = problem.args[0].code() == KafkaError._TIMED_OUT
        what = _SILENT if is_late else f"Kafka has not fenced it: {reason_of(problem)}"
        raise CannotReach(what, where, "Look whether the brokers run, then try again.") from problem
    finally:
        with suppress(KafkaException):  # one that has failed for ever says so once more
            producer.close()


READ_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class HeldUp:
    """A partition whose readers cannot go on, and the record at which they stand."""

    place: Place
    #: The last stable offset, and the end of the log.
    offset: int
    end: int
    #: The record there; None: it could not be read, and `unread` says why.
    key: bytes | None = None
    value: bytes | None = None
    #: Its timestamp, epoch milliseconds; None: unknown.
    time_ms: int | None = None
    unread: str | None = None
    #: As its producer has named it in the record's header; None: it has not.
    transactional_id: str | None = None


def held_up(options: Mapping[str, Any], places: Iterable[Place]) -> list[HeldUp]:
    """The partitions that an open transaction holds up just now, with its first record.

    Most of what is found is at work as it should be: the caller judges by the time of the record.

    Args:
        options: librdkafka's, with `bootstrap.servers`.

    Raises:
        CannotReach: no broker answers.
        NotAllowed: a topic may not be described.
    """
    first = _stable_ends(options, places)
    found = []
    for place, (stable, end) in first.items():
        if stable < end:
            found.append(_first_record(options, HeldUp(place, stable, end)))
    # What was written between two questions may look like an open transaction.
    again = _stable_ends(options, [each.place for each in found])
    return [each for each in found if _stands(again.get(each.place), each.offset)]


def _stands(now: tuple[int, int] | None, offset: int) -> bool:
    return now is not None and now[0] == offset < now[1]


def _stable_ends(
    options: Mapping[str, Any], places: Iterable[Place]
) -> dict[Place, tuple[int, int]]:
    """Last stable offset and end of each partition; those that are gone are left out."""
    asked = list(places)
    if not asked:
        return {}
    admin, denied = open_admin(options), refusing(options)
    with reaching("It is not known where logs end.", "Look whether the brokers run."):
        stable = log_bounds(admin, asked, READ_TIMEOUT_S, is_committed=True, on_denied=denied)
        ends = log_bounds(admin, asked, READ_TIMEOUT_S, on_denied=denied)
    return dict(_together(stable, ends))


def _together(
    stable: Mapping[Place, Any], ends: Mapping[Place, Any]
) -> Iterator[tuple[Place, tuple[int, int]]]:
    for place, bounds in stable.items():
        end = ends.get(place)
        if bounds is not None and end is not None:
            yield place, (bounds.end, end.end)


def _first_record(options: Mapping[str, Any], found: HeldUp) -> HeldUp:
    """The same with the record that stands there."""
    place, offset = found.place, found.offset
    try:
        message = next(read_range(options, *place, offset, offset + 1), None)
    except NotAllowed as problem:
        return HeldUp(place, offset, found.end, unread=problem.what)
    except KafkaException as problem:
        unread = "its topic may not be read" if is_denied(problem) else problem.args[0].str()
        return HeldUp(place, offset, found.end, unread=unread)
    if message is None:
        return HeldUp(place, offset, found.end, unread="it is gone")
    return HeldUp(
        *(place, offset, found.end, _bytes(message.key()), _bytes(message.value())),
        time_ms=_time_of(message),
        transactional_id=_id_of(message),
    )


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _time_of(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    return time_ms if kind else None


def _id_of(message: Message) -> str | None:
    """The transactional id that a header names; whoever wrote the record may write anything."""
    for name, value in dict(message.headers() or ()).items():
        if name == TRANSACTIONAL_ID and isinstance(value, bytes):
            text = value.decode(errors="replace")
            return text if is_name(text, NAME_LENGTH_MAX) else None
    return None
