"""`CoordinatedConsumer`: confluent-kafka's Consumer in shape, coordinated by the job instead.

A confluent-kafka Consumer reads the messages; the group decides which partitions it reads, and from
which offsets. Start positions are fetched through the log, after the commits of the former owner.
Auto-commit commits what is processed (`commits.py`); `commit()` everything that `poll` and
`consume` have returned so far, the last message included.
"""

import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.commits import AutoCommit, Commits
from coordlib.client.groups.member import Member
from coordlib.client.groups.reading import Reading, TopicIds
from coordlib.client.groups.settings import ASSIGNED_KIND, member_of, read_settings
from coordlib.client.kit import events as sg
from coordlib.client.kit import offsets as of
from coordlib.client.kit.calls import OnePoller, UserCall, uninterrupted
from coordlib.client.kit.data import FRESH_MS, ClusterQueries, Prepared, open_reader
from coordlib.client.kit.offsets import GroupMetadata, Outcome, Unit
from coordlib.client.kit.process import Closing
from coordlib.client.kit.transport import Transport, while_used
from coordlib.client.transactions.committed import TornTransaction
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.core.wire import api
from coordlib.errors import CoordError

#: A waiting poll looks this often whether a callback is due, for which a rebalance waits.
SLICE_S = 0.02
CONSUME_MAX = 1_000_000  # as in confluent-kafka
OnPartitions = Callable[["CoordinatedConsumer", list[KafkaTopicPartition]], Any]


class CoordinatedConsumer(ClusterQueries, Closing):
    """A consumer in a group that the job coordinates. Once it is closed, calls raise CoordError.

    Args:
        config: confluent-kafka's keys: `bootstrap.servers`, `group.id`, `client.id`,
            `session.timeout.ms`, `max.poll.interval.ms` (the rebalance timeout),
            `heartbeat.interval.ms`, `auto.offset.reset`, `on_commit`; `enable.auto.commit`,
            `auto.commit.interval.ms`, `enable.auto.offset.store`; and `coord.prefix`.
            `group.protocol` says who assigns: `classic` (the group's leader, by
            `partition.assignment.strategy`) or `assigned` (the coordinator, by
            `group.remote.assignor`, in proportion to the members' `group.capacity`).
            `coord.decided.by`: `coordinator` if the topics have transactions that it decides; then
            only committed records are returned (`CommittedReader`). All else goes to Kafka clients.
        transport: shared with other members of this program.
        data_consumer: what reads the messages; by default a confluent-kafka Consumer.

    Raises:
        SetupError: a key that is missing, wrong or not offered.
        CannotReach: no broker, or no coordinator's topics.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        transport: Transport | None = None,
        data_consumer: Any = None,
    ) -> None:
        self._settings = read_settings(config)
        self.member = member_of(self._settings, transport)
        # What it is made of does not hold it: one that is dropped is stopped at once.  # INV-143
        used = weakref.ref(self)
        self.member.users_of = lambda call: _users_of(used(), call)
        weakref.finalize(self, while_used(Member.drop, self.member)).atexit = False
        self._data = self._open_data(data_consumer)
        self._reading = Reading(
            self._data,
            self.member.committed_async,
            self._settings.start_offset,
            TopicIds.of(self.member),
            self._settings.common,
            stores=self._settings.stores and self._settings.auto_commit_ms is not None,
        )
        self.commits = Commits(
            self.member, self._reading, self._settings.group, self._settings.on_commit
        )
        self._auto = AutoCommit(
            self.member, self._reading, self.commits, self._settings.auto_commit_ms
        )
        self.member.before_callback = self._reading.before_callback
        self.member.after_callback = self._auto.after_callback
        self._on_assign: OnPartitions | None = None
        self._on_revoke: OnPartitions | None = None
        self._on_lost: OnPartitions | None = None
        self._is_closed = False
        self._poller = OnePoller()

    # ---- the group ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Share these topics with the group; callbacks run inside `poll` and `close`.

        A topic that begins with `^` is a regular expression. Callbacks get the partitions that
        change: all if the group rebalances eagerly, else only those that come or go. In a
        server-assigned group on_revoke is called once for each demand.
        Without `on_lost`, `on_revoke` gets lost partitions, as in confluent-kafka. Of a topic that
        is not there, one `poll` returns an error message; it is read once it is made.
        """
        self._reading.require_open()
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        self.member.subscribe(topics)
        self.look_for([each for each in topics if not each.startswith("^")])

    def unsubscribe(self) -> None:
        """Let go (inside `poll`) and leave the group, until the next `subscribe`."""
        self._reading.require_open()
        self._reading.call_begins()
        self.member.unsubscribe()

    def assignment(self) -> list[KafkaTopicPartition]:
        """What this consumer may work on now; empty while it is fenced."""
        return of.kafka_of(self.member.assignment)

    def memberid(self) -> str | None:
        """The coordinator's name for this member; None before it joined."""
        return self.member.member_id or None

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next message, or one with `error()`; None when there is none in time.

        Never returns a message of a partition that was revoked or lost before. One that was
        returned may be worked on only while its partition is in `assignment()`. When that becomes
        empty, the fence has closed and may open again: keep the message until then, or until
        `on_lost`.

        Args:
            timeout: seconds; None or negative: until there is one.

        Raises:
            AssignmentFailed: the group's leader could not assign. Raised once; this consumer stays
                in the group, and has nothing to read until the next rebalance.
            GroupError: the group refused this member for good.
            CannotReach: the transport has failed.
            NotAllowed: the brokers refuse the requests, the answers or a topic.
            CoordError: the consumer is closed, or has failed.
        """
        while True:
            some, out = self._next(1, timeout), self._reading.out
            at = some.begun = some.handed
            if at >= len(some.messages):
                return None
            message = some.messages[at]
            if out.prepared is some and some.handed == at: some.handed += 1; return message  # noqa: E701, E702  # fmt: skip

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Up to `num_messages` messages, as `poll` would return them; fewer when time is up.

        Callbacks run meanwhile. Messages of partitions that they give up are not in the list, and a
        `commit()` inside a callback does not cover the list; the next `commit()` covers all of it.

        Args:
            num_messages: at most 1,000,000.
            timeout: seconds; None or negative: until there are `num_messages`.

        Raises:
            ValueError: more messages than that, or less than none.
            GroupError, CannotReach: as `poll`; fetched messages come with the next call.
        """
        if not 0 <= num_messages <= CONSUME_MAX:
            raise ValueError(f"num_messages must be between 0 and {CONSUME_MAX:,}")
        while True:
            some, out = self._next(num_messages, timeout), self._reading.out
            at = some.begun = some.handed
            end = min(at + num_messages, len(some.messages))
            found = some.messages[at:end]
            if not found:
                return found
            if out.prepared is some and some.handed == at: some.handed = end; return found  # noqa: E701, E702  # fmt: skip

    def _next(self, count: int, timeout: float | None) -> Prepared:
        """What is to be returned. It is handed out by the line that returns it, without a call."""
        at_hand, member = self._reading.at_hand, self.member
        if at_hand and at_hand.has(count, member.transport.now_ms(), member.changes):
            return at_hand
        return self._poller.run(lambda: self._wait_for(count, timeout))

    def _wait_for(self, count: int, timeout: float | None) -> Prepared:
        until = None if timeout is None or timeout < 0 else monotonic() + timeout
        was_called_back = False
        if self._is_closed:
            raise CoordError("The consumer is closed.", f"group {self._settings.group}")
        begins = True  # once: who looks meanwhile has not processed anything
        while True:
            self.member.transport.check()
            if self.member.callbacks.unfinished is not None:
                return Prepared()
            prepared = self._turn(count, until, was_called_back, begins)
            if prepared is not None:
                return prepared
            begins = False
            was_called_back = self.member.run_calls()
            self.commits.tell()
            if self._is_closed:
                return Prepared()  # in one of the callbacks
            problem = self._reading.problem
            if problem is not None:
                self._reading.problem = None
                raise problem

    def has(self, count: int) -> bool:
        """Whether so many messages may be returned now. Prepares them; runs no callbacks."""
        member = self.member
        if member.has_calls or member.callbacks.unfinished is not None:
            return False
        member.note_poll()  # a callback may be due by it
        return not member.has_calls and self._turn(count, None, True) is not None

    @property
    def has_news(self) -> bool:
        """Whether `poll` may have something to do since the member was fed something."""
        return self.member.has_calls or self._reading.is_waiting or self.commits.are_answered

    @uninterrupted
    def _turn(
        self, count: int, until: float | None, was_called_back: bool, begins: bool = False
    ) -> Prepared | None:
        """What is to be returned; None: nothing yet, or there is something else to do before."""
        member, reading = self.member, self._reading
        member.note_poll()
        if begins:
            reading.call_begins()
        self._auto.commit_if_due()
        if not was_called_back and (member.has_calls or self.commits.are_answered):
            return None
        # In a group that fills, an early member is asked for one part after another.
        most_s = 0.0 if was_called_back else SLICE_S
        left_s = most_s if until is None else max(0.0, min(most_s, until - monotonic()))
        kept = reading.turn(count, left_s, member.may_work)
        is_over = until is not None and monotonic() >= until
        if kept < count and (reading.problem is not None or not is_over):
            return None
        # Both before what may be worked on is asked for: what happens behind them counts.
        changes, until_ms = member.changes, member.works_until_ms(FRESH_MS)
        prepared = reading.take(count, lambda: member.assignment, until_ms, changes)
        if prepared.messages or is_over or not count:
            return prepared
        # Enough is here, but the fence is closed: the reader is not asked, so wait elsewhere.
        member.wait_for_change(left_s)
        return None

    def close(self, timeout_s: float = 10.0) -> None:
        """Give up the partitions (callbacks run), leave the group, and end.

        Waits up to `timeout` until the log has taken the LeaveGroup. Inside a callback it does not
        wait, and the `poll` around it returns nothing. One that was interrupted goes on when it is
        called again.
        """
        self._is_closed = True
        try:
            self._reading.call_begins()
            self.member.close(timeout_s)
            self.commits.tell()
        finally:
            if self.member.has_ended:
                self._reading.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.forget_last()
        self.close()

    def forget_last(self) -> None:
        """What the last `poll` or `consume` has returned is not processed: store nothing of it."""
        self._reading.forget_last()

    # ---- transactions -------------------------------------------------------------------------

    def consumer_group_metadata(self, timeout: float = 0.0) -> GroupMetadata:
        """Who this member is now, for `send_offsets_to_transaction`; callbacks may run.

        Take it before the first message of a transaction is read: offsets are then refused if a
        rebalance came between. Raises MemberFenced: it may not act, also after `timeout` seconds.
        """
        until = monotonic() + timeout
        while not self.member.may_work() and monotonic() < until:
            self._poller.run(lambda: self.member.poll(SLICE_S))
        metadata, has_auto_commit = self.member.metadata(), self._settings.has_auto_commit
        return dataclasses.replace(metadata, has_auto_commit=has_auto_commit)

    def refuse_auto_commit(self) -> None:
        """Raises SetupError: the consumer commits beside the transaction."""
        if self._settings.has_auto_commit:
            raise of.auto_commit_refusal(self._settings.group)

    def rows_in_transaction(
        self, rows: tuple[api.CommittedOffset, ...]
    ) -> tuple[api.CommittedOffset, ...]:
        """What a transaction commits of these, under the topics' ids; asks Kafka for them.

        Raises:
            TransactionError: abort it, since a topic was deleted and made anew.
            SetupError: the consumer has auto-commit.
        """
        self.refuse_auto_commit()
        return self.commits.in_transaction(rows)

    def begin_unit(self, unit: Unit) -> None:
        """Note what is read, until `end_unit`.

        Raises CoordError: that is being done already; SetupError: the consumer has auto-commit.
        """
        self.refuse_auto_commit()
        self._reading.begin_unit(unit)

    def end_unit(self, unit: Unit, outcome: Outcome) -> None:
        """Note nothing more, if it was begun: it may be called whatever `begin_unit` has done.

        Args:
            outcome: aborted: read it again, where its partitions have stayed here. Unknown: `poll`
                returns nothing of these until the transaction has ended; then it goes on, or reads
                again, by what the group has committed.
        """
        self._reading.end_unit(unit, outcome)

    def give_up(self, torn: TornTransaction, partition: KafkaTopicPartition) -> None:
        """Go on without the rest of a torn transaction, which `poll` has raised."""
        if not isinstance(self._data, CommittedReader):
            what = "Only a consumer with coord.decided.by=coordinator has torn transactions."
            raise CoordError(what)
        self._data.give_up(torn, partition)

    # ---- positions ----------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[KafkaTopicPartition] | None = None,
        asynchronous: bool = True,
        timeout_s: float = 60.0,
    ) -> list[KafkaTopicPartition] | None:
        """Commit after one message, given offsets, or everything that `poll` has returned.

        With `enable.auto.offset.store` = false, without arguments: what `store_offsets` has stored.
        Everything includes a message that is still being processed when `on_revoke` is called: if
        it is unfinished, commit the finished offsets by name, or the next owner never reads it.
        In a server-assigned group, everything inside `on_revoke` means the revoked partitions:
        their commit is written in one record with the Release.

        Returns None when asynchronous (`on_commit` gets the outcome), else what was committed. An
        asynchronous commit may wait up to 3 s, once in 5 s, while nobody answers for a topic's id.

        Raises:
            MemberFenced: the member may not act; another member may own the partitions.
            GroupError: the coordinator refused the commit, or the partitions that it names; or
                their topic was deleted and made anew, and is begun anew (UNKNOWN_TOPIC_ID).
            CannotReach: no answer in time; it may or may not be committed.
        """
        self._reading.require_open()
        rows = self.rows_of(message, offsets)
        if not asynchronous:
            return self.commits.commit(rows, timeout_s) if rows else []
        if rows:
            self.commits.commit_async(rows)
        return None

    def committed(
        self, partitions: Sequence[KafkaTopicPartition], timeout: float = 60.0
    ) -> list[KafkaTopicPartition]:
        """Committed offsets, in order with the commits in the log; OFFSET_INVALID: none.

        Raises GroupError, or CannotReach when no answer came in time.
        """
        self._reading.require_open()
        wanted = of.ours(partitions)
        return of.committed_of(wanted, self.member.committed(wanted, timeout))

    def position(self, partitions: Sequence[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
        """After the last message that `poll` returned; OFFSET_INVALID before the first."""
        known = {each: offset for each, (offset, _) in self._reading.positions().items()}
        return of.with_offsets(of.ours(partitions), known)

    def seek(self, partition: KafkaTopicPartition) -> None:
        """Go on from another offset; `commit()` follows it. Raises CoordError."""
        self._reading.seek(partition)

    def store_offsets(
        self,
        message: Message | None = None,
        offsets: Sequence[KafkaTopicPartition] | None = None,
    ) -> None:
        """Store the position after one message, or given offsets: auto-commit commits them.

        Any thread may call it. An offset that is not above a committed one is dropped.

        Raises:
            CoordError: `enable.auto.offset.store` is not false, or the consumer does not have one
                of the partitions.
            ValueError: neither a message nor offsets.
        """
        if message is None and offsets is None:
            raise ValueError("store_offsets expects a message or offsets.")
        if self._settings.stores:
            raise CoordError(
                "store_offsets needs enable.auto.offset.store=false: messages are stored already.",
                f"group {self._settings.group}",
                "Set enable.auto.offset.store to false.",
            )
        self._reading.store(self.rows_of(message, offsets))

    # ---- what is read -------------------------------------------------------------------------

    def assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """For `on_assign`, like `incremental_assign`: partitions left out are read too."""
        self.incremental_assign(partitions)

    def unassign(self) -> None:
        """Read nothing any more, until the group or `assign` assigns partitions anew.

        Inside `on_revoke` only the revoked partitions stop: a cooperative member reads on the rest.
        """
        revoking = self._reading.revoking
        self._reading.let_go(self._reading.partitions() if revoking is None else revoking)

    def incremental_assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """For `on_assign`: start these partitions at their own offsets, not at the committed ones.

        Assigned partitions are read whatever the callback does; later this begins anew with
        unassigned ones. Raises CoordError: the group has not assigned all of these.
        """
        self._reading.start_at(partitions, self.member.assignment)

    def incremental_unassign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read no more of these. After `on_revoke` that happens by itself."""
        self._reading.let_go(of.ours(partitions))

    def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Fetch nothing of these until `resume`, or until they are assigned anew."""
        self._reading.pause(partitions)

    def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Fetch these again."""
        self._reading.resume(partitions)

    def set_sasl_credentials(self, username: str, password: str) -> None:  # noqa: ARG002
        """Not offered, since the transport has clients of its own. Raises CoordError."""
        hint = "Close this consumer and make one with the new password, or use oauth_cb."
        raise CoordError("set_sasl_credentials is not offered.", "", hint)

    # ---- small things -------------------------------------------------------------------------

    def _open_data(self, given: Any) -> Any:
        """What reads the messages; `given`: in place of a confluent-kafka Consumer."""
        settings = self._settings
        options = {
            **settings.common,
            **({"client.id": settings.client} if settings.client else {}),
            "auto.offset.reset": settings.auto_offset_reset,
        }
        if settings.is_decided_here:
            transport = self.member.transport
            return CommittedReader(options, transport=transport, data_consumer=given)
        return given or open_reader(options)

    def rows_of(
        self, message: Message | None, offsets: Sequence[KafkaTopicPartition] | None
    ) -> tuple[api.CommittedOffset, ...]:
        """What `commit` with these arguments commits now."""
        if message is not None and offsets is not None:
            raise CoordError("Give a message or offsets, not both.")
        if message is not None:
            return of.rows_of_positions(dict((of.after(message),)))
        if offsets is not None:
            return of.rows_of_kafka(offsets)
        revoking = self._reading.revoking if self._settings.kind == ASSIGNED_KIND else None
        if not self._settings.stores:
            return self._reading.uncommitted(revoking, unanswered=True)
        positions = self._reading.positions()
        if revoking is not None:
            positions = {each: at for each, at in positions.items() if each in revoking}
        return of.rows_of_positions(positions)


def _users_of(consumer: CoordinatedConsumer | None, call: sg.Call) -> UserCall:
    """The user's callback; none of a consumer that was dropped."""
    if consumer is None:
        return None, ()
    users = {
        sg.Callback.ASSIGNED: consumer._on_assign,
        sg.Callback.REVOKED: consumer._on_revoke,
        sg.Callback.LOST: consumer._on_lost or consumer._on_revoke,
    }
    return users[call.callback], (consumer, of.kafka_of(call.partitions))
