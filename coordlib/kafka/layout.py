"""The fixed layout of a prefix: shards, response partitions, the topic's incarnation.

The job records it in `<prefix>.progress`. Before its first start it is read from the topics
themselves. The same record has the job's features, which change when the job is upgraded; so they
are not kept with the rest but read when they are needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import KafkaException, TopicCollection

from coordlib.errors import CannotReach
from coordlib.kafka.clients import open_admin
from coordlib.kafka.compacted import newest_by_key
from coordlib.records.stored import Layout

INCARNATION_LENGTH = 8
_KEY = b"layout"


@dataclass(frozen=True, slots=True)
class Place:
    """The topics and partition counts for the requests and answers of a prefix."""

    prefix: str
    shards: int
    reply_partitions: int
    #: First 8 characters of the topic id of `<prefix>.requests`.
    incarnation: str

    @property
    def requests(self) -> str:
        return f"{self.prefix}.requests"

    @property
    def responses(self) -> str:
        return f"{self.prefix}.responses"


def find_place(config: Mapping[str, Any], prefix: str, timeout_s: float = 30.0) -> Place:
    """Ask the broker. Raises CannotReach: no broker, or no such topics."""
    try:
        counts = _partition_counts(config, timeout_s)
        missing = [f"{prefix}.{name}" for name in ("requests", "responses")]
        missing = [topic for topic in missing if topic not in counts]
        if missing:
            raise CannotReach(
                "The coordinator's topics do not exist.",
                ", ".join(missing),
                "Create them with `coord topics create`, or name another prefix.",
            )
        layout = _recorded(config, prefix, timeout_s) if f"{prefix}.progress" in counts else None
        return _place_of(layout, config, prefix, counts, timeout_s)
    except KafkaException as problem:
        where = str(config.get("bootstrap.servers", ""))
        raise CannotReach(f"No answer from Kafka: {problem}", where, "Is it running?") from problem


def read_features(
    config: Mapping[str, Any], prefix: str, timeout_s: float = 30.0
) -> frozenset[str]:
    """Optional request fields that the prefix's newest job reads (`stored.FEATURES`).

    Empty: the job is older than all of them, or none has started yet. Raises CannotReach.
    """
    layout = _recorded(config, prefix, timeout_s)
    return frozenset(layout.features if layout is not None else ())


def _place_of(
    layout: Layout | None,
    config: Mapping[str, Any],
    prefix: str,
    counts: Mapping[str, int],
    timeout_s: float,
) -> Place:
    requests = f"{prefix}.requests"
    ids = layout.topic_ids if layout is not None else {}
    topic_id = ids.get(requests) or ids.get("requests") or _topic_id(config, requests, timeout_s)
    return Place(
        prefix=prefix,
        shards=layout.shards if layout is not None else counts[requests],
        reply_partitions=layout.reply_partitions if layout else counts[f"{prefix}.responses"],
        incarnation=topic_id[:INCARNATION_LENGTH],
    )


def _partition_counts(config: Mapping[str, Any], timeout_s: float) -> dict[str, int]:
    metadata = open_admin(config).list_topics(timeout=timeout_s)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _topic_id(config: Mapping[str, Any], topic: str, timeout_s: float) -> str:
    admin = open_admin(config)  # a name for it: the answer dies with the client
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
    found = str(asked[topic].result(timeout_s).topic_id)
    # Kafka's own tools print the URL-safe form, and the job uses it; librdkafka gives the other.
    return found.replace("+", "-").replace("/", "_")


def _recorded(config: Mapping[str, Any], prefix: str, timeout_s: float) -> Layout | None:
    """The newest `layout` record; the topic is compacted and short. Raises CannotReach."""
    found = newest_by_key(config, f"{prefix}.progress", 0, silence_s=timeout_s).get(_KEY)
    return None if found is None else msgspec.json.decode(found, type=Layout)
