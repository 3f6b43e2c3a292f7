"""The producers of users' records, and the clusters into which they write.

The partition of a record is chosen here, since the number of a record in its partition stands in
its header: as librdkafka does by default, by the CRC of the key, or at random without one. Records
are held back until they may be written, and counted until they are.

As in the job's own sink, the time after which a transactional producer sends requests again is
fixed (`kafka/transactions.py`).
"""

import random
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # not in its stubs

from coordlib.client.kit.calls import for_user, in_users_thread
from coordlib.client.transactions.life import Place, Unmarked
from coordlib.client.transactions.machine import OnDelivery, Severity, TransactionError
from coordlib.core.wire.data_headers import Stamp, Value, header_of, names_ours
from coordlib.core.wire.transactions import TopicsOfCluster, rows_of_places
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka.clients import FENCED, denial, is_fatal, open_admin, opening, reaching, writing
from coordlib.kafka.options import for_producer, require_servers
from coordlib.kafka.roles import Kind, Operation, Right
from coordlib.kafka.transactions import RETRY_OPTIONS

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
    users = config.get("error_cb")

    def note(error: KafkaError) -> None:
        on_error(error)
        if users is not None:
            users(error)

    require_servers(config)
    usual = {TIMEOUT: TRANSACTION_TIMEOUT_MS}
    with opening():
        return Producer({**usual, **for_producer(config), **RETRY_OPTIONS, "error_cb": note})


def transaction_error(problem: KafkaException, doing: str, where: str) -> TransactionError:
    """What an error of the producer means for the transaction."""
    error = problem.args[0]
    if is_fatal(error) and error.code() in FENCED:
        severity, hint = Severity.FATAL, "End: a newer process uses this transactional id."
    elif is_fatal(error):
        hint = "Close this producer. Make a new one unless a newer process has its id."
        severity = Severity.FATAL
    elif error.txn_requires_abort():
        severity, hint = Severity.ABORTABLE, "Abort the transaction, then begin another one."
    elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # not written, so it cannot count
        severity, hint = Severity.ABORTABLE, "Abort. Write less in one record."
    elif error.retriable():
        severity, hint = Severity.RETRIABLE, "Call it again: it continues."
    else:
        severity, hint = Severity.FATAL, "Close this producer, and make a new one."
    return TransactionError(severity, f"{doing}: {error.str()}", where, hint)


def not_delivered(error: KafkaError, where: str) -> TransactionError:
    """A record of a transaction is lost, and so the transaction cannot be committed."""
    what = f"A record was not delivered: {error.str()}"
    hint = "Abort the transaction, then begin another one."
    return TransactionError(Severity.ABORTABLE, what, where, hint)


METADATA_TIMEOUT_S: Final = 10.0
_WAIT_S: Final = 0.05
PARTITIONER: Final = "partitioner"
#: What librdkafka calls the way in which partitions are chosen here.
_PARTITIONERS: Final = ("consistent_random",)
_FIXED: Final = {"enable.idempotence": True, "acks": "all"}
_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class Writes(Protocol):
    """As much of confluent-kafka's Producer as is used."""

    def produce(self, topic: str, *args: Any, **named: Any) -> Any: ...

    def poll(self, timeout: float) -> Any: ...

    def flush(self, timeout: float) -> Any: ...

    def purge(self) -> Any: ...

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...


def open_idempotent(options: Mapping[str, Any]) -> Writes:
    """A producer that keeps the order of records. Raises SetupError."""
    for key, value in _FIXED.items():
        if str(options.get(key, value)).lower() not in (str(value).lower(), "-1"):
            raise SetupError(f"{key} must be {value}: markers stand behind all records.")
    require_servers(options)
    with opening():
        return Producer({**in_users_thread(for_producer(options)), **_FIXED})


class DataCluster:
    """One cluster of Kafka, as producers of transactions use it.

    Args:
        options: confluent-kafka's keys of a producer, with `bootstrap.servers`.
        open_producer: what opens confluent-kafka's.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        open_producer: Callable[[Mapping[str, Any]], Writes] = open_idempotent,
    ) -> None:
        self.options = {key: value for key, value in options.items() if key != PARTITIONER}
        how = options.get(PARTITIONER, _PARTITIONERS[0])
        if how not in _PARTITIONERS:
            hint = "Leave it out, or name the partition of each record."
            raise SetupError(f"{PARTITIONER} is {_PARTITIONERS[0]}.", repr(how), hint)
        self._open = open_producer
        self._producer = open_producer(self.options)
        self._id = ""
        self._counts: dict[str, int] = {}

    @property
    def id(self) -> str:
        """Kafka's own id of the cluster. Raises CannotReach."""
        if not self._id:
            self._id = str(self._metadata(None).cluster_id)
        return self._id

    def place_of(self, topic: str, key: bytes | str | None, partition: int = -1) -> Place:
        """Where a record goes.

        Raises:
            SetupError: there is no such topic, or its records are compacted.
            CannotReach: no broker answers.
            NotAllowed: the topic's settings may not be seen.
        """
        if partition < 0:
            count = self._partitions(topic)
            some = key.encode() if isinstance(key, str) else key
            partition = zlib.crc32(some) % count if some else random.randrange(count)
        elif topic not in self._counts:
            self._partitions(topic)
        return Place(self.id, topic, partition)

    def produce(
        self,
        place: Place,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: list[tuple[str, Value]],
        timestamp: int = 0,
        on_delivery: OnDelivery,
    ) -> None:
        """Write a record. Raises BufferError: the queue is full; KafkaException."""
        self._producer.produce(
            place.topic,
            value,
            key,
            place.partition,
            headers=headers,
            timestamp=timestamp,
            on_delivery=on_delivery,
        )

    def poll(self, timeout_s: float = 0.0) -> int:
        """Serve the events of records that are under way; how many."""
        with suppress(KafkaException):  # a fatal failure is told to each record, too
            return int(self._producer.poll(timeout_s) or 0)
        return 0

    def flush(self, timeout_s: float) -> int:
        """Wait for all records; how many are left."""
        with suppress(KafkaException):
            return int(self._producer.flush(timeout_s) or 0)
        return 0

    def reopen(self) -> None:
        """Another producer, since this one has failed for ever."""
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.poll(0)
        self._producer = self._open(self.options)

    def has(self, place: Place) -> bool:
        """Whether there is such a partition at this moment. Raises CannotReach, NotAllowed."""
        found = self._metadata(place.topic).topics.get(place.topic)
        if found is None or (found.error is not None and found.error.code() in _GONE):
            return False
        return place.partition in found.partitions or found.error is not None

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            found = self._metadata(topic).topics.get(topic)
            if found is None or found.error is not None or not found.partitions:
                why = "" if found is None or found.error is None else found.error.str()
                raise SetupError(f"There is no such topic to write into: {topic}.", why)
            self._refuse_compacted(topic)
            self._counts[topic] = len(found.partitions)
        return self._counts[topic]

    def _metadata(self, topic: str | None) -> Any:
        with reaching("No metadata from Kafka", "Are its brokers up?"):
            found = self._producer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
        error = found.topics[topic].error if topic in found.topics else None
        if topic is not None and (denied := denial(error, writing(topic), self.options)):
            raise denied
        return found

    def _refuse_compacted(self, topic: str) -> None:
        if "compact" in self.cleanup_policy(topic):
            raise SetupError(
                f"Transactions cannot write into the compacted topic {topic}.",
                "An aborted record would take the place of a committed one with its key.",
                "Write into a topic whose cleanup.policy is delete.",
            )

    def cleanup_policy(self, topic: str) -> str:
        """The topic's `cleanup.policy`. Raises CannotReach, NotAllowed."""
        admin = open_admin(self.options)
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            with reaching(f"The settings of {topic} are not known", "Are its brokers up?"):
                answer = admin.describe_configs([asked], request_timeout=METADATA_TIMEOUT_S)[asked]
                found = answer.result(METADATA_TIMEOUT_S)
        except CannotReach as problem:
            right = Right(Kind.TOPIC, topic, Operation.DESCRIBE_CONFIGS)
            raise denial(problem.__cause__, right, self.options) or problem from problem
        return str(found["cleanup.policy"].value)


class MarkerWriter:
    """Writes the markers of a transaction; a marker that the log did not take is written again.

    Args:
        clusters: by their ids.
    """

    def __init__(self, clusters: Mapping[str, DataCluster], unmarked: Unmarked) -> None:
        self._clusters, self.unmarked = clusters, unmarked
        self._left = [place for place in unmarked.places if place.cluster in clusters]
        #: Those that have it, or are gone, and were not taken yet.
        self._done: deque[Place] = deque()
        self._failed: dict[Place, KafkaError] = {}
        #: Why the newest of them was not taken.
        self.why = ""

    @property
    def unknown(self) -> list[str]:
        """Clusters for which there are no options."""
        return sorted({each.cluster for each in self.unmarked.places} - self._clusters.keys())

    def turn(self) -> list[Place]:
        """Write markers that are due; returns the partitions that have theirs since the last call.

        Raises CannotReach, NotAllowed: it is not known whether a partition is there.
        """
        for _ in range(len(self._failed)):
            place, error = self._failed.popitem()
            try:
                self._look_into(place, error)
            except BaseException:
                self._left.append(place)  # the next call writes it again, and looks into the others
                raise
        while self._left:
            place = self._left[-1]
            try:
                self._write(place)
            except BufferError:
                break  # to be written later: `poll` makes room
            except KafkaException as problem:
                self._failed[place] = problem.args[0]
            self._left.pop()
        # Other threads may poll, and put some there meanwhile.
        return [self._done.popleft() for _ in range(len(self._done))]

    def _write(self, place: Place) -> None:
        def note(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                self._done.append(place)
            else:
                self._failed[place] = error

        header = header_of(self.unmarked.marker(place))
        cluster = self._clusters[place.cluster]
        cluster.produce(place, None, headers=[header], on_delivery=note)

    def _look_into(self, place: Place, error: KafkaError) -> None:
        """A partition that is no more needs no marker; all others are tried again."""
        self.why = error.str()
        cluster = self._clusters[place.cluster]
        if denied := denial(error, writing(place.topic), cluster.options):
            raise denied
        if error.code() in _GONE and not cluster.has(place):
            self._done.append(place)
            return
        if is_fatal(error):
            cluster.reopen()
        self._left.append(place)


def write_markers(
    clusters: Iterable[DataCluster | Mapping[str, Any]],
    unmarked: Unmarked,
    timeout_s: float = 30.0,
) -> tuple[TopicsOfCluster, ...]:
    """Write the markers that a transaction lacks; returns the partitions that have theirs now.

    Tell the coordinator of these (TxnMarkersWritten). Partitions of clusters that are not given are
    left out. To write a marker twice does no harm.

    Args:
        clusters: with confluent-kafka's keys of each.
        timeout_s: seconds for all of them; what has none by then is left out, too.

    Raises:
        SetupError: a key is wrong.
        CannotReach: a cluster does not answer.
        NotAllowed: a topic may not be written.
    """
    opened = [each if isinstance(each, DataCluster) else DataCluster(each) for each in clusters]
    known = {each.id: each for each in opened}
    writer, written = MarkerWriter(known, unmarked), list[Place]()
    wanted = sum(place.cluster in known for place in unmarked.places)
    until = time.monotonic() + timeout_s
    while len(written) < wanted and time.monotonic() < until:
        written += writer.turn()
        for each in opened:
            each.poll(_WAIT_S / len(opened))
    written += writer.turn()
    return rows_of_places(written)


#: As `queue.buffering.max.messages` of librdkafka.
HELD_MAX: Final = 100_000


@dataclass(slots=True)
class Record:
    """A record."""

    place: Place
    #: Its number in the partition.
    number: int
    value: bytes | str | None
    key: bytes | str | None
    headers: list[tuple[str, Value]]
    timestamp: int
    on_delivery: OnDelivery


class Outgoing:
    """The records of one producer; those of a partition in the order in which they came.

    Args:
        may_write: whether records may go to this partition yet.
        on_delivered: called with what became of each record; returns whether its own callback is
            called.
        lock: held by the caller: what became of a record is noted in the thread that polls, and
            programs poll in a thread of their own.
    """

    def __init__(
        self,
        clusters: dict[str, DataCluster],
        may_write: Callable[[Place], bool],
        on_delivered: Callable[[Record, KafkaError | None], bool],
        lock: threading.RLock,
    ) -> None:
        self._clusters, self._may_write, self._on_delivered = clusters, may_write, on_delivered
        self._lock = lock
        self._waiting: dict[Place, deque[Record]] = {}
        #: How many are not written yet.
        self.held = 0
        #: Written, and neither acknowledged nor failed.
        self.in_flight = 0

    @property
    def is_empty(self) -> bool:
        """Whether all records are acknowledged, or have failed."""
        return not self.held and not self.in_flight

    def check_room(self) -> None:
        """Raises BufferError: too many are held; `poll` makes room."""
        if self.held >= HELD_MAX:
            raise BufferError("Local: Queue full")

    def add(self, record: Record) -> None:
        """Append a record."""
        self._waiting.setdefault(record.place, deque()).append(record)
        self.held += 1

    def put_back(self, records: Iterable[Record]) -> None:
        """Put these in front again, by their numbers."""
        for record in sorted(records, key=lambda each: each.number, reverse=True):
            self._waiting.setdefault(record.place, deque()).appendleft(record)
            self.held += 1

    def write(self) -> None:
        """Write the records that may be written."""
        for place, records in list(self._waiting.items()):
            while records and self._may_write(place):
                # Taken out first: the callback of a record that is refused at once may come here.
                record = records.popleft()
                self.held -= 1
                if not self._try(record):
                    records.appendleft(record)
                    self.held += 1
                    break
            if not records and self._waiting.get(place) is records:
                del self._waiting[place]

    def _try(self, record: Record) -> bool:
        """Hand a record to the producer; False: its queue is full, try again."""

        def note(error: KafkaError | None, message: Any) -> None:
            with self._lock:
                self.in_flight -= 1
                is_its_own = self._on_delivered(record, error)
            if is_its_own:
                for_user(lambda: record.on_delivery(error, message))

        try:
            self._clusters[record.place.cluster].produce(
                record.place,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
                on_delivery=note,
            )
        except BufferError:
            return False
        except KafkaException as problem:
            self.in_flight += 1
            note(problem.args[0], None)
            return True
        except (TypeError, ValueError, OverflowError) as problem:
            # Its number is used, so it must not go missing without a word.
            self.in_flight += 1
            note(KafkaError(KafkaError._INVALID_ARG, str(problem)), None)
            return True
        self.in_flight += 1
        return True


@dataclass(slots=True)
class Given:
    """What a program gives `produce`, as confluent-kafka's takes it."""

    value: bytes | str | None = None
    key: bytes | str | None = None
    partition: int = -1
    timestamp: int = 0
    headers: Any = None

    @classmethod
    def of(cls, args: tuple[Any, ...], named: dict[str, Any]) -> "Given":
        """What cannot be written is refused here: a record that has its number must be written.

        Raises:
            TypeError: an argument that confluent-kafka's has not, or of a type that it refuses.
            UnicodeError: text that has no bytes.
            SetupError: a header with one of our names.
        """
        names = ("value", "key", "partition")
        given = dict(zip(names, args, strict=False)) | named
        if len(args) > len(names):
            raise TypeError("Name the arguments behind partition.")
        made = cls(**given)
        pairs = made.headers.items() if isinstance(made.headers, dict) else made.headers or ()
        made.headers = list(pairs)
        _check_bytes("value", made.value)
        _check_bytes("key", made.key)
        _check_number("partition", made.partition)
        _check_number("timestamp", made.timestamp)
        for name, value in made.headers:
            if not isinstance(name, str):
                raise TypeError(f"The name of a header is text, not {type(name).__name__}.")
            _check_bytes("the value of a header", value)
        if names_ours(made.headers):
            raise SetupError("A record's headers have the coordinator's own names.")
        return made

    def record(self, place: Place, stamp: Stamp, on_delivery: OnDelivery) -> Record:
        """The record with its number."""
        headers = [*self.headers, header_of(stamp)]
        return Record(place, stamp.s, self.value, self.key, headers, self.timestamp, on_delivery)


def _check_bytes(what: str, given: object) -> None:
    """Raises TypeError, UnicodeError."""
    if isinstance(given, str):
        given.encode()
    elif given is not None and not isinstance(given, bytes):
        raise TypeError(f"{what} is bytes, text or None, not {type(given).__name__}.")


def _check_number(what: str, given: object) -> None:
    """Raises TypeError."""
    if not isinstance(given, int):
        raise TypeError(f"{what} is a number, not {type(given).__name__}.")
