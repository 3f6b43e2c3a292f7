"""Offsets of the claimed partitions: where their logs begin and end, and what Kafka's own groups
have committed. Everything here may block, but for a commit that is not awaited."""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from coordlib.client.machine.signals import TopicPartition
from coordlib.errors import CannotReach
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import reason_of
from coordlib.kafka.places import Bounds, Place

_log = logging.getLogger("coordlib.client")
TIMEOUT_S: Final = 5.0


class KafkaOffsets:
    """Used from several threads."""

    def __init__(self, options: Mapping[str, Any], client: str) -> None:
        self._options = {**options, "client.id": client}
        self._admin = AdminClient(self._options)
        self._lock = threading.Lock()
        #: By group: consumers that never subscribe, and commit by name.
        self._committers: dict[str, Consumer] = {}

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """Those of the topics that exist, with their partition counts. Raises CannotReach."""
        try:
            found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as problem:
            raise CannotReach(f"No metadata from Kafka: {reason_of(problem)}") from problem
        known = {name: found[name] for name in topics if name in found}
        return {name: len(each.partitions) for name, each in known.items() if each.error is None}

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Without partitions that do not answer. Raises CannotReach."""
        asked = [Place(*place) for place in places]
        try:
            found = log_bounds(self._admin, asked, TIMEOUT_S)
        except (KafkaException, TimeoutError) as problem:
            raise CannotReach(f"Logs cannot be asked for: {reason_of(problem)}") from problem
        return {TopicPartition(*place): each for place, each in found.items() if each is not None}

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Kafka's committed offsets of a group, where there are any. Raises CannotReach."""
        asked = [KafkaTopicPartition(*place) for place in places]
        try:
            found = self._committer(group).committed(asked, timeout=TIMEOUT_S)
        except KafkaException as problem:
            raise CannotReach(f"No committed offsets: {reason_of(problem)}", group) from problem
        rows = ((TopicPartition(row.topic, row.partition), row) for row in found)
        return {place: row.offset for place, row in rows if row.error is None and row.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        """Commit to Kafka's group. Raises CannotReach if awaited, else never."""
        rows = [KafkaTopicPartition(*place, offset) for place, offset in offsets.items()]
        committer = self._committer(group)
        try:
            if not is_awaited:
                committer.poll(0)  # serves the outcomes of commits before
                committer.commit(offsets=rows, asynchronous=True)
                return
            done = committer.commit(offsets=rows, asynchronous=False)
        except KafkaException as problem:
            if not is_awaited:
                _log.info("Kafka's group %s has no commit: %s", group, reason_of(problem))
                return
            raise CannotReach(f"Kafka took no commit: {reason_of(problem)}", group) from problem
        failed = [row.error for row in done or () if row.error is not None]
        if failed:
            raise CannotReach(f"Kafka took no commit: {failed[0]}", group)

    def close(self) -> None:
        for committer in self._committers.values():
            committer.close()

    def _committer(self, group: str) -> Consumer:
        with self._lock:
            if group not in self._committers:
                self._committers[group] = Consumer(
                    {**self._options, "group.id": group, "enable.auto.commit": False}
                )
            return self._committers[group]
