"""Many members share a transport: what breaks in one of them breaks that one alone (INV-70)."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from coordlib.client.groups.member import ClassicMember, Member
from coordlib.client.kit import events as sg
from coordlib.client.kit.reading import Mark, Proofs
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import KafkaTransport
from coordlib.core.wire import api, codec
from coordlib.errors import CannotReach, CoordError
from coordlib.kafka.layout import Place
from coordlib.kafka.producer import LastingProducer
from coordlib.testing.fake_log import FakeLog
from tests.client.world import TIMING, World, t
from tests.tools.background import judged


class Handler:
    """A member as the transport sees it; it raises where it is told to."""

    def __init__(self, token: str, breaks: type[sg.Input] | str | None = None) -> None:
        self.identity = Identity("g", token, token, 0, 0, "incarn-0")
        self.breaks = breaks
        self.fed: list[sg.Input] = []
        self.problems: list[Exception] = []

    def feed(self, event: sg.Input) -> None:
        if type(event) is self.breaks:
            raise RuntimeError("its state machine is wrong")
        self.fed.append(event)

    def wake_ms(self) -> int | None:
        if self.breaks == "wake_ms":
            raise RuntimeError("its state machine is wrong")
        return 0

    def reading_lasts_ms(self) -> int | None:
        if self.breaks == "reading_lasts_ms":
            raise RuntimeError("its state machine is wrong")
        return 0

    def fail(self, problem: Exception) -> None:
        self.problems.append(problem)


class Reader:
    """One reading, which reaches the end."""

    read_ms = 5

    def __init__(self, values: list[tuple[bytes, bytes]]) -> None:
        self._values = values

    def ask(self, _now_ms: int, _lasts_ms: Callable[[], int | None]) -> None: ...

    def proved(self, asked_ms: int | None) -> None: ...

    def read(self) -> list[tuple[bytes, bytes]]:
        return self._values

    def is_at_end(self) -> bool:
        return True


class BareTransport(KafkaTransport):
    """The transport without a broker: a turn of each of its two threads, taken by the test."""

    def __init__(self, *handlers: Any, values: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self._lock = threading.Lock()
        self._handlers = {each.identity.token: each for each in handlers}
        self._by_group = {b"g": dict(self._handlers)}
        self._unsent = SimpleQueue()
        self._is_closed = threading.Event()
        self._failure = None
        self._reader: Any = Reader(list(values))
        self._timers_ms = self._clock_ms = 0
        self._config: dict[str, Any] = {}
        self.place, self.reply = Place("coord", 1, 1, "incarn-0"), 0
        self._topic = self.place.requests
        self._proofs = Proofs()
        self._producer = LastingProducer({}, "requests")

    def run(self, turn: Callable[[], None]) -> None:
        self._guarded(turn)

    def now_ms(self) -> int:
        self._clock_ms += 1_000
        return self._clock_ms


NOTICE = (b"g", codec.encode(api.RebalanceInProgress(group="g", cause="r0-1", generation=1)))


@pytest.mark.parametrize("breaks", [sg.Received, sg.ReadToEnd])
def test_a_member_that_breaks_while_it_reads_ends_no_other(breaks: type[sg.Input]) -> None:
    """INV-70: the thread that reads is everybody's. Whoever it dies under, all would be deaf."""
    broken, healthy = Handler("aa", breaks), Handler("bb")
    transport = BareTransport(broken, healthy, values=(NOTICE, NOTICE))
    transport.run(lambda: transport._read(transport._reader.read()))

    assert [type(each) for each in healthy.fed] == [sg.Received, sg.Received, sg.ReadToEnd]
    assert {str(each) for each in broken.problems} == {"its state machine is wrong"}
    transport.check()


@pytest.mark.parametrize("breaks", [sg.Elapsed, "wake_ms"])
def test_a_member_that_breaks_when_it_is_told_the_time_ends_no_other(breaks: Any) -> None:
    """INV-70: the other thread has everybody's heartbeats."""
    broken, healthy = Handler("aa", breaks), Handler("bb")
    transport = BareTransport(broken, healthy)
    transport.run(partial(transport._serve, None))

    assert [type(each) for each in healthy.fed] == [sg.Elapsed]
    assert len(broken.problems) == 1
    transport.check()


class Written:
    def offset(self) -> int:
        return 7


def test_a_member_that_breaks_at_an_acknowledgement_ends_no_other() -> None:
    """INV-70: an exception inside a delivery report would come out of the producer's poll."""
    broken = Handler("aa", sg.Acknowledged)
    transport = BareTransport(broken)
    transport._delivered(broken, "aa-1", Mark(3), None, Written())  # type: ignore[arg-type]

    assert len(broken.problems) == 1


def test_a_member_that_breaks_at_what_was_not_sent_ends_no_other() -> None:
    """INV-70: the producer's queue was full."""
    broken, healthy = Handler("aa", sg.NotWritten), Handler("bb")
    transport = BareTransport(broken, healthy)
    for each in (broken, healthy):
        transport._not_sent(each, "id", "the queue is full", False)
    transport.run(partial(transport._serve, None))

    assert len(broken.problems) == 1
    assert sg.NotWritten in {type(each) for each in healthy.fed}
    transport.check()


def test_work_that_breaks_beside_ends_no_other() -> None:
    """INV-70: one member leads, and something in there raises that nobody thought of."""
    broken, done = Handler("aa"), threading.Event()
    transport = BareTransport(broken)

    def work() -> None:
        try:
            raise LookupError("no such protocol")
        finally:
            done.set()

    transport.in_background(broken, work)
    assert done.wait(60)
    while not broken.problems:
        pass

    assert isinstance(broken.problems[0], LookupError)
    transport.check()


def test_what_breaks_in_the_transport_itself_is_everybodys() -> None:
    """Nobody reads any more: every poll of every member says so."""
    transport = BareTransport(Handler("aa"))
    transport._reader.read = lambda: (_ for _ in ()).throw(ValueError("a response of 0 bytes"))
    transport.run(lambda: transport._read(transport._reader.read()))

    with pytest.raises(CannotReach, match=r"transport has failed: .*0 bytes.*\n.*requests\nClose"):
        transport.check()


# -- the member that broke -------------------------------------------------------------------


def test_a_member_that_broke_raises_from_every_poll_and_works_no_more() -> None:
    """INV-70: nobody knows what its state machine believes, so it stops at once; its session runs
    out, and the others take over."""
    world = World({"t": 2})
    a, b = world.join("a", "b")
    open_future = a.member.commit_async({t(0)[0]: 5})
    problem = RuntimeError("its state machine is wrong")
    a.member.fail(problem)

    assert a.member.assignment == ()
    assert not a.member.may_work()
    assert a.member.wake_ms() is None
    for _ in range(2):
        with pytest.raises(CoordError, match="its state machine is wrong") as raised:
            a.member.poll()
        assert raised.value.__cause__ is problem
    assert open_future.result(0).error is not None
    with pytest.raises(CoordError, match="its state machine is wrong"):
        a.member.commit({t(0)[0]: 5}, timeout_s=0)

    world.users.remove(a)
    world.run(20_000)
    assert b.owns == t(0, 1)
    a.member.close(timeout_s=60)  # returns at once


def test_the_first_problem_is_the_one_that_is_told() -> None:
    """What follows from it would hide it."""
    world = World({"t": 2})
    (a,) = world.join("a")
    a.member.fail(RuntimeError("the first"))
    a.member.fail(RuntimeError("the second"))

    with pytest.raises(CoordError, match="the first"):
        a.member.poll()


# -- three causes that were found ------------------------------------------------------------


def test_a_cancelled_commit_breaks_nothing() -> None:
    """`asyncio.wait_for` over `asyncio.wrap_future` cancels the future when time is up; the answer
    comes later."""
    world = World({"t": 2})
    (a,) = world.join("a")
    world.log.job_is_up = False
    commit = a.member.commit_async({t(0)[0]: 5})
    fetch = a.member.committed_async(t(0))
    assert commit.cancel()
    assert fetch.cancel()
    world.log.job_is_up = True
    world.run(5_000)

    assert a.owns == t(0, 1)
    assert a.member.committed_async(t(0)).cancelled() is False
    assert a.errors == []


def test_a_cancelled_commit_does_not_hold_up_close() -> None:
    """What is open is ended when the member is closed, and that one has ended already."""
    world = World({"t": 2})
    (a,) = world.join("a")
    world.log.job_is_up = False
    cancelled = a.member.commit_async({t(0)[0]: 5})
    other = a.member.commit_async({t(1)[0]: 5})
    cancelled.cancel()
    world.close(a)

    assert isinstance(other.result(0).error, CoordError)


def test_a_waiting_thread_is_woken_by_cancelling_and_not_by_the_answer() -> None:
    """The future is the caller's own as soon as he has cancelled it."""
    world = World({"t": 2})
    (a,) = world.join("a")
    world.log.job_is_up = False
    seen: list[Future[sg.Answer]] = []
    commit = a.member.commit_async({t(0)[0]: 5})
    commit.add_done_callback(seen.append)
    commit.cancel()
    world.log.job_is_up = True
    world.run(5_000)

    assert seen == [commit]


@pytest.mark.parametrize("odd", ["x", "", "-3", "1_0", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 5_000])
def test_an_answer_with_an_odd_id_is_nobodys(odd: str) -> None:
    """Tokens stand in all requests and answers: whoever reads them can write such an id."""
    world = World({"t": 2})
    (a,) = world.join("a")
    token = a.member.identity.token
    forged = api.HeartbeatResponse(
        id=f"{token}-{odd}", client="a", group="orders", cause="r0-1", error="UNKNOWN_MEMBER_ID"
    )
    a.member.feed(sg.Received(world.log.now_ms, forged))
    world.run(3_000)

    assert a.owns == t(0, 1)
    assert a.errors == []


def test_members_beside_a_broken_one_go_on() -> None:
    """Many members of one program, over one transport: one of them breaks for good."""
    log = FakeLog({"t": 4})
    transport = log.transport()
    members: list[Member[Any]] = [
        ClassicMember("g", transport=transport, client=f"m{n}", timing=TIMING) for n in range(3)
    ]
    for each in members:
        each.subscribe(["t"])
    going = list(members)

    def poll() -> None:
        for each in going:
            each.poll()

    log.advance(5_000, poll)
    going.pop().fail(RuntimeError("broken"))
    log.advance(20_000, poll)

    assert sorted(len(each.assignment) for each in members) == [0, 2, 2]


@pytest.mark.parametrize("end", ["answered", "failed", "closed"])
def test_what_notes_the_end_of_a_commit_finds_the_member_free(end: str) -> None:
    """A program commits under a lock of its own, and what notes the outcome takes that lock, too.
    If the member were locked meanwhile, a thread that asks it under that lock would wait for ever,
    and with it all that the transport serves."""
    answers: list[bool] = []
    seen: list[bool] = []

    def note(_: Any) -> None:
        ask = threading.Thread(target=lambda: answers.append(member.may_work()))
        ask.start()
        ask.join(60)
        seen.append(bool(answers))

    with judged(FakeLog({"t": 1})) as log:
        member = ClassicMember("g", transport=log.transport(), timing=TIMING)
        member.subscribe(["t"])
        until_s = time.monotonic() + 60
        while not member.assignment and time.monotonic() < until_s:
            member.poll(0.05)
        log.job_is_up = end == "answered"
        member.commit_async({sg.TopicPartition("t", 0): 5}).add_done_callback(note)
        if end == "failed":
            member.fail(ZeroDivisionError("a defect"))
        elif end == "closed":
            member.close(timeout_s=0)
        while not seen and time.monotonic() < until_s:
            time.sleep(0.01)
        member.close(timeout_s=0)

    assert seen == [True]
