"""Where logs begin and end, of many partitions at once, and how old the first records are."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in its stubs

from coordlib.kafka.admin import Admin
from coordlib.kafka.clients import (
    LEADER_MOVED,
    denial,
    hidden,
    is_denied,
    reaching,
    reader_config,
    reading,
    refusing,
)
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.options import SERVERS

#: Partitions per request: it bounds how long one takes, and how long this thread holds Python.
ASKED_AT_ONCE_MAX: Final = 1_000
_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


#: Called with each topic that this client may not describe.
OnDenied = Callable[[str], None]


def log_bounds(
    admin: Admin,
    places: Iterable[Place],
    timeout_s: float = 10.0,
    *,
    is_committed: bool = False,
    on_denied: OnDenied | None = None,
) -> dict[Place, Bounds | None]:
    """The bounds of each partition; None: there is no such partition.

    Partitions that cannot be read just now, for want of a leader, say, are left out.

    Args:
        on_denied: called with topics that may not be described; their partitions are left out.
            None: they are an error.

    Raises:
        KafkaException, TimeoutError: no broker answers.
        NotAllowed: a topic may not be described.
    """
    found: dict[Place, Bounds | None] = {}
    rest = iter(places)
    while some := list(islice(rest, ASKED_AT_ONCE_MAX)):
        starts = _offsets(admin, some, OffsetSpec.earliest(), timeout_s)  # type: ignore[no-untyped-call]
        gone = {place.topic for place in some if starts.get(place, 0) is None}
        for topic in sorted(gone & set(hidden(admin, gone, timeout_s))):
            (on_denied or refusing({}))(topic)
            some = [place for place in some if place.topic != topic]
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = _offsets(admin, some, newest, timeout_s, is_committed)
        for place in some:
            if place in starts and place in ends:
                found[place] = _bounds(starts[place], ends[place])
    return found


def readable_bounds(
    admin: Admin,
    options: Mapping[str, Any],
    places: Iterable[Place],
    timeout_s: float,
    *,
    is_committed: bool,
) -> dict[Place, Bounds]:
    """The bounds of those of the partitions that can be read now, for a client that reads them.

    Args:
        options: of the client; named where it lacks a right.

    Raises:
        CannotReach: no broker answers.
        NotAllowed: a topic may not be described.
    """
    on_denied = refusing(options, reading)
    what = f"{options.get(SERVERS)} does not answer where logs begin and end."
    with reaching(what, "Does the broker run?"):
        found = log_bounds(admin, places, timeout_s, is_committed=is_committed, on_denied=on_denied)
    return {place: bounds for place, bounds in found.items() if bounds is not None}


def offsets_since(
    admin: Admin, places: Sequence[Place], since_ms: int, timeout_s: float = 10.0
) -> dict[Place, int | None]:
    """The first offset at or after a time, epoch ms; None: no record is so new.

    Partitions that do not answer are left out, and those that are not there.

    Raises:
        KafkaException, TimeoutError: no broker answers.
    """
    found = _offsets(admin, places, OffsetSpec.for_timestamp(since_ms), timeout_s)
    answered = ((place, offset) for place, offset in found.items() if offset is not None)
    return {place: offset if offset >= 0 else None for place, offset in answered}


def every_offset(
    admin: Admin,
    places: Iterable[tuple[str, int]],
    timeout_s: float,
    *,
    is_committed: bool,
    is_oldest: bool = False,
) -> dict[Place, int]:
    """Where the log of each partition ends, or begins: of all of them, or none.

    Raises:
        KafkaException, TimeoutError: no broker answers, or none leads one of them, or another one
            than the client believes.
    """
    spec = OffsetSpec.earliest() if is_oldest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    answers = _asked(admin, places, spec, timeout_s, is_committed)
    return {
        Place(at.topic, at.partition): answer.result(timeout_s).offset
        for at, answer in answers.items()
    }


def leader_epochs(
    admin: Admin, places: Iterable[Place], timeout_s: float
) -> dict[Place, int | None]:
    """The epoch of each partition's leader, of all of them; None: the brokers name none.

    Raises KafkaException, TimeoutError: as `every_offset`.
    """
    newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    answers = _asked(admin, places, newest, timeout_s, is_committed=False)
    return {
        Place(at.topic, at.partition): answer.result(timeout_s).leader_epoch
        for at, answer in answers.items()
    }


def _bounds(start: int | None, end: int | None) -> Bounds | None:
    # Between the two questions the log may have been cut at its end.
    return None if start is None or end is None else Bounds(min(start, end), end)


def _offsets(
    admin: Admin,
    places: Sequence[Place],
    spec: OffsetSpec,
    timeout_s: float,
    is_committed: bool = False,
) -> dict[Place, int | None]:
    found, moved = _answers(admin, places, spec, timeout_s, is_committed)
    if moved:
        admin.forget({place.topic for place in moved})
        found |= _answers(admin, moved, spec, timeout_s, is_committed)[0]
    return found


def _answers(
    admin: Admin,
    places: Sequence[Place],
    spec: OffsetSpec,
    timeout_s: float,
    is_committed: bool,
) -> tuple[dict[Place, int | None], list[Place]]:
    """The offsets, and the partitions that another broker leads than the client believes."""
    found: dict[Place, int | None] = {}
    moved: list[Place] = []
    failure: KafkaException | None = None
    for at, answer in _asked(admin, places, spec, timeout_s, is_committed).items():
        place = Place(at.topic, at.partition)
        try:
            found[place] = answer.result(timeout_s).offset
        except KafkaException as problem:
            code = problem.args[0].code()
            if code in _GONE or is_denied(problem):
                found[place] = None
            elif code in LEADER_MOVED:
                moved.append(place)
            elif code < 0:  # librdkafka's own: no broker has answered; else it is of this partition
                failure = problem
    if failure is None or found or moved:
        return found, moved
    raise failure


def _asked(
    admin: Admin,
    places: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    timeout_s: float,
    is_committed: bool,
) -> dict[TopicPartition, "Future[Any]"]:
    level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(*place): spec for place in places}
    return admin.list_offsets(asked, isolation_level=level, request_timeout=timeout_s)


_POLL_S: Final = 0.5


def first_times(
    client: Mapping[str, Any],
    waiting: Mapping[Place, int],
    timeout_s: float,
    *,
    is_committed: bool,
) -> dict[Place, int | None]:
    """The time of the first record at each of these positions or behind it, in epoch ms.

    Args:
        is_committed: whether their reader reads committed records only.

    Returns:
        None for a partition that ends without one: the marks at the end of transactions, and for a
        reader of committed records aborted ones, are no records. Partitions that did not answer in
        time are missing.

    Raises:
        KafkaException: a partition cannot be read.
        NotAllowed: a topic may not be read.
    """
    if not waiting:
        return {}
    consumer = Consumer(
        {
            **reader_config(client, is_committed=is_committed),
            "fetch.message.max.bytes": 65_536,
            "queued.min.messages": 1,
        }
    )
    found: dict[Place, int | None] = {}
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in waiting.items()])
        deadline = time.monotonic() + timeout_s
        while len(found) < len(waiting) and time.monotonic() < deadline:
            for record in consumer.consume(len(waiting) - len(found), _POLL_S):
                _refuse_denied(record, client)
                _note(consumer, record, found)
    finally:
        consumer.close()
    return found


def _refuse_denied(record: Any, client: Mapping[str, Any]) -> None:
    error = record.error()
    if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return
    if denied := denial(error, reading(record.topic() or ""), client):
        raise denied


def _note(consumer: Consumer, record: Any, found: dict[Place, int | None]) -> None:
    error = record.error()
    if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return  # of the group that is never joined
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    place = Place(record.topic() or "", record.partition() or 0)
    if place not in found:
        found[place] = None if error is not None else int(record.timestamp()[1])
        consumer.pause([TopicPartition(*place)])
