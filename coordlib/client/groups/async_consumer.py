"""`AsyncConsumer`: a consumer for asyncio, with the methods of confluent-kafka's AIOConsumer.

It is a `CoordinatedConsumer` that is never waited in: each call does what can be done at once, in
the event loop's thread, and the coroutine waits until the loop is woken. What reads messages and
asks Kafka's questions is shared with the other consumers of the transport (`shared_reading.py`).

**Cancelling.** A message is taken in the last step of `poll` and `consume`, behind which no `await`
follows: a coroutine that is cancelled has taken none. A commit that is cancelled is still written.
A callback that is a coroutine is a task of its own: whoever waits for it may be cancelled, and the
callback goes on.
"""

import asyncio
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.consumer import CONSUME_MAX, CoordinatedConsumer
from coordlib.client.groups.member import AssignedMember, ClassicMember
from coordlib.client.groups.settings import Settings, read_settings
from coordlib.client.groups.shared_reading import (
    Channel,
    OpenData,
    SharedReader,
    in_loop,
    shared_reader,
)
from coordlib.client.kit import events as sg
from coordlib.client.kit import offsets as of
from coordlib.client.kit.calls import Unfinished
from coordlib.client.kit.config import DECIDED_BY
from coordlib.client.kit.data import AHEAD_MAX, open_reader
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.transport import KafkaTransport, Transport, default_client_id
from coordlib.core.wire import api
from coordlib.errors import CoordError, GroupError, SetupError

#: How long one wait lasts: polling is noted, and intervals are looked at, as often.
WAIT_S: Final = 1.0

FoundT = TypeVar("FoundT")
OnPartitions = Callable[["AsyncConsumer", list[KafkaTopicPartition]], Awaitable[None] | None]
#: The callbacks in which this context was made. A task that a callback has started may outlive it.
_inside: ContextVar[tuple[tuple["AsyncConsumer", Unfinished], ...]] = ContextVar(
    "coordlib-callbacks", default=()
)
#: The tasks that have polled: this one, and those that have made it afterwards.
_line: ContextVar[tuple["weakref.ref[asyncio.Task[Any]]", ...]] = ContextVar(
    "coordlib-line", default=()
)


class AsyncConsumer:
    """A consumer in a group that the job coordinates, for one event loop.

    Callbacks may be coroutine functions or plain ones; they run inside `poll`, `consume` and
    `close`, which wait for them. Several tasks may poll: each gets messages of its own. With
    auto-commit that needs `enable.auto.offset.store` = false, since a poll stores what the poll
    before it has returned.

    Args:
        config: as for `CoordinatedConsumer`. error_cb, stats_cb, throttle_cb and on_commit may be
            coroutine functions; the loop runs them.
        transport: shared with other consumers of this program, and not closed with this one. Those
            that share it, the loop and the options of the reader share one reader. None: one of its
            own, opened by the first call.
        open_data: opens what reads the messages, a confluent-kafka Consumer, from librdkafka's
            options.

    Raises:
        SetupError: a key that is missing, wrong or not offered.
        RuntimeError: no event loop runs.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        transport: Transport | None = None,
        open_data: OpenData = open_reader,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = in_loop({"client.id": default_client_id(), **config}, self._loop)
        settings = self._settings = read_settings(self._config)
        if settings.is_decided_here:
            what = f"AsyncConsumer does not offer {DECIDED_BY}=coordinator."
            raise SetupError(what, f"group {settings.group}", "Use CoordinatedConsumer.")
        self._open_data = open_data
        #: What a later call waits for; None: not begun.
        self._opening: asyncio.Task[Transport] | None = None
        self._owned: Transport | None = None
        self._consumer: CoordinatedConsumer | None = None
        self._is_closing = False
        #: Those who wait for a change.
        self._waiting: set[asyncio.Future[None]] = set()
        #: Commits are written in the order of their calls.
        self._committing = asyncio.Lock()
        #: Callbacks and commits that go on, whoever waits for them.
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Messages since it last gave way to other tasks.
        self._returned = 0
        #: The task that polls, or works on what it was given.
        self._worker: weakref.ref[asyncio.Task[Any]] | None = None
        self._is_polling = False
        #: To be raised by the next poll.
        self._problem: BaseException | None = None
        if transport is not None:
            self._open(transport, settings)

    # ---- opening ------------------------------------------------------------------------------

    def _open(self, transport: Transport, settings: Settings) -> CoordinatedConsumer:
        reset = settings.auto_offset_reset
        options = {**settings.common, "auto.offset.reset": reset}
        shared = shared_reader(transport, self._loop, options, self._open_data)
        channel = shared.open(settings.group)
        config = self._config
        if (on_commit := settings.on_commit) is not None:
            config = {**config, "on_commit": self._reporting(on_commit)}
        consumer = CoordinatedConsumer(config, transport=shared.of_members, data_consumer=channel)
        channel.owner = used = weakref.ref(self)
        consumer.member.on_change = partial(_changed, used, shared, channel)
        self._consumer, self._shared = consumer, shared
        return consumer

    async def _opened(self) -> CoordinatedConsumer:
        """The consumer, opened if need be. Raises CannotReach, CoordError."""
        if asyncio.get_running_loop() is not self._loop:
            raise CoordError("The consumer is of another event loop.", f"group {self._group}")
        if self._is_closing and (self._consumer is None or self._consumer.member.has_ended):
            raise self._closed()
        if self._consumer is not None:
            return self._consumer
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_transport))
        opening = self._opening
        try:
            transport = await asyncio.shield(opening)
        finally:
            if self._opening is opening and opening.done():
                self._opening = None
        if self._is_closing:  # `close` closes the transport
            raise self._closed()
        if self._consumer is None:
            self._owned = transport
            return self._open(transport, self._settings)
        return self._consumer

    def _closed(self) -> CoordError:
        return CoordError("The consumer is closed.", f"group {self._group}")

    def _open_transport(self) -> Transport:
        settings = self._settings
        return KafkaTransport(settings.common, settings.prefix, str(settings.client))

    # ---- the group ----------------------------------------------------------------------------

    @property
    def member(self) -> ClassicMember | AssignedMember:
        """Its member of the group. Raises CoordError: it has not been opened by a call yet."""
        if self._consumer is None:
            raise CoordError("The consumer is not open yet.", f"group {self._group}")
        return self._consumer.member

    async def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """As `CoordinatedConsumer.subscribe`."""
        consumer = await self._opened()
        callbacks = map(self._adapted, (on_assign, on_revoke, on_lost))
        consumer.subscribe(topics, *callbacks)
        self.wake()

    async def unsubscribe(self) -> None:
        """Let go (inside `poll`) and leave the group, until the next `subscribe`."""
        (await self._opened()).unsubscribe()
        self.wake()

    async def assignment(self) -> list[KafkaTopicPartition]:
        """What this consumer may work on now; empty while it is fenced."""
        return (await self._opened()).assignment()

    async def consumer_group_metadata(self) -> GroupMetadata:
        """Who this member is now. Raises MemberFenced: it may not act."""
        return (await self._opened()).consumer_group_metadata()

    async def close(self, timeout_s: float = 10.0) -> None:
        """Give up the partitions (callbacks run), leave the group, and end.

        Waits up to `timeout_s` until the log has taken the LeaveGroup; callbacks take as long as
        they take. One that was cancelled goes on when it is called again. A `poll` that waits
        returns nothing.
        """
        self._is_closing = True
        if self._consumer is None:
            if self._opening is not None:
                await asyncio.to_thread((await asyncio.shield(self._opening)).close)
            return
        consumer, raised = self._consumer, None
        if not consumer.member.has_ended:
            raised = await self._let_go(consumer, timeout_s)
            consumer.close(0.0)
            self.wake()
        if self._owned is not None:
            await asyncio.to_thread(self._owned.close)
            self._owned = None
        if raised is not None:
            raise raised

    async def _let_go(self, consumer: CoordinatedConsumer, timeout_s: float) -> Exception | None:
        """Run the callbacks, and wait until the member has left; what a callback has raised."""
        member, raised, until = consumer.member, None, monotonic() + timeout_s
        if not self._is_inside():
            await self._callback_ended()
        inside = member.begin_close(None, threading.get_ident())
        while True:
            try:
                has_run = member.callbacks.run()
            except Exception as problem:  # noqa: BLE001  # raised when all else is done
                has_run, raised = True, raised or problem
            await self._callback_ended()
            if member.is_over(inside) or (not has_run and monotonic() >= until):
                return raised
            if not has_run:
                await self._change(until - monotonic())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._consumer is not None:
            self._consumer.forget_last()
        await self.close()

    # ---- messages -----------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None) -> Message | None:
        """The next message, or one with `error()`; None when there is none in time.

        Args:
            timeout: seconds; None or negative: until there is one.

        Raises as `CoordinatedConsumer.poll`. Inside a callback: CoordError.
        """
        found = await self.consume(1, timeout)
        return found[0] if found else None

    async def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Up to `num_messages` messages, as `poll` would return them; fewer when time is up.

        Args:
            num_messages: at most 1,000,000.
            timeout: seconds; None or negative: until there are `num_messages`.

        Raises ValueError: more messages than that; and as `poll`.
        """
        if not 0 <= num_messages <= CONSUME_MAX:
            raise ValueError(f"num_messages must be between 0 and {CONSUME_MAX:,}")
        until = None if timeout is None or timeout < 0 else monotonic() + timeout
        consumer = await self._begin_to_poll()
        if not (self._settings.has_auto_commit and self._settings.stores):
            return await self._take(consumer, num_messages, until)
        worker = self._refuse_second_task()
        self._worker, self._is_polling, found = worker, True, []
        try:
            found = await self._take(consumer, num_messages, until)
            return found
        finally:
            self._is_polling = False
            self._worker = worker if found else None

    async def _take(
        self, consumer: CoordinatedConsumer, num_messages: int, until: float | None
    ) -> list[Message]:
        while True:
            await self._callback_ended()
            if self._problem is not None:
                problem, self._problem = self._problem, None
                raise problem
            if self._is_closing:
                return []
            is_over = until is not None and monotonic() >= until
            if is_over or self._has(consumer, num_messages):
                found = consumer.consume(num_messages, 0)
                is_ended = consumer.member.callbacks.unfinished is None
                if found or (is_ended and (is_over or not num_messages)):
                    self._returned += len(found)
                    return found
                if not is_ended:
                    continue
            await self._change(WAIT_S if until is None else until - monotonic())

    def _refuse_second_task(self) -> "weakref.ref[asyncio.Task[Any]]":
        """The running task. Raises CoordError: its poll would store what another one works on.

        A task that the worker has made since counts as the worker, as that of `asyncio.wait_for`.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None  # a coroutine runs in one
        worker = self._worker() if self._worker is not None else None
        line = [each for each in _line.get() if (one := each()) is not None and not one.done()]
        is_busy = worker is not None and worker is not task and not worker.done()
        if is_busy and (self._is_polling or worker not in [each() for each in line]):
            raise CoordError(
                "Another task polls this consumer, or works on what it was given: "
                "with enable.auto.offset.store this poll would store that as processed.",
                f"group {self._group}",
                "Set enable.auto.offset.store=false, and call store_offsets when work is done.",
            )
        own = weakref.ref(task)
        if own not in line:
            _line.set((*line, own))
        return own

    async def _begin_to_poll(self) -> CoordinatedConsumer:
        consumer = await self._opened()
        if self._is_inside():
            raise CoordError("A callback cannot poll.", f"group {self._group}", "Let it return.")
        if self._is_closing:
            raise self._closed()
        if self._returned >= AHEAD_MAX:  # what is at hand needs no wait; let other tasks run, too
            self._returned = 0
            await asyncio.sleep(0)
        return consumer

    @staticmethod
    def _has(consumer: CoordinatedConsumer, count: int) -> bool:
        """Whether to take messages: for one it is tried, as that runs what is due, too."""
        if count <= 1:
            return True
        consumer.consume(0, 0)
        return consumer.has(count)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends when the consumer is closed."""
        while not self._is_closing:
            if (message := await self.poll()) is not None:
                return message
        raise StopAsyncIteration

    # ---- positions ----------------------------------------------------------------------------

    async def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[KafkaTopicPartition] | None = None,
        asynchronous: bool = True,
        timeout_s: float = 60.0,
    ) -> list[KafkaTopicPartition] | None:
        """Commit as `CoordinatedConsumer.commit`: what `poll` had returned when it was called.

        Commits are written in the order of their calls. Where it is cancelled, it is written
        nevertheless. Raises as `CoordinatedConsumer.commit`.
        """
        consumer = await self._opened()
        rows = consumer.rows_of(message, offsets)
        if not rows:
            return None if asynchronous else []
        if asynchronous:
            writing = partial(consumer.commits.commit_async, rows)
            return await self._going_on(self._in_order(writing))
        return await self._going_on(self._commit(consumer, rows, monotonic() + timeout_s))

    async def _commit(
        self, consumer: CoordinatedConsumer, rows: tuple[api.CommittedOffset, ...], until: float
    ) -> list[KafkaTopicPartition]:
        member, first = consumer.member, 0

        def write() -> "tuple[tuple[api.FailedPartition, ...], Future[sg.Answer]]":
            nonlocal rows
            rows, void = consumer.commits.sorted_out(rows, 0)
            nothing: Future[sg.Answer] = Future()
            nothing.set_result(sg.Answer(0))
            consumer.commits.asked(rows)
            return void, member.commit_once(rows, True) if rows else nothing

        void, future = await self._in_order(write)
        failed: tuple[api.FailedPartition, ...] | None = None
        try:
            while failed is None:
                try:
                    failed = (*void, *(await self._answer(future, until)).failed)
                except GroupError as refusal:
                    first = first or future.result().ticket
                    pause_s = member.pause_before_retry(refusal, until)
                    if pause_s is None:
                        raise
                    await asyncio.sleep(pause_s)
                    future = member.commit_once(rows, True, first)
        finally:
            consumer.commits.answered(rows, failed)
        refused = of.refusal_of_partitions(failed, self._group)
        if refused is not None:
            raise refused
        return of.kafka_of_rows(rows)

    async def _in_order(self, write: Callable[[], FoundT]) -> FoundT:
        async with self._committing:
            return await self._asked(write)

    async def committed(
        self, partitions: Sequence[KafkaTopicPartition], timeout: float = 60.0
    ) -> list[KafkaTopicPartition]:
        """Committed offsets, in order with the commits in the log; OFFSET_INVALID: none.

        Raises GroupError, or CannotReach when no answer came in time.
        """
        consumer, wanted = await self._opened(), of.ours(partitions)
        future = consumer.member.committed_async(wanted)
        answer = await self._answer(future, monotonic() + timeout)
        found = {sg.TopicPartition(row.topic, row.partition): row for row in answer.offsets}
        return of.committed_of(wanted, found)

    async def position(
        self, partitions: Sequence[KafkaTopicPartition]
    ) -> list[KafkaTopicPartition]:
        """After the last message that `poll` returned; OFFSET_INVALID before the first."""
        return (await self._opened()).position(partitions)

    async def seek(self, partition: KafkaTopicPartition) -> None:
        """Go on from another offset; `commit()` follows it. Raises CoordError."""
        (await self._opened()).seek(partition)

    async def store_offsets(
        self,
        message: Message | None = None,
        offsets: Sequence[KafkaTopicPartition] | None = None,
    ) -> None:
        """As `CoordinatedConsumer.store_offsets`."""
        (await self._opened()).store_offsets(message, offsets)

    # ---- what is read -------------------------------------------------------------------------

    async def assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """For `on_assign`, like `incremental_assign`: partitions left out are read too."""
        (await self._opened()).incremental_assign(partitions)

    async def unassign(self) -> None:
        """As `CoordinatedConsumer.unassign`."""
        (await self._opened()).unassign()

    async def incremental_assign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """For `on_assign`: start these partitions at their own offsets."""
        (await self._opened()).incremental_assign(partitions)

    async def incremental_unassign(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read no more of these."""
        (await self._opened()).incremental_unassign(partitions)

    async def pause(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Return nothing of these until `resume`, or until they are assigned anew."""
        (await self._opened()).pause(partitions)

    async def resume(self, partitions: Sequence[KafkaTopicPartition]) -> None:
        """Read these again."""
        (await self._opened()).resume(partitions)
        self.wake()

    # ---- questions to the cluster -------------------------------------------------------------

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the cluster and of one topic or all: a ClusterMetadata."""
        return await asyncio.to_thread((await self._opened()).list_topics, topic, timeout)

    async def get_watermark_offsets(
        self, partition: KafkaTopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """First offset of a partition and the one after its last; None: no answer in time."""
        asked = (await self._opened()).get_watermark_offsets
        return await asyncio.to_thread(asked, partition, timeout, cached)

    async def offsets_for_times(
        self, partitions: Sequence[KafkaTopicPartition], timeout: float = -1
    ) -> list[KafkaTopicPartition]:
        """The first offset at or after each time, given as `offset` in ms; -1: none."""
        asked = (await self._opened()).offsets_for_times
        return await asyncio.to_thread(asked, partitions, timeout)

    # ---- callbacks ----------------------------------------------------------------------------

    def _adapted(self, callback: OnPartitions | None) -> Callable[..., Unfinished | None] | None:
        """The callback as its consumer calls it. It does not hold this one."""
        if callback is None:
            return None
        used = weakref.ref(self)

        def called(_: object, partitions: list[KafkaTopicPartition]) -> Unfinished | None:
            consumer = used()
            if consumer is None:
                return None
            returned = callback(consumer, partitions)
            return consumer._run(returned) if inspect.isawaitable(returned) else None

        return called

    def _run(self, callback: Awaitable[None]) -> Unfinished:
        """Run a callback as a task of its own."""

        unfinished = Unfinished()

        async def run() -> None:
            _inside.set((*_inside.get(), (self, unfinished)))
            await callback

        def ended(task: asyncio.Task[None]) -> None:
            problem = None if task.cancelled() else task.exception()
            unfinished.set_result(None) if problem is None else unfinished.set_exception(problem)
            self.wake()

        self._keep(run()).add_done_callback(ended)
        return unfinished

    def _is_inside(self) -> bool:
        """Whether this is inside a callback of this consumer that has not ended."""
        return any(each is self and not ends.done() for each, ends in _inside.get())

    def _reporting(self, on_commit: Callable[..., Any]) -> Callable[..., None]:
        """The callback as `Commits` calls it. What a coroutine raises the next poll raises."""
        used = weakref.ref(self)

        def called(*given: Any) -> None:
            returned, consumer = on_commit(*given), used()
            if consumer is not None and inspect.isawaitable(returned):
                consumer._keep(consumer._reported(returned))

        return called

    async def _reported(self, callback: Awaitable[None]) -> None:
        try:
            await callback
        except Exception as problem:  # noqa: BLE001  # the next poll raises it
            self._problem = problem
            self.wake()

    # ---- waiting ------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits for a change."""
        return bool(self._waiting)

    @property
    def has_news(self) -> bool:
        """Whether they have something to do since its member was fed something."""
        return self._consumer is not None and (self._is_closing or self._consumer.has_news)

    def prepare(self) -> None:
        """Prepare messages, where that needs no callback; what it raises comes in `poll`."""
        if self._consumer is not None and not self._is_closing:
            try:
                self._consumer.has(1)
            except Exception as problem:  # noqa: BLE001  # the next poll raises it
                self._problem = problem

    def wake(self) -> None:
        """Let all who wait look again."""
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def _change(self, timeout_s: float) -> None:
        """Until something may have changed."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        timer = self._loop.call_later(max(0.0, min(timeout_s, WAIT_S)), self.wake)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    async def _callback_ended(self) -> None:
        """Until no callback of this consumer goes on as a task."""
        consumer = self._consumer
        while consumer is not None and consumer.member.callbacks.unfinished is not None:
            await self._change(WAIT_S)

    async def _asked(self, ask: Callable[[], FoundT]) -> FoundT:
        """What a question that may block has found."""
        future: Future[FoundT] = Future()

        def asked() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(ask())
                except Exception as problem:  # noqa: BLE001  # raised by who waits
                    future.set_exception(problem)

        self._shared.transport.in_thread(asked)
        return await asyncio.wrap_future(future)

    async def _answer(self, future: "Future[sg.Answer]", until: float) -> sg.Answer:
        """The coordinator's answer. Raises its error; CannotReach: there is none in time."""
        wrapped = asyncio.wrap_future(future)
        await asyncio.wait([wrapped], timeout=max(0.0, until - monotonic()))
        if not wrapped.done():
            raise self.member.unanswered()
        answer = wrapped.result()
        if answer.error is not None:
            raise answer.error
        return answer

    async def _going_on(self, work: Coroutine[Any, Any, FoundT]) -> FoundT:
        """Its result; where the caller is cancelled, the work goes on."""
        return await asyncio.shield(self._keep(work))

    def _keep(self, work: Coroutine[Any, Any, FoundT]) -> "asyncio.Task[FoundT]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def _group(self) -> str:
        return self._settings.group


def _changed(used: "weakref.ref[AsyncConsumer]", shared: SharedReader, channel: Channel) -> None:
    """Its member was fed something: who waits looks, if it concerns them. In any thread."""
    if (consumer := used()) is not None and consumer.is_awaited and consumer.has_news:
        shared.touch([channel])
