"""The commits of one consumer: those that its program calls, and those that it makes by itself.

**Auto-commit**, the rules that the code cites by name:

- *stored*: it commits stored offsets (`stored.py`), never positions;
- *interval*: while the program polls, one asynchronous commit in each interval; a failure goes to
  `on_commit` and the log, and the next interval tries again;
- *revoked*: after the program's callback, what is stored of these partitions and the callback has
  not committed itself. It stands before the JoinGroup, in the Release, or before the LeaveGroup,
  so `close` waits for its answer. Lost partitions are not committed.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.member import Member
from coordlib.client.groups.reading import COMMITS_MS, Reading
from coordlib.client.kit import events as sg
from coordlib.client.kit import offsets as of
from coordlib.client.kit.events import Callback, Partitions, TopicPartition
from coordlib.client.transactions.machine import Severity, TransactionError
from coordlib.core.wire import api
from coordlib.errors import CoordError, ErrorCode

_log = logging.getLogger("coordlib.client")

#: An automatic commit without an answer for so long is made again: the log may have lost it.
ANSWER_MS: Final = 60_000
_ABORT = "Abort the transaction: the consumer begins the topic anew."
OnCommit = Callable[[Any, list[Any]], None]


@dataclass(slots=True, eq=False)
class _Open:
    """An asynchronous commit."""

    future: "Future[sg.Answer]"
    rows: tuple[api.CommittedOffset, ...]
    is_automatic: bool
    made_ms: int
    is_reported: bool = False
    is_taken_in: bool = False


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
        self, named: tuple[api.CommittedOffset, ...], timeout_s: float
    ) -> list[KafkaTopicPartition]:
        """Commit, and wait for the answer; what was committed.

        Raises MemberFenced, GroupError, CannotReach.
        """
        rows, void = self.sorted_out(named, 0)
        self.asked(rows)
        failed = void
        try:
            failed += self._member.commit(rows, timeout_s) if rows else ()
        except CoordError:
            self.answered(rows, None)
            raise
        self.answered(rows, failed)
        if (refused := of.refusal_of_partitions(failed, self._group)) is not None:
            raise refused
        return of.kafka_of_rows(rows)

    def commit_async(
        self, named: tuple[api.CommittedOffset, ...], *, is_automatic: bool = False
    ) -> None:
        """Commit; the outcome goes to `on_commit`.

        Args:
            is_automatic: nobody has called for it: it raises nothing.

        Raises MemberFenced, GroupError.
        """
        # By the newest ids, without a question: an offset does no harm under a former one, since it
        # is committed with it.
        rows, void = self.sorted_out(named, sys.maxsize if is_automatic else COMMITS_MS)
        now_ms = self._member.transport.now_ms()
        if void:
            refused: Future[sg.Answer] = Future()
            refused.set_result(sg.Answer(0, failed=void))
            places = {TopicPartition(row.topic, row.partition) for row in void}
            gone = tuple(r for r in named if TopicPartition(r.topic, r.partition) in places)
            self._open.append(_Open(refused, gone, is_automatic, now_ms))
        if rows:
            future = self._member.commit_async(rows)
            error = future.result().error if future.done() else None
            if error is not None and not is_automatic:
                raise error
            if not is_automatic:
                self._reading.committed_by_user(rows)
            self._reading.commit_asked(rows)
            self._open.append(_Open(future, rows, is_automatic, now_ms))

    def asked(self, rows: tuple[api.CommittedOffset, ...]) -> None:
        """The program commits these, and waits; `answered` follows."""
        self._reading.commit_asked(rows)

    def answered(
        self,
        rows: tuple[api.CommittedOffset, ...],
        failed: tuple[api.FailedPartition, ...] | None,
    ) -> None:
        """The answer. `failed`: what was refused; None: all."""
        self._reading.commit_answered(rows, failed)
        if failed is not None:
            self._reading.committed_by_user(rows)

    def has_automatic(self) -> bool:
        """Whether an automatic one is under way.

        Takes in what was answered. One that was not for `ANSWER_MS` is given up: `on_commit` gets
        CannotReach.
        """
        lost_ms = self._member.transport.now_ms() - ANSWER_MS
        pending = [each for each in list(self._open) if each.is_automatic]
        for each in pending:
            if each.made_ms <= lost_ms and not each.future.done():
                each.future = Future()
                each.future.set_result(sg.Answer(0, error=self._member.unanswered()))
            self._take_in(each)
        return any(not each.is_taken_in for each in pending)

    def in_transaction(
        self, named: tuple[api.CommittedOffset, ...]
    ) -> tuple[api.CommittedOffset, ...]:
        """The rows that a transaction commits, under their topics' ids.

        Raises TransactionError: the transaction is to be aborted, since it has read of a topic that
        is not there any more.
        """
        rows, void = self.sorted_out(named, 0)
        if (refused := of.refusal_of_partitions(void, self._group)) is not None:
            what = "A topic that was read was deleted and created again."
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
            partitions = of.kafka_of_rows(first.rows)
            self._take_in(first)
            try:
                if not first.is_reported and on_commit is not None:
                    first.is_reported = True; on_commit(error, partitions)  # noqa: E702  # fmt: skip
            finally:
                if first.is_reported or on_commit is None:
                    with suppress(ValueError):  # by another `tell`, inside of it or after it
                        self._open.remove(first)

    def _take_in(self, each: _Open) -> None:
        """The answer counts, if there is one, before `on_commit` is called for it."""
        if each.is_taken_in or not each.future.done():
            return
        answer = each.future.result()
        self._reading.commit_answered(each.rows, None if answer.error else answer.failed)
        each.is_taken_in = True
        error = answer.error or of.refusal_of_partitions(answer.failed, self._group)
        if each.is_automatic and error is not None:
            _log.warning("An automatic commit has failed, and is tried again: %s", error)

    def sorted_out(
        self, named: tuple[api.CommittedOffset, ...], no_older_ms: int
    ) -> tuple[tuple[api.CommittedOffset, ...], tuple[api.FailedPartition, ...]]:
        """The rows that may be committed, under their topics' ids; and those that may not.

        Asks whether the topics are still those that were read.
        """
        ids, reading = self._reading.ids, self._reading
        topics = {row.topic for row in named if ids.begun(row.topic)}
        anew = ids.made_anew(topics, no_older_ms)
        good: list[api.CommittedOffset] = []
        void: list[api.FailedPartition] = []
        for row in named:
            place = TopicPartition(row.topic, row.partition)
            if row.topic in anew or reading.is_of_before(place, row.offset):
                void.append(api.FailedPartition(*place, ErrorCode.UNKNOWN_TOPIC_ID.name))
            else:
                good.append(row)
        return of.under_ids(good, ids.begun), tuple(void)


class AutoCommit:
    """Commits what is stored, by the rules above.

    Args:
        interval_ms: 0: only what is revoked; None: nothing at all.
    """

    def __init__(
        self, member: Member[Any], reading: Reading, commits: Commits, interval_ms: int | None
    ) -> None:
        self._member, self._reading, self._commits = member, reading, commits
        self._interval_ms = interval_ms
        self._due_ms = member.transport.now_ms() + (interval_ms or 0)

    def commit_if_due(self) -> None:
        """The rule *interval*; one at a time while there is no answer.  # INV-158"""
        now_ms = self._member.transport.now_ms()
        if not self._interval_ms or now_ms < self._due_ms or not self._member.may_work():
            return
        self._due_ms = now_ms + self._interval_ms
        if not self._commits.has_automatic() and (rows := self._reading.uncommitted()):
            self._commits.commit_async(rows, is_automatic=True)

    def after_callback(self, callback: Callback, partitions: Partitions) -> None:
        """The rule *revoked*, then what the reading does."""
        if callback is Callback.REVOKED and self._interval_ms is not None:
            rows = self._reading.revoked(partitions)
            if rows and self._member.may_work():
                self._commits.commit_async(rows, is_automatic=True)
        self._reading.after_callback(callback, partitions)
