"""`SparkGroupReader`: a Structured Streaming query as a member of a server-assigned group.

A query of Spark reads a fixed set of partitions. So when this member's set changes, the reader
stops the query between two batches, commits the positions of its finished batches, and starts a new
one on the new set from the committed offsets. Other members, Spark or not, notice nothing.

    asked to release    stop between batches -> Release with the offsets -> start on what is left
    given more          stop between batches -> commit -> start on all
    fenced, or put out  stop at once; nothing is committed, others may have the partitions by now
    a topic is gone     start on what is left; the coordinator asks the others back
    a topic is another  stop at once; start on all, from the new topic's beginning or end
    the query failed    leave the group, then raise the reason

Committed positions are those of Spark's own progress reports of finished batches, never later ones:
delivery is at least once over every hand-over, and nothing is lost. `delta_writes.py` fences
writes into Delta.

All work is in one thread. It polls the member, and waits only for the end of a batch before a
release. The coordinator may be away meanwhile.
"""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import structlog

from coordlib.client.groups.member import AssignedMember
from coordlib.client.groups.reading import TopicIds
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.kit.requests import Timing
from coordlib.client.kit.transport import Transport
from coordlib.client.spark.delta import SparkTable
from coordlib.client.spark.delta_writes import WITH_WRITES, Tables, Writes, refuse_unknown
from coordlib.client.spark.group_offsets import Beginnings, Commits, is_true, source_options
from coordlib.client.spark.positions import Otherwise
from coordlib.client.spark.queries import Queries, Run
from coordlib.client.spark.queries import StartQuery as Start
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.spark_reasons import DISK_FULL, reason_of
from coordlib.spark_stopping import LOOK_EVERY_S, Gap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger()
_STOPPED: Final = "The query was stopped, or its trigger ended it."
_POLL_S: Final = 0.1
_AGAIN_S: Final = 1.0
#: Seconds that a stopped query may take to end, even if its batches are to be shorter.
_STOP_S: Final = 1.0
_LEAVE_S: Final = 10.0


class SparkGroupReader(AbstractContextManager["SparkGroupReader"]):
    """A member of a server-assigned group that reads with Spark.

    Args:
        spark: the session in which queries run.
        group: the group's name.
        topics: by name; or see `pattern`.
        start: is given the rows of the Kafka source and the `Share` that they come from, and
            returns the query's writer, not started. Called for every new set of partitions, by the
            thread that polls: it must return within the rebalance timeout. State that the query
            keeps over batches is gone with each run.
        config: confluent-kafka's keys for coordlib's clients, at least `bootstrap.servers`.
        folder: where checkpoints of runs are kept, on the driver's disk; emptied as runs end.
        kafka: options of Spark's Kafka source, with its own spelling (`maxOffsetsPerTrigger`,
            `kafka.security.protocol`); they win over `config` translated. What retention deleted
            before it was read is a warning here; with `failOnDataLoss` true it ends the reader.
        otherwise: where a partition without a committed offset begins. With `latest` the log's
            end is committed before anything is read: the next owner misses nothing.
        pattern, exclude, strategy, capacity, timing, client, prefix: as for `AssignedMember`.
        commit_interval_s: how often finished batches are committed while nothing changes.
        batch_timeout_s: how long a batch may go on after some of its partitions were demanded; then
            it is cut short. By default half the rebalance timeout; at most three quarters of it.
        commits: `progress` commits the batches that have finished. `with-writes` commits none but
            those that `share.write_once` has written, in one unit with their rows.
        gather_s: partitions that come within this time are read by one new query, not by several.

    Raises:
        SetupError: a name or a number is not allowed.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """

    def __init__(  # noqa: PLR0913  # all but four by keyword, most with a default
        self,
        spark: "SparkSession",
        group: str,
        topics: Sequence[str],
        start: Start,
        *,
        config: Mapping[str, Any],
        folder: str | Path,
        kafka: Mapping[str, str] | None = None,
        otherwise: Otherwise = "earliest",
        pattern: str | None = None,
        exclude: str | None = None,
        strategy: str | None = None,
        capacity: int = 1,
        timing: Timing | None = None,
        client: str | None = None,
        prefix: str = "coord",
        commit_interval_s: float = 5.0,
        batch_timeout_s: float | None = None,
        gather_s: float = 0.3,
        commits: Literal["progress", "with-writes"] = "progress",
        transport: Transport | None = None,
    ) -> None:
        _refuse_wrong(topics, pattern, commits)
        rebalance_s = (timing := timing or Timing()).rebalance_timeout_ms / 1000
        self._batch_timeout_s = rebalance_s / 2 if batch_timeout_s is None else batch_timeout_s
        if not 0 <= self._batch_timeout_s <= rebalance_s * 0.75:
            bounds = "A batch may take at most three quarters of the rebalance timeout."
            hint = f"Choose a batch_timeout_s from 0 to {rebalance_s * 0.75:g}, or longer timing."
            raise SetupError(bounds, f"{batch_timeout_s} s", hint)
        source, kept_in = source_options(config) | dict(kafka or {}), Path(folder).absolute()
        self._wanted, self._gather_s = (tuple(topics), pattern, exclude), gather_s
        self._commit_interval_s, self._committed_s = commit_interval_s, 0.0
        self._member = AssignedMember(
            group,
            config,
            transport=transport,
            on_assigned=self._given,
            on_revoked=self._asked_back,
            on_lost=self._lost,
            client=client,
            prefix=prefix,
            timing=timing,
            strategy=strategy,
            capacity=capacity,
        )
        self._tables = Tables(self._member, TopicIds.of(self._member))
        self._writes = Writes(self._member, self._tables) if commits == WITH_WRITES else None
        self._member.commit_checker.opener = partial(SparkTable, spark)
        self._queries = Queries(spark, start, source, kept_in, self._writes, self._tables)
        self._held: set[TopicPartition] = set()
        #: The query that reads; None: there is nothing to read, or one is to be started.
        self._run: Run | None = None
        #: Not before that a query is started, or stopped to be given more.
        self._settled_s = 0.0
        self._commits = Commits(group, self._tables)
        self._beginnings = Beginnings(
            group,
            config,
            otherwise,
            is_strict=is_true(source, "failOnDataLoss"),
            ask=self._tables.committed,
            ids=self._tables.ids,
            note=self._tables.noted,
            settle=lambda ends: self._commits.send(None, ends),
        )
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"reader of {group}", daemon=True)
        self._failure: Exception | None = None

    # ---- called by the user -------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group, and read what is assigned, in a thread of its own. Returns at once."""
        self.join()
        self._thread.start()
        return self

    def join(self) -> None:
        """Only join, for programs that call `turn` in a loop of their own instead of `start`."""
        topics, pattern, exclude = self._wanted
        self._member.subscribe(topics, pattern, exclude)

    def turn(self, timeout_s: float = _POLL_S) -> None:
        """Do what is due; wait for something to do up to `timeout_s`.

        Raises:
            CoordError: a query failed, or the group refused this member for good: call `stop`.
            Exception: what `start` raised, or Spark when it started the query.
        """
        self._member.poll(timeout_s)
        if not self._take_answers():
            self._settled_s = time.monotonic() + _AGAIN_S
        self._check_query()
        self._check_topics()
        if self._has_other_set() and time.monotonic() >= self._settled_s:
            self._change()
        elif time.monotonic() - self._committed_s >= self._commit_interval_s:
            self._committed_s = time.monotonic()
            self._commit()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the reader has ended; False: not within the time.

        Raises:
            CoordError: a query failed, the group refused this member, the folder cannot be used.
            Exception: what `start` raised, or Spark when it started the query.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop between two batches, commit, leave; whether in time. Raises as the call above."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            return self.await_termination(timeout_s)
        self._end()
        return True

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def member(self) -> AssignedMember:
        """The member, for monitoring: its id, generation, and partitions."""
        return self._member

    @property
    def query(self) -> "StreamingQuery | None":
        """The query that runs now; None while there is nothing to read, or between two."""
        run = self._run
        return run.query if run is not None else None

    @property
    def runs(self) -> int:
        """How many queries were started so far."""
        return self._queries.count

    # ---- the reader's thread ------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._queries.require_folder()
            while not self._is_stopping.is_set():
                self.turn()
        except Exception as problem:  # noqa: BLE001  # told by await_termination
            self._failure = problem
            _log.warning("the reader ends", group=self._member.identity.group, error=repr(problem))
        finally:
            self._end()

    def _end(self) -> None:
        """Release and leave; in any case, no query of this reader runs on."""
        try:
            # Runs _asked_back, or _lost where the member may not act any more.
            self._member.close(_LEAVE_S)
        except Exception as problem:  # noqa: BLE001  # the first failure is the one to tell
            self._failure = self._failure or problem
        finally:
            self._give_up("ended")
            self._queries.end(self._batch_timeout_s)
            self._run = None
            self._take_answers()

    def _check_query(self) -> None:
        """Raises CoordError when the query has ended by itself, unless another one may go on."""
        run = self._run
        if run is not None and self._writes is not None and self._writes.has_ended(run.share):
            self._give_up("others decide about its batch")
            self._settle()
            return
        if run is None or run.query.isActive:
            return
        self._commit()
        problem = run.query.exception()
        self._forget(run)
        if problem is not None and self._beginnings.explain(run.positions()):
            self._look_again("a query ended with a part of its log", problem)
            return
        hint = "Fix the query"
        if problem is not None and re.search(DISK_FULL, str(problem)):
            hint = (
                f"A disk is full: make space in {self._queries.folder} (checkpoints), where the "
                "query's tables lie, and in spark.local.dir"
            )
        raise CoordError(  # all of Spark's text is in the cause
            f"The query failed: {reason_of(problem)}" if problem else _STOPPED,
            self._where,
            f"Others read its partitions from what is committed. {hint}, then start again.",
        ) from problem

    def _check_topics(self) -> None:
        """Stop a query that reads a topic which was deleted and made anew: it knows names only."""
        run = self._run
        if run is None:
            return
        topics = {each.topic for each in run.share.fences}
        self._tables.ids.look(topics)
        if self._tables.ids.refused(topics):
            self._commit()
            # Nobody waits for its batch, which may have begun just now.  # INV-130
            run.takes_any_time = True
            self._give_up("a topic was deleted and created again")
            self._settle()

    @property
    def _where(self) -> str:
        return f"group {self._member.identity.group}, member {self._member.member_id}"

    # ---- callbacks, in the same thread --------------------------------------------------------

    def _given(self, partitions: Partitions) -> None:
        self._held.update(partitions)
        if partitions:
            self._settle()

    def _asked_back(self, partitions: Partitions) -> None:
        """Stop reading these partitions before it returns; the Release carries their commit."""
        run = self._run
        self._queries.await_end(partitions, self._batch_timeout_s)
        if run is not None and run.reads_any(partitions):
            run.stop(self._batch_timeout_s)
            going = {each: at for each, at in run.unsaid().items() if each in partitions}
            # First the others: the Release carries only the last commit.
            self._commit(leave_out=partitions)
            self._send(run, going)
            self._forget(run)
        self._held.difference_update(partitions)
        self._settle()

    def _lost(self, partitions: Partitions) -> None:
        self._give_up("lost")
        self._held.difference_update(partitions)
        self._settle()

    def _settle(self) -> None:
        self._settled_s = time.monotonic() + self._gather_s

    # ---- queries ------------------------------------------------------------------------------

    def _has_other_set(self) -> bool:
        """Whether the query, if any, reads another set than the held partitions that exist."""
        there = self._held - self._beginnings.absent
        reads = set(self._run.share.fences) if self._run is not None else set()
        return there != reads or self._beginnings.are_back(self._held)

    def _change(self) -> None:
        """Go step by step to one query of all held partitions, from the committed offsets."""
        if self._run is not None:
            self._stop_in_gap(self._run)
        elif self._member.may_work() and self._queries.are_over(
            max(self._batch_timeout_s, _STOP_S)
        ):
            self._begin()

    def _stop_in_gap(self, run: Run) -> None:
        """Stop the query after its batch, however long that takes: no member waits for it."""
        gap = Gap(run.query)
        while not gap.is_here and not self._is_stopping.is_set():
            self._member.poll(LOOK_EVERY_S)
            if self._run is not run or not self._member.may_work():
                return
        self._check_query()
        if self._run is run and not self._is_stopping.is_set():
            run.stop_now()
            run.is_over(self._batch_timeout_s / 4)
            self._commit()
            self._forget(run)

    def _give_up(self, why: str) -> None:
        """Stop the query without waiting; late writes of its batch are fenced by its tokens."""
        run = self._run
        if run is not None:
            _log.warning("query stopped at once", group=run.share.group, why=why)
            self._forget(run)

    def _forget(self, run: Run) -> None:
        self._queries.forget(run)
        self._run = None

    def _begin(self) -> None:
        """Start a query. Raises the exceptions of the user's `start` and of Spark."""
        held = sorted(self._held)
        found = {each: self._member.fence_of(*each) for each in held}
        fences = {each: fence for each, fence in found.items() if fence is not None}
        if len(fences) < len(held):
            return  # a callback is due
        try:
            begin = self._beginnings.find(fences)
            if begin is not None and begin.offsets:
                there = {each: fences[each] for each in begin.offsets}
                self._run = self._queries.begin(self._member, there, begin)
        except (CannotReach, MemberFenced) as problem:  # fenced by the user's start: lost, or anew
            self._look_again("the next query does not begin yet", problem)

    def _look_again(self, why: str, problem: Exception) -> None:
        _log.warning(why, group=self._member.identity.group, error=str(problem))
        self._settled_s = time.monotonic() + _AGAIN_S

    # ---- commits ------------------------------------------------------------------------------

    def _commit(self, leave_out: Partitions = ()) -> None:
        """Commit the positions of finished batches, without waiting for the answer."""
        if (run := self._run) is not None:
            offsets = {each: at for each, at in run.unsaid().items() if each not in leave_out}
            self._send(run, offsets)

    def _send(self, run: Run, offsets: Mapping[TopicPartition, int]) -> None:
        if self._writes is None:
            self._commits.send(run.committed, dict(offsets))

    def _take_answers(self) -> bool:
        """Whether all beginnings of partitions that were committed were accepted."""
        if self._writes is not None:
            self._writes.hear(None if self._run is None else self._run.share)
        return self._commits.take_answers()


def _refuse_wrong(topics: Sequence[str], pattern: str | None, commits: str) -> None:
    """Raise SetupError before anything is started."""
    if isinstance(topics, str):
        raise SetupError("A reader needs a list of topics.", repr(topics))
    if not topics and not pattern:
        hint = "Name topics, or a pattern. A list from somewhere else may have been empty."
        raise SetupError("A reader of no topics would wait for ever.", repr(topics), hint)
    refuse_unknown(commits)
