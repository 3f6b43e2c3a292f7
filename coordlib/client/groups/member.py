"""Members of groups, over a transport. Threads outside, the state machine inside.

`ClassicMember` is a member of a classic group, whose leader assigns the partitions;
`AssignedMember` one of a server-assigned group; `Member` is what both have in common.

Heartbeats and reading go on by themselves. Callbacks come only from the thread that calls `poll` or
`close`, so user code needs no locks for them; `may_work` may be asked from any thread.
"""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import count
from typing import Any, TypeVar

from coordlib import limits
from coordlib.client.groups.assigned import AssignedMachine
from coordlib.client.groups.assignors import (
    Assignor,
    Metadata,
    TaskCounts,
    Tasks,
    check_type,
    find_assignors,
    lead,
    look_up,
)
from coordlib.client.groups.classic import ClassicMachine
from coordlib.client.groups.machine import MemberMachine
from coordlib.client.kit import events as sg
from coordlib.client.kit.calls import Callbacks, UserCall, uninterrupted
from coordlib.client.kit.config import SHOWN_MAX
from coordlib.client.kit.driver import WAIT_S, WAIT_SLICE_S, Driver, OpenFutures
from coordlib.client.kit.events import Callback, Partitions, TopicPartition
from coordlib.client.kit.fence import MemberFenced, Stop
from coordlib.client.kit.offsets import (
    GroupMetadata,
    once,
    parts_of_commit,
    parts_of_fetch,
    rows_fault,
)
from coordlib.client.kit.requests import Identity, Timing
from coordlib.client.kit.transport import (
    FailingTransport,
    KafkaTransport,
    Name,
    Transport,
    default_client_id,
)
from coordlib.client.transactions.delta_commits import DeltaCommitChecker
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import is_name, is_topic
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError

OnPartitions = Callable[[Partitions], None]
OnCall = Callable[[Callback, Partitions], None]
Offsets = Mapping[TopicPartition, int] | Iterable[api.CommittedOffset]
LifeT = TypeVar("LifeT", bound=MemberMachine)
COMMIT_RETRY_S = 0.2
#: The coordinator has too much to write: as long as it asks to wait.
COMMIT_PUT_OFF_S = 1.0


class Member(Driver[LifeT, sg.Input, sg.Output]):
    """The base of members of both kinds of groups.

    Args:
        name: the names given by the user.
        config: confluent-kafka's keys for all clients, if there is no transport.
        transport: shared among members of one program; None: one of its own.
        callbacks: the user's callbacks: on_assigned, on_revoked, on_lost.
        life_of: makes the state machine of this member from its identity.
    """

    NOUN = "member"

    def __init__(
        self,
        name: Name,
        config: Mapping[str, Any] | None,
        transport: Transport | None,
        callbacks: tuple[OnPartitions | None, OnPartitions | None, OnPartitions | None],
        life_of: Callable[[Identity], LifeT],
    ) -> None:
        client = name.client or default_client_id()
        over = transport or KafkaTransport(config or {}, name.prefix, client)
        identity = name.identity(client, over)
        kinds = (Callback.ASSIGNED, Callback.REVOKED, Callback.LOST)
        of_kind = dict(zip(kinds, callbacks, strict=True))
        #: What a callback calls; a consumer has other arguments.
        self.users_of: Callable[[sg.Call], UserCall] = lambda call: (
            of_kind[call.callback],
            (call.partitions,),
        )
        #: What a consumer does itself before and after the user's callback; done whole.
        self.before_callback: OnCall = lambda *_: None
        self.after_callback: OnCall = lambda *_: None
        super().__init__(
            life_of(identity),
            identity,
            over,
            transport is None,
            Callbacks(lambda call: self.users_of(call), self._called_back, self._calls_back),
            OpenFutures(
                Future.set_result,
                lambda ticket, error: sg.Answer(ticket, error=error),
                f"group {identity.group}",
            ),
        )
        #: Tickets of commits without an answer.
        self._open_commits: set[int] = set()
        self._is_closing = False
        #: Looks into Delta tables for this member; a reader with Spark gives it another opener.
        self.commit_checker = DeltaCommitChecker(
            self.identity,
            self.feed,
            self._transport.now_ms,
            spawn=lambda look: self._transport.in_background(self, look),
        )
        self._attach()

    @uninterrupted
    def _attach(self) -> None:
        self._transport.attach(self)

    # ---- what it holds ------------------------------------------------------------------------

    @property
    @uninterrupted
    def assignment(self) -> Partitions:
        """What may be worked on at this moment; empty while the member is fenced."""
        with self._changed:
            is_broken = self._broken is not None
            return () if is_broken else self._machine.assignment(self._transport.now_ms())

    @property
    def transport(self) -> Transport:
        """How it reaches the coordinator."""
        return self._transport

    @property
    def member_id(self) -> str:
        """The coordinator's name for this member; empty before it joined."""
        return self._machine.member

    @property
    def generation(self) -> int:
        """The generation that this member belongs to; -1: none."""
        return self._machine.generation

    @property
    def fence_token(self) -> int | None:
        """A number that rises with every assignment, for systems that refuse older ones."""
        return self._machine.held.fence_token

    @uninterrupted
    def may_work(self) -> bool:
        """Whether acting on the assignment is safe at this moment (rules 8 to 11)."""
        with self._changed:
            is_broken = self._broken is not None
            return not is_broken and self._machine.fence.may_work(self._transport.now_ms())

    @uninterrupted
    def stopped_by(self) -> Stop | None:
        """The rule that fenced the member; None while it works or holds nothing."""
        with self._changed:
            return self._machine.fence.stopped_by(self._transport.now_ms())

    @uninterrupted
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
        self._give(sg.Unsubscribe(self._transport.now_ms()))

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
            self.note_poll()
            if self.run_calls():
                return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            self.wait_for_change(min(WAIT_S, left_s))

    @uninterrupted
    def note_poll(self) -> None:
        """The first part of `poll`."""
        self._step(sg.Polled(self._transport.now_ms()))

    @property
    def has_calls(self) -> bool:
        """Whether `run_calls` has something to run or to raise."""
        return self.callbacks.is_ready or self._broken is not None or self._raised is not None

    def run_calls(self) -> bool:
        """The second part, in the user's thread; whether a callback was run. Raises as `poll`."""
        self._futures.complete()
        self._raise_failure()
        has_run = self.callbacks.run()  # outside the lock: it may commit, and wait for it
        self._futures.complete()
        return has_run

    def works_until_ms(self, most_ms: int) -> int:
        """Until when `assignment` stays as it is, if nothing happens: so long at most."""
        now_ms = self._transport.now_ms()
        until_ms = now_ms + most_ms
        with self._changed:
            return until_ms if self._machine.fence.is_open(until_ms) else now_ms

    def commit(self, offsets: Offsets, timeout_s: float = 60.0) -> tuple[api.FailedPartition, ...]:
        """Commit next offsets to read, and wait for the answer. Returns partitions refused.

        A partition for which a later commit of another thread was accepted meanwhile is done.

        Raises:
            MemberFenced: the member may not act.
            GroupError: the coordinator refused the commit as a whole.
            CannotReach: no answer in time; it may or may not be committed.
        """
        rows = _rows(offsets)
        until = time.monotonic() + timeout_s
        first = 0
        while True:
            future = self.commit_once(rows, True, first)
            try:
                return self._await(future, until - time.monotonic()).failed
            except GroupError as refusal:
                # Other threads may have committed since: it keeps its place before theirs.
                first = first or future.result(0).ticket
                pause_s = self.pause_before_retry(refusal, until)
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    def pause_before_retry(self, refusal: GroupError, until: float) -> float | None:
        """Seconds until a commit that was refused is sent again; None: it is not."""
        is_put_off = refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        pause_s = COMMIT_PUT_OFF_S if is_put_off else COMMIT_RETRY_S
        if not refusal.code.retriable or time.monotonic() + pause_s > until:
            return None
        return pause_s if self.may_work() else None

    def commit_async(self, offsets: Offsets) -> "Future[sg.Answer]":
        """Commit without waiting; the future ends with an Answer, or its `error` is set."""
        return self.commit_once(_rows(offsets), False)

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_s: float = 60.0
    ) -> dict[TopicPartition, api.FetchedOffset]:
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

    def _fetch(self, topics: tuple[api.TopicPartitions, ...] | None) -> "Future[sg.Answer]":
        return self.ask(lambda now_ms, ticket: sg.FetchOffsets(now_ms, ticket, topics))

    def close(self, timeout_s: float = 10.0, reason: str | None = None) -> None:
        """Let go (on_revoked or on_lost is called), leave, and end. A second call does nothing.

        Inside a callback too: to close is to let go of what the callback is about. There it waits
        for the answers of commits, and not for the log to take that the member leaves. A close that
        was interrupted goes on when it is called again.
        """
        me = threading.get_ident()
        if self.has_ended or (self._is_closing and self.callbacks.is_inside(me)):
            return
        inside = self.begin_close(reason, me)
        raised = self._let_go(inside, timeout_s)
        self._end()
        self._futures.complete()
        if raised is not None:
            raise raised

    @uninterrupted
    def begin_close(self, reason: str | None, thread: int) -> sg.Call | None:
        """The first step of `close`; returns the callback inside of which it is called, if any.

        In one: a callback that has ended and was not noted would keep the member for good.
        """
        inside = self.callbacks.end_this(thread)
        if inside is not None:
            self.after_callback(inside.callback, inside.partitions)
        if not self._is_closing:
            self._is_closing = True
            callback = None if inside is None else inside.callback
            self._step(sg.Close(self._transport.now_ms(), reason, callback))
        return inside

    def _let_go(self, inside: sg.Call | None, timeout_s: float) -> Exception | None:
        """Run the callbacks, and wait until the member has left; what a callback has raised."""
        until, raised = time.monotonic() + timeout_s, None
        while True:
            try:
                has_run = self.callbacks.run()
            except Exception as problem:  # noqa: BLE001  # raised when all else is done
                has_run, raised = True, raised or problem
            if self.is_over(inside):
                return raised
            if not has_run and not self._wait_until(
                max(0.0, until - time.monotonic()),
                lambda: self.is_over(inside) or self.callbacks.is_ready,
            ):
                return raised

    def drop(self) -> None:
        """Its program has dropped what it had it by. Takes no lock: it may come anywhere."""
        self.is_dropped = True
        if self._owns_transport and isinstance(self._transport, FailingTransport):
            self._transport.is_dropped = True

    # ---- the transport's side -----------------------------------------------------------------

    def _do(self, output: sg.Output) -> None:
        match output:
            case sg.Call():
                self.callbacks.due.append(output)
            case sg.Answer():
                self._open_commits.discard(output.ticket)
                self._futures.settle(output.ticket, output)
            case sg.CheckCommit():
                self.commit_checker.begin(output)

    # ---- small things -------------------------------------------------------------------------

    def _calls_back(self, call: sg.Call) -> None:
        self.before_callback(call.callback, call.partitions)

    def _called_back(self, call: sg.Call, _has_raised: bool) -> None:
        self.after_callback(call.callback, call.partitions)
        self._step(sg.CalledBack(self._transport.now_ms(), call.callback))

    def is_over(self, inside: sg.Call | None) -> bool:
        """Whether `close` need not wait any more."""
        is_written = inside is not None and not self._open_commits
        return self._is_left or self._broken is not None or is_written

    @property
    def _where(self) -> str:
        return f"group {self.identity.group}, client {self.identity.client}"

    def commit_once(
        self, rows: tuple[api.CommittedOffset, ...], is_waited: bool, first: int = 0
    ) -> "Future[sg.Answer]":
        """One try of a commit.

        Args:
            is_waited: somebody waits for the answer.
            first: the ticket of the first try; 0: this is the first.
        """
        if (fault := rows_fault(rows, self._where)) is not None:
            refused: Future[sg.Answer] = Future()
            refused.set_result(sg.Answer(0, error=fault))
            return refused

        def written(part: tuple[api.CommittedOffset, ...]) -> "Future[sg.Answer]":
            def event(now_ms: int, ticket: int) -> sg.Input:
                self._open_commits.add(ticket)
                return sg.CommitOffsets(now_ms, ticket, part, is_waited, first)

            return self.ask(event)

        return of_all([written(part) for part in parts_of_commit(rows)])

    def _await(self, future: "Future[sg.Answer]", timeout_s: float) -> sg.Answer:
        until = time.monotonic() + timeout_s
        while not self._is_done(future, min(WAIT_SLICE_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() < until:
                continue
            raise self.unanswered()
        answer = future.result()
        if answer.error is not None:
            raise answer.error
        return answer

    def unanswered(self) -> CannotReach:
        """The error of a question that was not answered in time."""
        where = f"group {self.identity.group}, shard {self.identity.shard}"
        hint = self.commit_checker.trouble or "Look whether the coordinator runs: coord status"
        return CannotReach("The coordinator did not answer in time.", where, hint)

    @staticmethod
    @uninterrupted
    def _is_done(future: "Future[sg.Answer]", timeout_s: float) -> bool:
        return bool(wait([future], timeout_s).done)


def of_all(parts: "Sequence[Future[sg.Answer]]") -> "Future[sg.Answer]":
    """One answer for questions that were asked in several requests: all rows, or the first error.

    It is there when all of theirs are, under the first one's ticket.
    """
    if len(parts) == 1:
        return parts[0]
    whole: Future[sg.Answer] = Future()
    left = count(len(parts) - 1, -1)  # `next` of it is one step for all threads

    def note(_: "Future[sg.Answer]") -> None:
        if next(left) == 0 and whole.set_running_or_notify_cancel():
            answers = [each.result() for each in parts]
            error = next((each.error for each in answers if each.error is not None), None)
            offsets = tuple(row for each in answers for row in each.offsets)
            failed = tuple(row for each in answers for row in each.failed)
            whole.set_result(sg.Answer(answers[0].ticket, offsets, failed, error))

    for each in parts:
        each.add_done_callback(note)
    return whole


def topics_of(
    topics: Any, can_be: Callable[[str], bool] = is_topic, what: str = "topic"
) -> tuple[str, ...]:
    """The topics and expressions of a subscription, each once.

    A name that no topic can have is an empty variable or a slip, and never comes into being.

    Args:
        topics: as the program gave them.
        can_be: whether there can be one of this name.
        what: of what they are names.

    Raises:
        SetupError: they are no list, or one of them can be no name.
    """
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise SetupError(f"subscribe needs a list of {what}s.", repr(topics)[:SHOWN_MAX])
    given = tuple(topics)
    for each in given:
        if not isinstance(each, str) or not (each.startswith("^") or can_be(each)):
            hint = f"Give names of 1 to {limits.NAME_LENGTH_MAX} letters, digits, . _ and -"
            raise SetupError(f"No {what} can have this name.", repr(each)[:SHOWN_MAX], hint)
    return tuple(dict.fromkeys(given))


def is_pool(name: str) -> bool:
    """Whether tasks can have a pool of this name."""
    return is_name(name, limits.NAME_LENGTH_MAX)


def _rows(offsets: Offsets) -> tuple[api.CommittedOffset, ...]:
    """Each partition once, with its last row: the coordinator refuses repeated partitions."""
    if not isinstance(offsets, Mapping):
        return once(offsets)
    return tuple(
        api.CommittedOffset(topic=each.topic, partition=each.partition, offset=offset)
        for each, offset in offsets.items()
    )


class ClassicMember(Member[ClassicMachine]):
    """A member that shares topics' partitions with the other members of its group.

    Args:
        group: the group's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        transport: shared among members of one program; by default one of its own.
        on_assigned: these partitions are yours, beside those that you kept; called for every
            assignment, also an empty one.
        on_revoked: these go to another member; commit finished work without waiting, then return.
        on_lost: all partitions are lost and may have other owners; stop, commits are refused.
        client: client id, at most 150 bytes; by default host, process and a random part.
        instance: static instance id (KIP-345): `close` keeps this member's place in the group
            until its session ends.
        rack: where it runs, for assignors that look at racks.
        timing: session, rebalance timeout (also the longest time between polls), heartbeats.
        assignors: names or objects, in order of preference. The member runs cooperatively if all
            of them support it.
        protocol_type: `consumer` shares the partitions of topics. Under another name the group
            shares `tasks`, and `subscribe` names pools of them: see `assignors.py`.
        tasks: the number of tasks in each pool, for groups that share tasks.

    Raises:
        SetupError: a name or an assignor is not allowed.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """

    def __init__(  # noqa: PLR0913  # all but the group by keyword, each with a default
        self,
        group: str,
        config: Mapping[str, Any] | None = None,
        *,
        transport: Transport | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        client: str | None = None,
        instance: str | None = None,
        rack: str | None = None,
        prefix: str = "coord",
        timing: Timing | None = None,
        assignors: str | Sequence[str | Assignor] = "range",
        protocol_type: str = cp.CONSUMER,
        tasks: Tasks | None = None,
    ) -> None:
        found = find_assignors(assignors)
        check_type(protocol_type, tasks, found)
        self._tasks = tasks
        self._assignors = {each.name: each for each in found}
        super().__init__(
            Name(
                group=group,
                client=client,
                instance=instance,
                rack=rack,
                prefix=prefix,
                protocol_type=protocol_type,
            ),
            config,
            transport,
            (on_assigned, on_revoked, on_lost),
            lambda identity: ClassicMachine(identity, timing or Timing(), found),
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics, or rejoin it with another list.

        A topic that begins with `^` is a regular expression; topics that match it later are
        found too. It matches neither `__*` nor the coordinator's own topics. No topics at all is
        `unsubscribe`, as in Kafka.

        Raises SetupError: not a list, a name that no topic can have, or an invalid expression.
        """
        is_of_tasks = self._tasks is not None
        wanted = topics_of(topics, is_pool, "pool") if is_of_tasks else topics_of(topics)
        if not wanted:
            self.unsubscribe()
            return
        self._give(sg.WantTopics(self._transport.now_ms(), wanted))

    @property
    def _metadata(self) -> Metadata:
        transport = self._transport
        return transport if self._tasks is None else TaskCounts(self._tasks, transport)

    def _do(self, output: sg.Output) -> None:
        match output:
            case sg.Divide():
                work = partial(lead, output, self._assignors, self._metadata)
                self._transport.in_background(self, lambda: self.feed(work()))
            case sg.LookUp():
                self._transport.in_background(self, lambda: self.feed(look_up(self._metadata)))
            case _:
                super()._do(output)


NO_STATIC = "Members of a server-assigned group have no instance id."


class AssignedMember(Member[AssignedMachine]):
    """A member to which the coordinator grants partitions one by one.

    No member waits for all others: an owner that must release some partitions works on with the
    rest, and a newcomer gets each partition as soon as its former owner has released it.

    Args:
        group: the group's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        transport: shared among members of one program; by default one of its own.
        on_assigned: these partitions are yours, beside those that you have.
        on_revoked: these go to another member; stop, commit finished work without waiting, return.
            The last `commit_async` in the callback, if it names only these partitions, is written
            in one record with the Release; its answer comes after the return.
        on_lost: all partitions are lost and may have other owners; stop, commits are refused.
        client: client id, at most 150 bytes; by default host, process and a random part.
        instance: not offered.
        timing: session, rebalance timeout (how long letting go may take; also the longest time
            between polls), heartbeats.
        strategy: `sticky`, `uniform`, `range`, `roundrobin` or one of the job's; None: the group's.
        capacity: the member's share in proportion to the others; 1 to 1,000,000.

    Raises:
        SetupError: a name that is not allowed, an instance id, a capacity out of bounds.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """

    def __init__(  # noqa: PLR0913  # all but the group by keyword, each with a default
        self,
        group: str,
        config: Mapping[str, Any] | None = None,
        *,
        transport: Transport | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        client: str | None = None,
        instance: str | None = None,
        prefix: str = "coord",
        timing: Timing | None = None,
        strategy: str | None = None,
        capacity: int = 1,
    ) -> None:
        if instance is not None:
            raise SetupError(NO_STATIC, repr(instance), "Leave it out, or join a classic group.")
        if not 1 <= capacity <= limits.CAPACITY_MAX:
            bounds = f"A capacity is a number from 1 to {limits.CAPACITY_MAX:,}."
            raise SetupError(bounds, repr(capacity))
        self._strategy, self._capacity = strategy, capacity
        super().__init__(
            Name(group=group, client=client, prefix=prefix),
            config,
            transport,
            (on_assigned, on_revoked, on_lost),
            lambda identity: AssignedMachine(identity, timing or Timing()),
        )

    @property
    def strategy(self) -> str:
        """The group's strategy; empty before the member joined."""
        return self._machine.strategy

    @uninterrupted
    def fence_of(self, topic: str, partition: int) -> int | None:
        """The fencing token of one partition, for systems that refuse older ones.

        It is higher than that of any former owner, and stays as long as this member has the
        partition. None: the member does not own it.
        """
        with self._changed:
            return self._machine.fence_of(TopicPartition(topic, partition))

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        exclude: str | None = None,
    ) -> None:
        """Join the group for these topics, or replace the topics of the subscription.

        The call itself revokes nothing; the coordinator demands what must go. Expressions are
        RE2's; the coordinator checks them (`poll` raises). To want no topics, call `unsubscribe`.

        Args:
            topics: by name, existing or not. One that begins with `^` is an expression that a
                name must begin with, as in `ClassicMember`.
            pattern: topics whose whole name matches; `__*` and the coordinator's own never do.
            exclude: topics that match this too are not wanted.

        Raises SetupError: not a list, or a name that no topic can have.
        """
        given = topics_of(topics)
        names = tuple(each for each in given if not each.startswith("^"))
        begins = [f"(?:{each}).*" for each in given if each.startswith("^")]
        patterns = begins + ([f"(?:{pattern})" if begins else pattern] if pattern else [])
        if not names and not patterns:
            self.unsubscribe()
            return
        wanted = sg.Subscription(
            topics=names,
            pattern="|".join(patterns) or None,
            exclude=exclude,
            strategy=self._strategy,
            capacity=self._capacity,
        )
        self._give(sg.WantSubscription(self._transport.now_ms(), wanted))
