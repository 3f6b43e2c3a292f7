"""Clients and stores of the act `brokers`: what they write down, what the checkers make of it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.client.kit.process import boottime_ns
from coordlib.demo.history import Happened, read
from coordlib.errors import CoordError
from examples.store.leader import Leader
from tests.examples.fake_agents import TOPIC, World
from tests.kit.waiting import wait_until
from tests.stack.acts.store_traffic import Traffic
from tests.stack.acts.store_witness import StoreWitness, StoreWitnessFile
from tests.tools.checking import checkers, stores


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three stores, polled in the background; the first one leads."""
    world, is_over = World(tmp_path), threading.Event()

    def poll() -> None:
        while not is_over.wait(0.02):
            for store in world.stores.values():
                store.poll(0)

    world.start(1, 2, 3)
    world.lead(1)
    polling = threading.Thread(target=poll)
    polling.start()
    yield world
    is_over.set()
    polling.join()
    world.close()


def traffic_of(world: World) -> Traffic:
    addresses = [store.address for store in world.stores.values()]
    return Traffic(world.folder / "clients.jsonl", TOPIC, 1, addresses)


def history_of(world: World, traffic: Traffic) -> list[Happened]:
    """As the demo gathers it: of files alone."""
    found = read(world.folder / "clients.jsonl")
    assert found == sorted(traffic.happened, key=lambda each: each.t_ms)
    for broker in world.stores:
        path = world.folder / f"store-{broker}.txt"
        file, witness = StoreWitnessFile(path), StoreWitness(f"store-{broker}", path)
        for of, what, at_ns, fields in world.told:
            if of == broker:
                file.told(what, at_ns, **fields)
        witness.read_on()
        found += witness.happened
    return sorted(found, key=lambda each: each.t_ms)


def test_what_is_written_down_keeps_every_promise(world: World) -> None:
    """Across two elections."""
    with traffic_of(world) as traffic:
        traffic.start()
        for leader in (2, 3):
            goal = traffic.acknowledged[0] + 5
            wait_until("it is acknowledged", lambda goal=goal: traffic.acknowledged[0] >= goal)
            world.lead(leader)
        goal = traffic.acknowledged[0] + 5
        wait_until("it is acknowledged", lambda: traffic.acknowledged[0] >= goal)
        traffic.stop()
        traffic.read_everything()
    found = history_of(world, traffic)

    assert checkers.check(found) == []
    assert stores.unread_puts(found) == []
    assert {each.generation for each in found if each.what == "acknowledged"} == {0, 1, 2}
    assert {each.key.split("-")[0] for each in found if each.what == "put"} == {"order", "counter"}


def sends_nothing(_: Leader, __: object, ___: int, begin: int) -> int:
    time.sleep(0.1)
    return begin


def test_a_store_that_waits_for_nobody_is_found_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acknowledges what it alone has; its successor does not know of it."""
    monkeypatch.setattr(Leader, "_wait", lambda *_, **__: boottime_ns())
    monkeypatch.setattr(Leader, "_send", sends_nothing)
    with traffic_of(world) as traffic:
        traffic.start()
        wait_until("it is acknowledged", lambda: traffic.acknowledged[0] >= 5)
        world.lead(2)
        wait_until("it is acknowledged", lambda: traffic.acknowledged[0] >= 10)
        traffic.stop()
        traffic.read_everything()

    broken = checkers.check(history_of(world, traffic))
    assert any(sentence.startswith("INV-78") for sentence in broken)


def test_a_put_at_one_leader_alone_waits_for_its_answer(world: World) -> None:
    """The demo suspends that leader meanwhile. Nobody else is asked, though another one leads."""
    with traffic_of(world) as traffic:
        world.agent(3).is_fenced = True
        key = traffic.wait_at(world.stores[1].address, 0)
        wait_until("it is in the log", lambda: bool(world.log(2)))
        assert traffic.happened == []
        world.lead(2)
        wait_until("something happens", lambda: bool(traffic.happened))
        traffic.stop()

    (waited,) = traffic.happened
    assert (waited.what, waited.key, waited.detail) == ("put_unknown", key, "REQUEST_TIMED_OUT")


def test_a_client_that_fails_is_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the demo would wait for its puts."""
    monkeypatch.setattr(Traffic, "_put", lambda *_: 1 / 0)
    with traffic_of(world) as traffic:
        traffic.start()
        with pytest.raises(CoordError, match="A client of the store failed"):
            wait_until("it fails", lambda: traffic.check() or False)


def test_a_stores_file_says_what_it_leads(tmp_path: Path) -> None:
    path = tmp_path / "store-1.txt"
    file, store = StoreWitnessFile(path), StoreWitness("store-1", path)
    where = {"topic": TOPIC, "partition": 4, "epoch": 2, "fence": 30}
    file.started()
    file.told("unfenced", 5)
    file.told("led", 7_000_000, **where)
    file.told("answered", 8_000_000, **where, key="k", value=None, offset=-1)
    file.error("what\nwhere")
    store.read_on()
    assert (store.led, store.is_fenced, store.errors) == ({4: 2}, False, ["what where"])
    assert store.happened[1] == Happened(
        8,
        "answered",
        member="store-1",
        partitions=(f"{TOPIC}-4",),
        generation=2,
        fence=30,
        key="k",
    )

    file.told("resigned", 9_000_000, **where)
    file.told("fenced", 9_000_000, reason="silent")
    store.read_on()
    assert (store.led, store.is_fenced) == ({}, True)

    file.told("led", 9_500_000, **where)
    file.started()
    store.read_on()
    assert (store.led, store.is_fenced) == ({}, True), "the process that led is gone"
