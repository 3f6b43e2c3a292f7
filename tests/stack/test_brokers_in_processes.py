"""Brokers that are processes of their own, over a real broker of Kafka's and a real Spark job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from coordlib.client.admin import Admin
from coordlib.core.wire.api import NewTopic
from coordlib.local.stack import Stack
from tests.stack.broker import TIMING
from tests.stack.fleet import Fleet

pytestmark = pytest.mark.stack

NAMES = ("b1", "b2", "b3")
T0 = ("t", 0)
NS = 1_000_000_000
S_S = TIMING.session_timeout_ms / 1_000
Tell = Callable[[str], None]


@pytest.fixture
def cluster() -> str:
    """One that no other test uses."""
    return f"c-{uuid4().hex[:8]}"


@pytest.fixture
def fleet(shared_stack: Stack, cluster: str, tmp_path: Path) -> Iterator[Fleet]:
    config = {"bootstrap.servers": shared_stack.bootstrap_servers}
    with Fleet(tmp_path, cluster, config) as fleet:
        yield fleet


@pytest.fixture
def led(shared_stack: Stack, fleet: Fleet) -> Fleet:
    """Three brokers; six partitions on all of them, each broker the preferred leader of two."""
    fleet.start(*NAMES)
    fleet.until("all are Active", lambda: all(fleet[name].told("unfenced") for name in NAMES))
    orders = [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 2
    rows = {str(number): order for number, order in enumerate(orders)}
    with Admin({"bootstrap.servers": shared_stack.bootstrap_servers}) as admin:
        (made,) = admin.create_topics(fleet.cluster, [NewTopic(topic="t", assignment=rows)])
        assert made.error == "NONE"
    fleet.until_led(6, *NAMES)
    return fleet


def test_a_leader_dies_and_another_one_stops_in_order(led: Fleet) -> None:
    """Power fails on one machine, then another one is taken down for maintenance.  # INV-71"""
    killed_ns = led.kill("b1")
    led.until_led(6, "b2", "b3")
    first_ns = min(t.first_ns for t in led.terms() if t.process != "b1" and t.first_ns > killed_ns)
    # The dead one was heard a heartbeat before at most.
    assert first_ns - killed_ns >= (S_S - 2 * TIMING.heartbeat_interval_ms / 1_000) * NS

    led.stop("b2")
    led.until_led(6, "b3")
    (closed,) = led["b2"].told("closed")
    assert led["b2"].told("resign"), "it was asked, and let go"
    assert [line["reason"] for line in led["b2"].told("fenced")] == ["closed"]
    assert closed["took_s"] < S_S, "nobody has waited for a session"
    led.holds()


@pytest.mark.chaos
def test_who_is_suspended_beyond_its_session_acknowledges_nothing_when_it_wakes(led: Fleet) -> None:
    """A put waits in its hands while another broker is elected (F-05).  # INV-71"""
    (place,) = [each for each in led["b1"].leads if each == T0]
    led["b1"].put.touch()
    led.until("a put waits", lambda: led["b1"].told("waiting"))
    led.suspend("b1")
    led.until_led(6, "b2", "b3")
    resumed_ns = led.resume("b1")
    led["b1"].put.unlink()

    led.until("it refuses", lambda: led["b1"].told("refused"))
    led.until("it is back", lambda: len(led["b1"].told("unfenced")) == 2)
    last = led["b1"].acks_of(place)
    successors = [t for t in led.terms() if t.place == place and t.process != "b1"]
    assert last is not None
    assert last[1] < min(each.first_ns for each in successors) < resumed_ns
    led.holds()


@pytest.mark.chaos
def test_who_hears_nothing_stops_itself_and_falls_silent(led: Fleet) -> None:
    """Its heartbeats are taken all along, but it cannot be told anything (rule 9).  # INV-71"""
    led["b1"].deaf.touch()
    led.until_led(6, "b2", "b3")
    led.holds()
    led["b1"].deaf.unlink()

    led.until("it is back", lambda: len(led["b1"].told("unfenced")) == 2)
    led.holds()


@pytest.mark.chaos
def test_a_killed_broker_is_back_without_a_wait_by_the_lock_of_its_folder(led: Fleet) -> None:
    """A supervisor starts it at once: what it led is led again before its session would end."""
    killed_ns = led.kill("b1")
    led.start("b1again", number=1)
    led.until_led(6, "b2", "b3", "b1again")

    newer = [t for t in led.terms() if t.first_ns > killed_ns and t.process != "b1"]
    assert max(each.first_ns for each in newer) - killed_ns < S_S * NS
    led.holds()


@pytest.mark.chaos
def test_the_newer_of_two_processes_wins(led: Fleet, tmp_path: Path) -> None:
    """Both have the id 1, and folders of their own: the older one ends by itself."""
    led.start("b1other", number=1)
    assert led.ended("b1other") == 1, "the folder of the older one is locked"
    assert "Another process uses this broker's folder" in led["b1other"].log.read_text()

    led["b1"].data.rename(tmp_path / "elsewhere")
    led.start("b1new", number=1)
    assert led.ended("b1") == 1
    assert led["b1"].told("replaced")
    led.until_led(6, "b2", "b3", "b1new")
    led.holds()
