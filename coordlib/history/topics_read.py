"""The engine's topics as the archive reads them: where they begin and end, and ranges of them.

Ranges are read by batch queries of Spark and not by a stream: a stream plans a batch once, in its
checkpoint, and has to read it for ever, also when its records have been deleted meanwhile. Here a
batch that failed is planned anew from where the tables stand.

`failOnDataLoss` is on: whatever is deleted between plan and read fails the batch (Spark's consumer
throws on an offset out of range, and on one below the log's beginning), and the next plan sees the
log's new beginning. What transactions and compaction leave out of a range is no loss to Spark, nor
to the archive.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from coordlib.errors import CoordError, NotAllowed, StartRefused
from coordlib.history.commit import Source
from coordlib.history.plan import Range
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import READER_GROUP, open_admin, reaching
from coordlib.kafka.cluster import partitions_of
from coordlib.kafka.layout import recorded_layout, recorded_partitions
from coordlib.kafka.places import Bounds, Place
from coordlib.kafka.topic_ids import topic_id_of
from coordlib.kafka.topics import look_up
from coordlib.records.own_topics import ARCHIVED, CLAIMS_ARCHIVED, claims_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMEOUT_S: Final = 10.0
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
        #: As the archive began with them.
        self.source = Source(prefix, self._topic_ids())

    def are_same(self) -> bool:
        """Whether none of the topics was deleted or made anew since then. Raises CannotReach."""
        return self._topic_ids() == self.source.topic_ids

    def require_same(self) -> None:
        """Raises CoordError where one of them was. Raises CannotReach."""
        if not self.are_same():
            raise CoordError(
                "A topic was deleted, or made anew, while it was read.",
                f"prefix {self._prefix}",
                "Nothing of it was written; the archive looks at the topics again.",
            )

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
