"""`Member`: a member of a group, over a transport. Threads outside, the state machine inside.

This part is for both kinds of groups; `classic.member` and `assigned.member` add the rest.
Heartbeats and reading go on by themselves. Callbacks come only from the thread that calls `poll` or
`close`, so user code needs no locks for them; `may_work` may be asked from any thread.
"""

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Generic, TypeVar

from coordlib import limits
from coordlib.client.answers import Answers, of_all
from coordlib.client.machine import signals as sg
from coordlib.client.machine.errors import MemberFenced
from coordlib.client.machine.fence import Stop
from coordlib.client.machine.life import Life
from coordlib.client.machine.signals import Callback, Partitions, TopicPartition
from coordlib.client.machine.wording import Identity
from coordlib.client.shell.driven import Driven
from coordlib.client.shell.host import own_host
from coordlib.client.shell.looker import Looker
from coordlib.client.shell.offsets import once, parts_of_commit, parts_of_fetch, rows_fault
from coordlib.client.shell.transport import KafkaTransport, Transport, identity_at
from coordlib.client.transactions.metadata import GroupMetadata
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError, SetupError
from coordlib.records import consumer_protocol as cp
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records.checks import is_name

OnPartitions = Callable[[Partitions], None]
Offsets = Mapping[TopicPartition, int] | Iterable[rq.CommittedOffset]
LifeT = TypeVar("LifeT", bound=Life)
WAIT_S = 0.05
COMMIT_RETRY_S = 0.2
#: The coordinator has too much to write: as long as it asks to wait.
COMMIT_PUT_OFF_S = 1.0


def default_client_id() -> str:
    """`<host>-<process>-<random>`: shows where a member runs, and never repeats."""
    return f"{(own_host() or 'host')[:80]}-{os.getpid()}-{token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The names given by the user, checked before any network call."""

    group: str
    client: str | None = None
    instance: str | None = None
    rack: str | None = None
    prefix: str = "coord"
    #: What the group shares: `consumer` is partitions of topics.
    protocol_type: str = cp.CONSUMER

    def __post_init__(self) -> None:
        if not is_name(self.group, limits.NAME_LENGTH_MAX):
            raise SetupError("A group needs a name of 1 to 249 bytes.", repr(self.group))
        if self.client and not is_name(self.client, limits.CLIENT_LENGTH_MAX):
            raise SetupError("A client id needs 1 to 150 bytes.", repr(self.client))
        if self.instance is not None and not is_name(self.instance, limits.NAME_LENGTH_MAX):
            raise SetupError("An instance id needs 1 to 249 bytes.", repr(self.instance))

    def identity(self, client: str, transport: Transport) -> Identity:
        """The same over one transport, with a token that no other member has."""
        return identity_at(
            transport,
            self.group,
            client,
            instance=self.instance,
            rack=self.rack,
            host=transport.host,
            protocol_type=self.protocol_type,
        )


class Member(Driven[sg.Input, sg.Output], Generic[LifeT]):
    """The base of members of both kinds of groups.

    Args:
        name: the names given by the user.
        config: confluent-kafka's keys for all clients, if there is no transport.
        transport: shared among members of one program; None: one of its own.
        callbacks: the user's callbacks.
        life_of: makes the state machine of this member from its identity.
    """

    NOUN = "member"

    def __init__(
        self,
        name: Name,
        config: Mapping[str, Any] | None,
        transport: Transport | None,
        callbacks: Mapping[Callback, OnPartitions | None],
        life_of: Callable[[Identity], LifeT],
    ) -> None:
        client = name.client or default_client_id()
        self._own = transport is None
        self._transport = transport or KafkaTransport(config or {}, name.prefix, client)
        self.identity = name.identity(client, self._transport)
        self._callbacks = callbacks
        self._membership = life_of(self.identity)
        super().__init__(self._membership)
        self._calls: list[sg.Call] = []
        #: The callback that runs, and its thread; None: none runs, or it has called `close`.
        self._running: tuple[sg.Call, int] | None = None
        self._raised: CoordError | None = None
        self._is_left = self._is_closed = False
        self._answers = Answers()
        #: Looks into Delta tables for this member; a reader with Spark gives it another opener.
        self.looker = Looker(
            self.identity,
            self.feed,
            self._transport.now_ms,
            spawn=lambda look: self._transport.beside(self, look),
        )
        self._transport.attach(self)

    # ---- what it holds ------------------------------------------------------------------------

    @property
    def assignment(self) -> Partitions:
        """What may be worked on at this moment; empty while the member is fenced."""
        with self._changed:
            is_broken = self._broken is not None
            return () if is_broken else self._membership.assignment(self._transport.now_ms())

    @property
    def transport(self) -> Transport:
        """How it reaches the coordinator."""
        return self._transport

    @property
    def member_id(self) -> str:
        """The coordinator's name for this member; empty before it joined."""
        return self._membership.member

    @property
    def generation(self) -> int:
        """The generation that this member belongs to; -1: none."""
        return self._membership.generation

    @property
    def fence_token(self) -> int | None:
        """A number that rises with every assignment, for systems that refuse older ones."""
        return self._membership.held.fence_token

    def may_work(self) -> bool:
        """Whether acting on the assignment is safe at this moment (rules 8 to 11)."""
        with self._changed:
            is_broken = self._broken is not None
            return not is_broken and self._membership.fence.may_work(self._transport.now_ms())

    def stopped_by(self) -> Stop | None:
        """The rule that fenced the member; None while it works or holds nothing."""
        with self._changed:
            return self._membership.fence.stopped_by(self._transport.now_ms())

    def metadata(self) -> GroupMetadata:
        """Who it is at this moment. Raises MemberFenced: it may not act."""
        with self._changed:
            if not self.may_work() or not self.member_id:
                raise MemberFenced(self._where, self.stopped_by())
            return GroupMetadata(self.member_id, self.generation, self.identity, self._transport)

    # ---- what the user does -------------------------------------------------------------------

    @abstractmethod
    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics, or replace the topics of the subscription."""

    def unsubscribe(self) -> None:
        """Let go (in `poll`), leave the group, and hold nothing until the next `subscribe`."""
        self.feed(sg.Unsubscribe(self._transport.now_ms()))

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Run the callback that is due; wait for one up to `timeout_s`. Whether one was run.

        Must be called more often than the rebalance timeout, or the member leaves.

        Raises:
            GroupError: the group refused this member for good.
            AssignmentFailed: the leader could not assign; raised once, the member stays.
            CannotReach: the transport has failed.
            CoordError: this member has failed.
        """
        until = time.monotonic() + timeout_s
        while True:
            self._transport.check()
            self.feed(sg.Polled(self._transport.now_ms()))
            self._raise_failure()
            if self._run_calls():
                return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            with self._changed:
                self._changed.wait(min(WAIT_S, left_s))

    def commit(self, offsets: Offsets, timeout_s: float = 60.0) -> tuple[rs.FailedPartition, ...]:
        """Commit next offsets to read, and wait for the answer. Returns partitions refused.

        Raises:
            MemberFenced: the member may not act.
            GroupError: the coordinator refused the commit as a whole.
            CannotReach: no answer in time; it may or may not be committed.
        """
        rows = _rows(offsets)
        until = time.monotonic() + timeout_s
        while True:
            try:
                return self._await(self._commit(rows, True), until - time.monotonic()).failed
            except GroupError as refusal:
                # No later commit of this thread can be under way, so this one may be repeated.
                is_put_off = refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
                pause_s = COMMIT_PUT_OFF_S if is_put_off else COMMIT_RETRY_S
                if not refusal.code.retriable or time.monotonic() + pause_s > until:
                    raise
                if not self.may_work():
                    raise
                time.sleep(pause_s)

    def commit_async(self, offsets: Offsets) -> "Future[sg.Answer]":
        """Commit without waiting; the future ends with an Answer, or its `error` is set."""
        return self._commit(_rows(offsets), False)

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_s: float = 60.0
    ) -> dict[TopicPartition, rs.FetchedOffset]:
        """Committed offsets, in order with the log's commits; offset -1: there is none.

        Raises GroupError, or CannotReach when no answer came in time.
        """
        answer = self._await(self.committed_async(partitions), timeout_s)
        return {TopicPartition(row.topic, row.partition): row for row in answer.offsets}

    def committed_async(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> "Future[sg.Answer]":
        """As `committed`, without waiting."""
        if partitions is None:
            return self._fetch(None)
        return of_all([self._fetch(topics) for topics in parts_of_fetch(partitions)])

    def _fetch(self, topics: tuple[rq.TopicPartitions, ...] | None) -> "Future[sg.Answer]":
        return self.ask(lambda now_ms, ticket: sg.FetchOffsets(now_ms, ticket, topics))

    def close(self, timeout_s: float = 10.0, reason: str | None = None) -> None:
        """Let go (on_revoked or on_lost is called), leave, and end. A second call does nothing.

        Inside a callback too: to close is to let go of what the callback is about. There it waits
        for the answers of commits, and not for the log to take that the member leaves.
        """
        if self._is_closed:
            return
        self._is_closed = True
        inside = self._end_callback()
        try:
            self.feed(sg.Close(self._transport.now_ms(), reason, inside))
            self._run_calls()
            with self._changed:
                self._changed.wait_for(lambda: self._is_over(inside), timeout_s)
                self._abandon()
            self._answers.tell()
        finally:
            self._transport.detach(self)
            if self._own:
                self._transport.close()

    # ---- the transport's side -----------------------------------------------------------------

    def feed(self, event: sg.Input) -> None:
        """Take what happened. Not under the member's lock: futures may end by it."""
        super().feed(event)
        self._answers.tell()

    def fail(self, problem: Exception) -> None:
        """Stop for good, as `Driven`; what waits for an answer ends."""
        super().fail(problem)
        self._answers.tell()

    def _do(self, output: sg.Output) -> None:
        match output:
            case sg.Send(request):
                self._transport.send(self, request)
            case sg.Call():
                self._calls.append(output)
            case sg.Answer():
                self._answers.settle(output)
            case sg.LookInto():
                self.looker.begin(output)
            case sg.Raise(error):
                self._raised = error
            case sg.Left():
                self._is_left = True

    # ---- small things -------------------------------------------------------------------------

    def _run_calls(self) -> bool:
        """Outside the lock: a callback may commit, and wait for it."""
        calls, self._calls = self._calls, []
        for call in calls:
            running = self._running = call, threading.get_ident()
            try:
                if (function := self._callbacks[call.callback]) is not None:
                    function(call.partitions)
            finally:
                if self._running is running:
                    self._running = None
                    self.feed(sg.CalledBack(self._transport.now_ms(), call.callback))
        return bool(calls)

    def _end_callback(self) -> Callback | None:
        """End the callback that runs on this thread: `close` ends it."""
        running = self._running
        if running is None or running[1] != threading.get_ident():
            return None
        self._running = None
        return running[0].callback

    def _is_over(self, inside: Callback | None) -> bool:
        """Whether `close` need not wait any more."""
        is_written = inside is not None and not self._answers.commits_are_open
        return self._is_left or self._broken is not None or is_written

    @property
    def _where(self) -> str:
        return f"group {self.identity.group}, client {self.identity.client}"

    def _raise_failure(self) -> None:
        raised, self._raised = self._broken or self._raised, None
        if raised is not None:
            raise raised

    def _commit(self, rows: tuple[rq.CommittedOffset, ...], is_waited: bool) -> "Future[sg.Answer]":
        if (fault := rows_fault(rows, self._where)) is not None:
            refused: Future[sg.Answer] = Future()
            refused.set_result(sg.Answer(0, error=fault))
            return refused

        def written(part: tuple[rq.CommittedOffset, ...]) -> "Future[sg.Answer]":
            return self.ask(
                lambda now_ms, ticket: sg.CommitOffsets(now_ms, ticket, part, is_waited),
                is_commit=True,
            )

        return of_all([written(part) for part in parts_of_commit(rows)])

    def ask(
        self, event: Callable[[int, int], sg.Input], is_commit: bool = False
    ) -> "Future[sg.Answer]":
        """Feed an event made of the time and a ticket; the future ends with its Answer."""
        with self._changed:
            ticket, future = self._answers.expect(is_commit)
        self.feed(event(self._transport.now_ms(), ticket))
        with self._changed:
            if self._broken is not None:
                self._abandon()
        self._answers.tell()
        return future

    def _abandon(self) -> None:
        """No answer will come any more."""
        closed = CannotReach("Closed before the answer came.", f"group {self.identity.group}")
        self._answers.abandon(self._broken or closed)

    def _await(self, future: "Future[sg.Answer]", timeout_s: float) -> sg.Answer:
        try:
            answer = future.result(max(0.0, timeout_s))
        except FutureTimeout:
            where = f"group {self.identity.group}, shard {self.identity.shard}"
            mend = self.looker.trouble or "Look whether the coordinator runs: coord status"
            raise CannotReach("The coordinator did not answer in time.", where, mend) from None
        if answer.error is not None:
            raise answer.error
        return answer


def _rows(offsets: Offsets) -> tuple[rq.CommittedOffset, ...]:
    """Each partition once, with its last row: the coordinator refuses repeated partitions."""
    if not isinstance(offsets, Mapping):
        return once(offsets)
    return tuple(
        rq.CommittedOffset(topic=each.topic, partition=each.partition, offset=offset)
        for each, offset in offsets.items()
    )
