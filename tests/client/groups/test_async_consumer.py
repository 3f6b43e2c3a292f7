"""`AsyncConsumer` over the real core in memory, in real event loops."""

import asyncio
import gc
import random
import threading
import weakref
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from coordlib.client.groups import async_consumer
from coordlib.client.groups.async_consumer import AsyncConsumer
from coordlib.client.kit import events as sg
from coordlib.client.kit.fence import MemberFenced
from coordlib.errors import CannotReach, CoordError, SetupError
from tests.client.groups.reader import CONFIG, Stage, run, until


def at(message: Any) -> tuple[int, int]:
    assert message is not None
    return message.partition(), message.offset()


def places(partitions: list[TopicPartition]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in partitions]


def test_it_reads_commits_and_the_next_one_goes_on() -> None:
    async def course() -> None:
        stage = Stage()
        stage.write(0, b"a", b"b", b"c")
        async with stage.running():
            async with stage.consumer() as first:
                await first.subscribe(["t"])
                assert [at(await first.poll()) for _ in range(2)] == [(0, 0), (0, 1)]
                found = await first.commit(asynchronous=False)
                assert found is not None
                assert places(found) == [(0, 2)]
                assert places(await first.committed([TopicPartition("t", 0)])) == [(0, 2)]
                assert places(await first.position([TopicPartition("t", 1)])) == [
                    (1, OFFSET_INVALID)
                ]
            async with stage.consumer() as second:
                await second.subscribe(["t"])
                assert at(await second.poll()) == (0, 2)
                assert await second.poll(0.05) is None

    run(course())


AUTO: dict[str, Any] = {"enable.auto.commit": True}


def test_what_is_processed_is_committed_by_itself() -> None:
    """As the other consumer does: `close` commits the last message, an exception does not."""

    async def work(consumer: AsyncConsumer, messages: int) -> None:
        async with consumer:
            await consumer.subscribe(["t"])
            for _ in range(messages):
                await consumer.poll()
            raise ZeroDivisionError

    async def course() -> None:
        stage, place = Stage(), [TopicPartition("t", 0)]
        stage.write(0, b"a", b"b", b"c", b"d")
        async with stage.running():
            async with stage.consumer(**AUTO) as first:
                await first.subscribe(["t"])
                assert at(await first.poll()) == (0, 0)
            with pytest.raises(ZeroDivisionError):
                await work(stage.consumer(**AUTO), 2)
            async with stage.consumer() as last:
                assert places(await last.committed(place)) == [(0, 2)]

    run(course())


REFUSED = r"enable\.auto\.offset\.store"


def test_with_auto_commit_a_second_task_is_refused_while_the_first_one_works() -> None:
    """Its poll would store, and commit, the message that the first one still works on."""

    async def course() -> None:
        stage = Stage()
        stage.write(0, b"a", b"b", b"c")
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def work(consumer: AsyncConsumer) -> None:
            assert at(await consumer.poll()) == (0, 0)
            begun.set()
            await go_on.wait()
            assert at(await consumer.poll()) == (0, 1)

        async with stage.running(), stage.consumer(**AUTO) as consumer:
            await consumer.subscribe(["t"])
            worker = asyncio.create_task(work(consumer))
            await begun.wait()
            for _ in range(2):
                with pytest.raises(CoordError, match=REFUSED) as refused:
                    await consumer.poll()
                assert "store_offsets" in refused.value.hint
            consumer._consumer._reading.positions()  # type: ignore[union-attr]
            assert consumer._consumer._reading.uncommitted() == ()  # type: ignore[union-attr]
            go_on.set()
            await worker
            # It has ended, so nobody works on its message any more.
            assert at(await consumer.poll()) == (0, 2)

    run(course())


def test_with_auto_commit_a_second_task_is_refused_while_the_first_one_polls() -> None:
    async def course() -> None:
        stage = Stage()
        async with stage.running(), stage.consumer(**AUTO) as consumer:
            await consumer.subscribe(["t"])
            polling = asyncio.create_task(consumer.poll())
            await until(lambda: bool(consumer.is_awaited))
            with pytest.raises(CoordError, match=REFUSED):
                await consumer.poll()
            with pytest.raises(CoordError, match=REFUSED):
                await asyncio.wait_for(consumer.poll(), 5)
            polling.cancel()
            await asyncio.wait([polling])
            stage.write(0, b"a", b"b", b"c")
            assert at(await consumer.poll()) == (0, 0)
            # Such tasks are made by who has the message.
            assert at(await asyncio.create_task(consumer.poll())) == (0, 1)
            assert at(await asyncio.wait_for(consumer.poll(), 60)) == (0, 2)

    run(course())


@pytest.mark.parametrize("more", [{}, {**AUTO, "enable_auto_offset_store": False}], ids=str)
def test_tasks_that_commit_or_store_themselves_poll_beside_each_other(more: Any) -> None:
    async def course() -> None:
        stage = Stage()
        async with stage.running(), stage.consumer(**more) as consumer:
            await consumer.subscribe(["t"])
            polling = [asyncio.create_task(consumer.poll()) for _ in range(2)]
            await until(lambda: bool(consumer.is_awaited))
            stage.write(0, b"a", b"b")
            assert {at(each) for each in await asyncio.gather(*polling)} == {(0, 0), (0, 1)}

    run(course())


def test_what_is_revoked_is_committed_when_the_coroutine_has_ended() -> None:
    async def course() -> None:
        stage = Stage()

        async def revoked(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            await asyncio.sleep(0.05)
            named = [TopicPartition("t", 0, 1)]
            await consumer.commit(
                offsets=named, asynchronous=False
            )  # its own: the rest is not done

        for number in range(2):
            stage.write(number, b"x", b"x")
        async with stage.running():
            first, second = stage.consumer("a", **AUTO), stage.consumer("b", **AUTO)
            await first.subscribe(["t"], on_revoke=revoked)
            assert len(await first.consume(4)) == 4
            polling = [asyncio.create_task(first.poll())]
            await second.subscribe(["t"])
            polling.append(asyncio.create_task(second.poll()))
            done, _ = await asyncio.wait(polling, return_when=asyncio.FIRST_COMPLETED)
            assert [at(each.result()) for each in done] == [(0, 1)]
            offsets = places(await second.committed([TopicPartition("t", n) for n in (0, 1)]))
            assert offsets == [(0, 1), (1, 2)]
            for each in polling:
                each.cancel()
            await asyncio.wait(polling)
            await gather_closed(first, second)

    run(course())


def test_the_iteration_ends_when_the_consumer_is_closed() -> None:
    async def course() -> None:
        stage, found = Stage(), list[tuple[int, int]]()
        stage.write(0, *[b"x"] * 5)
        async with stage.running():
            consumer = stage.consumer()
            await consumer.subscribe(["t"])

            async def iterate() -> None:
                async for message in consumer:
                    found.append(at(message))

            task = asyncio.create_task(iterate())
            await until(lambda: len(found) == 5)
            await consumer.close()
            await task
            assert found == [(0, number) for number in range(5)]
            with pytest.raises(CoordError, match="closed"):
                await consumer.poll(0)

    run(course())


def test_consume_waits_for_all_and_returns_fewer_when_time_is_up() -> None:
    async def course() -> None:
        stage = Stage()
        stage.write(0, *[b"x"] * 10)
        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            assert [at(each)[1] for each in await consumer.consume(7)] == list(range(7))
            assert [at(each)[1] for each in await consumer.consume(7, 0.2)] == [7, 8, 9]
            waiting = asyncio.create_task(consumer.consume(2))
            stage.write(0, b"x")
            await asyncio.sleep(0.1)
            assert not waiting.done()
            stage.write(0, b"x")
            assert [at(each)[1] for each in await waiting] == [10, 11]

    run(course())


async def cut_short(consumer: AsyncConsumer, form: int, count: int, limit_s: float) -> list[Any]:
    """Up to so many messages, where time may be up at any moment."""
    match form:
        case 0:
            message = await asyncio.wait_for(consumer.poll(), limit_s)
            return [] if message is None else [message]
        case 1:
            async with asyncio.timeout(limit_s):
                return await consumer.consume(count)
        case _:
            task = asyncio.create_task(consumer.consume(count))
            await asyncio.sleep(limit_s)
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                raise TimeoutError
            return task.result()


def test_a_poll_or_consume_that_is_cancelled_loses_no_message() -> None:
    """At any moment, by each of three forms of a time limit."""

    async def course() -> None:
        stage, luck = Stage(), random.Random(7)
        found: list[tuple[int, int]] = []
        given_up = 0

        async def write() -> None:
            for _ in range(149):
                for number in range(2):
                    stage.write(number, b"x")
                await asyncio.sleep(luck.choice([0, 0.001, 0.003]))

        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            stage.write(0, b"x")
            stage.write(1, b"x")
            found += map(at, await consumer.consume(2))
            writing = asyncio.create_task(write())
            idle = 0
            while len(found) < 300 and idle < 2_000:  # a lost one never comes
                idle = idle + 1 if writing.done() else 0
                limit_s = luck.choice([0.0, 0.0005, 0.001, 0.002])
                count = 1 if writing.done() else luck.randint(1, 3)
                try:
                    found += map(at, await cut_short(consumer, luck.randrange(3), count, limit_s))
                except TimeoutError:
                    given_up += 1
            assert given_up > 5
            for number in range(2):
                assert [each for each in found if each[0] == number] == [
                    (number, offset) for offset in range(150)
                ]

    run(course())


def test_callbacks_that_are_coroutines_are_waited_for() -> None:
    """Who waits may be cancelled; the callback goes on, and meanwhile no message is returned."""

    async def course() -> None:
        stage, told, go_on = Stage(), list[str](), asyncio.Event()

        async def assigned(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            told.append(f"assigned {[each.partition for each in some]}")

        async def revoked(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            told.append(f"revoked {[each.partition for each in some]}")
            await go_on.wait()
            await consumer.commit(asynchronous=False)
            told.append("committed")

        for number in range(2):
            stage.write(number, b"x", b"x")
        async with stage.running():
            first, second = stage.consumer("a"), stage.consumer("b")
            await first.subscribe(["t"], on_assign=assigned, on_revoke=revoked)
            assert len(await first.consume(4)) == 4
            assert told == ["assigned [0, 1]"]
            polling = asyncio.create_task(first.poll())
            await second.subscribe(["t"])
            newer = asyncio.create_task(second.poll())
            await until(lambda: "revoked [0, 1]" in told)
            polling.cancel()
            await asyncio.wait([polling])
            for number in range(2):
                stage.write(number, b"x")
            again = asyncio.create_task(first.poll())
            await asyncio.sleep(0.05)
            assert not again.done()
            assert not newer.done()
            go_on.set()
            assert [at(await again), at(await newer)] == [(0, 2), (1, 2)]
            assert told[2:] == ["committed", "assigned [0]"]
            await gather_closed(first, second)

    run(course())


async def gather_closed(*consumers: AsyncConsumer) -> None:
    await asyncio.gather(*(each.close() for each in consumers))


def test_plain_functions_are_callbacks_too_and_what_they_raise_comes_in_poll() -> None:
    async def course() -> None:
        stage = Stage({"t": 2, "u": 1})

        def assigned(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            raise ValueError("no")

        async def also(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            raise KeyError("neither")

        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"], on_assign=assigned)
            with pytest.raises(ValueError, match="no"):
                await consumer.poll()
            await consumer.subscribe(["t", "u"], on_assign=also)
            with pytest.raises(KeyError, match="neither"):
                await consumer.poll()

    run(course())


def test_a_callback_may_close_and_may_not_poll() -> None:
    async def course() -> None:
        stage, problems = Stage(), list[str]()

        async def assigned(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            try:
                await consumer.poll()
            except CoordError as problem:
                problems.append(problem.what)
            await consumer.close()

        async with stage.running():
            consumer = stage.consumer()
            await consumer.subscribe(["t"], on_assign=assigned)
            assert await consumer.poll() is None
            assert problems == ["A callback cannot poll."]
            await consumer.close()
            assert stage.transport._handlers == {}

    run(course())


def test_a_close_that_is_cancelled_closes_when_it_is_called_again() -> None:
    async def course() -> None:
        stage, go_on, told = Stage(), asyncio.Event(), list[str]()

        async def revoked(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            told.append("revoked")
            await go_on.wait()
            told.append("let go")

        async with stage.running():
            consumer = stage.consumer()
            await consumer.subscribe(["t"], on_revoke=revoked)
            stage.write(0, b"x")
            await consumer.poll()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.close(), 0.05)
            assert told == ["revoked"]
            assert not consumer.member.has_ended
            go_on.set()
            await consumer.close()
            assert told == ["revoked", "let go"]
            assert consumer.member.has_ended
            for call in (consumer.poll(), consumer.commit(), consumer.assignment()):
                with pytest.raises(CoordError, match="closed"):
                    await call

    run(course())


def test_cancelling_anything_else_closes_nothing() -> None:
    async def course() -> None:
        stage = Stage()
        stage.write(0, b"x", b"y")
        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll()
            for call in (
                consumer.commit(asynchronous=False),
                consumer.commit(),
                consumer.committed([TopicPartition("t", 0)]),
                consumer.consume(10),
            ):
                task = asyncio.create_task(call)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            # The commits were written nevertheless.
            while places(await consumer.committed([TopicPartition("t", 0)])) != [(0, 1)]:
                await asyncio.sleep(0)
            assert at(await consumer.poll()) == (0, 1)

    run(course())


def test_commits_are_written_in_the_order_of_their_calls() -> None:
    async def course() -> None:
        stage, outcomes = Stage(), list[Any]()
        stage.write(0, *[b"x"] * 100)

        async def on_commit(error: Any, some: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            outcomes.append((error, some[0].offset))

        async with stage.running(), stage.consumer(on_commit=on_commit) as consumer:
            await consumer.subscribe(["t"])
            commits = []
            for _ in range(100):
                await consumer.poll()
                commits.append(asyncio.create_task(consumer.commit()))
                await asyncio.sleep(0)
            await asyncio.gather(*commits)
            while len(outcomes) < 100:
                await consumer.poll(0.01)
            assert outcomes == [(None, number + 1) for number in range(100)]
            assert places(await consumer.committed([TopicPartition("t", 0)])) == [(0, 100)]

    run(course())


def test_it_seeks_pauses_and_starts_where_on_assign_says() -> None:
    async def course() -> None:
        stage = Stage()
        stage.write(0, *[b"x"] * 100)

        async def assigned(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            await consumer.assign([TopicPartition("t", 0, 40)])

        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"], on_assign=assigned)
            assert [at(await consumer.poll())[1] for _ in range(3)] == [40, 41, 42]
            for offset in (7, 90, 3):
                await consumer.seek(TopicPartition("t", 0, offset))
                assert [at(await consumer.poll())[1] for _ in range(3)] == [
                    offset,
                    offset + 1,
                    offset + 2,
                ]
            await consumer.pause([TopicPartition("t", 0)])
            assert await consumer.poll(0.05) is None
            await consumer.resume([TopicPartition("t", 0)])
            assert at(await consumer.poll()) == (0, 6)
            with pytest.raises(CoordError, match="does not have"):
                await consumer.seek(TopicPartition("t", 9, 0))

    run(course())


def test_a_fence_that_closes_stops_it_and_messages_come_when_it_opens() -> None:
    async def course() -> None:
        stage = Stage()
        stage.write(0, *[b"x"] * 5)
        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            assert at(await consumer.poll()) == (0, 0)
            stage.transport.is_cut = True
            await stage.time_goes_on(10_000)
            assert await consumer.poll(0.05) is None
            assert await consumer.assignment() == []
            with pytest.raises(MemberFenced):
                await consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
            waiting = asyncio.create_task(consumer.poll())
            stage.transport.is_cut = False
            await stage.time_goes_on(4_000)
            assert at(await waiting)[1] in (0, 1)  # it may have joined anew

    run(course())


def test_an_answer_that_does_not_come_is_an_error_in_time() -> None:
    async def course() -> None:
        stage = Stage()
        stage.write(0, b"x")
        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll()
            stage.log.job_is_up = False
            with pytest.raises(CannotReach, match="did not answer"):
                await consumer.commit(asynchronous=False, timeout_s=0.05)
            with pytest.raises(CannotReach, match="did not answer"):
                await consumer.committed([TopicPartition("t", 0)], timeout=0.05)
            stage.log.job_is_up = True

    run(course())


def test_several_tasks_poll_and_each_message_goes_to_one() -> None:
    async def course() -> None:
        stage, found = Stage(), list[tuple[int, int]]()
        stage.write(0, *[b"x"] * 200)

        async def work(consumer: AsyncConsumer) -> None:
            async for message in consumer:
                await asyncio.sleep(0)
                found.append(at(message))

        async with stage.running():
            consumer = stage.consumer()
            await consumer.subscribe(["t"])
            tasks = [asyncio.create_task(work(consumer)) for _ in range(5)]
            await until(lambda: len(found) == 200)
            await consumer.close()
            await asyncio.gather(*tasks)
            assert sorted(found) == [(0, number) for number in range(200)]

    run(course())


def test_a_topic_that_is_not_there_is_an_error_message() -> None:
    async def course() -> None:
        stage = Stage()
        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t", "mispelt"])
            message = await consumer.poll()
            assert message is not None
            assert "mispelt" in str(message.error())

    run(course())


def test_what_it_does_not_offer_is_refused_before_anything_is_opened() -> None:
    async def course() -> None:
        with pytest.raises(SetupError, match=r"coord\.decided\.by"):
            AsyncConsumer({"group.id": "g", "coord.decided.by": "coordinator"})
        with pytest.raises(SetupError, match=r"group\.id"):
            AsyncConsumer({})
        with pytest.raises(ValueError, match="between 0 and"):
            await Stage().consumer().consume(-1)

    run(course())
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncConsumer({"group.id": "g"})


def test_a_transport_of_its_own_that_cannot_be_opened_is_tried_again() -> None:
    async def course() -> None:
        consumer = AsyncConsumer({"group.id": "g"})  # no servers
        for _ in range(2):
            with pytest.raises(SetupError, match="bootstrap"):
                await consumer.subscribe(["t"])
        await consumer.close()
        with pytest.raises(CoordError, match="closed"):
            await consumer.poll()

    run(course())


def test_one_that_is_dropped_is_gone_at_once() -> None:  # INV-143
    async def course() -> None:
        stage = Stage()
        stage.write(0, b"x")
        async with stage.running():
            consumer = stage.consumer()
            await consumer.subscribe(["t"], on_assign=lambda *_: None)
            await consumer.poll()
            member, used = consumer.member, weakref.ref(consumer)
            gc.collect()
            gc.disable()
            try:
                del consumer
                await asyncio.sleep(0)
                assert used() is None
                assert member.is_dropped
                del member
                stage.transport._handlers.clear()  # Kafka's transport holds none
            finally:
                gc.enable()

            def is_closed() -> bool:
                gc.collect()  # its member, its reading and their channel are a cycle
                return bool(stage.opened[0].is_closed)

            await until(is_closed)

    run(course())


def test_the_loop_is_never_blocked_by_a_question() -> None:
    """Ids are asked for before a commit: a broker that is slow holds up that commit alone."""

    async def course() -> None:
        stage, go_on = Stage(), threading.Event()
        stage.write(0, b"x")
        ask = stage.transport.topic_ids

        def slow(topics: Any) -> dict[str, str]:
            go_on.wait()
            return ask(topics)

        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll()
            stage.transport.topic_ids = slow  # type: ignore[method-assign]
            commit = asyncio.create_task(consumer.commit(asynchronous=False))
            turns = 0
            for _ in range(20):
                await asyncio.sleep(0.001)
                turns += 1
            assert turns == 20
            assert not commit.done()
            go_on.set()
            assert await commit is not None

    run(course())


def test_what_a_noted_poll_makes_due_comes_before_messages() -> None:
    """Messages are prepared meanwhile: not those of a partition that a callback is to take."""

    async def course() -> None:
        stage = Stage()
        stage.write(0, b"x")
        async with stage.running(), stage.consumer() as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll()
            used = consumer._consumer
            assert used is not None
            note, turns, turn = used.member.note_poll, list[int](), used._reading.turn

            def noted() -> None:
                note()
                due = sg.Call(sg.Callback.ASSIGNED, ())
                used.member.callbacks.due.append(due)

            def turned(*given: Any) -> int:
                turns.append(1)
                return turn(*given)

            used.member.note_poll = noted  # type: ignore[method-assign]
            used._reading.turn = turned  # type: ignore[method-assign]
            assert not used.has(1)
            assert turns == []
            used.member.note_poll = note  # type: ignore[method-assign]
            used.member.callbacks.due.clear()

    run(course())


class Opening:
    """A transport of its own that opens when it may."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage, self.go_on = stage, threading.Event()
        self.has_begun = threading.Event()
        self.options: dict[str, Any] = {}
        self.closed = 0
        monkeypatch.setattr(async_consumer, "KafkaTransport", self.open)
        monkeypatch.setattr(stage.transport, "close", self.close)

    def open(self, options: dict[str, Any], *_: str) -> Any:
        self.options = options
        self.has_begun.set()
        self.go_on.wait()
        return self.stage.transport

    def close(self) -> None:
        self.closed += 1


def test_one_that_is_closed_while_it_opens_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def course() -> None:
        stage = Stage()
        opening = Opening(stage, monkeypatch)
        consumer = AsyncConsumer(CONFIG, open_data=stage.open_data)
        first = asyncio.create_task(consumer.subscribe(["t"]))
        await asyncio.to_thread(opening.has_begun.wait)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        opening.go_on.set()
        with pytest.raises(CoordError, match="closed"):
            await first
        await closing
        assert opening.closed == 1
        assert stage.opened == []
        assert stage.transport._handlers == {}

    run(course())


def test_coroutines_that_the_transport_calls_run_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def course() -> None:
        stage, threads = Stage(), list[tuple[int, Any]]()
        opening = Opening(stage, monkeypatch)
        opening.go_on.set()

        async def called(given: Any) -> None:
            await asyncio.sleep(0)
            threads.append((threading.get_ident(), given))

        keys = ("error_cb", "stats_cb", "throttle_cb")
        config = {**CONFIG, **dict.fromkeys(keys, called)}
        consumer = AsyncConsumer(config, open_data=stage.open_data)
        await consumer.assignment()
        for key in keys:
            await asyncio.to_thread(opening.options[key], key)
        await until(lambda: len(threads) == 3)
        assert threads == [(threading.get_ident(), key) for key in keys]
        others = [
            AsyncConsumer(config, transport=stage.transport, open_data=stage.open_data)
            for _ in range(2)
        ]
        assert len(stage.opened) == 1, "one reader for equal options"
        for each in (*others, consumer):
            await each.close()

    run(course())


def test_a_task_that_a_callback_has_started_outlives_it() -> None:
    """It polls, and its `close` waits for the callback that runs then."""

    async def course() -> None:
        stage, go_on, done = Stage(), asyncio.Event(), list[str]()
        started: list[asyncio.Task[Any]] = []
        may_close = asyncio.Event()

        async def work(consumer: AsyncConsumer) -> None:
            await may_close.wait()
            message = await consumer.poll()
            done.append(f"polled {at(message)}")
            await consumer.close()
            done.append("closed")

        async def assigned(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            started.append(asyncio.create_task(work(consumer)))

        async def revoked(consumer: AsyncConsumer, some: list[TopicPartition]) -> None:
            done.append("revoked")
            await go_on.wait()
            done.append("let go")

        stage.write(0, b"x", b"x")
        async with stage.running():
            consumer = stage.consumer()
            await consumer.subscribe(["t"], on_assign=assigned, on_revoke=revoked)
            assert at(await consumer.poll()) == (0, 0)
            may_close.set()
            await until(lambda: "revoked" in done or started[0].done())
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert done == ["polled (0, 1)", "revoked"]
            go_on.set()
            await started[0]
            assert done[2:] == ["let go", "closed"]

    run(course())
