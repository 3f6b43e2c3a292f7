"""`close` inside a callback: the user has had enough in the middle of being told something.

`close` waited there for the end of the callback, which waited for `close`. Time-outs here are long:
a `close` that waits for what cannot come takes them whole.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client import ClassicMember
from coordlib.client.groups import member
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, Partitions
from coordlib.core.wire import api
from coordlib.errors import CoordError
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client import cooperative
from tests.client.groups.assigned.play import Play, commit, revoked, t
from tests.client.test_consumer import Program
from tests.client.world import TIMING

LONG_S = 20.0
HERE = KafkaTopicPartition("t", 0, 0)
MODES: dict[str, Any] = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": [cooperative.assignor()]},
    "assigned": {"group.protocol": "assigned"},
}


def closing(log: FakeLog, in_callback: str, **config: Any) -> Program:
    """A program that closes its consumer the first time that it is told this."""
    program = Program(log, "a", **config)

    def note(what: str) -> Callable[[CoordinatedConsumer, list[KafkaTopicPartition]], None]:
        def noted(consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
            program.told.append((what, sorted(each.partition for each in some)))
            if what == in_callback:
                consumer.close(timeout_s=LONG_S)
                program.told.append(("closed", []))

        return noted

    told = {f"on_{what}": note(what) for what in ("assign", "revoke", "lost")}
    program.consumer.subscribe(["t"], **told)
    return program


def requests_of(log: FakeLog, client: str) -> list[api.Request]:
    return [each for batch in log.batches for each in batch if each.client == client]


def run(log: FakeLog, *programs: Program, until: Callable[[], bool] = lambda: False) -> None:
    for _ in range(40):
        if until():
            return
        for program in programs:
            program.poll()
        log.advance(100)


@pytest.fixture
def log() -> FakeLog:
    made = FakeLog({"t": 2})
    made.tell_topics()
    return made


@pytest.mark.parametrize("mode", MODES)
def test_close_in_on_assign_lets_go_and_leaves(log: FakeLog, mode: str) -> None:
    """The program finds that it cannot work on what it was given."""
    a = closing(log, "assign", **MODES[mode])
    run(log, a, until=lambda: a.reader.is_closed)
    log.pump()

    assert a.told == [("assign", [0, 1]), ("revoke", [0, 1]), ("closed", [])]
    (left,) = [each for each in requests_of(log, "a") if isinstance(each, api.LeaveGroup)]
    assert left is requests_of(log, "a")[-1]
    assert a.consumer.member._machine.state is State.LEFT
    assert a.reader.started == []

    b = Program(log, "b", **MODES[mode])
    b.settle()
    assert b.told == [("assign", [0, 1])], "nobody waits for a session"


@pytest.mark.parametrize("mode", MODES)
def test_close_in_on_revoke_leaves(log: FakeLog, mode: str) -> None:
    """It is asked to give something up, and ends; on the way out it lets go of the rest."""
    a = closing(log, "revoke", **MODES[mode])
    a.settle()
    b = Program(log, "b", **MODES[mode])
    log.pump()
    run(log, a, until=lambda: a.reader.is_closed)
    log.pump()

    assert [what for what, _ in a.told][-1] == "closed"
    told = [each for what, some in a.told if what == "revoke" for each in some]
    assert sorted(told) == [0, 1]
    assert isinstance(requests_of(log, "a")[-1], api.LeaveGroup)
    joins = [each for each in requests_of(log, "a") if isinstance(each, api.JoinGroup)]
    # A cooperative member has joined before it is asked to let go.
    expected = {"eager": 1, "cooperative": 2, "assigned": 0}
    assert len(joins) == expected[mode], "it joins no generation that it then leaves"
    run(log, b, until=lambda: len(b.consumer.assignment()) == 2)
    assert len(b.consumer.assignment()) == 2


def test_close_in_on_lost_leaves(log: FakeLog) -> None:
    """It was cut off for too long, and gives up."""
    a = closing(log, "lost")
    a.settle()
    a.transport.is_cut = True
    log.advance(15_000)
    a.poll()

    assert a.told == [("assign", [0, 1]), ("lost", [0, 1]), ("closed", [])]
    a.transport.is_cut = False
    log.pump()
    assert isinstance(requests_of(log, "a")[-1], api.LeaveGroup)


def test_the_poll_that_it_was_closed_in_returns_nothing_and_the_next_one_raises(
    log: FakeLog,
) -> None:
    """A loop that goes on must not turn for ever; nor must what is closed be read."""
    a = closing(log, "assign")
    a.reader.before_poll = lambda: pytest.fail("read after it was closed")
    log.pump()
    assert a.consumer.poll(5.0) is None
    assert a.reader.is_closed

    for again in (lambda: a.consumer.poll(0), lambda: a.consumer.consume(3, 0)):
        with pytest.raises(CoordError, match="The consumer is closed"):
            again()
    a.consumer.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.subscribe(["t"]),
        lambda one: one.unsubscribe(),
        lambda one: one.commit(),
        lambda one: one.committed([HERE]),
        lambda one: one.assign([HERE]),
        lambda one: one.unassign(),
        lambda one: one.incremental_unassign([HERE]),
        lambda one: one.seek(HERE),
        lambda one: one.pause([HERE]),
        lambda one: one.resume([HERE]),
    ],
    ids=[
        "subscribe",
        "unsubscribe",
        "commit",
        "committed",
        "assign",
        "unassign",
        "incremental_unassign",
        "seek",
        "pause",
        "resume",
    ],
)
def test_what_is_asked_of_a_closed_consumer_is_refused(
    log: FakeLog, call: Callable[[CoordinatedConsumer], object]
) -> None:
    """As confluent-kafka refuses it: a commit that returns nothing looks like one that was done."""
    a = Program(log, "a")
    a.settle()
    assert a.poll() is not None
    a.consumer.close(timeout_s=0)

    with pytest.raises(CoordError, match="The consumer is closed"):
        call(a.consumer)


def test_what_was_committed_in_the_callback_stands_before_the_leave(log: FakeLog) -> None:
    """`commit(); close()` in on_revoke: the next owner begins behind it."""
    a = Program(log, "a")
    commits: list[Any] = []

    def on_revoke(consumer: CoordinatedConsumer, _: Any) -> None:
        consumer.commit()
        consumer.close(timeout_s=0)

    a.consumer.commits._on_commit = lambda *told: commits.append(told)
    a.consumer.subscribe(["t"], on_revoke=on_revoke)
    a.settle()
    assert a.poll() is not None
    b = Program(log, "b")
    log.pump()
    a.consumer.poll(0)
    log.pump()

    kinds = [type(each) for each in requests_of(log, "a")[-2:]]
    assert kinds == [api.OffsetCommit, api.LeaveGroup]
    assert len(commits) == 1, "its outcome is told, known or not"
    run(log, b, until=lambda: bool(b.reader.started))
    assert (0, 1) in b.reader.started[0]


def test_close_waits_for_the_answers_of_commits_also_in_a_callback(log: FakeLog) -> None:
    """Their outcome is still worth having; the job answers beside."""
    transport = log.transport()
    answers: list[Any] = []
    answered = threading.Event()

    def on_revoked(some: Partitions) -> None:
        futures = [a.commit_async({some[0]: 5})]
        pump = threading.Timer(0.2, log.pump)
        pump.start()
        a.close(timeout_s=LONG_S)
        pump.join()
        answers.extend(each.result(0) for each in futures)
        answered.set()

    a = ClassicMember("g", transport=transport, client="a", timing=TIMING, on_revoked=on_revoked)
    a.subscribe(["t"])
    for _ in range(3):
        log.pump()
        a.poll()
    other = ClassicMember("g", transport=log.transport(), client="b", timing=TIMING)
    other.subscribe(["t"])
    log.pump()
    a.poll()

    assert answered.is_set()
    assert answers[0].error is None


class OwnTransport(FakeTransport):
    """What a member opens for itself, and closes at its end."""

    unsent_at_close: list[api.Request] | None = None

    def close(self) -> None:
        self.unsent_at_close = [request for _, request, _ in self._unwritten]


def test_the_leave_is_given_to_the_producer_before_its_transport_is_closed(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing flushes; what comes later goes to a closed producer."""
    transport = OwnTransport(log)
    log._transports.append(transport)
    monkeypatch.setattr(member, "KafkaTransport", lambda *_: transport)
    a = ClassicMember("g", {}, client="a", timing=TIMING, on_assigned=lambda _: a.close(LONG_S))
    a.subscribe(["t"])
    for _ in range(3):
        log.pump()
        a.poll()

    assert transport.unsent_at_close is not None
    assert [type(each) for each in transport.unsent_at_close] == [api.LeaveGroup]


def test_close_by_another_thread_waits_for_the_callback(log: FakeLog) -> None:
    """There the callback is at work, and what it works on is not given away under its hands."""
    inside, go_on, seen = threading.Event(), threading.Event(), []

    def on_assigned(_: Partitions) -> None:
        inside.set()
        assert go_on.wait(LONG_S)
        log.pump()
        seen.extend(each for each in requests_of(log, "a") if isinstance(each, api.LeaveGroup))

    a = ClassicMember(
        "g", transport=log.transport(), client="a", timing=TIMING, on_assigned=on_assigned
    )
    a.subscribe(["t"])
    log.pump()
    poll = threading.Thread(target=a.poll)
    poll.start()
    assert inside.wait(LONG_S)
    close = threading.Thread(target=a.close, args=(0.1,))
    close.start()
    close.join(LONG_S)
    go_on.set()
    poll.join(LONG_S)
    log.pump()

    assert seen == []
    assert isinstance(requests_of(log, "a")[-1], api.LeaveGroup)


def test_a_callback_that_closes_twice_leaves_once(log: FakeLog) -> None:
    def twice(_: Partitions) -> None:
        a.close(LONG_S)
        a.close(LONG_S)

    a = ClassicMember(
        "g",
        transport=log.transport(),
        client="a",
        timing=TIMING,
        on_assigned=twice,
        on_revoked=twice,
    )
    a.subscribe(["t"])
    for _ in range(5):
        log.pump()
        a.poll()

    leaves = [each for each in requests_of(log, "a") if isinstance(each, api.LeaveGroup)]
    assert len(leaves) == 1


def test_a_callback_that_raises_after_close_has_left(log: FakeLog) -> None:
    """`sys.exit` in on_assign, say."""

    def ends(_: Partitions) -> None:
        a.close(LONG_S)
        raise SystemExit(3)

    a = ClassicMember("g", transport=log.transport(), client="a", timing=TIMING, on_assigned=ends)
    a.subscribe(["t"])
    log.pump()
    with pytest.raises(SystemExit):
        a.poll()
    log.pump()

    assert isinstance(requests_of(log, "a")[-1], api.LeaveGroup)


def test_of_a_demand_the_commit_is_written_before_the_leave() -> None:
    """No Release follows that it could ride with."""
    play = Play()
    play.subscribed(0, 1)
    play.told(100, (0,), {44: (1,)})
    assert play.say(sg.Polled(200)) == [revoked(1)]
    assert play.commit(210, (1, 7)) == []

    outputs = play.say(sg.Close(220, inside=Callback.REVOKED))
    assert outputs == [commit("cafe-4", (1, 7)), revoked(0)]
    (left,) = play.say(sg.CalledBack(230, Callback.REVOKED))
    assert isinstance(left, sg.Send)
    assert isinstance(left.request, api.LeaveGroup)
    assert play.member.assignment(230) == t()
