"""Writes of a group's reader into Delta: fenced, and in one unit with their offsets if so wanted.

**Fenced writes.** Delta keeps, per `txnAppId`, the highest `txnVersion` that was written, in the
same atomic commit as the rows, and skips a write whose version is not higher. Here a partition is
an application, and the version is

    fence of the partition << 24 | number of the batch, counted over all runs of this reader

A new owner's fence is higher than any former owner's, also after the group was deleted and made
anew: it is an offset of the log. (Of a log that was itself made anew offsets begin at 0 again; so
the application names the log.) Once the new owner has written, or has claimed the partition with a
write of no rows, Delta skips all late writes of a former owner. Rows that a former owner wrote
before that and had not committed stay in the table, and their records are read again: at least
once, as everywhere. `write_once` is for those who want each record once.

**Batches and their offsets in one unit.** One commit of a Delta table decides both:

    1  PendingCommit                      its own offset is the token; it names the table's id
    2  meanwhile: write the rows' files   they are in no version of the table yet
    3  accepted: commit the files         txnVersion = the token. This commit is the decision
    4  DecidePending                      not waited for

A kill before 3 leaves no rows and no offsets; after 3 both. A commit of somebody else under the
application's name has shut this member out: Delta refuses its own then. Whoever reads those
partitions next finds out which (`client/transactions/delta_commits.py`).  # INV-100

**The tables that a group has written to**, as the group's offsets name them. Each offset that is
committed with rows names the table that has them: its URI, its id, a version that it had with a
digest of it, and the application whose commit comes behind that. So a member that begins finds with
the offsets which table must be there, and takes no old copy for it. Every commit replaces what its
partition's offset names: it names all that the group's offsets have named, and not only what this
process has written to.  # INV-120, INV-157
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from coordlib.client.groups.member import AssignedMember, of_all
from coordlib.client.groups.reading import TopicIds
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.kit.offsets import under_ids
from coordlib.client.kit.requests import offset_of
from coordlib.client.spark.delta import How, SparkTable, StagedBatch
from coordlib.client.transactions.delta_commits import (
    Written,
    app_id,
    metadata_of,
    newest_of,
    tables_in,
)
from coordlib.core.wire import api
from coordlib.core.wire.transactions import ABORT, COMMIT, Result
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_EVERY_S: Final = 0.05


class Tables:
    """What one member knows of them. `of` and `saw` are for Spark's thread."""

    def __init__(self, member: "AssignedMember", ids: TopicIds) -> None:
        self._member, self.ids = member, ids
        #: By URI, the one that was written to last at the end.
        self._seen: dict[str, Written] = {}
        #: By URI, those that the group's offsets have named; None: not asked for yet.
        self._named: dict[str, Written] | None = None

    def of(self, uri: str, may_work: Callable[[], bool]) -> Written | None:
        """The table that must be at this URI; None: the group has written to none there.

        The group is asked once for each URI: other members may have written there.

        Raises CannotReach: its committed offsets are not known, or the member may work no more.
        """
        if (seen := self._seen.get(uri)) is not None:
            return seen
        answer = _answer(self._fetch_all(), may_work)
        if answer is None or answer.error is not None:
            what = "It is not known which table the group has written to."
            hint = "Check whether the job runs: coord status. Then start the reader again."
            raise CannotReach(what, uri, hint) from (answer.error if answer is not None else None)
        return newest_of(uri, (row.metadata for row in answer.offsets))

    def saw(self, uri: str, written: Written) -> None:
        """This member writes to it."""
        self._seen.pop(uri, None)
        self._seen[uri] = written

    def metadata(self, uri: str, app: str) -> str:
        """Of offsets whose rows this application is to commit into the table at this URI; it names
        the others, too."""
        others = {each: at for each, at in self._all().items() if each != uri}
        return metadata_of(others | {uri: self._seen[uri]._replace(behind=app)})

    def committed(self, partitions: Sequence[TopicPartition]) -> "Future[sg.Answer]":
        """Committed offsets, for `noted`; before the first commit those of the whole group, too.

        Those that were asked for come last.
        """
        wanted = self._member.committed_async(partitions)
        return wanted if self._named is not None else of_all([self._fetch_all(), wanted])

    def noted(self, metadata: Iterable[str]) -> None:
        """Keep what committed offsets name."""
        named = dict(self._named or {})
        for text in metadata:
            for uri, at in tables_in(text).items():
                named[uri] = _newer(at, named.get(uri))
        self._named = named

    def commit(self, offsets: Mapping[TopicPartition, int]) -> "Future[sg.Answer]":
        """Commit offsets without waiting, with all tables that the group has written to."""
        return self._member.commit_async(self.rows(offsets, metadata_of(self._all())))

    def rows(
        self, offsets: Mapping[TopicPartition, int], metadata: str
    ) -> tuple[api.CommittedOffset, ...]:
        """As a commit carries them: with the ids of the topics that they are of."""
        rows = [
            api.CommittedOffset(*each, at, metadata=metadata)
            for each, at in sorted(offsets.items())
        ]
        return under_ids(rows, self.ids.begun)

    def _all(self) -> dict[str, Written]:
        """Those that this member has written to last, since the first have no room at times."""
        named, seen = self._named or {}, dict(self._seen)
        others = {uri: at for uri, at in named.items() if uri not in seen}
        return others | {uri: _newer(at, named.get(uri)) for uri, at in seen.items()}

    def _fetch_all(self) -> "Future[sg.Answer]":
        return self._member.ask(
            lambda now_ms, ticket: sg.FetchOffsets(now_ms, ticket, None, is_stable=False)
        )


def _newer(one: Written, other: Written | None) -> Written:
    return max(one, other or one, key=lambda each: (each.turn, each.version))


def _answer(future: "Future[sg.Answer]", may_work: Callable[[], bool]) -> sg.Answer | None:
    """None: the member may not work any more. While it may, the job is waited for."""
    while True:
        try:
            return future.result(_LOOK_EVERY_S)
        except FutureTimeout:
            if not may_work():
                return None


@contextmanager
def _kept(frame: "DataFrame") -> Iterator[None]:
    """Keep a frame meanwhile, so that nothing is computed twice; the user may do so already."""
    if frame.is_cached:
        yield
        return
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


BATCH_BITS: Final = 24
#: Over half a year of a batch a second, in one life of a reader.
BATCHES_MAX: Final = 2**BATCH_BITS - 1


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions of one run of a reader's query."""

    group: str
    #: The member's id: names one membership, never used twice.
    member: str
    generation: int
    #: The log whose offsets the fences are: its incarnation, and the group's shard.
    log: str
    #: Partition to its fencing token: the log offset of the record that gave it.
    fences: Mapping[TopicPartition, int]
    #: Where this run keeps its offsets; no other run ever uses it.
    checkpoint: str
    #: Numbers that batches of this reader's earlier runs may have used.
    batches_before: int
    #: Whether this run may act on its partitions at this moment. May be asked from any thread.
    may_work: Callable[[], bool]
    #: Of a reader that commits with its writes.
    writes: "Writes | None" = None
    #: What the group has written to; None: that is not known, and a table is made where none is.
    tables: "Tables | None" = None

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.fences))

    def txn_app_id(self, partition: TopicPartition) -> str:
        """The `txnAppId` of a partition, the same for all its owners in this group."""
        return f"coordlib/{self.log}/{self.group}/{partition.topic}/{partition.partition}"

    def txn_version(self, partition: TopicPartition, batch: int) -> int:
        """The `txnVersion`, higher for every batch and for every later owner.

        Raises CoordError: more batches than a version can count.
        """
        number = self.batches_before + batch + 1
        if not 0 <= number <= BATCHES_MAX:
            what = f"Batch {number} of this reader has no version left."
            raise CoordError(what, self.where, "Start the reader anew.")
        return self.fences[partition] << BATCH_BITS | number

    def claim(
        self,
        empty: "DataFrame",
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Fence former owners before the first batch, by a write of no rows per partition.

        Args:
            empty: a frame of no rows with the table's columns.
            path: the Delta table's folder or URI.
            options, partition_by, replaces: as for `write_once`.

        Raises as `write`.
        """
        how = How(options or {}, tuple(partition_by), replaces).checked()
        for partition in self.partitions:
            self._write(empty, path, partition, -1, how)

    def write(
        self,
        frame: "DataFrame",
        path: str,
        batch: int,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Append a batch to a Delta table, one commit for each partition that has rows in it.

        Call it in foreachBatch. The frame needs the source's columns `topic` and `partition`. It is
        kept in memory (or on disk) meanwhile, so that nothing is computed twice.

        Args:
            batch: its number, as Spark gives it to foreachBatch.
            options, partition_by, replaces: as for `write_once`.

        Raises:
            MemberFenced: the run may not act any more; nothing more is written.
            CannotReach: the table that the group has written to is gone, or not known.
            AnotherTable: another one is in its place.
            CoordError: rows of partitions that are not this share's.
        """
        how = How(options or {}, tuple(partition_by), replaces).checked()
        with _kept(frame):
            for partition in self._present(frame):
                is_its = (frame["topic"] == partition.topic) & (
                    frame["partition"] == partition.partition
                )
                self._write(frame.where(is_its), path, partition, batch, how)

    def write_once(
        self,
        source: "DataFrame",
        rows: "DataFrame",
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        replaces: str = "",
    ) -> None:
        """Append a batch to a Delta table, each record once over all hand-overs and kills.

        Rows and offsets are one unit: the one commit of the table decides both. Call it in
        foreachBatch, once a batch; a batch without records writes nothing. Needs a reader with
        `commits="with-writes"`. The table is made if the group has written to none there; one that
        is away is waited for, for half a minute. `source` is kept in memory (or on disk) meanwhile.

        Args:
            source: the batch as it came, with its columns `topic`, `partition` and `offset`.
            rows: what is to be appended, computed from `source`.
            path: the table's folder or URI, which all members of the group can reach.
            options: of Delta's writer, such as `mergeSchema`.
            partition_by: columns by which a table that is made is partitioned.
            replaces: id of a table that is gone for ever, as the error names it: another one, or
                a new one, may take its place, and has no row of what was committed before.

        Raises:
            CannotReach: the table that the group has written to is gone, or not known.
            AnotherTable: another one is in its place.
            MemberFenced: others have these partitions, or will. They decide whether this batch
                counts, which may be in the table.
            SetupError: the reader commits its progress, or the table forgets too soon which
                batches it has.
            GroupError: the group refused the offsets.
            CoordError: the batch is in a table already, or has rows of other partitions.
        """
        if self.writes is None:
            hint = 'Make the reader with commits="with-writes".'
            raise SetupError("This reader commits its progress by itself.", self.where, hint)
        how = How(options or {}, tuple(partition_by), replaces).checked()
        with _kept(source):
            spark, ends = source.sparkSession, partial(self.writes.positions, self, source)
            self.writes.write(self, spark, ends, rows, path, how)

    @property
    def where(self) -> str:
        """For errors."""
        return f"group {self.group}, member {self.member}"

    def _present(self, frame: "DataFrame") -> list[TopicPartition]:
        rows = frame.select("topic", "partition").distinct().collect()
        found = {TopicPartition(row["topic"], row["partition"]) for row in rows}
        self._refuse_strange(found)
        return sorted(found)

    def _refuse_strange(self, found: Iterable[TopicPartition]) -> None:
        """Raises CoordError: these partitions are not all of this share."""
        if strange := set(found) - self.fences.keys():
            names = ", ".join(sorted(f"{each.topic}-{each.partition}" for each in strange))
            what = f"Rows of partitions that this share does not have: {names}"
            hint = "Leave the source's columns topic and partition as they are."
            raise CoordError(what, self.where, hint)

    def _write(
        self, rows: "DataFrame", path: str, partition: TopicPartition, batch: int, how: How
    ) -> None:
        if not self.may_work():
            raise MemberFenced(self.where, None)
        table = SparkTable(rows.sparkSession, path, self.txn_app_id(partition))
        table.may_wait = self.may_work
        if self.tables is not None:
            table.ask_again = partial(self.tables.of, table.uri, self.may_work)
            table.written = table.ask_again()
        table.write(rows, self.txn_version(partition, batch), how)
        if self.tables is not None and table.written is not None:
            self.tables.saw(table.uri, table.written)


_log = structlog.get_logger()
#: Where each partition of a batch ends, once the batch may be looked at.
Ends = Callable[[], Mapping[TopicPartition, int]]
#: What a reader commits: the batches that are finished, or none but those of `write_once`.
PROGRESS: Final = "progress"
WITH_WRITES: Final = "with-writes"
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

    def write(  # of one caller for each kind of reader
        self,
        share: Share,
        spark: "SparkSession",
        ends: Ends,
        rows: "DataFrame",
        path: str,
        how: How,
    ) -> None:
        """See `Share.write_once`. Once it has raised, so do all later calls of the same run: else
        the positions of a later batch would pass over one that is not written.

        Args:
            ends: where each partition of the batch ends; empty: there is nothing to write.
        """
        if share.checkpoint in self._ended or not share.may_work():
            self._shut_out(share)
        if share.checkpoint in self._broken:
            hint = "Let the exception go through foreachBatch, and start the reader again."
            raise CoordError("A batch before this one is not written.", share.where, hint)
        try:
            self._write(share, spark, ends, rows, path, how)
        except BaseException:
            self._broken.add(share.checkpoint)
            raise

    def _write(
        self,
        share: Share,
        spark: "SparkSession",
        ends: Ends,
        rows: "DataFrame",
        path: str,
        how: How,
    ) -> None:
        try:
            table = self._open(share, spark, path)
            table.prepare(rows, how)
        except CannotReach as problem:
            if share.may_work():
                raise
            self._shut_out(share, problem)
        assert table.written is not None
        self._tables.saw(table.uri, table.written)
        positions = ends()
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
        self._written = share.checkpoint, {**self._written_by(share), **positions}
        self._say(share, key, COMMIT)

    def _open(self, share: Share, spark: "SparkSession", path: str) -> SparkTable:
        """What is known of the table from the batch before is kept."""
        app = app_id(self._member.identity, share.member)
        if self._table is None or self._table[:2] != (app, path):
            table = SparkTable(spark, path, app)
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

    def positions(self, share: Share, source: "DataFrame") -> dict[TopicPartition, int]:
        """Where each partition of the batch ends; those without records are left out."""
        greatest = source.groupBy("topic", "partition").agg({"offset": "max"})
        found = {
            TopicPartition(row["topic"], row["partition"]): row["max(offset)"] + 1
            for row in greatest.collect()
        }
        share._refuse_strange(found)
        before = self._written_by(share)
        if any(at <= before.get(each, -1) for each, at in found.items()):
            what = "This batch is in a table already; a second one would be no unit with it."
            hint = "Write into one table a batch, and derive others by a stream that reads it."
            raise CoordError(what, share.where, hint)
        return found

    def _refuse_made_anew(self, share: Share, positions: Mapping[TopicPartition, int]) -> None:
        """The batch is read by now: its records may be of the topic of before, or of the new one.

        Raises CoordError; the reader begins the topic anew.
        """
        if anew := self._tables.ids.made_anew({each.topic for each in positions}):
            what = f"A topic was deleted and created again: {', '.join(sorted(anew))}."
            hint = "The batch is not written. The reader begins the topic anew by itself."
            raise CoordError(what, share.where, hint)

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
        answer = _answer(future, share.may_work)
        if answer is None:
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

    def hear(self, share: Share | None) -> bool:
        """Take the answers that have come; whether one of this reader's words came too late.

        A batch that was given up before its commit was accepted is not written: that is said. A
        word that came too late means that somebody else has decided: the run of now begins again
        from what is committed.
        """
        is_late = False
        with self._lock:
            words, self._words = self._words, []
            given_up, self._given_up = self._given_up, []
        for future in words:
            if not future.done():
                self._keep(future)
            elif (error := future.result(0).error) is not None:
                group = self._member.identity.group
                _log.warning("a batch's word was not taken", group=group, error=str(error))
                is_late = is_late or isinstance(error, GroupError)
        if is_late and share is not None:
            self._ended.add(share.checkpoint)
        for of, future in given_up:
            if not future.done():
                self._give_up(of, future)
            elif key := future.result(0).pending:
                self._say(of, key, ABORT)
        return is_late

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
        hint = f"Choose {PROGRESS!r}, or {WITH_WRITES!r} and `share.write_once`."
        raise SetupError("There is no such way to commit.", f"commits={commits!r}", hint)
