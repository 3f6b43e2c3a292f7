"""Reads coordination partitions, and reports when they were read to their ends.

Uncommitted, as the engine reads them: an open transaction of a stranger must stop nobody. The ends
are asked for over a connection of their own: on the reader's, the broker would answer only after
the fetch that it holds open. One question is for all partitions; one of them that cannot be read to
its end, as it has lost its leader since, holds up no other.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple
from uuid import uuid4

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from coordlib.client.claims.errors import log_cut
from coordlib.core.claims.world import UNTRUSTED_TIME_MS
from coordlib.errors import CannotReach
from coordlib.kafka.admin import Admin
from coordlib.kafka.clients import reason_of
from coordlib.kafka.denied import denial, reading

_log = logging.getLogger("coordlib.client")

ASK_INTERVAL_MS: Final = 500
ASK_TIMEOUT_S: Final = 5.0  # an answer that takes longer is of little use: its age counts
REFRESH_TIMEOUT_S: Final = 1.0
WAIT_S: Final = 0.02
BATCH: Final = 2_000
_CONFIG: Final[dict[str, Any]] = {
    "isolation.level": "read_uncommitted",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,  # the end-of-partition event comes with an empty fetch
    "reconnect.backoff.max.ms": 1_000,
    "queued.min.messages": 100_000,  # a start may read millions
}


class LogRecord(NamedTuple):
    """A record of a coordination partition, as the fold takes it."""

    offset: int
    timestamp_ms: int
    value: bytes | None


class LogReader:
    """One reader; `add` may be called from any thread, the rest from one."""

    def __init__(self, options: Mapping[str, Any], client: str, topic: str) -> None:
        # The library wants a group id; this one is never joined and never commits.
        unused = {"group.id": f"coordlib-unused-{uuid4().hex}", "client.id": client}
        self._consumer = Consumer({**options, **unused, **_CONFIG})
        self.admin = Admin({**options, "client.id": client})
        self._options, self._topic = options, topic
        #: Next offset to read of each partition; all before it was handed out.
        self._positions: dict[int, int] = {}
        self._asked_ms = 0
        self._answers: dict[int, Future[Any]] = {}
        #: The positions when the ends were asked for: what is read since may be behind the answer.
        self._asked_at: dict[int, int] = {}
        #: When the ends were asked for, and those that are not reached yet.
        self._goals: dict[int, tuple[int, int]] = {}
        #: Partitions that were read to an end: what comes from now on is new.
        self._reached: set[int] = set()
        self._has_warned = False

    def know(self) -> None:
        """Ask for the leaders, before the first partition is added: the library would look for
        them once a second. May wait for a moment; from any thread."""
        if self._positions:
            return
        try:
            self._consumer.list_topics(self._topic, timeout=REFRESH_TIMEOUT_S)
        except KafkaException as problem:  # the library goes on looking
            _log.info("No metadata of the coordination topic: %s", reason_of(problem))

    def add(self, partition: int, offset: int) -> None:
        """Read this partition too, from here on."""
        self._positions[partition] = offset
        self._consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])
        self._asked_ms = 0  # its consumers wait for the end

    def drop(self, partition: int) -> None:
        """Read this partition no more."""
        self._positions.pop(partition, None)
        self._goals.pop(partition, None)
        self._answers.pop(partition, None)
        self._reached.discard(partition)
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def ask(self, now_ms: int) -> None:
        """Ask for the ends from time to time, before the reading that is to reach them.

        Raises NotAllowed: the topic may not be read; CoordinationTopicChanged: its end is lost.
        """
        if self._answers:
            self._hear()
        elif self._positions and now_ms - self._asked_ms >= ASK_INTERVAL_MS:
            self._asked_ms, self._asked_at = now_ms, dict(self._positions)
            spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            places = {TopicPartition(self._topic, each): spec for each in list(self._positions)}
            asked = self.admin.list_offsets(
                places, REFRESH_TIMEOUT_S, request_timeout=ASK_TIMEOUT_S
            )
            self._answers = {place.partition: answer for place, answer in asked.items()}

    def read(self) -> list[tuple[int, LogRecord]]:
        """What has come, with its partition; waits a moment when nothing has.

        Raises CannotReach: records were deleted before they were read; NotAllowed;
        CoordinationTopicChanged: the log has lost its end.
        """
        first = self._consumer.poll(WAIT_S)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(BATCH, timeout=0)]
        return [taken for message in messages if (taken := self._take(message)) is not None]

    def ended(self) -> Iterator[tuple[int, int]]:
        """Partitions that were read to their ends, and when those were asked for; once each."""
        for partition, (asked_ms, end) in list(self._goals.items()):
            if self._positions[partition] >= end:
                del self._goals[partition]
                self._reached.add(partition)
                yield partition, asked_ms

    def close(self) -> None:
        self._consumer.close()

    def _hear(self) -> None:
        if not all(answer.done() for answer in self._answers.values()):
            return
        answers, self._answers = self._answers, {}
        problems = [answer.exception() for answer in answers.values()]
        for problem in problems:
            self._refuse(problem)
        for (partition, answer), problem in zip(answers.items(), problems, strict=True):
            if problem is None:
                self._aim(partition, int(answer.result().offset))
        if told := sorted({reason_of(each) for each in problems if each is not None}):
            _log.info("Ends of the coordination topic are not known: %s", ", ".join(told))
            self.admin.forget([self._topic])

    def _aim(self, partition: int, end: int) -> None:
        """An older end that is not reached yet stays: who reads a long log would reach no newer
        one. One that the log does not have any more gives way.

        Raises CoordinationTopicChanged: what was read is not there any more.
        """
        known = self._asked_at.get(partition, 0)
        if end < known:
            raise log_cut(self._topic, partition, known - 1, f"the next one is {end}")
        goal = self._goals.get(partition)
        if goal is None or end <= goal[1]:
            self._goals[partition] = (self._asked_ms, end)

    def _refuse(self, problem: BaseException | KafkaError | None) -> None:
        """Raises NotAllowed if that is the reason: nobody here can mend it."""
        if denied := denial(problem, reading(self._topic), self._options):
            raise denied

    def _take(self, message: Message) -> tuple[int, LogRecord] | None:
        error, offset, partition = message.error(), message.offset(), message.partition()
        if error is not None:
            self._take_error(error, partition, offset)
            return None
        if offset is None or partition is None or partition not in self._positions:
            return None  # dropped
        self._positions[partition] = offset + 1
        kind, time_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            return partition, LogRecord(offset, time_ms, message.value())
        if partition in self._reached:
            self._warn_of_time()
        return partition, LogRecord(offset, UNTRUSTED_TIME_MS, message.value())

    def _warn_of_time(self) -> None:
        """A start refuses such a topic; this one was altered since, as by a tool that sets topics
        back to what it knows of them."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s has records without the broker's stamp: time stands still, and claims of "
                "consumers that died do not end. Set message.timestamp.type=LogAppendTime.",
                self._topic,
            )

    def _take_error(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        self._refuse(error)  # which may be of no partition
        if partition is None or partition not in self._positions:
            return
        if error.code() == KafkaError._PARTITION_EOF and offset is not None:
            self._positions[partition] = max(self._positions[partition], offset)
        elif error.code() == KafkaError._LOG_TRUNCATION:  # by the leader's epoch (KIP-320)
            known = self._positions[partition] - 1
            raise log_cut(self._topic, partition, known, "another record is there")
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise CannotReach(
                f"Claims were deleted before they were read: {error.str()}",
                f"{self._topic}, partition {partition}",
                "Close this client and open it anew: it begins with what is there. Let the topic "
                "keep its records for longer.",
            )
        else:
            _log.warning("Reading the coordination topic: %s", error.str())
