"""Commits of a consumer, of topics that are still those that it read; and their outcomes."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.member import Member
from coordlib.client.groups.reading import Reading
from coordlib.client.groups.topic_ids import COMMITS_MS
from coordlib.client.kit import offsets as of
from coordlib.client.kit import signals as sg
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.transactions.errors import Severity, TransactionError
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode

_ABORT = "Abort the transaction: the consumer begins the topic anew."
OnCommit = Callable[[Any, list[Any]], None]


@dataclass(slots=True, eq=False)
class _Open:
    """An asynchronous commit."""

    future: "Future[sg.Answer]"
    partitions: list[KafkaTopicPartition]
    is_told: bool = False


class Commits:
    """The commits of one consumer.

    Args:
        on_commit: the user's callback for asynchronous ones; None: nobody is called.
    """

    def __init__(
        self, member: Member[Any], reading: Reading, group: str, on_commit: OnCommit | None
    ) -> None:
        self._member, self._reading = member, reading
        self._group, self._on_commit = group, on_commit
        #: Asynchronous commits whose `on_commit` has not ended yet.
        self._open: deque[_Open] = deque()

    def commit(
        self, named: tuple[rq.CommittedOffset, ...], timeout_s: float
    ) -> list[KafkaTopicPartition]:
        """Commit, and wait for the answer; what was committed.

        Raises MemberFenced, GroupError, CannotReach.
        """
        rows, void = self._sorted_out(named, 0)
        failed = (*void, *(self._member.commit(rows, timeout_s) if rows else ()))
        if (refused := of.refusal_of_partitions(failed, self._group)) is not None:
            raise refused
        return of.kafka_of_rows(rows)

    def commit_async(self, named: tuple[rq.CommittedOffset, ...]) -> None:
        """Commit; the outcome goes to `on_commit`. Raises MemberFenced, GroupError."""
        rows, void = self._sorted_out(named, COMMITS_MS)
        if void:
            refused: Future[sg.Answer] = Future()
            refused.set_result(sg.Answer(0, failed=void))
            places = [KafkaTopicPartition(row.topic, row.partition) for row in void]
            self._open.append(_Open(refused, places))
        if rows:
            future = self._member.commit_async(rows)
            if future.done() and (error := future.result().error) is not None:
                raise error
            self._open.append(_Open(future, of.kafka_of_rows(rows)))

    def in_transaction(
        self, named: tuple[rq.CommittedOffset, ...]
    ) -> tuple[rq.CommittedOffset, ...]:
        """The rows that a transaction commits, under their topics' ids.

        Raises TransactionError: the transaction is to be aborted, since it has read of a topic that
        is not there any more.
        """
        rows, void = self._sorted_out(named, 0)
        if (refused := of.refusal_of_partitions(void, self._group)) is not None:
            what = "A topic that was read was deleted and made anew."
            raise TransactionError(Severity.ABORTABLE, what, refused.where, _ABORT) from refused
        return rows

    @property
    def are_answered(self) -> bool:
        """Whether `tell` has something to do."""
        first = next(iter(self._open), None)
        return first is not None and first.future.done()

    def tell(self) -> None:
        """Call `on_commit` for the commits that were answered, in their order.

        At most once for each, and it is not lost before it begins, whatever interrupts this: it is
        noted as called in the line that calls it.
        """
        while self._open and (first := self._open[0]).future.done():
            answer, on_commit = first.future.result(), self._on_commit
            error = answer.error or of.refusal_of_partitions(answer.failed, self._group)
            try:
                if not first.is_told and on_commit is not None:
                    first.is_told = True; on_commit(error, first.partitions)  # noqa: E702  # fmt: skip
            finally:
                if first.is_told or on_commit is None:
                    with suppress(ValueError):  # by another `tell`, inside of it or after it
                        self._open.remove(first)

    def _sorted_out(
        self, named: tuple[rq.CommittedOffset, ...], no_older_ms: int
    ) -> tuple[tuple[rq.CommittedOffset, ...], tuple[rs.FailedPartition, ...]]:
        """The rows that may be committed, under their topics' ids; and those that may not.

        Asks whether the topics are still those that were read.
        """
        ids, reading = self._reading.ids, self._reading
        topics = {row.topic for row in named if ids.begun(row.topic)}
        anew = ids.made_anew(topics, no_older_ms)
        good: list[rq.CommittedOffset] = []
        void: list[rs.FailedPartition] = []
        for row in named:
            place = TopicPartition(row.topic, row.partition)
            if row.topic in anew or reading.is_of_before(place, row.offset):
                void.append(rs.FailedPartition(*place, ErrorCode.UNKNOWN_TOPIC_ID.name))
            else:
                good.append(row)
        return of.under_ids(good, ids.begun), tuple(void)
