"""A cluster whose topics records of transactions are written into, and their markers.

The partition of a record is chosen here, since the number of a record in its partition stands in
its header: as librdkafka does by default, by the CRC of the key, or at random without one.
"""

import random
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # not in its stubs

from coordlib.client.kit.uninterrupted import in_users_thread
from coordlib.client.transactions.unmarked import Place, Unmarked
from coordlib.core.wire.data_headers import Value, header_of
from coordlib.core.wire.producers import TopicsOfCluster, rows_of_places
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka.client_keys import for_producer, require_servers
from coordlib.kafka.clients import open_admin, opening, reaching
from coordlib.kafka.denied import denial, writing
from coordlib.kafka.fatal_errors import is_fatal
from coordlib.kafka.roles import Kind, Operation, Right

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
OnDelivery = Callable[[KafkaError | None, Any], None]


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
            mend = "Leave it out, or name the partition of each record."
            raise SetupError(f"{PARTITIONER} is {_PARTITIONERS[0]}.", repr(how), mend)
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
        """Clusters that nobody has named here."""
        return sorted({each.cluster for each in self.unmarked.places} - self._clusters.keys())

    def turn(self) -> list[Place]:
        """Write what is to be written; returns those that have their marker since the last time.

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
        def told(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                self._done.append(place)
            else:
                self._failed[place] = error

        header = header_of(self.unmarked.marker(place))
        cluster = self._clusters[place.cluster]
        cluster.produce(place, None, headers=[header], on_delivery=told)

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
