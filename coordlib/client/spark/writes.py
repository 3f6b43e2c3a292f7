"""Batches and their offsets in one unit: one commit of a Delta table decides both.

    1  PendingCommit                      its own offset is the token; it names the table's id
    2  meanwhile: write the rows' files   they are in no version of the table yet
    3  accepted: commit the files         txnVersion = the token. This commit is the decision
    4  DecidePending                      not waited for

A kill before 3 leaves no rows and no offsets; after 3 both. A commit of somebody else under the
application's name has shut this member out: Delta refuses its own then. Whoever reads those
partitions next finds out which (`client/transactions/in_doubt.py`).  # INV-100
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from coordlib.client.groups.assigned_member import AssignedMember
from coordlib.client.groups.doubts import offset_of
from coordlib.client.kit import signals as sg
from coordlib.client.kit.errors import MemberFenced
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.spark.delta import How, SparkTable, StagedBatch
from coordlib.client.spark.share import Share
from coordlib.client.spark.tables import Tables
from coordlib.client.transactions.in_doubt import app_id
from coordlib.core.wire.producers import ABORT, COMMIT, Result
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = structlog.get_logger()
#: What a reader commits: the batches that are finished, or none but those of `write_once`.
PROGRESS: Final = "progress"
WITH_WRITES: Final = "with-writes"
_LOOK_EVERY_S: Final = 0.05
#: Refusals that say that others have these partitions now, or will.
_SHUT_OUT: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.PARTITION_NOT_OWNED,
)


class Writes:
    """The batches of one reader. `write` is for Spark's thread, all else for the reader's."""

    def __init__(self, member: AssignedMember, tables: Tables) -> None:
        self._member, self._tables = member, tables
        #: Where the newest written batch of each partition ends, and the run that read it.
        self._written: tuple[str, dict[TopicPartition, int]] = ("", {})
        #: The table of the newest batch: the application, and the path as it was given.
        self._table: tuple[str, str, SparkTable] | None = None
        #: The answers to words that were said, and commits that were given up before an answer.
        self._words: list[Future[sg.Answer]] = []
        self._given_up: list[tuple[Share, Future[sg.Answer]]] = []
        self._lock = threading.Lock()
        #: Runs whose batch was refused, or skipped by Delta: others decided.
        self._ended: set[str] = set()
        #: Runs with a batch that is not written, for whatever reason.
        self._broken: set[str] = set()
        #: Called by `write` when the table has a batch, before anybody is told of it.
        self.on_written: Callable[[], None] = _nothing

    # ---- in foreachBatch ------------------------------------------------------------------------

    def write(
        self, share: Share, source: "DataFrame", rows: "DataFrame", path: str, how: How
    ) -> None:
        """See `Share.write_once`. Once it has raised, so do all later calls of the same run: else
        the positions of a later batch would pass over one that is not written.
        """
        if share.checkpoint in self._ended or not share.may_work():
            self._shut_out(share)
        if share.checkpoint in self._broken:
            mend = "Let the exception go through foreachBatch, and start the reader again."
            raise CoordError("A batch before this one is not written.", share.where, mend)
        try:
            self._write(share, source, rows, path, how)
        except BaseException:
            self._broken.add(share.checkpoint)
            raise

    def _write(
        self, share: Share, source: "DataFrame", rows: "DataFrame", path: str, how: How
    ) -> None:
        try:
            table = self._open(share, source, path)
            table.prepare(rows, how)
        except CannotReach as problem:
            if share.may_work():
                raise
            self._shut_out(share, problem)
        assert table.written is not None
        self._tables.saw(table.uri, table.written)
        positions = self._positions(share, source)
        if not positions:
            return
        self._refuse_made_anew(share, positions)
        future = self._ask(share, positions, table.uri)
        try:
            staged = table.stage(rows, how)
        except BaseException:
            self._give_up(share, future)
            raise
        key = self._accepted(share, future)
        if not share.may_work():
            self._say(share, key, ABORT)
            self._shut_out(share)
        self._commit(share, table, staged, offset_of(key))
        self._tables.saw(table.uri, table.written)
        self.on_written()
        self._written = share.checkpoint, self._written_by(share) | positions
        self._say(share, key, COMMIT)

    def _open(self, share: Share, source: "DataFrame", path: str) -> SparkTable:
        """What is known of the table from the batch before is kept."""
        app = app_id(self._member.identity, share.member)
        if self._table is None or self._table[:2] != (app, path):
            table = SparkTable(source.sparkSession, path, app)
            table.written = self._tables.of(table.uri, share.may_work)
            self._table = app, path, table
        self._table[2].may_wait = share.may_work
        self._table[2].ask_again = partial(self._tables.of, self._table[2].uri, share.may_work)
        return self._table[2]

    def _commit(self, share: Share, table: SparkTable, staged: StagedBatch, token: int) -> None:
        """The decision. Raises MemberFenced; or Spark's reason, and the batch is in doubt."""
        try:
            is_written = staged.commit(token)
        except Exception as problem:
            found = table.app_version(table.newest())
            if found is None or found < token:
                raise
            # It failed after its commit; or somebody's commit came first, and was not told so.
            _log.warning("a write has failed", table=table.uri, error=repr(problem)[:500])
            is_written = found == token
        if not is_written:
            self._shut_out(share)

    def _positions(self, share: Share, source: "DataFrame") -> dict[TopicPartition, int]:
        """Where each partition of the batch ends; those without records are left out."""
        greatest = source.groupBy("topic", "partition").agg({"offset": "max"})
        found = {
            TopicPartition(row["topic"], row["partition"]): row["max(offset)"] + 1
            for row in greatest.collect()
        }
        share.refuse_strange(found)
        before = self._written_by(share)
        if any(at <= before.get(each, -1) for each, at in found.items()):
            what = "This batch is in a table already; a second one would be no unit with it."
            mend = "Write into one table a batch, and derive others by a stream that reads it."
            raise CoordError(what, share.where, mend)
        return found

    def _refuse_made_anew(self, share: Share, positions: Mapping[TopicPartition, int]) -> None:
        """The batch is read by now: its records may be of the topic of before, or of the new one.

        Raises CoordError; the reader begins the topic anew.
        """
        if anew := self._tables.ids.made_anew({each.topic for each in positions}):
            what = f"A topic was deleted and made anew: {', '.join(sorted(anew))}."
            mend = "The batch is not written. The reader begins the topic anew by itself."
            raise CoordError(what, share.where, mend)

    def _written_by(self, share: Share) -> dict[TopicPartition, int]:
        run, positions = self._written
        return positions if run == share.checkpoint else {}

    def _ask(
        self, share: Share, positions: Mapping[TopicPartition, int], table: str
    ) -> "Future[sg.Answer]":
        app = app_id(self._member.identity, share.member)
        metadata = self._tables.metadata(table, app)
        offsets = self._tables.rows(positions, metadata)
        return self._member.ask(
            lambda now_ms, ticket: sg.CommitWithWrites(
                now_ms, ticket, offsets, table, share.member, share.generation
            )
        )

    def _give_up(self, share: Share, future: "Future[sg.Answer]") -> None:
        """Nothing is written: that is said when the commit was accepted."""
        with self._lock:
            self._given_up.append((share, future))

    def _accepted(self, share: Share, future: "Future[sg.Answer]") -> str:
        """The key of the accepted commit. Raises MemberFenced, GroupError, CannotReach."""
        while True:
            try:
                answer = future.result(_LOOK_EVERY_S)
                break
            except FutureTimeout:
                if share.may_work():
                    continue  # the job is away, perhaps: the batch waits for it
                self._give_up(share, future)
                self._shut_out(share)
        if isinstance(answer.error, MemberFenced):
            self._shut_out(share)
        if isinstance(answer.error, GroupError) and answer.error.code in _SHUT_OUT:
            self._shut_out(share, answer.error)
        if answer.error is not None:
            raise answer.error
        return answer.pending

    def _shut_out(self, share: Share, why: CoordError | None = None) -> NoReturn:
        self._ended.add(share.checkpoint)
        raise MemberFenced(share.where, None) from why

    # ---- in the reader's thread -----------------------------------------------------------------

    def has_ended(self, share: Share) -> bool:
        """Whether others decide about the partitions of this run."""
        return share.checkpoint in self._ended

    def hear(self, share: Share | None) -> None:
        """Take the answers that have come.

        A batch that was given up before its commit was accepted is not written: that is said. A
        word that came too late means that somebody else has decided: the run of now begins again
        from what is committed.
        """
        with self._lock:
            words, self._words = self._words, []
            given_up, self._given_up = self._given_up, []
        for future in words:
            if not future.done():
                self._keep(future)
            elif (error := future.result(0).error) is not None and share is not None:
                _log.warning("a batch's word was not taken", where=share.where, error=str(error))
                if isinstance(error, GroupError):
                    self._ended.add(share.checkpoint)
        for of, future in given_up:
            if not future.done():
                self._give_up(of, future)
            elif key := future.result(0).pending:
                self._say(of, key, ABORT)

    def _keep(self, word: "Future[sg.Answer]") -> None:
        with self._lock:
            self._words.append(word)

    def _say(self, share: Share, key: str, result: Result) -> None:
        """Say what became of a commit of this reader, without waiting."""
        self._keep(
            self._member.ask(
                lambda now_ms, ticket: sg.Decide(
                    now_ms, ticket, key, result, share.member, share.generation
                )
            )
        )


def _nothing() -> None: ...


def refuse_unknown(commits: str) -> None:
    """Raises SetupError: there is no such way to commit."""
    if commits not in (PROGRESS, WITH_WRITES):
        mend = f"Choose {PROGRESS!r}, or {WITH_WRITES!r} and `share.write_once`."
        raise SetupError("There is no such way to commit.", f"commits={commits!r}", mend)
