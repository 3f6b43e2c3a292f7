"""The engine's topics as the archive reads them: where they begin and end, and ranges of them.

Ranges are read by batch queries of Spark and not by a stream: a stream plans a batch once, in its
checkpoint, and has to read it for ever, also when its records have been deleted meanwhile. Here a
batch that failed is planned anew from where the tables stand.

`failOnDataLoss` is on: whatever is deleted between plan and read fails the batch (Spark's consumer
throws on an offset out of range, and on one below the log's beginning), and the next plan sees the
log's new beginning. What transactions and compaction leave out of a range is no loss to Spark, nor
to the archive.

Whether a topic still is the log that was read, is asked where it ends, and of the newest record
read, whenever another leader may have taken it over (`kafka/cut_logs.py`). Of `groups` and
`committed` compaction may have removed that record: then only the ends are asked.  # INV-152
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from coordlib.core.wire.own_topics import ARCHIVED, CLAIMS_ARCHIVED, claims_prefix
from coordlib.errors import CannotReach, CoordError, NotAllowed, StartRefused
from coordlib.history.commit import NewestRead, Source
from coordlib.history.plan import Range
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import leader_epochs, log_bounds
from coordlib.kafka.clients import READER_GROUP, open_admin, reaching
from coordlib.kafka.cluster import partitions_of
from coordlib.kafka.cut_logs import (
    AGAIN_S,
    Lost,
    Read,
    Why,
    find_lost,
    lost_at_two_looks,
    still_there,
)
from coordlib.kafka.layout import recorded_layout, recorded_partitions
from coordlib.kafka.places import Bounds, Place
from coordlib.kafka.reading import records_at
from coordlib.kafka.topic_ids import topic_id_of
from coordlib.kafka.topics import look_up

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TIMEOUT_S: Final = 10.0
#: The topics of the table of snapshots: compacted ones.
OF_SNAPSHOTS: Final = ("groups", "committed")
_DIGEST_DIGITS: Final = 32
_UNREACHABLE: Final = (
    "The broker does not tell where topics begin and end",
    "Look into the broker's log.",
)


class ArchivedTopics:
    """The topics of one prefix.

    Args:
        client: librdkafka's options, with bootstrap.servers.

    Raises:
        CannotReach: no broker answers.
        StartRefused: the topics are not there.
    """

    def __init__(self, client: Mapping[str, Any], prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._places = places_of(client, prefix)
        self._admin = open_admin(client, log_level=2)
        #: The leaders' epochs when they were last known to be the logs that were read.
        self._same_at: Mapping[Place, int | None] | None = None
        #: As the archive began with them.
        self.source = Source(prefix, self._topic_ids())

    def are_same(self) -> bool:
        """Whether none of the topics was deleted or made anew since then. Raises CannotReach."""
        return self._topic_ids() == self.source.topic_ids

    def require_same(self, known: Mapping[Place, Read]) -> None:
        """When a batch was read, and before it is written.

        Args:
            known: how far they were read before.

        Raises:
            CoordError: one of them was deleted or made anew since, or has lost its end.
            CannotReach: no broker answers.
        """
        if not self.are_same() or self._is_cut(known):
            raise CoordError(
                "A topic was deleted, made anew or cut while it was read.",
                f"prefix {self._prefix}",
                "Nothing of it was written; the archive looks at the topics again.",
            )

    def _is_cut(self, known: Mapping[Place, Read]) -> bool:
        epochs = self._epochs()
        return (epochs is None or epochs != self._same_at) and bool(self._look(known, True)[1])

    def compared(self, known: Mapping[Place, Read]) -> tuple[dict[Place, Bounds], list[Lost]]:
        """The bounds of all partitions that can be read now; and what was read, and is gone.

        Topics are without prefix. Raises CannotReach.
        """
        epochs = self._epochs()  # first: a log that is cut meanwhile has another one afterwards
        is_doubted = epochs is None or epochs != self._same_at
        bounds: dict[Place, Bounds] = {}

        def look() -> list[Lost]:
            nonlocal bounds
            bounds, lost = self._look(known, is_doubted)
            return lost

        if not (lost := lost_at_two_looks(look, self.wait)):
            self._same_at = epochs
        return bounds, lost

    def wait(self) -> None:
        """Between two looks."""
        time.sleep(AGAIN_S)

    def _look(
        self, known: Mapping[Place, Read], is_doubted: bool
    ) -> tuple[dict[Place, Bounds], list[Lost]]:
        bounds = self.bounds()
        found = find_lost(known, bounds, self._records if is_doubted else lambda _: {})
        return bounds, [each for each in found if each.why is not Why.REMOVED]

    def _epochs(self) -> Mapping[Place, int | None] | None:
        """Of the partitions' leaders; None: one of them has none."""
        try:
            with reaching(*_UNREACHABLE):
                return leader_epochs(self._admin, self._places, TIMEOUT_S)
        except CannotReach:
            return None

    def _records(self, offsets: Mapping[Place, int]) -> dict[Place, NewestRead | None]:
        if not offsets:
            return {}
        named = {Place(f"{self._prefix}.{topic}", at): n for (topic, at), n in offsets.items()}
        with reaching(*_UNREACHABLE):
            messages = records_at(self._client, named)
        found = {
            Place(place.topic.removeprefix(f"{self._prefix}."), place.partition): None
            if message is None
            else (
                named[place],
                message.timestamp()[1],
                record_digest(message.key(), message.value()),
            )
            for place, message in messages.items()
        }
        left = {p: each for p, each in found.items() if each or p.topic not in OF_SNAPSHOTS}
        return still_there(left, offsets, lambda _: self.bounds())

    def _topic_ids(self) -> dict[str, str]:
        return topic_ids_of(self._admin, self._places, self._client, self._prefix)

    def bounds(self) -> dict[Place, Bounds]:
        """Of all partitions that can be read now; topics are without prefix. CannotReach."""
        with reaching(*_UNREACHABLE):
            found = log_bounds(self._admin, self._places, TIMEOUT_S, is_committed=True)
        return {
            Place(place.topic.removeprefix(f"{self._prefix}."), place.partition): log
            for place, log in found.items()
            if log is not None
        }

    def read(
        self, spark: "SparkSession", options: Mapping[str, str], ranges: Sequence[Range]
    ) -> "DataFrame":
        """The records of these ranges, read committed; there is at least one range.

        Args:
            options: of Spark's Kafka source, with kafka.bootstrap.servers.
        """
        named = [each._replace(topic=f"{self._prefix}.{each.topic}") for each in ranges]
        return (
            spark.read.format("kafka")
            .options(**options)
            .option("kafka.isolation.level", "read_committed")
            # Spark keeps its consumers under it from one batch to the next.
            .option("kafka.group.id", READER_GROUP)
            # What is to be read is there: a fetch that waits finds the end of a transaction.
            .option("kafka.fetch.max.wait.ms", 5)
            .option("failOnDataLoss", "true")
            .option("assign", _by_topic((each, None) for each in named))
            .option("startingOffsets", _by_topic((each, each.first) for each in named))
            .option("endingOffsets", _by_topic((each, each.end) for each in named))
            .load()
        )


def record_digest(key: bytes | None, value: bytes | None) -> str:
    """By which a record is found again, together with its time; as `digest_column`."""
    parts = ("-" if each is None else sha256(each).hexdigest() for each in (key, value))
    return sha256("".join(parts).encode()).hexdigest()[:_DIGEST_DIGITS]


def digest_column(key: str, value: str) -> "Column":
    """The same of two columns of bytes."""
    from pyspark.sql import functions as F  # noqa: N812  # its usual name

    parts = (F.coalesce(F.sha2(each, 256), F.lit("-")) for each in (key, value))
    return F.substring(F.sha2(F.concat(*parts), 256), 1, _DIGEST_DIGITS)


def topic_ids_of(
    admin: Admin, places: Iterable[Place], client: Mapping[str, Any], prefix: str
) -> dict[str, str]:
    """Kafka's ids of the topics of these partitions, by names without prefix. CannotReach."""
    with reaching(*_UNREACHABLE):
        found = look_up(admin, sorted({place.topic for place in places}), client)
    return {name.removeprefix(f"{prefix}."): topic_id_of(each) for name, each in found.items()}


def places_of(client: Mapping[str, Any], prefix: str) -> list[Place]:
    """The partitions of what is archived, with their full topic names.

    Raises:
        CannotReach: no broker answers.
        StartRefused: the topics are not there.
        NotAllowed: one of them may not be read.
    """
    with reaching(*_UNREACHABLE, client):
        groups, claims = _of_groups(client, prefix), _of_claims(client, prefix)
        found = _recorded(client, prefix, groups)
        if claims:
            found += _recorded(client, claims_prefix(prefix), claims)
    if not any(place.topic == f"{prefix}.{ARCHIVED[0]}" for place in found):
        raise StartRefused(
            "The engine's topics are not there.", f"prefix {prefix}", "Run: coord topics create"
        )
    return found


def _recorded(client: Mapping[str, Any], plane: str, places: list[Place]) -> list[Place]:
    """Those that the plane was made with: what was added to its topics is not read.  # INV-115"""
    there = _partitions(client, f"{plane}.progress")
    layout = recorded_layout(client, plane) if there else None
    if layout is None:
        return places
    counts = recorded_partitions(plane, layout)
    return [place for place in places if place.partition < counts[place.topic]]


def _of_groups(client: Mapping[str, Any], prefix: str) -> list[Place]:
    names = [f"{prefix}.{name}" for name in ARCHIVED if name not in CLAIMS_ARCHIVED]
    return [place for name in names for place in _partitions(client, name)]


def _of_claims(client: Mapping[str, Any], prefix: str) -> list[Place]:
    """Brokers do not tell a topic that may not be seen from one that is not there. Where one of
    these is there, claims are followed, and the others must be read, too."""
    found: list[Place] = []
    refused: list[NotAllowed] = []
    for name in CLAIMS_ARCHIVED:
        try:
            found += _partitions(client, f"{prefix}.{name}")
        except NotAllowed as problem:
            refused.append(problem)
    if found and refused:
        raise refused[0]
    return found


def _partitions(client: Mapping[str, Any], topic: str) -> list[Place]:
    return [Place(topic, number) for number in partitions_of(client, topic, TIMEOUT_S)]


def _by_topic(values: Iterable[tuple[Range, int | None]]) -> str:
    """Spark's JSON: of offsets an object per topic, of partitions alone a list."""
    offsets: dict[str, dict[str, int]] = {}
    numbers: dict[str, list[int]] = {}
    for each, offset in values:
        if offset is None:
            numbers.setdefault(each.topic, []).append(each.partition)
        else:
            offsets.setdefault(each.topic, {})[str(each.partition)] = offset
    return json.dumps(offsets or numbers)
