"""The shell around a broker: blocks, threads, callbacks that raise, agents that fail."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordlib.client import BrokerAgent, BrokerFenced, Endpoint
from coordlib.client.controller.agent import STOP_TIMEOUT_S
from coordlib.client.controller.folder import Folder
from coordlib.core.wire import api
from coordlib.errors import CoordError
from coordlib.testing.fake_log import FakeLog
from tests.client.controller.world import CLUSTER, T0, TIMING, World
from tests.kit.waiting import wait_until
from tests.tools import clusters as c
from tests.tools.background import judged

ENDPOINTS = [Endpoint("in", "host", 9092)]


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """A log whose coordinator judges in the background."""
    with judged(FakeLog({})) as log:
        yield log


def agent(log: FakeLog, broker: int = 1, **more: Any) -> BrokerAgent:
    fields: dict[str, Any] = {"endpoints": ENDPOINTS, "timing": TIMING, "client": f"b{broker}"}
    fields |= {"transport": log.transport(), **more}
    return BrokerAgent(CLUSTER, broker=broker, **fields)


def left(log: FakeLog) -> list[api.LeaveGroup]:
    written = [each for batch in log.batches for each in batch]
    return [each for each in written if isinstance(each, api.LeaveGroup)]


def test_the_end_of_the_block_lets_others_lead_first(log: FakeLog) -> None:
    """A deployment: what the broker leads is led by the other one when the block has ended."""
    told: list[Any] = []
    with agent(log, 2) as other:
        other.ready()
        wait_until("it is Active", lambda: other.poll() and other.state == "Active")
        with agent(log, 1, on_resign=told.append, on_fenced=told.append) as one:
            one.ready()
            wait_until("it is Active", lambda: one.poll() and one.state == "Active")
            log.append(0, c.create(c.new_topic("t", assignment=[(1, 2)]), group=CLUSTER))
            wait_until("it leads", lambda: one.poll() and one.may_lead("t", 0))
        assert told == [(T0,), "closed"]
        wait_until("it leads", lambda: other.poll() and other.may_lead("t", 0))
    assert len(left(log)) == 2


def test_a_broker_that_leads_alone_leads_to_the_end(log: FakeLog) -> None:
    told: list[Any] = []
    with agent(log, on_resign=told.append, on_fenced=told.append) as one:
        one.ready()
        wait_until("it is Active", lambda: one.poll() and one.state == "Active")
        log.append(0, c.create(c.new_topic("t", assignment=[(1,)]), group=CLUSTER))
        wait_until("it leads", lambda: one.poll() and one.may_lead("t", 0))
        begun_s = time.monotonic()
    assert told == ["closed"]
    assert time.monotonic() - begun_s < STOP_TIMEOUT_S


def test_a_stop_of_another_thread_ends_the_loop(log: FakeLog) -> None:
    """A signal handler."""
    with agent(log) as one:
        one.ready()
        wait_until("it is Active", lambda: one.poll() and one.state == "Active")
        threading.Timer(0.1, one.stop).start()
        while one.poll(1.0):
            pass
        assert one.state == "Stopping"


def test_a_job_that_is_away_holds_up_the_end_for_the_time_that_is_given(log: FakeLog) -> None:
    with agent(log) as one:
        one.ready()
        wait_until("it is Active", lambda: one.poll() and one.state == "Active")
        log.job_is_up = False
        begun_s = time.monotonic()
        one.close(timeout_s=0.3)
    assert 0.3 <= time.monotonic() - begun_s < STOP_TIMEOUT_S  # and not for the usual time
    assert one.state in ("Leaving", "Left")


def test_a_callback_that_raises_raises_in_poll_and_comes_again() -> None:
    world = World()
    (store,) = world.start(1)
    log = world.log
    store.raises = ValueError("its disk")
    log.append(0, c.create(c.new_topic("t", assignment=[(1,)]), group=CLUSTER))
    log.pump()

    with pytest.raises(ValueError, match="its disk"):
        store.agent.poll()
    assert not store.agent.may_lead("t", 0)
    store.agent.poll()

    assert store.kinds()[-2:] == ["leader", "leader"]
    assert store.agent.may_lead("t", 0)


def test_whose_user_could_not_be_told_does_not_say_that_it_has_stopped(tmp_path: Path) -> None:
    """Its successor waits until it must have stopped, and does not rely on the lock."""
    world = World()
    (store,) = world.start(1, folder=tmp_path)
    world.create((1,))
    store.raises = ValueError("it hangs")

    with pytest.raises(ValueError, match="it hangs"):
        store.agent.close(timeout_s=0)
    world.log.pump()

    assert not left(world.log)
    assert not store.agent.may_lead("t", 0)
    again = Folder(tmp_path)
    identity = store.agent.identity
    assert again.previous(CLUSTER, 1, identity.incarnation) == -1
    again.close(has_stopped=True)


def test_close_in_a_callback_is_refused_and_stop_is_not() -> None:
    world = World()
    (store,) = world.start(1)
    refused: list[CoordError] = []

    def close(*_: Any) -> None:
        try:
            store.agent.close()
        except CoordError as problem:
            refused.append(problem)
        store.agent.stop()

    store.agent._users = dict.fromkeys(store.agent._users, close)
    world.log.append(0, c.create(c.new_topic("t", assignment=[(1,)]), group=CLUSTER))
    world.run(1_000)

    assert "in a callback" in str(refused[0])
    assert store.is_over


def test_an_agent_that_has_failed_leads_nothing_and_says_nothing() -> None:
    """INV-70: a defect of one agent is that agent's."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    future = one.agent.alter_isr("t", 0, {2: two.agent.incarnation})
    one.agent.fail(ZeroDivisionError("a defect"))

    assert not one.agent.may_lead("t", 0)
    assert one.agent.is_fenced
    assert isinstance(future.exception(), CoordError)
    with pytest.raises(CoordError, match="a defect"):
        one.agent.poll()
    with pytest.raises(CoordError, match="a defect"):
        one.agent.metadata()
    world.until(lambda: two.agent.may_lead("t", 0))
    world.close(one)


def test_many_agents_share_a_transport() -> None:
    world = World()
    transport = world.log.transport()
    stores = world.start(1, 2, 3, transport=transport)
    world.create((1, 2), (2, 3), (3, 1))

    assert [sorted(each.acts_on()) for each in stores] == [[("t", 0)], [("t", 1)], [("t", 2)]]
    assert all(("follower", "t", n, 0, n + 1) in stores[(n + 1) % 3].told for n in range(3))


def test_a_cancelled_future_does_no_harm() -> None:
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    assert one.agent.alter_isr("t", 0, {2: two.agent.incarnation}).cancel()
    world.run(500)

    assert one.agent.alter_isr("t", 0, {}) is not None
    world.run(500)
    assert one.agent.must_acknowledge("t", 0) == {1}


@pytest.mark.parametrize("end", ["answered", "failed", "closed"])
def test_what_notes_the_end_of_a_change_finds_the_agent_free(log: FakeLog, end: str) -> None:
    """A leader asks for a change under the lock under which it decides what is committed, and what
    notes the outcome takes that lock, too. If the agent were locked meanwhile, a thread that asks
    it under that lock would wait for ever, and with it all that the transport serves."""
    answers: list[frozenset[int]] = []
    seen: list[bool] = []

    def note(_: Any) -> None:
        ask = threading.Thread(target=lambda: answers.append(one.must_acknowledge("t", 0)))
        ask.start()
        ask.join(60)
        seen.append(bool(answers))

    with agent(log) as one:
        one.ready()
        wait_until("it is Active", lambda: one.poll() and one.state == "Active")
        log.append(0, c.create(c.new_topic("t", assignment=[(1,)]), group=CLUSTER))
        wait_until("it leads", lambda: one.poll() and one.may_lead("t", 0))
        log.job_is_up = end == "answered"
        one.alter_isr("t", 0, {}).add_done_callback(note)
        if end == "failed":
            one.fail(ZeroDivisionError("a defect"))
        elif end == "closed":
            one.close(timeout_s=0)
        wait_until("it is seen", lambda: seen)

    assert seen == [True]


def test_what_notes_the_end_of_a_change_may_ask_for_the_next() -> None:
    """A leader whose change was overtaken asks again at once."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    more: list[Any] = []

    def again(_: Any) -> None:
        more.append(one.agent.alter_isr("t", 0, {2: two.agent.incarnation}))

    one.agent.alter_isr("t", 0, {}).add_done_callback(again)
    world.run(2_000)

    assert [each.result().isr for each in more] == [(1, 2)]


def test_metadata_before_ready_are_refused() -> None:
    world = World()
    (store,) = world.start(1, is_ready=False)

    with pytest.raises(BrokerFenced):
        store.agent.metadata()


def test_who_asks_a_closed_agent_gets_an_outcome() -> None:
    world = World()
    (store,) = world.start(1)
    world.close(store)

    assert isinstance(store.agent.alter_isr("t", 0, {}).exception(1), CoordError)
    assert not store.agent.may_lead("t", 0)
