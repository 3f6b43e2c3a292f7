"""What becomes of clusters, as the real core tells it, in Delta tables without a JVM."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coordlib.core.engine.effects import EVENTS as EVENTS_TOPIC
from coordlib.core.engine.effects import Output
from coordlib.core.wire import api
from tests.history.assigned_life import row_of_event, write_tables
from tests.tools import clusters as c
from tests.tools.driving import Conversation

START = datetime(2026, 3, 1, 15, 0, tzinfo=UTC)
CLUSTER = "shop"
LEGACY_CLUSTER = "legacy-shop"
#: What leaders of `LEGACY_CLUSTER` have to be told as, and the question for it.
UNPROVED = [("t", 1, 0, False), ("t", 2, 1, True), ("u", 2, 0, False)]
ASK_UNPROVED = (
    "SELECT topic, leader, leader_epoch, unproved FROM leaders "
    f"WHERE group_id = '{LEGACY_CLUSTER}' ORDER BY topic, leader_epoch"
)


def rows_of_events(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    """The rows of `events` that the archive makes of these outputs."""
    return [
        row_of_event(json.loads(each.value))
        for each in outputs
        if each.topic == EVENTS_TOPIC and each.value is not None
    ]


class ClusterLife:
    """A cluster whose brokers do at once what they are told; some fall silent.

    Three brokers; `orders` has three partitions with three replicas, `audit` one on broker 2.
    """

    def __init__(self, name: str = CLUSTER, talk: Conversation | None = None) -> None:
        self.name = name
        if talk is None:
            talk = Conversation()
            talk.now_ms = int(START.timestamp() * 1000)
        self.talk = talk
        self._silent: set[int] = set()

    @property
    def cluster(self) -> Any:
        return c.cluster_of(self.talk.shard, self.name)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.talk.now_ms / 1000, UTC)

    def register(self, broker: int, **fields: Any) -> None:
        """A process of this broker starts, and is Active."""
        self.say(c.register(broker, group=self.name, **{"id": f"r{self._next}", **fields}))
        self._silent.discard(broker)
        self.wants(broker, "Active")

    @property
    def _next(self) -> int:
        return self.talk.next_offset

    def say(self, request: Any) -> list[str]:
        """Write a request, and let all of its outputs be read."""
        lines = self.talk.send(c.with_fields(request, group=self.name))
        self.talk.tick()
        return lines

    def wants(self, broker: int, target: str) -> None:
        known = self.cluster.brokers[broker]
        self.say(c.beat(broker, known.incarnation, known.since, target, client=known.client))

    def let_go(self, broker: int) -> None:
        """It lets go of what it is asked for."""
        known = self.cluster.brokers[broker]
        self.say(c.lets_go(known.client, known.member, known.demand.timer.cause))

    def isr(self, topic: str, partition: int, *brokers: int) -> None:
        """The leader names those that are in sync."""
        row = c.partitions_of(self.talk.shard, self.name)[topic, partition]
        known = self.cluster.brokers
        isr = tuple((each, known[each].incarnation) for each in brokers)
        rows = {(topic, partition): (row.leader_epoch, row.partition_epoch, isr)}
        leader = known[row.leader]
        self.say(c.alter(leader.broker, leader.incarnation, rows, client=leader.client))

    def falls_silent(self, broker: int) -> None:
        self._silent.add(broker)

    def passes(self, seconds: int) -> None:
        """Time passes; whoever is not silent heartbeats."""
        for _ in range(seconds):
            for broker in self.cluster.brokers.values():
                if broker.broker not in self._silent and broker.has_session:
                    self.talk.send(c.lives(broker.client, broker.member, group=self.name))
            self.talk.tick(after_ms=1_000)

    def rows(self) -> list[dict[str, Any]]:
        return rows_of_events(self.talk.outputs)

    def write(self, tables: Path) -> Path:
        """The tables as the archive writes them."""
        return write_tables(tables, self.rows())


def a_life_of_a_cluster() -> ClusterLife:
    """A leader dies and comes back, another is replaced while it leads, a third stops in order; one
    topic is led by nobody for a while, and another is deleted."""
    life = ClusterLife()
    for broker in (1, 2, 3):
        life.register(broker, storage=f"disk-{broker}", rack=f"r{broker}")
    life.say(
        c.create(
            c.new_topic("orders", assignment=[(1, 2, 3), (2, 3, 1), (3, 1, 2)]),
            c.new_topic("audit", assignment=[(2,)]),
            c.new_topic("gone", assignment=[(3,)]),
        )
    )
    life.passes(5)
    life.falls_silent(2)
    life.passes(15)
    life.register(2, client="b2-again", storage="disk-2")
    for partition in range(3):
        life.isr("orders", partition, 1, 2, 3)
    life.passes(3)
    life.register(1, client="b1-again", storage="disk-1")  # its former process may still lead
    life.passes(12)
    life.wants(3, "Stopping")
    life.passes(1)
    life.let_go(3)
    life.passes(1)
    life.wants(3, "Inactive")
    life.passes(2)
    life.say(c.about(api.DeleteTopics, topics=("gone",)))
    life.wants(3, "Active")
    row = c.partitions_of(life.talk.shard, CLUSTER)["gone", 0]
    told = api.DeletedReplica(topic="gone", topic_id=row.topic_id, partition=0)
    life.say(c.deleted(3, life.cluster.brokers[3].incarnation, told, client="b3"))
    life.passes(3)
    return life


def a_legacy_leader_is_replaced(talk: Conversation | None = None) -> ClusterLife:
    """KIP-343's legacy registration: nobody can ask such a broker to let go, so two may have acted.

    Args:
        talk: to which shard; None: to one of its own.
    """
    life = ClusterLife(LEGACY_CLUSTER, talk)
    life.say(c.register(1, version=4))
    life.register(2)
    life.say(c.create(c.new_topic("t", assignment=[(1,)])))
    life.say(c.create(c.new_topic("u", assignment=[(2,)])))
    life.say(c.move(("t", 0), (2,)))
    life.isr("t", 0, 1, 2)
    return life
