"""Stand-ins for the agents of a store's brokers: what they have read is what a test says.

A test is the controller: it gives leaderships, and takes or refuses what leaders ask for.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from coordlib.client import BrokerFenced, Following, Leadership
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api
from examples.store.server import Store

TOPIC = "entries"
PLACE = (TOPIC, 0)


class FakeAgent:
    """Has the public methods of a BrokerAgent that the store needs."""

    def __init__(self, world: "World", cluster: str, *, broker: int, **options: Any) -> None:
        self.world, self.broker, self.options = world, broker, options
        self.incarnation = 100 + broker
        self.is_fenced = False
        #: Whether its lease holds.
        self.has_lease = True
        #: Between a leadership's end and the callback that tells of it.
        self.counts_nobody = False
        #: Whether its newest AlterPartition says so.
        self.has_recovered = False
        #: Whom it has named under the newest partition epoch (rule 16).
        self.named: dict[Place, set[int]] = {}
        self.asked: list[tuple[dict[int, int], Future[Any]]] = []

    def poll(self, timeout_s: float) -> bool:
        return True

    def may_lead(self, topic: str, partition: int, epoch: int) -> bool:
        row = self.world.rows[topic, partition]
        is_led = (row.leader, row.leader_epoch) == (self.broker, epoch)
        return self.has_lease and not self.is_fenced and is_led

    def must_acknowledge(self, topic: str, partition: int) -> frozenset[int]:
        place = (topic, partition)
        if self.counts_nobody:
            return frozenset()
        return frozenset({*self.world.rows[place].isr, *self.named.get(place, ())})

    def metadata(self) -> Any:
        if self.is_fenced:
            raise BrokerFenced("here", "the test says so")
        world = self.world
        return SimpleNamespace(
            brokers=world.brokers, topics=world.topics, partitions=dict(world.rows)
        )

    def alter_isr(
        self, topic: str, partition: int, isr: Mapping[int, int], has_recovered: bool = False
    ) -> "Future[Any]":
        future: Future[Any] = Future()
        self.named.setdefault((topic, partition), set()).update(isr)
        self.asked.append((dict(isr), future))
        self.has_recovered = has_recovered
        return future


class World:
    """Stores with agents like these, and one topic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = {
            PLACE: api.ReplicaRow(TOPIC, 0, 7, -1, -1, 0, -1, (1, 2, 3), (1, 2, 3)),
        }
        self.topics = {TOPIC: api.TopicRow(TOPIC, 7, 1, 2, False, False)}
        self.brokers: dict[int, api.BrokerRow] = {}
        self.stores: dict[int, Store] = {}
        #: What stores have told of: (broker, what, when, fields).
        self.told: list[tuple[int, str, int, dict[str, Any]]] = []

    def start(self, *brokers: int) -> None:
        for broker in brokers:
            self.stores[broker] = store = self._store(broker)
            endpoints = store.agent.options["endpoints"]
            self.brokers[broker] = api.BrokerRow(
                broker, store.agent.incarnation, "Active", tuple(endpoints), None
            )

    def _store(self, broker: int) -> Store:
        def make_agent(*arguments: Any, **options: Any) -> FakeAgent:
            return FakeAgent(self, *arguments, **options)

        def tell(what: str, at_ns: int, **fields: Any) -> None:
            self.told.append((broker, what, at_ns, fields))

        folder = self.folder / str(broker)
        return Store(broker, ("127.0.0.1", 0), folder, make_agent=make_agent, tell=tell)

    def agent(self, broker: int) -> FakeAgent:
        agent: FakeAgent = self.stores[broker].agent
        return agent

    def lead(self, leader: int, isr: tuple[int, ...] = (1, 2, 3), *, unread: int = -1) -> None:
        """A new leader epoch; all read of it, but for one that is slow."""
        row = self.rows[PLACE]
        epoch = row.leader_epoch + 1
        self.rows[PLACE] = replace(
            row,
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=row.partition_epoch + 1,
            isr=isr,
        )
        for broker, store in self.stores.items():
            store.agent.named.clear()
            if broker == leader:
                told = Leadership(TOPIC, 0, epoch, 1_000 + epoch, isr, row.replicas, row.topic_id)
                self._callback(broker, "on_leader")(told)
            elif broker != unread:
                follows = Following(TOPIC, 0, epoch, leader, row.topic_id)
                self._callback(broker, "on_follower")(follows)

    def resign(self, broker: int) -> None:
        self._callback(broker, "on_resign")([PLACE])

    def stop(self, broker: int, delete: bool) -> None:
        self._callback(broker, "on_stop")(TOPIC, 0, delete)

    def _callback(self, broker: int, name: str) -> Callable[..., None]:
        callback: Callable[..., None] = self.agent(broker).options[name]
        return callback

    def takes(self, broker: int) -> dict[int, int]:
        """The controller accepts the newest AlterPartition of a leader."""
        isr, future = self.agent(broker).asked[-1]
        row = self.rows[PLACE]
        self.rows[PLACE] = replace(
            row, isr=tuple(sorted(isr)), partition_epoch=row.partition_epoch + 1
        )
        self.agent(broker).named.clear()
        future.set_result(None)
        return isr

    def refuses(self, broker: int) -> None:
        """It refuses one with a new member; whom the leader has named counts on (rule 16)."""
        isr, future = self.agent(broker).asked[-1]
        if isr.keys() - set(self.rows[PLACE].isr) and not future.done():
            future.set_result(None)

    def log(self, broker: int) -> list[tuple[int, str, Any]]:
        """What a store has of the partition."""
        return [tuple(each) for each in self.stores[broker]._replicas[PLACE].log.entries]

    def close(self) -> None:
        for store in self.stores.values():
            store.close()
