"""Offsets of the claimed partitions: where their logs begin and end, and what Kafka's own groups
have committed. Everything here may block, but for a commit that is not awaited."""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.claims.transport import Described
from coordlib.client.kit.signals import TopicPartition
from coordlib.errors import CannotReach, NotAllowed
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import reason_of
from coordlib.kafka.denied import denial, error_of, reading, refusing
from coordlib.kafka.places import Bounds, Place
from coordlib.kafka.roles import Kind, Operation, Right
from coordlib.kafka.topic_ids import NO_ID, topic_id_of
from coordlib.kafka.topics import look_up

_log = logging.getLogger("coordlib.client")
TIMEOUT_S: Final = 5.0
_AGAIN: Final = "Check that the brokers run, then try again."


class KafkaOffsets:
    """Used from several threads.

    Args:
        is_committing: whether positions must be copied to Kafka's groups, which takes another right
            than to look at them.
    """

    def __init__(
        self, options: Mapping[str, Any], client: str, *, is_committing: bool = True
    ) -> None:
        self._options = {**options, "client.id": client}
        #: To look at committed offsets, by who may do no more.
        self._needed = Operation.READ if is_committing else Operation.DESCRIBE
        self._admin = Admin(self._options)
        self._lock = threading.Lock()
        #: By group: consumers that never subscribe, and commit by name.
        self._committers: dict[str, Consumer] = {}
        #: Groups that may not be committed to, and were told of.
        self._refused: set[str] = set()

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        """Those of the topics that exist; no others are asked for.

        Raises CannotReach, NotAllowed.
        """
        asked = list(topics)
        try:
            found = look_up(self._admin, asked, self._options)
        except KafkaException as problem:
            what = f"No metadata from Kafka: {reason_of(problem)}"
            raise CannotReach(what, ", ".join(asked), _AGAIN) from problem
        ids = {name: topic_id_of(each) for name, each in found.items()}
        return {
            name: Described(len(each.partitions), ids[name] if ids[name] != NO_ID else "")
            for name, each in found.items()
        }

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Without partitions that do not answer. Raises CannotReach, NotAllowed."""
        asked = [Place(*place) for place in places]
        denied = refusing(self._options, reading)
        try:
            found = log_bounds(self._admin, asked, TIMEOUT_S, on_denied=denied)
        except (KafkaException, TimeoutError) as problem:
            what = f"Logs cannot be asked for: {reason_of(problem)}"
            where = ", ".join(sorted({each.topic for each in asked}))
            raise CannotReach(what, where, _AGAIN) from problem
        return {TopicPartition(*place): each for place, each in found.items() if each is not None}

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Kafka's committed offsets of a group, where there are any.

        An admin's request: a consumer without the right looks for its coordinator until its time is
        up, and does not say why.

        Raises CannotReach, NotAllowed.
        """
        if not places:
            return {}
        asked = ConsumerGroupTopicPartitions(group, [KafkaTopicPartition(*each) for each in places])
        try:
            answers = self._admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
            found = answers[group].result(TIMEOUT_S).topic_partitions
        except KafkaException as problem:
            raise self._failed("No committed offsets", group, problem, self._needed) from problem
        except TimeoutError as problem:
            what = "No committed offsets: no answer in time."
            raise CannotReach(what, f"group {group}", _AGAIN) from problem
        for row in found:
            if denied := self._denied(group, row.error, self._needed, row.topic):
                raise denied
        rows = ((TopicPartition(row.topic, row.partition), row) for row in found)
        return {place: row.offset for place, row in rows if row.error is None and row.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        """Commit to Kafka's group.

        Awaited: raises CannotReach, NotAllowed. Else never: a missing right is logged once.
        """
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
                self._note(group, problem.args[0])
                return
            raise self._failed("Kafka took no commit", group, problem, Operation.READ) from problem
        for row in done or ():
            if row.error is not None:
                what, needed = "Kafka took no commit", Operation.READ
                raise self._failed(what, group, row.error, needed, row.topic)

    def close(self) -> None:
        for committer in self._committers.values():
            committer.close()

    def _committer(self, group: str) -> Consumer:
        with self._lock:
            if group not in self._committers:
                own = {"group.id": group, "enable.auto.commit": False}
                told = partial(self._committed, group)
                self._committers[group] = Consumer({**self._options, **own, "on_commit": told})
            return self._committers[group]

    def _failed(
        self,
        what: str,
        group: str,
        problem: KafkaException | KafkaError,
        needed: Operation,
        topic: str = "",
    ) -> CannotReach | NotAllowed:
        reason = CannotReach(f"{what}: {reason_of(problem)}", f"group {group}", _AGAIN)
        return self._denied(group, problem, needed, topic) or reason

    def _denied(
        self,
        group: str,
        problem: KafkaException | KafkaError | None,
        needed: Operation,
        topic: str = "",
    ) -> NotAllowed | None:
        """The right on the group, or on a topic of which it has offsets."""
        error = error_of(problem)
        is_of_topic = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        right = reading(topic) if is_of_topic else Right(Kind.GROUP, group, needed)
        return denial(error, right, self._options)

    def _committed(
        self, group: str, error: KafkaError | None, rows: Sequence[KafkaTopicPartition]
    ) -> None:
        """The outcome of a commit that nobody waits for."""
        failed = next((row for row in rows or () if row.error is not None), None)
        if error is not None:
            self._note(group, error)
        elif failed is not None and failed.error is not None:
            self._note(group, failed.error, failed.topic)
        else:
            self._refused.discard(group)

    def _note(self, group: str, error: KafkaError, topic: str = "") -> None:
        denied = self._denied(group, error, Operation.READ, topic)
        if denied is None:
            _log.info("Kafka's group %s has no commit: %s", group, reason_of(error))
        elif group not in self._refused:
            self._refused.add(group)
            _log.warning(
                "Positions are not copied to Kafka's group %s. %s %s; or set commit_to_kafka=False",
                group,
                denied.what,
                denied.mend,
            )
