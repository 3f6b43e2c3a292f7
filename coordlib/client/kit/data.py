"""What clients ask of the cluster that has the data: topics, their ids, racks, and records.

Racks are for assignors that place members near replicas. Kafka's metadata name the brokers of
replicas; where a broker stands is in the description of the cluster. A rack is only a preference: a
leader asks when it assigns, and no member watches racks. Kafka's consumer joins again when racks
change; here the next assignment, whatever its reason, uses the new ones. A reassignment moves
replicas one by one, and a group that joined again at each of these steps would lose more than a
read across racks costs.

Ids of topics have no order. But no topic comes back: an id that this client has seen replaced is
old for good, and a broker that answers it lags, however long.  # INV-149

Between the reader that has messages and the program that is handed them: some more than were asked
for are prepared, since a call that is done whole (`uninterrupted`) costs the main thread much more
than a message does. For a moment, and while nothing happens to the client, the next ones are
returned without such a call.  # INV-154
"""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from coordlib import limits
from coordlib.client.kit.calls import in_users_thread
from coordlib.client.kit.events import TopicPartition
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.errors import CannotReach, CoordError
from coordlib.kafka.clients import hidden, missing, open_admin, opening, reading, reason_of
from coordlib.kafka.options import refuse_transactional, require_servers

_log = logging.getLogger("coordlib.client")

TIMEOUT_S = 10.0
_AGAIN: Final = "Check that the brokers run, then try again."


def read_counts(
    client: Any,
    options: Mapping[str, Any],
    topics: Sequence[str] | None,
    own: Collection[str] | None,
) -> dict[str, int]:
    """Those of the topics that exist, with their partition counts: `Transport.partition_counts`.

    Args:
        client: any of confluent-kafka's.
        options: librdkafka's.
    """
    try:
        found = client.list_topics(timeout=TIMEOUT_S).topics
        names = found if topics is None else topics
        known = {name: found[name] for name in names if name in found}
        # Topics that are not listed do not exist, or may not be seen.
        absent = [name for name in names if name not in known]
        unseen = hidden(open_admin(options), absent, TIMEOUT_S) if absent else []
    except (KafkaException, TimeoutError) as problem:
        asked = ", ".join(topics) if topics is not None else "all topics"
        what = f"No metadata from Kafka: {reason_of(problem)}"
        raise CannotReach(what, asked, _AGAIN) from problem
    if mine := [each for each in unseen if own is None or each in own]:
        raise missing(reading(mine[0]), options)
    if unseen:
        _log.warning(
            "Topics of other members may not be seen here: %s", ", ".join(map(ascii, unseen))
        )
    return {name: len(each.partitions) for name, each in known.items() if each.error is None}


def read_racks(
    config: Mapping[str, Any], topics: Sequence[str], timeout_s: float = TIMEOUT_S
) -> ReplicaRacks:
    """For those of the topics that exist: the racks of each partition's replicas.

    Raises CannotReach.
    """
    admin = AdminClient(dict(config))  # a name for it: the answer dies with the client
    try:
        nodes = admin.describe_cluster(request_timeout=timeout_s).result(timeout_s).nodes
        found = admin.list_topics(timeout=timeout_s).topics
    except (KafkaException, TimeoutError) as problem:
        what = f"No racks from Kafka: {reason_of(problem)}"
        raise CannotReach(what, ", ".join(topics), _AGAIN) from problem
    rack_of = {node.id: node.rack for node in nodes if node.rack}
    replicas = {
        name: {number: each.replicas for number, each in found[name].partitions.items()}
        for name in topics
        if name in found and found[name].error is None
    }
    return racks_of(replicas, rack_of)


def racks_of(
    replicas: Mapping[str, Mapping[int, Sequence[int]]], rack_of: Mapping[int, str]
) -> dict[str, tuple[frozenset[str], ...]]:
    """Brokers by topic and partition, as racks in the order of the partitions."""
    return {
        topic: tuple(
            frozenset(rack_of[broker] for broker in some.get(number, ()) if broker in rack_of)
            for number in range(max(some, default=-1) + 1)
        )
        for topic, some in replicas.items()
    }


#: A broker is taken to lag at most so long behind the first answers that a client gets: one of them
#: may have been newer than the next. So an id that had not stood so long is old for so long only.
LAG_MS: Final = 30_000


class SeenIds:
    """The ids of topics, as one client has seen them. Where two threads take at a time, one of the
    ids may be taken again."""

    def __init__(self) -> None:
        self._present: dict[str, str] = {}
        #: When the present one was first seen.
        self._since_ms: dict[str, int] = {}
        #: Topic -> those that were replaced -> until when they are old.
        self._old: dict[str, dict[str, int]] = {}

    def take(self, topic: str, topic_id: str, now_ms: int) -> None:
        """This one is there now, unless it is old. Empty: it is not known."""
        present = self._present.get(topic, "")
        if not topic_id or topic_id == present or self.is_old(topic, topic_id, now_ms):
            return
        if present:
            has_stood = now_ms - self._since_ms[topic] >= LAG_MS
            old = self._old.setdefault(topic, {})
            old.pop(topic_id, None)
            old[present] = sys.maxsize if has_stood else now_ms + LAG_MS
            for each in list(old)[: -limits.TOPIC_IDS_MAX]:
                del old[each]
        self._since_ms[topic], self._present[topic] = now_ms, topic_id

    def suppose(self, topic: str, topic_id: str, now_ms: int) -> None:
        """This one was there, by an offset that names it; it counts where nothing else is known."""
        if topic not in self._present:
            self.take(topic, topic_id, now_ms)

    def is_old(self, topic: str, topic_id: str, now_ms: int) -> bool:
        """Whether it was replaced: who answers it lags."""
        return now_ms < self._old.get(topic, {}).get(topic_id, now_ms)

    def present(self, topic: str, otherwise: str) -> str:
        """The one that is there now; `otherwise` where none is known."""
        return self._present.get(topic, otherwise)

    def copy(self) -> dict[str, str]:
        """The present ones of all topics."""
        return self._present.copy()


Found = TypeVar("Found")


class DataConsumer(Consumer):
    """confluent-kafka's Consumer, whose `poll` also reports topics that do not exist.

    To librdkafka the partitions of a group come one by one from its member, so it never misses a
    topic by itself: a misspelt one looked like an empty one for ever.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(dict(options))
        self._options = options
        self._missing: deque[Message] = deque()

    def poll(self, timeout: float = -1) -> Message | None:
        """As confluent-kafka's; first an error for each topic that was looked for in vain."""
        return self._missing.popleft() if self._missing else super().poll(timeout)

    def look_for(self, topics: Sequence[str]) -> None:
        """Look whether these are there, without waiting for it."""
        if topics:
            threading.Thread(target=self._look, args=(topics,), daemon=True).start()

    def _look(self, topics: Sequence[str]) -> None:
        try:
            # By a client of its own: this one may be closed meanwhile.
            counts = read_counts(open_admin(self._options), self._options, topics, None)
        except CoordError as problem:  # also of a right that is missing, which reading tells
            _log.info("Whether the subscribed topics are there is not known: %s", problem.what)
            return
        for name in topics:
            if name not in counts:
                self._missing.append(not_available(name))


def not_available(topic: str) -> Message:
    """What `poll` returns of a topic that was looked for in vain."""
    what = f"Subscribed topic not available: {topic}"
    _log.warning("%s. It is read when somebody has made it", what)
    return Message(topic=topic, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, what))


class ClusterQueries:
    """What a consumer may ask its cluster, as confluent-kafka's Consumer answers it."""

    #: confluent-kafka's Consumer, or what takes its place.
    _data: Any

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the cluster and of one topic or all: a ClusterMetadata."""
        return _of_open(lambda: self._data.list_topics(topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The id of the cluster; None: no answer in time."""
        found: str | None = _of_open(lambda: self._data.cluster_id(timeout))
        return found

    def look_for(self, topics: Sequence[str]) -> None:
        """Let `poll` return an error for each of these that is not there."""
        if isinstance(self._data, DataConsumer | ClusterQueries):
            self._data.look_for(topics)

    def get_watermark_offsets(
        self, partition: KafkaTopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """First offset of a partition and the one after its last; None: no answer in time."""
        asked = self._data.get_watermark_offsets
        found: tuple[int, int] | None = _of_open(lambda: asked(partition, timeout, cached))
        return found

    def offsets_for_times(
        self, partitions: Sequence[KafkaTopicPartition], timeout: float = -1
    ) -> list[KafkaTopicPartition]:
        """The first offset at or after each time, given as `offset` in ms; -1: none."""
        return _of_open(lambda: self._data.offsets_for_times(list(partitions), timeout))


def _of_open(ask: Callable[[], Found]) -> Found:
    """Raises CoordError: it is closed."""
    try:
        return ask()
    except RuntimeError as problem:  # the library's word for it
        raise CoordError("The consumer is closed.", str(problem)) from problem


def open_reader(options: Mapping[str, Any]) -> Consumer:
    """A confluent-kafka Consumer that only reads the partitions assigned to it, and never commits.

    Args:
        options: its keys; those that would let it do more are overruled.

    Raises SetupError: one of them is wrong, missing, or a producer's that promises something.
    """
    require_servers(options)
    refuse_transactional(options)
    own = {
        "group.id": f"coordlib-unused-{uuid4().hex}",  # the library wants one
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }
    with opening():
        return DataConsumer({**in_users_thread(options), **own})


def seek_to(reader: Any, partition: KafkaTopicPartition) -> None:
    """Go on from another offset. Raises CoordError: the library refuses it.

    librdkafka seeks only where it fetches. After an offset out of range, or before the first fetch,
    it does not: there the partition begins anew.
    """
    try:
        reader.seek(partition)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError._STATE:
            where = f"{partition.topic}-{partition.partition}"
            raise CoordError(f"It cannot seek: {problem.args[0].str()}", where) from problem
        reader.incremental_unassign([partition])
        reader.incremental_assign([partition])


#: So many messages are prepared at once, where more are not asked for: as large as messages may
#: be, they fit into what librdkafka keeps by itself.
AHEAD_MAX: Final = 64
#: How long they may be returned without another look.
FRESH_MS: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A record, or an event of the library."""

    place: TopicPartition | None
    #: Offset of the next record, and the leader epoch of this one.
    position: tuple[int, int]
    message: Message


@dataclass(slots=True, eq=False)
class Prepared:
    """What may be returned now.

    The line that returns some of it counts them, and calls nothing between the two: an interruption
    comes before both, or behind both.  # INV-141
    """

    ready: list[Ready] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    #: How many of them were returned.
    handed: int = 0
    #: How many had been returned when the newest call began.
    begun: int = 0
    #: Until when they may be returned, if the client has changed so often then and no more.
    until_ms: int = 0
    changes: int = 0

    def has(self, count: int, now_ms: int, changes: int = 0) -> bool:
        """Whether so many may be returned without another look."""
        is_fresh = changes == self.changes and now_ms < self.until_ms
        return is_fresh and len(self.messages) - self.handed >= count > 0


class HandingOut:
    """What may be delivered, and stays here until it was."""

    def __init__(self) -> None:
        self._ready: deque[Ready] = deque()
        #: What is being returned; None: something has changed since.
        self.prepared: Prepared | None = None

    def add(self, ready: Ready) -> None:
        """One more, behind all others."""
        self._ready.append(ready)

    def count(self, paused: Collection[TopicPartition]) -> int:
        """How many there are, without those of paused partitions."""
        if not paused:
            return len(self._ready)
        return sum(each.place not in paused for each in self._ready)

    @property
    def has_records(self) -> bool:
        """Whether there is anything but events of the library."""
        return any(each.place is not None for each in self._ready)

    def prepare(
        self, count: int, may: Callable[[TopicPartition], bool], until_ms: int, changes: int = 0
    ) -> Prepared:
        """The first ones, of the partitions of which something may be returned."""
        going = (each for each in self._ready if each.place is None or may(each.place))
        ready = list(islice(going, max(count, AHEAD_MAX) if count else 0))
        messages = [each.message for each in ready]
        self.prepared = prepared = Prepared(ready, messages, until_ms=until_ms, changes=changes)
        return prepared

    def note(self) -> tuple[list[Ready], list[Ready]]:
        """Take out what was handed out since the last time; nothing is prepared any more.

        Returns what earlier calls have returned, and what the last one has.
        """
        prepared, self.prepared = self.prepared, None
        if prepared is None:
            return [], []
        handed = prepared.ready[: prepared.handed]  # counts no more, as it is not `prepared`
        for each in handed:
            self._ready.remove(each)
        return handed[: prepared.begun], handed[prepared.begun :]

    def forget(self, gone: Collection[TopicPartition]) -> None:
        """Hand out nothing of these."""
        self._ready = deque(each for each in self._ready if each.place not in gone)
