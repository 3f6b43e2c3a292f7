"""`GroupMember`: a member of a group, over a transport. Threads outside, the state machine inside.

Heartbeats and reading go on by themselves. Callbacks come only from the thread that calls `poll`
or `close`, so user code needs no locks for them; `may_work` may be asked from any thread.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

from coordlib import limits
from coordlib.client import signals as sg
from coordlib.client.assignor import Assignor, by_topic
from coordlib.client.division import lead, look_up
from coordlib.client.fence import Stop
from coordlib.client.membership import Membership
from coordlib.client.signals import Callback, Partitions, TopicPartition
from coordlib.client.strategy import find_assignors
from coordlib.client.transport import KafkaTransport, Transport
from coordlib.client.wording import Identity, Timing
from coordlib.errors import CannotReach, CoordError, GroupError, SetupError
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records.codec import is_name
from coordlib.records.partitioner import shard_of

OnPartitions = Callable[[Partitions], None]
Offsets = Mapping[TopicPartition, int] | Iterable[rq.CommittedOffset]
WAIT_S = 0.05
COMMIT_RETRY_S = 0.2


def default_client_id() -> str:
    """`<host>-<process>-<random>`: tells people where a member runs, and never repeats."""
    host = "".join(each for each in socket.gethostname() if each.isalnum() or each in "-._")
    return f"{host[:80] or 'host'}-{os.getpid()}-{token_hex(4)}"


class GroupMember(AbstractContextManager["GroupMember"]):
    """A member that shares topics' partitions with the other members of its group.

    Args:
        group: the group's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        transport: shared among members of one program; by default one of its own.
        on_assigned: these partitions are yours, beside those that you kept; told for every
            assignment, also when empty.
        on_revoked: these go to somebody else; commit what is done without waiting, then return.
        on_lost: all that was held, and may be somebody else's already; stop, commits are refused.
        client: client id, at most 150 bytes; by default host, process and a random part.
        instance: static instance id (KIP-345): `close` keeps this member's place in the group
            until its session ends.
        rack: where it runs, for assignors that look at racks.
        timing: session, rebalance timeout (also the longest time between polls), heartbeats.
        assignors: names or objects, in order of preference. The member runs cooperatively if all
            of them support it.

    Raises:
        SetupError: a name or an assignor that cannot be.
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
    ) -> None:
        client = client or default_client_id()
        _check(group, client, instance)
        found = find_assignors(assignors)
        self._own = transport is None
        self._transport = transport or KafkaTransport(config or {}, prefix, client)
        place = self._transport.place
        self.identity = Identity(
            group=group,
            client=client,
            token=self._transport.new_token(),
            shard=shard_of(group, place.shards),
            reply=self._transport.reply,
            incarnation=place.incarnation,
            prefix=place.prefix,
            instance=instance,
            rack=rack,
        )
        self._callbacks = {
            Callback.ASSIGNED: on_assigned,
            Callback.REVOKED: on_revoked,
            Callback.LOST: on_lost,
        }
        self._assignors = {each.name: each for each in found}
        #: Guards the membership; waited upon by `poll` and `close`.
        self._changed = threading.Condition(threading.RLock())
        self._membership = Membership(self.identity, timing or Timing(), found)
        self._calls: list[sg.Call] = []
        self._raised: CoordError | None = None
        self._is_left = self._is_closed = False
        self._tickets = count(1)
        self._answers: dict[int, Future[sg.Answer]] = {}
        self._transport.attach(self)

    # ---- what it holds ------------------------------------------------------------------------

    @property
    def assignment(self) -> Partitions:
        """What may be worked on at this moment; empty while the member is fenced."""
        with self._changed:
            return self._membership.assignment(self._transport.now_ms())

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
            return self._membership.fence.may_work(self._transport.now_ms())

    def stopped_by(self) -> Stop | None:
        """The rule that fenced the member; None while it works or holds nothing."""
        with self._changed:
            return self._membership.fence.stopped_by(self._transport.now_ms())

    # ---- what the user does -------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics, or rejoin it with another list.

        A topic that begins with `^` is a regular expression; topics that match it later are
        found too. It never matches `__*` and the coordinator's own topics. No topics at all is
        `unsubscribe`, as in Kafka.

        Raises SetupError: not a list, or an expression that is none.
        """
        if isinstance(topics, str):
            raise SetupError("subscribe needs a list of topics.", repr(topics))
        if not topics:
            self.unsubscribe()
            return
        self.feed(sg.Subscribe(self._transport.now_ms(), tuple(dict.fromkeys(topics))))

    def unsubscribe(self) -> None:
        """Let go (in `poll`), leave the group, and hold nothing until the next `subscribe`."""
        self.feed(sg.Unsubscribe(self._transport.now_ms()))

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Run the callback that is due; wait for one up to `timeout_s`. Whether one was run.

        Must be called more often than the rebalance timeout, or the member leaves.

        Raises:
            GroupError: the group refused this member for good.
            CannotReach: the transport has failed.
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
                return self._await(self.commit_async(rows), until - time.monotonic()).failed
            except GroupError as refusal:
                # No later commit of this thread can be under way, so this one may be repeated.
                if not refusal.code.retriable or time.monotonic() + COMMIT_RETRY_S > until:
                    raise
                if not self.may_work():
                    raise
                time.sleep(COMMIT_RETRY_S)

    def commit_async(self, offsets: Offsets) -> "Future[sg.Answer]":
        """Commit without waiting; the future ends with an Answer, or its `error` is set."""
        rows = _rows(offsets)
        return self._ask(lambda now_ms, ticket: sg.CommitOffsets(now_ms, ticket, rows))

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
        topics = None if partitions is None else _named(partitions)
        return self._ask(lambda now_ms, ticket: sg.FetchOffsets(now_ms, ticket, topics))

    def close(self, timeout_s: float = 10.0, reason: str | None = None) -> None:
        """Let go (on_revoked or on_lost is called), leave, and end. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.feed(sg.Close(self._transport.now_ms(), reason))
            self._run_calls()
            with self._changed:
                self._changed.wait_for(lambda: self._is_left, timeout_s)
                self._abandon()
        finally:
            self._transport.detach(self)
            if self._own:
                self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- the transport's side -----------------------------------------------------------------

    def feed(self, event: sg.Input) -> None:
        """Take what happened (the transport's threads, and the methods above)."""
        with self._changed:
            for output in self._membership.handle(event):
                self._do(output)
            self._changed.notify_all()

    def wake_ms(self) -> int | None:
        """When it wants to be told of the time at the latest; None: not before something else."""
        with self._changed:
            return self._membership.wake_ms()

    def _do(self, output: sg.Output) -> None:
        match output:
            case sg.Send(request):
                self._transport.send(self, request)
            case sg.Call():
                self._calls.append(output)
            case sg.Divide():
                work = partial(lead, output, self._assignors, self._transport)
                self._transport.beside(lambda: self.feed(work()))
            case sg.LookUp():
                self._transport.beside(lambda: self.feed(look_up(self._transport)))
            case sg.Answer():
                if (future := self._answers.pop(output.ticket, None)) is not None:
                    future.set_result(output)
            case sg.Raise(error):
                self._raised = error
            case sg.Left():
                self._is_left = True

    # ---- small things -------------------------------------------------------------------------

    def _run_calls(self) -> bool:
        """Outside the lock: a callback may commit, and wait for it."""
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                if (function := self._callbacks[call.callback]) is not None:
                    function(call.partitions)
            finally:
                self.feed(sg.CalledBack(self._transport.now_ms(), call.callback))
        return bool(calls)

    def _raise_failure(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _ask(self, event: Callable[[int, int], sg.Input]) -> "Future[sg.Answer]":
        ticket = next(self._tickets)
        future: Future[sg.Answer] = Future()
        with self._changed:
            self._answers[ticket] = future
            self.feed(event(self._transport.now_ms(), ticket))
        return future

    def _abandon(self) -> None:
        unknown = CannotReach("Closed before the answer came.", f"group {self.identity.group}")
        for ticket, future in self._answers.items():
            future.set_result(sg.Answer(ticket, error=unknown))
        self._answers.clear()

    def _await(self, future: "Future[sg.Answer]", timeout_s: float) -> sg.Answer:
        try:
            answer = future.result(max(0.0, timeout_s))
        except FutureTimeout:
            where = f"group {self.identity.group}, shard {self.identity.shard}"
            mend = "Look whether the coordinator runs: coord status"
            raise CannotReach("The coordinator did not answer in time.", where, mend) from None
        if answer.error is not None:
            raise answer.error
        return answer


def _check(group: str, client: str, instance: str | None) -> None:
    if not is_name(group, limits.NAME_LENGTH_MAX):
        raise SetupError("A group needs a name of 1 to 249 bytes.", repr(group))
    if not is_name(client, limits.CLIENT_LENGTH_MAX):
        raise SetupError("A client id needs 1 to 150 bytes.", repr(client))
    if instance is not None and not is_name(instance, limits.NAME_LENGTH_MAX):
        raise SetupError("An instance id needs 1 to 249 bytes.", repr(instance))


def _rows(offsets: Offsets) -> tuple[rq.CommittedOffset, ...]:
    if not isinstance(offsets, Mapping):
        return tuple(offsets)
    return tuple(
        rq.CommittedOffset(topic=each.topic, partition=each.partition, offset=offset)
        for each, offset in offsets.items()
    )


def _named(partitions: Iterable[TopicPartition]) -> tuple[rq.TopicPartitions, ...]:
    return tuple(
        rq.TopicPartitions(topic=topic, partitions=some)
        for topic, some in by_topic(partitions).items()
    )
