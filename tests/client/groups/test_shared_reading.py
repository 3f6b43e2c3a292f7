"""One reader for many consumers: what is handed to whom, pauses, and how many threads there are."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from coordlib.client.groups import shared_reading
from coordlib.client.groups.async_consumer import AsyncConsumer
from coordlib.client.groups.shared_questions import SharedTransport
from coordlib.client.groups.shared_reading import Channel, SharedReader
from coordlib.client.kit.data import open_reader
from coordlib.errors import CannotReach
from tests.client.groups.reader import FakeData, FakeMessage, Stage, run, until


class Readers:
    """A shared reader, and channels of it that nobody waits for."""

    def __init__(self) -> None:
        self.stage = Stage({"t": 4})
        loop = asyncio.get_running_loop()
        self.shared = SharedReader(self.stage.transport, loop, {}, self.stage.open_data)

    def channel(self, group: str = "g") -> Channel:
        return self.shared.open(group)

    @property
    def data(self) -> FakeData:
        return self.stage.opened[0]


def begin(*numbers: int, at: int = 0) -> list[TopicPartition]:
    return [TopicPartition("t", number, at) for number in numbers]


async def read(channel: Channel, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count:
        message: Any = channel.poll()
        if message is None:
            await asyncio.sleep(0.001)
        else:
            found.append((message.partition(), message.offset()))
    return found


def test_messages_go_to_the_owner_of_their_partition() -> None:
    async def course() -> None:
        readers = Readers()
        a, b = readers.channel(), readers.channel()
        for number in range(4):
            readers.stage.write(number, b"x", b"x")
        a.incremental_assign(begin(0, 1))
        b.incremental_assign(begin(2, 3, at=1))
        assert sorted(await read(a, 4)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert sorted(await read(b, 2)) == [(2, 1), (3, 1)]
        assert a.poll() is None
        assert len(readers.stage.opened) == 1
        a.close()
        b.close()
        await until(lambda: readers.data.is_closed)

    run(course())


def test_within_a_group_the_newest_owner_takes_over_and_other_groups_have_another_reader() -> None:
    async def course() -> None:
        readers = Readers()
        a, b, other = readers.channel(), readers.channel(), readers.channel("other")
        readers.stage.write(0, *[b"x"] * 3)
        a.incremental_assign(begin(0))
        await read(a, 3)
        b.incremental_assign(begin(0, at=1))
        assert await read(b, 2) == [(0, 1), (0, 2)]
        a.incremental_unassign(begin(0))  # it is not a's any more
        readers.stage.write(0, b"x")
        assert await read(b, 1) == [(0, 3)]
        assert a.poll() is None
        other.incremental_assign(begin(0))
        assert await read(other, 4) == [(0, number) for number in range(4)]
        assert len(readers.stage.opened) == 2

    run(course())


def test_nothing_of_before_a_seek_or_an_assignment_comes_after_it() -> None:
    async def course() -> None:
        readers = Readers()
        channel = readers.channel()
        readers.stage.write(0, *[b"x"] * 2_000)
        channel.incremental_assign(begin(0))
        for start in (500, 7, 1_200, 3):
            await read(channel, 5)
            channel.seek(TopicPartition("t", 0, start))
            assert await read(channel, 3) == [(0, start), (0, start + 1), (0, start + 2)]
        for start in (900, 4):
            channel.unassign()
            assert channel.poll() is None
            channel.incremental_assign(begin(0, at=start))
            assert await read(channel, 2) == [(0, start), (0, start + 1)]

    run(course())


@pytest.mark.parametrize("move", ["seek", "assign"])
def test_what_was_read_before_a_move_and_queued_behind_it_is_dropped(move: str) -> None:
    """The reading thread has taken messages, and hands them out after the call."""

    async def course() -> None:
        readers = Readers()
        channel = readers.channel()
        readers.stage.write(0, *[b"x"] * 1_000)
        has_taken, go_on, consume = threading.Event(), threading.Event(), readers.data.consume

        def slow(most: int, timeout: float) -> list[FakeMessage]:
            found = consume(most, timeout)
            has_taken.set()
            go_on.wait()
            return found

        readers.data.consume = slow  # type: ignore[method-assign]
        channel.incremental_assign(begin(0))
        await asyncio.to_thread(has_taken.wait)
        if move == "seek":
            channel.seek(TopicPartition("t", 0, 700))
        else:
            channel.unassign()
            channel.incremental_assign(begin(0, at=700))
        go_on.set()
        assert await read(channel, 3) == [(0, 700), (0, 701), (0, 702)]

    run(course())


@pytest.mark.parametrize("value", [b"x", b"x" * 100_000], ids=["by number", "by bytes"])
def test_the_partition_of_a_full_queue_is_paused_alone_and_resumed(value: bytes) -> None:
    async def course() -> None:
        readers = Readers()
        slow, quick = readers.channel(), readers.channel()
        readers.stage.write(0, *[value] * 2_000)
        readers.stage.write(1, *[value] * 2_000)
        slow.incremental_assign(begin(0))
        quick.incremental_assign(begin(1))
        assert await read(quick, 2_000) == [(1, number) for number in range(2_000)]
        await until(lambda: readers.data.paused == {("t", 0)})
        assert len(slow._queue) <= shared_reading.QUEUE_MAX + shared_reading.BATCH
        assert await read(slow, 2_000) == [(0, number) for number in range(2_000)]
        await until(lambda: readers.data.paused == set())

    run(course())


def test_what_its_user_pauses_stays_paused_and_begins_unpaused_anew() -> None:
    async def course() -> None:
        readers = Readers()
        channel = readers.channel()
        channel.incremental_assign(begin(0, 1))
        channel.pause(begin(0))
        await until(lambda: readers.data.paused == {("t", 0)})
        readers.stage.write(0, b"x")
        readers.stage.write(1, b"x")
        assert await read(channel, 1) == [(1, 0)]
        channel.incremental_unassign(begin(0))
        channel.incremental_assign(begin(0))
        assert await read(channel, 1) == [(0, 0)]
        assert readers.data.paused == set()

    run(course())


def test_an_event_of_the_library_goes_to_all_and_a_failure_is_raised_by_all() -> None:
    async def course() -> None:
        readers = Readers()
        channels = [readers.channel(), readers.channel()]
        readers.data.events.append(FakeMessage(None, -1, -1, error=KafkaError(KafkaError._FAIL)))
        for each in channels:
            await until(lambda each=each: (found := each.poll()) is not None and found.error())

        def fail(timeout: float) -> None:
            raise ValueError("broken")

        readers.data.poll = fail  # type: ignore[method-assign, assignment]
        for each in channels:
            with pytest.raises(ValueError, match="broken"):
                await read(each, 1)

    run(course())


class Counting:
    """Answers questions for ids, when it may."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked: list[list[str]] = []
        self.ids = {"t": "1", "u": "2"}

    def topic_ids(self, topics: Any) -> dict[str, str]:
        self.asked.append(sorted(topics))
        self.go_on.wait()
        return {each: self.ids[each] for each in topics if each in self.ids}


def test_ids_that_many_ask_for_at_a_time_are_one_question() -> None:
    """An answer serves those who had asked before it was put to Kafka, and nobody later."""
    kafka = Counting()
    transport = SharedTransport(kafka)  # type: ignore[arg-type]
    found: list[dict[str, str]] = []
    all_done = threading.Semaphore(0)

    def ask(topic: str) -> Callable[[], None]:
        def work() -> None:
            found.append(transport.topic_ids([topic]))
            all_done.release()

        return work

    for _ in range(100):
        for topic in ("t", "u", "absent"):
            transport.in_thread(ask(topic))
    kafka.go_on.set()
    for _ in range(300):
        all_done.acquire()
    assert sorted(map(str, found)) == sorted(["{'t': '1'}", "{'u': '2'}", "{}"] * 100)
    assert len(kafka.asked) <= 6
    kafka.ids["t"] = "3"
    assert transport.topic_ids(["t"]) == {"t": "1"}, "no other thread waits for Kafka"
    with pytest.raises(CannotReach, match="not known yet"):
        transport.topic_ids(["t", "v"])
    transport.in_thread(ask("t"))
    all_done.acquire()
    assert found[-1] == {"t": "3"}
    assert kafka.asked[-1] == ["absent", "t", "u"]


def test_options_loops_and_transports_that_differ_have_readers_of_their_own() -> None:
    async def course() -> None:
        stage, other, before = Stage(), Stage(), set(shared_reading._shared)
        made = [
            stage.consumer("a"),
            stage.consumer("b"),
            stage.consumer("c", auto_offset_reset="latest"),
            other.consumer("d"),
        ]
        assert len({each._shared for each in made}) == 3
        assert len(stage.opened) == 2
        for each in made:
            await each.close()
        await until(lambda: all(each.is_closed for each in [*stage.opened, *other.opened]))
        assert shared_reading._shared <= before

    run(course())


@pytest.mark.parametrize("protocol", ["classic", "assigned"])
def test_a_hundred_consumers_share_few_threads_and_each_record_comes_once(protocol: str) -> None:
    async def course() -> None:
        stage = Stage({"t": 100})
        before = threading.active_count()
        if protocol == "assigned":
            stage.log.tell_topics()
        found: list[tuple[int, int]] = []
        most = 0

        async def work(consumer: AsyncConsumer) -> None:
            await consumer.subscribe(["t"], on_revoke=lambda *_: None)
            async for message in consumer:
                found.append((message.partition() or 0, message.offset() or 0))
                await consumer.commit()

        async with stage.running():
            made = [
                stage.consumer(f"m-{number:03}", group_protocol=protocol) for number in range(100)
            ]
            tasks = [asyncio.create_task(work(each)) for each in made]
            await until(lambda: all(each.member.assignment for each in made))
            for number in range(100):
                stage.write(number, b"x", b"x")
            while len(set(found)) < 200:
                await asyncio.sleep(0.01)
                most = max(most, threading.active_count() - before)
            await asyncio.gather(*(each.close() for each in made))
            await asyncio.gather(*tasks)
            assert sorted(found) == [(number, at) for number in range(100) for at in range(2)]
            assert most <= 5
            assert len(stage.opened) == 1

    run(course())


def test_without_a_stand_in_the_reader_is_librdkafkas() -> None:
    """What a shared reader calls, confluent-kafka has."""
    data = open_reader({"bootstrap.servers": "localhost:1"})
    try:
        for name in (*vars(FakeData), "list_topics"):
            if not name.startswith("_"):
                assert callable(getattr(data, name))
    finally:
        data.close()


def test_a_seek_of_a_former_owner_leaves_the_partition_to_the_newer_one() -> None:
    async def course() -> None:
        readers = Readers()
        former, owner = readers.channel(), readers.channel()
        readers.stage.write(0, *[b"x"] * 3)
        former.incremental_assign(begin(0))
        await until(lambda: former._queue)
        owner.incremental_assign(begin(0, at=1))
        former.seek(TopicPartition("t", 0, 2))
        assert former.poll() is None, "what it has of before the seek is dropped"
        assert await read(owner, 2) == [(0, 1), (0, 2)]
        readers.stage.write(0, b"x")
        assert await read(owner, 1) == [(0, 3)]
        assert former.poll() is None

    run(course())


def test_a_reader_that_failed_is_not_used_by_later_consumers() -> None:
    async def course() -> None:
        readers = Readers()
        former = readers.channel()

        def fail(timeout: float) -> None:
            raise ValueError("broken")

        readers.data.poll = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(ValueError, match="broken"):
            await read(former, 1)
        later = readers.channel()
        readers.stage.write(0, b"x")
        later.incremental_assign(begin(0))
        assert await read(later, 1) == [(0, 0)]
        assert len(readers.stage.opened) == 2
        await until(lambda: readers.data.is_closed)

    run(course())


@pytest.mark.parametrize("command", ["incremental_assign", "pause"])
def test_a_command_that_fails_is_an_error_of_its_owner_alone(command: str) -> None:
    async def course() -> None:
        readers = Readers()
        unlucky, other = readers.channel(), readers.channel()
        done = getattr(readers.data, command)

        def fail_once(partitions: Any) -> None:
            setattr(readers.data, command, done)
            raise ValueError("refused")

        setattr(readers.data, command, fail_once)
        unlucky.incremental_assign(begin(0))
        unlucky.pause(begin(0))
        with pytest.raises(ValueError, match="refused"):
            await read(unlucky, 1)
        readers.stage.write(0, b"x")
        readers.stage.write(1, b"x")
        other.incremental_assign(begin(1))
        assert await read(other, 1) == [(1, 0)]
        unlucky.close()
        other.incremental_assign(begin(0))  # what failed is not taken to be done
        assert await read(other, 1) == [(0, 0)]

    run(course())


def test_a_question_that_raises_leaves_the_threads_to_the_others() -> None:
    transport, done = SharedTransport(Counting()), threading.Event()  # type: ignore[arg-type]

    def fail() -> None:
        raise ValueError("broken")

    for _ in range(10):
        transport.in_thread(fail)
    transport.in_thread(done.set)
    done.wait()
