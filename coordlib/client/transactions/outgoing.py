"""Records on their way into topics: held back until they may be written, counted until they are."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from coordlib.client.kit.uninterrupted import for_user
from coordlib.client.transactions.data_cluster import DataCluster
from coordlib.client.transactions.unmarked import Place
from coordlib.client.transactions.way import OnDelivery
from coordlib.core.wire.data_headers import Stamp, Value, header_of, names_ours
from coordlib.errors import SetupError

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
        told: called with what became of each record; returns whether its own callback is called.
        lock: held by whoever calls: what became of a record is told in the thread that polls, and
            programs poll in a thread of their own.
    """

    def __init__(
        self,
        clusters: dict[str, DataCluster],
        may_write: Callable[[Place], bool],
        told: Callable[[Record, KafkaError | None], bool],
        lock: threading.RLock,
    ) -> None:
        self._clusters, self._may_write, self._told = clusters, may_write, told
        self._lock = lock
        self._waiting: dict[Place, deque[Record]] = {}
        #: How many are not written yet.
        self.held = 0
        #: Written, and neither acknowledged nor failed.
        self.under_way = 0

    @property
    def is_empty(self) -> bool:
        """Whether all records are acknowledged, or have failed."""
        return not self.held and not self.under_way

    def check_room(self) -> None:
        """Raises BufferError: too many are held; `poll` makes room."""
        if self.held >= HELD_MAX:
            raise BufferError("Local: Queue full")

    def add(self, record: Record) -> None:
        """One more, behind all others."""
        self._waiting.setdefault(record.place, deque()).append(record)
        self.held += 1

    def put_back(self, records: Iterable[Record]) -> None:
        """These again, before all others, by their numbers."""
        for record in sorted(records, key=lambda each: each.number, reverse=True):
            self._waiting.setdefault(record.place, deque()).appendleft(record)
            self.held += 1

    def write(self) -> None:
        """Write what may be written."""
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
        """Whether it is under way, or has failed; else it is tried again."""

        def told(error: KafkaError | None, message: Any) -> None:
            with self._lock:
                self.under_way -= 1
                is_its_own = self._told(record, error)
            if is_its_own:
                for_user(lambda: record.on_delivery(error, message))

        try:
            self._clusters[record.place.cluster].produce(
                record.place,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
                on_delivery=told,
            )
        except BufferError:
            return False
        except KafkaException as problem:
            self.under_way += 1
            told(problem.args[0], None)
            return True
        except (TypeError, ValueError, OverflowError) as problem:
            # Its number is used, so it must not go missing without a word.
            self.under_way += 1
            told(KafkaError(KafkaError._INVALID_ARG, str(problem)), None)
            return True
        self.under_way += 1
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
