"""The replicated store with its real agents, over the real core in memory and over real sockets.

Time of the log goes four times as fast as the clock by which leaders miss followers.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordlib.client import BrokerTiming
from coordlib.demo.history import Happened
from coordlib.local.processes import LOOPBACK, free_ports
from coordlib.testing.fake_log import FakeLog
from examples.store.server import CLUSTER, Store
from tests.stack.acts.store_traffic import Traffic
from tests.stack.acts.store_witness import StoreWitness, StoreWitnessFile
from tests.tools import clusters as c
from tests.tools.checking import checkers, stores

TOPIC = "entries"
TIMING = BrokerTiming(
    session_timeout_ms=6_000, release_timeout_ms=12_000, heartbeat_interval_ms=1_000
)
ASSIGNMENT = [(1, 2, 3), (1, 3, 2), (2, 3, 1)]
STEP_MS = 100


class Fleet:
    """Three stores, a topic of three partitions, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.log, self._folder = FakeLog({}), folder
        self._addresses = [(LOOPBACK, port) for port in free_ports(3)]
        self.stores: dict[int, Store] = {}
        self.witnesses: dict[int, StoreWitness] = {}
        self.transports = {broker: self.log.transport() for broker in (1, 2, 3)}
        self.traffic = Traffic(folder / "clients.jsonl", TOPIC, 3, self._addresses)

    def begin(self) -> None:
        for broker in self.transports:
            self.start(broker)
        self.until(lambda: not any(each.agent.is_fenced for each in self.stores.values()))
        topic = c.new_topic(TOPIC, assignment=ASSIGNMENT, min_isr=2)
        self.log.append(0, c.create(topic, group=CLUSTER))
        self.until(lambda: len(self.led(1, 2, 3)) == 3)
        self.traffic.start()
        self.until_put()

    def start(self, broker: int) -> None:
        path = self._folder / f"store-{broker}.txt"
        self.witnesses[broker] = StoreWitness(f"store-{broker}", path)
        store = self.stores[broker] = Store(
            broker,
            self._addresses[broker - 1],
            self._folder / str(broker),
            tell=StoreWitnessFile(path).told,
            transport=self.transports[broker],
            client=f"store-{broker}",
            timing=TIMING,
        )
        store.agent.ready()

    def end(self, broker: int) -> None:
        """As at the end of its program: others lead first."""
        store = self.stores[broker]
        store.agent.stop()
        self.until(lambda: not store.poll(0))
        del self.stores[broker]
        store.agent.close(timeout_s=0)
        store.close()

    def led(self, *brokers: int) -> dict[int, int]:
        """Partition -> leader epoch, by what these wrote."""
        found: dict[int, int] = {}
        for broker in brokers:
            self.witnesses[broker].read_on()
            found |= self.witnesses[broker].led
        return found

    def until(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < until_s
            self.log.advance(STEP_MS, self._poll, STEP_MS)
            time.sleep(STEP_MS / 4_000)
            self.traffic.check()

    def until_put(self) -> None:
        """Each partition has three more acknowledged puts."""
        goals = {each: count + 3 for each, count in self.traffic.acknowledged.items()}
        self.until(lambda: all(self.traffic.acknowledged[n] >= goals[n] for n in goals))

    def until_in_sync(self) -> None:
        def is_so() -> bool:
            agent = next(iter(self.stores.values())).agent
            return not agent.is_fenced and all(
                len(row.isr) == 3 for row in agent.metadata().partitions.values()
            )

        self.until(is_so)

    def history(self) -> list[Happened]:
        """After every key was read once more."""
        self.traffic.stop()
        self.traffic.read_everything()
        self.led(*self.witnesses)
        found = [each for store in self.witnesses.values() for each in store.happened]
        return sorted([*found, *self.traffic.happened], key=lambda each: each.t_ms)

    def _poll(self) -> None:
        for store in list(self.stores.values()):
            store.poll(0)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    with fleet.traffic:
        fleet.begin()
        yield fleet
    for store in fleet.stores.values():
        store.close()


def test_a_leader_that_is_cut_off_and_one_that_stops_lose_nothing(fleet: Fleet) -> None:
    """Clients and followers reach the first one all along; only the log it does not reach. The
    second one lets others lead, and nobody waits for a session."""
    before = fleet.led(1)
    fleet.transports[1].is_cut = True
    fleet.until(lambda: before.keys() <= fleet.led(2, 3).keys())
    fleet.until_put()
    fleet.transports[1].is_cut = False
    fleet.until_in_sync()
    moved = fleet.led(2)
    fleet.end(2)
    fleet.until_put()
    assert moved.keys() <= fleet.led(1, 3).keys()

    history = fleet.history()
    assert checkers.check(history) == []
    assert stores.unread_puts(history) == []
    epochs = {each.generation for each in history if each.what == "acknowledged"}
    assert epochs >= {0, 1, 2}, "each was led by three in turn"
