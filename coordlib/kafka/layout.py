"""The fixed layout of a prefix: shards, response partitions, the topic's incarnation.

The job records it in `<prefix>.progress`. Before its first start it is read from the topics
themselves. The same record has the wire version that the job reads.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import KafkaException, TopicCollection

from coordlib.core.wire.envelope import WIRE_VERSION
from coordlib.core.wire.stored import Layout
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka.clients import (
    anybody_listens,
    describing,
    hidden,
    missing,
    open_admin,
    reading,
    unreachable,
    why_silent,
)
from coordlib.kafka.cluster import topic_id_of
from coordlib.kafka.options import require_servers
from coordlib.kafka.plans import CLAIMS_TABLE, GROUPS_TABLE, RECORDED, Counts, read_plans
from coordlib.kafka.reading import newest_by_key

INCARNATION_LENGTH = 8
FIRST_LOOK_S = 5.0  # then it is asked why brokers do not answer; a reachable one does at once
#: Of the record in the progress topic.
LAYOUT_KEY = b"layout"


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
    """Ask the broker.

    Who may not see the topics of requests and responses needs no more than what the job recorded.

    Raises:
        CannotReach: no broker, or no such topics.
        NotAllowed: a right is missing.
        SetupError: an option is wrong or missing, the brokers refuse who asks, or the job is older
            than this client.
    """
    require_servers(config)
    try:
        counts = _first_counts(config, timeout_s)
        unseen = _unseen(config, prefix, counts, timeout_s)
        layout = (
            recorded_layout(config, prefix, timeout_s) if f"{prefix}.progress" in counts else None
        )
        if layout is None and unseen:
            raise missing(describing(unseen[0]), config)
        if layout is not None:
            _require_reads(layout.wire_version, prefix)
        return _place_of(layout, config, prefix, counts, timeout_s)
    except KafkaException as problem:
        raise unreachable(config, "No answer from Kafka.", problem, "Is it running?") from problem


def _require_reads(wire_version: int, prefix: str) -> None:
    """Refuse to write to an older job, which would refuse the requests. SetupError.  # INV-84"""
    if wire_version < WIRE_VERSION:
        raise SetupError(
            "The coordinator's job is older than this client.",
            f"prefix {prefix}: it reads wire version {wire_version}, not {WIRE_VERSION}",
            "Upgrade the job first, then its clients.",
        )


def _unseen(
    config: Mapping[str, Any], prefix: str, counts: Mapping[str, int], timeout_s: float
) -> list[str]:
    """Topics of requests and responses that this client may not see.

    Raises CannotReach: they do not exist; NotAllowed: the progress may not be read.
    """
    progress = f"{prefix}.progress"
    asked = [f"{prefix}.requests", f"{prefix}.responses", progress]
    absent = [topic for topic in asked if topic not in counts]
    unseen = hidden(open_admin(config), absent, timeout_s) if absent else []
    if progress in unseen:
        raise missing(reading(progress), config)
    if nowhere := [each for each in absent if each not in unseen and each != progress]:
        raise CannotReach(
            "The coordinator's topics do not exist.",
            ", ".join(nowhere),
            "Create them with `coord topics create`, or name another prefix.",
        )
    return unseen


def _place_of(
    layout: Layout | None,
    config: Mapping[str, Any],
    prefix: str,
    counts: Mapping[str, int],
    timeout_s: float,
) -> Place:
    requests = f"{prefix}.requests"
    ids = layout.topic_ids if layout is not None else {}
    topic_id = ids.get(requests) or _topic_id(config, requests, timeout_s)
    return Place(
        prefix=prefix,
        shards=layout.shards if layout is not None else counts[requests],
        reply_partitions=layout.reply_partitions if layout else counts[f"{prefix}.responses"],
        incarnation=topic_id[:INCARNATION_LENGTH],
    )


def _first_counts(config: Mapping[str, Any], timeout_s: float) -> dict[str, int]:
    """A wrong password or port never gets an answer: both are looked for before time is over."""
    try:
        return _partition_counts(config, min(timeout_s, FIRST_LOOK_S))
    except KafkaException as problem:
        if timeout_s <= FIRST_LOOK_S:
            raise
        if reason := why_silent(config):
            raise reason from problem
        if not anybody_listens(config):
            raise
        return _partition_counts(config, timeout_s - FIRST_LOOK_S)


def _partition_counts(config: Mapping[str, Any], timeout_s: float) -> dict[str, int]:
    metadata = open_admin(config).list_topics(timeout=timeout_s)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _topic_id(config: Mapping[str, Any], topic: str, timeout_s: float) -> str:
    admin = open_admin(config)  # a name for it: the answer dies with the client
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
    return topic_id_of(asked[topic].result(timeout_s))


def recorded_layout(
    config: Mapping[str, Any], prefix: str, timeout_s: float = 30.0
) -> Layout | None:
    """The newest `layout` record; the topic is compacted and short. Raises CannotReach."""
    found = newest_by_key(config, f"{prefix}.progress", 0, silence_s=timeout_s).get(LAYOUT_KEY)
    return None if found is None else msgspec.json.decode(found, type=Layout)


def recorded_counts(
    config: Mapping[str, Any], prefix: str, seen: Container[str], topic: str = ""
) -> Counts | None:
    """The counts with which the prefix was made, whatever was added since; None: none are recorded.

    Args:
        prefix: of a pipeline.
        seen: the topics that are there.
        topic: whose partitions are the shards; a record of another one is ignored.

    Raises:
        CannotReach: no broker answers.
        NotAllowed: the progress topic may not be read.
    """
    if f"{prefix}.progress" not in seen:
        return None
    found = recorded_layout(config, prefix)
    if found is None or found.input != topic:
        return None
    return Counts(found.shards, found.reply_partitions, RECORDED)


class Grown(NamedTuple):
    """A topic of a prefix to which somebody has added partitions, which nobody reads."""

    topic: str
    partitions: int
    #: As many as the prefix was made with. Those from this number on were added.
    recorded: int


def recorded_partitions(prefix: str, layout: Layout) -> dict[str, int]:
    """How many partitions each topic of a pipeline has, by full name, whatever was added.

    Args:
        prefix: of the pipeline.
    """
    plans = read_plans(pipeline=CLAIMS_TABLE if layout.input else GROUPS_TABLE)
    found = {
        f"{prefix}.{plan.name}": plan.count(layout.shards, layout.reply_partitions)
        for plan in plans
    }
    return found | ({layout.input: layout.shards} if layout.input else {})


def grown(prefix: str, layout: Layout, partitions: Mapping[str, int]) -> list[Grown]:
    """The topics of a pipeline that have more partitions than it was made with.

    Args:
        prefix: of the pipeline.
        partitions: of each topic that is there, by full name.
    """
    recorded = recorded_partitions(prefix, layout)
    return [
        Grown(name, partitions[name], count)
        for name, count in recorded.items()
        if partitions.get(name, 0) > count
    ]
