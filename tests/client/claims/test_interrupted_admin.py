"""A change of positions that is interrupted: the group goes on at once, or is said to be paused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordlib.client.claims import admin
from coordlib.client.claims import events as sg
from coordlib.client.claims.admin import ClaimsAdmin, StillPaused
from coordlib.core.wire import claims
from coordlib.errors import CannotReach, NotAllowed
from coordlib.exit_codes import FAILED, of_command
from coordlib.kafka.clients import missing, writing
from tests.client.claims.test_admin import Admin, reading
from tests.client.claims.world import GROUP, HI_MS, RELEASE, World, t

POSITIONS = {t(0)[0]: 3, t(1)[0]: 4}


def is_end_of_pause(message: Any) -> bool:
    """Of a message that was made at the time 0."""
    return isinstance(message, claims.ReleaseGroup) and message.expire_s == 0


@pytest.mark.parametrize("after_ms", [0, 50, 100, 200, 300, 400, 700, 1_000, 1_500, 2_500, 4_000])
def test_whenever_it_is_interrupted_the_group_goes_on_at_once(after_ms: int) -> None:
    """Ctrl-C left the group paused for 15 minutes, and nothing said so."""
    world = World({"t": 2})
    reading(world, 10, 10)
    a = world.enter("a", greedy_claims=True)
    world.run(HI_MS)
    work = Admin(world, POSITIONS)
    world.run(after_ms)
    work.work._do(work.life.interrupt("it was interrupted", world.log.now_ms))
    outcomes = work.run()
    ended_ms = world.log.now_ms
    world.run(2_000)

    assert work.life.is_resumed
    assert world.log.world("t").paused_by(GROUP) is None
    assert ended_ms <= HI_MS + after_ms + 1_000
    assert a.claims == t(0, 1), "nothing of the admin's stands in its way"
    is_set = [not each.error for each in outcomes]
    assert is_set in ([True, True], [False, False])
    if not is_set[0]:
        assert {each.error for each in outcomes} == {"it was interrupted"}
        assert (world.position(0), world.position(1)) == (10, 10)


def test_an_attempt_that_was_under_way_is_let_go_of_when_it_is_won() -> None:
    """Else consumers would wait for two intervals, for an admin that has gone."""
    world = World({"t": 1})
    reading(world, 10)
    a = world.enter("a")
    world.run(HI_MS)
    work = Admin(world, {t(0)[0]: 3})
    send = work.transport.send

    def deafen(handler: Any, id_: int, partition: int, made: Any) -> None:
        """Its attempt is written, and not judged yet."""
        send(handler, id_, partition, made)
        work.transport.is_deaf = isinstance(made(0), claims.ClaimingPartition)

    work.transport.send = deafen  # type: ignore[method-assign]
    for _ in range(100):
        world.run(100)
        if work.transport.is_deaf:
            break
    assert work.life._targets[t(0)[0]].asked is not None
    work.work._do(work.life.interrupt("it was interrupted", world.log.now_ms))
    work.transport.is_deaf = False
    work.run()
    world.run(1_000)

    assert a.claims == t(0)
    assert world.position(0) == 10


def test_positions_that_are_set_are_not_taken_back() -> None:
    """The end of the pause was lost on its way: it is written again, and nothing else."""
    world = World({"t": 1})
    reading(world, 10)
    work = Admin(world, {t(0)[0]: 3})
    send, lost = work.transport.send, []

    def lose(handler: Any, id_: int, partition: int, made: Any) -> None:
        if is_end_of_pause(made(0)) and not lost:
            lost.append(id_)
            work.transport.fail_next += 1
        send(handler, id_, partition, made)

    work.transport.send = lose  # type: ignore[method-assign]
    outcomes = work.run()
    releases = [each for each in world.log.messages_of("t") if isinstance(each, RELEASE)]

    assert lost
    assert [(each.new, each.error) for each in outcomes] == [(3, "")]
    assert [each.offset for each in releases] == [3]
    assert world.position(0) == 3
    assert world.log.world("t").paused_by(GROUP) is None


# ---- the whole command --------------------------------------------------------------------------


@contextmanager
def time_goes_on(world: World) -> Iterator[None]:
    """The brokers and all others go on while the admin's thread waits."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(0.001):
            world.run(20)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def set_positions(world: World, transport: Any, reason: BaseException | None) -> None:
    """Set positions, and be interrupted as soon as somebody is waited for."""

    def interrupt(_: object) -> None:
        if reason is not None:
            raise reason

    admin = ClaimsAdmin({"client.id": "admin"}, transport=transport)
    admin.set_positions(GROUP, POSITIONS, timeout_s=60, on_waiting=interrupt)


@pytest.mark.parametrize("reason", [KeyboardInterrupt(), SystemExit(143), ValueError("a user's")])
def test_what_interrupts_it_is_raised_with_what_became_of_the_group(
    reason: BaseException,
) -> None:
    world = World({"t": 2})
    reading(world, 10, 10)
    with time_goes_on(world), pytest.raises(type(reason)) as ended:
        set_positions(world, world.log.transport(), reason)

    assert world.log.world("t").paused_by(GROUP) is None
    (note,) = ended.value.__notes__
    assert note.endswith("The group continues.")


def test_the_transports_threads_may_feed_it_as_soon_as_it_is_attached() -> None:
    """They ran between two steps of its start, and ended by an AttributeError."""
    world = World({"t": 2})
    reading(world, 10, 10)
    transport: Any = world.log.transport()
    attach = transport.attach

    def attach_and_feed(handler: Any) -> None:
        """The caller's thread is held up right after it."""
        attach(handler)
        assert handler.wake_ms() is not None
        handler.feed(sg.Elapsed(world.log.now_ms))

    transport.attach = attach_and_feed
    with time_goes_on(world):
        ClaimsAdmin({"client.id": "admin"}, transport=transport).set_positions(GROUP, POSITIONS)

    assert (world.position(0), world.position(1)) == (3, 4)
    assert world.log.world("t").paused_by(GROUP) is None


def test_who_cannot_undo_it_says_what_stands_and_how_to_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker went away while the operator looked at a command that did not end."""
    monkeypatch.setattr(admin, "UNDO_TIMEOUT_S", 0.05)
    world = World({"t": 2})
    transport = world.log.transport()
    transport.is_cut = True
    with pytest.raises(StillPaused) as told:
        set_positions(world, transport, KeyboardInterrupt())

    assert isinstance(told.value.__cause__, KeyboardInterrupt)
    assert told.value.what == "Positions were not set, and the group may still be paused."
    assert told.value.where == f"group {GROUP}, for at most 84 s"
    assert told.value.hint.startswith(f"End the pause: coord claims resume {GROUP}. Claims of this")
    assert of_command(told.value) == FAILED


def test_a_second_interrupt_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(_: object, __: object, ___: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Condition, "wait_for", again)
    world = World({"t": 2})
    with pytest.raises(StillPaused):
        set_positions(world, world.log.transport(), KeyboardInterrupt())


def test_a_pause_that_nobody_could_write_is_not_said_to_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "UNDO_TIMEOUT_S", 0.05)
    world = World({"t": 2})
    transport: Any = world.log.transport()
    refused = missing(writing("__marshal.6s"), {})
    transport.send = lambda handler, *_: handler.fail(refused)
    with pytest.raises(NotAllowed):
        set_positions(world, transport, None)


def test_a_transport_that_fails_leaves_a_pause_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "UNDO_TIMEOUT_S", 0.05)
    world = World({"t": 2})
    transport: Any = world.log.transport()

    def check() -> None:
        raise CannotReach("The transport has failed.")

    transport.check = check
    with pytest.raises(StillPaused) as told:
        set_positions(world, transport, None)
    assert isinstance(told.value.__cause__, CannotReach)


def test_an_end_of_the_pause_that_was_never_acknowledged_is_no_end() -> None:
    """It said "the group goes on", whether the log had taken the end of the pause or not."""
    world = World({"t": 2})
    reading(world, 10, 10)
    transport: Any = world.log.transport()
    send = transport.send

    def lose(handler: Any, id_: int, partition: int, made: Any) -> None:
        """From the end of the pause on nothing is acknowledged."""
        if is_end_of_pause(made(0)):
            transport.is_unacknowledged = True
        send(handler, id_, partition, made)

    transport.send = lose
    with time_goes_on(world), pytest.raises(StillPaused):
        set_positions(world, transport, None)
