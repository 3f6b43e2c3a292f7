"""What agents make of wrong names, full clusters, other processes, and incarnations of others."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordlib.client import BrokerAgent, BrokerReplaced, BrokerTiming, Endpoint
from coordlib.core.wire import api
from coordlib.errors import CoordError, GroupError, NotReady, SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.controller.world import CLUSTER, T0, TIMING, World, outcome
from tests.tools import clusters as c

ENDPOINTS = [Endpoint("in", "host", 9092)]


def agent(**fields: Any) -> BrokerAgent:
    given: dict[str, Any] = {"broker": 1, "endpoints": ENDPOINTS, "timing": TIMING, **fields}
    given.setdefault("transport", FakeLog({}).transport())
    return BrokerAgent(given.pop("cluster", CLUSTER), **given)


# ---- refused before anything is sent ----------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"broker": -1},
        {"broker": 2**31},
        {"endpoints": []},
        {"endpoints": [Endpoint(f"e{n}", "host", 1) for n in range(17)]},
        {"endpoints": [*ENDPOINTS, *ENDPOINTS]},
        {"broker": "7"},
        {"endpoints": [("in", "host", 9092)]},
        {"endpoints": [Endpoint("in", "host", 0)]},
        {"endpoints": [Endpoint("in", "host", 65_536)]},
        {"endpoints": [Endpoint("in", "", 9092)]},
        {"endpoints": [Endpoint("", "host", 9092)]},
        {"rack": ""},
        {"cluster": ""},
        {"cluster": "x" * 250},
        {"client": "x" * 151},
    ],
    ids=str,
)
def test_wrong_names_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        agent(**fields)


def test_an_agent_without_options_is_told_so() -> None:
    """And not that Kafka does not answer: nobody was asked."""
    with pytest.raises(SetupError, match="bootstrap"):
        BrokerAgent(CLUSTER, broker=1, endpoints=ENDPOINTS)


def test_a_door_that_would_close_before_the_session_ends_is_refused() -> None:
    """Then a broker would close its door that nobody has declared Inactive."""
    with pytest.raises(SetupError, match="fence timeout"):
        BrokerTiming(session_timeout_ms=9_000, fence_timeout_ms=8_999)
    assert BrokerTiming(session_timeout_ms=9_000).fenced_after_ms == 18_000


@pytest.mark.parametrize("interval_ms", [0, -1, 3_376, 9_000, 60_000])
def test_signs_of_life_that_are_too_rare_or_never_end_are_refused(interval_ms: int) -> None:
    """A broker whose heartbeats are as rare as its session is long is declared Inactive again and
    again. Two of them fit into the time that one of them bears (rule 8): one may be late."""
    with pytest.raises(SetupError, match="heartbeat_interval_ms"):
        BrokerTiming(session_timeout_ms=9_000, heartbeat_interval_ms=interval_ms)
    BrokerTiming(session_timeout_ms=9_000, heartbeat_interval_ms=3_375)


def test_a_session_into_which_no_heartbeat_fits_is_to_be_longer() -> None:
    """No interval is offered that nobody could choose."""
    with pytest.raises(SetupError, match="session_timeout_ms 1000\\nChoose a longer session"):
        BrokerTiming(session_timeout_ms=1_000)


@pytest.mark.parametrize("what", ["new_token", "attach", "send"])
def test_an_agent_that_cannot_be_made_gives_its_folder_back(tmp_path: Path, what: str) -> None:
    """A program that tries again must not be told that another process uses its folder, and what
    was made half-way must not register later."""
    world = World()
    transport = world.log.transport()

    def raise_(*_: Any) -> None:
        raise ZeroDivisionError("a defect")

    works = getattr(transport, what)
    setattr(transport, what, raise_)
    with pytest.raises(ZeroDivisionError):
        world.enter(1, folder=tmp_path, transport=transport)
    setattr(transport, what, works)
    world.run(30_000)
    assert not world.of(1, api.RegisterBroker)

    (store,) = world.start(1, folder=tmp_path, transport=transport)
    assert store.agent.state == "Active"


def test_a_locked_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A second process of the same broker on the same machine."""
    world = World()
    world.start(1, folder=tmp_path)

    with pytest.raises(NotReady):
        world.enter(1, folder=tmp_path)

    assert len(world.of(1, api.RegisterBroker)) == 1


# ---- refused by the controller ----------------------------------------------------------------


@pytest.mark.parametrize(
    "timing",
    [
        BrokerTiming(session_timeout_ms=5_999),
        BrokerTiming(session_timeout_ms=1_800_001),
        BrokerTiming(release_timeout_ms=5_999),
    ],
    ids=str,
)
def test_what_the_controller_refuses_lets_poll_raise(timing: BrokerTiming) -> None:
    """Its bounds are settings of the job, which an agent cannot know."""
    world = World()
    store = world.enter(1, timing=timing)
    store.agent.ready()
    world.run(1_000)

    assert isinstance(store.errors[0], GroupError)
    assert store.errors[0].code.name == "INVALID_SESSION_TIMEOUT"
    assert store.agent.state == "Failed"
    assert not store.agent.may_lead("t", 0)


# ---- other processes --------------------------------------------------------------------------


def test_the_newer_of_two_processes_wins_and_the_older_one_is_over_for_good() -> None:
    """On two machines with one broker id: no war of two."""
    world = World()
    older, other = world.start(1, 2)
    world.create((1, 2))
    assert older.agent.may_lead("t", 0)

    (newer,) = world.start(1, client="store-1b")
    world.run(2_000)

    assert isinstance(older.errors[0], BrokerReplaced)
    assert not older.agent.may_lead("t", 0)
    assert "leader" not in older.kinds()[older.kinds().index("fenced") :]
    assert other.agent.may_lead("t", 0), "the older one has said that it stopped"
    world.run(20_000)
    assert newer.agent.state == "Active"
    assert len(world.of(1, api.RegisterBroker)) == 1, "it does not come back"


def test_a_restart_with_its_folder_need_not_be_waited_for(tmp_path: Path) -> None:
    """It was killed and is started again at once: the lock says that its process has ended."""
    world = World()
    one, two = world.start(1, 2, folder=None)
    world.close(one)
    (one,) = world.start(1, folder=tmp_path)
    world.create((1, 2))
    assert one.agent.may_lead("t", 0)

    died(world, one)
    (again,) = world.start(1, folder=tmp_path, client="store-1b")
    world.run(500)

    assert two.agent.may_lead("t", 0), "without waiting for a session"
    assert again.agent.state == "Active"
    registered = [each for each in world.requests if isinstance(each, api.RegisterBroker)]
    assert registered[-1].previous == one.agent.incarnation


def test_without_a_folder_its_successor_waits_until_it_must_have_stopped() -> None:
    """Nobody knows whether the older process has ended (rule 14)."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    one.transport.is_cut = one.is_busy = True

    world.start(1, client="store-1b")
    world.run(2_000)
    assert not two.agent.may_lead("t", 0)
    world.until(lambda: two.agent.may_lead("t", 0))
    assert not one.agent.may_lead("t", 0)


def test_a_copied_folder_does_not_say_that_the_original_has_ended(tmp_path: Path) -> None:
    """Same storage twice: the newer wins, and what the older led is guarded."""
    world = World()
    one, two = world.start(1, 2, folder=None)
    world.close(one)
    (one,) = world.start(1, folder=tmp_path / "data")
    world.create((1, 2))
    one.transport.is_cut = one.is_busy = True
    shutil.copytree(tmp_path / "data", tmp_path / "copy")

    world.start(1, folder=tmp_path / "copy", client="store-1b")
    world.run(2_000)

    assert not two.agent.may_lead("t", 0)
    first, second = (e for e in world.requests if isinstance(e, api.RegisterBroker) and e.storage)
    assert first.storage == second.storage
    assert second.previous == -1


def test_an_operator_removes_a_broker_and_it_comes_back() -> None:
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))

    world.say(c.leaves("ops", one.agent.member_id, group=CLUSTER))
    world.run(3_000)

    assert one.agent.state == "Active"
    assert not one.errors
    assert ("fenced", "removed by ops") in one.told
    assert two.agent.may_lead("t", 0)


def test_a_broker_that_was_forgotten_registers_anew() -> None:
    """An operator was sure that it was gone."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    one.transport.is_cut = True
    world.run(25_000)
    world.say(c.about(api.UnregisterBroker, broker=1, group=CLUSTER))
    one.transport.is_cut = False
    world.run(5_000)

    assert one.agent.state == "Active"
    assert len(world.of(1, api.RegisterBroker)) == 2
    assert two.agent.may_lead("t", 0)


def test_a_user_that_never_polls_leads_nothing_and_is_back_when_it_does() -> None:
    """Its thread hangs; its process heartbeats on."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    one.is_busy = True

    took_ms = world.until(lambda: two.agent.may_lead("t", 0))
    assert 12_000 <= took_ms <= 16_000
    one.is_busy = False
    world.run(3_000)

    assert one.agent.state == "Active"
    assert ("fenced", "poll was not called within the release timeout") in one.told


# ---- requests of its own that are refused -----------------------------------------------------


def test_incarnations_of_others_and_of_the_future_are_refused() -> None:
    """KIP-903: who was restarted since it fetched has perhaps not what it had."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    for incarnation in (two.agent.incarnation - 1, two.agent.incarnation + 1_000):
        future = one.agent.alter_isr("t", 0, {2: incarnation})
        world.run(500)
        refused = outcome(future)
        assert isinstance(refused, GroupError)
        assert refused.code.name == "INELIGIBLE_REPLICA"

    assert one.agent.must_acknowledge("t", 0) == {1, 2}
    done = outcome(shrunk(world))
    assert isinstance(done, api.AlteredRow)
    assert done.isr == (1,)
    assert one.agent.must_acknowledge("t", 0) == {1}


@pytest.mark.parametrize(
    "isr",
    [{2: -1}, {-1: 5}, {2: 2**63}, {2**31: 5}, dict.fromkeys(range(33), 5)],
    ids=["unregistered", "no broker", "above int64", "above int32", "33 brokers"],
)
def test_what_can_be_no_isr_fails_alone_and_is_not_written(isr: dict[int, int]) -> None:
    """A follower told the incarnation that it has before it is registered: -1. The changes of other
    partitions that would go out in the same request are not to fail with it."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2), (1, 2), (1, 2))
    good = {2: two.agent.incarnation}
    first = one.agent.alter_isr("t", 0, good)  # under way; the next two wait for the same request
    futures = [one.agent.alter_isr("t", 1, good), one.agent.alter_isr("t", 2, isr)]
    world.run(1_000)

    assert [isinstance(outcome(each), api.AlteredRow) for each in (first, *futures)] == [1, 1, 0]
    refused = outcome(futures[1])
    assert isinstance(refused, GroupError)
    assert refused.code.name == "INVALID_REQUEST"
    assert one.agent.must_acknowledge("t", 2) == {1, 2}


@pytest.mark.parametrize("isr", [{2: None}, {"2": 5}, {2: 1.5}, {2: b"5"}], ids=repr)
def test_what_is_no_number_is_refused_at_once_and_does_no_harm(isr: Any) -> None:
    """A defect of the program, which its own thread is told. The agent goes on."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))

    with pytest.raises(TypeError):
        one.agent.alter_isr("t", 0, isr)

    future = one.agent.alter_isr("t", 0, {2: two.agent.incarnation})
    world.run(1_000)
    assert isinstance(outcome(future), api.AlteredRow)


def test_numbers_of_other_libraries_are_numbers() -> None:
    """As of numpy, whose integers JSON does not know."""

    class Number:
        def __init__(self, number: int) -> None:
            self.number = number

        def __index__(self) -> int:
            return self.number

    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    isr: Any = {Number(2): Number(two.agent.incarnation)}
    future = one.agent.alter_isr("t", 0, isr)
    world.run(1_000)

    assert isinstance(outcome(future), api.AlteredRow)


def test_a_change_without_an_answer_ends_with_the_agent() -> None:
    """The job is away for an hour, and the program ends."""
    world = World()
    (one,) = world.start(1)
    world.create((1,))
    world.log.job_is_up = False
    future = one.agent.alter_isr("t", 0, {})
    world.run(500)
    assert not future.done()

    world.close(one)

    assert isinstance(outcome(future), CoordError)


def shrunk(world: World) -> Any:
    """The first broker is alone in sync."""
    future = world.stores[0].agent.alter_isr(*T0, {})
    world.run(500)
    return future


def died(world: World, store: Any) -> None:
    """Killed: it does nothing any more, and the system gives its lock back."""
    world.stores.remove(store)
    store.transport.is_cut = True
    folder = store.agent._home._folder
    if folder is not None:
        os.close(folder._lock)
