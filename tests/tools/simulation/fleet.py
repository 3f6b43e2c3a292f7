"""A cluster of stores beside the groups of a world: its processes, its operator, and who looks on.

One process at most acts as leader of a partition, at any true time (INV-71), and whoever begins to
lead has what was committed before (INV-78). Both are looked at while it happens.
"""

from collections import Counter
from functools import partial
from typing import Any, Final

import msgspec

from coordlib.client.controller.requests import BrokerTiming, Leadership
from coordlib.core.controller import states as kept
from coordlib.core.controller.states import Cluster, Partition
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import PartitionValue
from coordlib.kafka.layout import Place as Where
from tests.tools.simulation.disks import Disk, Entry, Place
from tests.tools.simulation.scheduler import Clock, Process, rate_of
from tests.tools.simulation.signed_worlds import believes_forgeries
from tests.tools.simulation.store import Store, StoreHabits
from tests.tools.simulation.transport import Network, SimulatedTransport
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import INCARNATION, PREFIX, REPLY_PARTITIONS, World

NAME: Final = "shop"
OPERATOR: Final = "operator of stores"
#: Its leader may be one that lacks what was committed.
UNCLEAN: Final = "spare"
STARTS_MS: Final = 3_000
OPERATOR_LOOKS_MS: Final = 2_000
FOR_EVER_MS: Final = 10**9
_decode_partition = msgspec.json.Decoder(PartitionValue).decode


class Fleet:
    """All stores of one world."""

    def __init__(self, world: World) -> None:
        plan, luck = world.plan, world.stream("stores")
        self.world, self.name = world, f"{NAME}-{luck.randrange(100)}"
        self.brokers = range(1, plan.brokers + 1)
        self.shard = shard_of(self.name, plan.shards)
        #: All processes; and the newest of each broker.
        self.stores: list[Store] = []
        self.newest: dict[int, Store] = {}
        self.disks = {each: Disk(f"disk-{each}") for each in self.brokers}
        self.networks: dict[str, Network] = {}
        self._luck, self._requests, self._disks = luck, 0, 0
        self.timing = BrokerTiming(
            plan.session_timeout_ms, plan.rebalance_timeout_ms, None, plan.heartbeat_interval_ms
        )
        self.topics = self._drawn_topics()
        #: Values by partition and topic id that were committed. None: they may be lost.
        self.committed: dict[tuple[Place, int], dict[Entry, None] | None] = {}
        self._looked_at = 0
        self._believes_forgeries = believes_forgeries(world.plan)
        self.met: Counter[str] = Counter()
        #: The broker that is killed in peace; nobody starts it again.
        self.mourned = -1

    # ---- the beginning -------------------------------------------------------------------------

    def _drawn_topics(self) -> dict[str, api.NewTopic]:
        luck, count = self._luck, len(self.brokers)
        found = {"ledger": self._topic("ledger", luck.randint(1, 3), min(3, count))}
        if luck.random() < 0.5:
            found[UNCLEAN] = self._topic(UNCLEAN, luck.randint(1, 2), 2, unclean=True)
        return found

    def _topic(self, name: str, partitions: int, replicas: int, **fields: Any) -> api.NewTopic:
        first = self._luck.randrange(len(self.brokers))
        turn = [*self.brokers] * 3
        rows = {str(n): tuple(turn[first + n : first + n + replicas]) for n in range(partitions)}
        return api.NewTopic(topic=name, assignment=rows, **fields)

    def begin(self) -> None:
        """Its stores start one after the other; then the operator makes what is not there."""
        for broker in self.brokers:
            after_ms = self._luck.uniform(0, STARTS_MS)
            self.world.scheduler.after(after_ms, partial(self._start_first, broker))
        self.world.every(OPERATOR_LOOKS_MS, self._make_topics)
        self.world.looks.append(self.check)
        self.world.lasting("stores", FOR_EVER_MS, self.heal)

    def _start_first(self, broker: int) -> None:
        self.start(broker)

    def _make_topics(self) -> bool:
        """Also again, after they were deleted."""
        if self.world.cluster.is_up:
            known = self.world.cluster.newest_by_key(f"{PREFIX}.metadata", self.shard)
            missing = [
                topic
                for name, topic in self.topics.items()
                if kept.TOPICS.key(self.name, (name, 0)) not in known
            ]
            if missing:
                self.ask(api.CreateTopics, topics=tuple(missing))
        return True

    def ask(self, request: type[Any], **fields: Any) -> None:
        """The operator writes a request."""
        self._requests += 1
        envelope: dict[str, Any] = {"v": 1, "client": OPERATOR, "group": self.name, "reply": 0}
        made = request(**envelope, id=f"{self._requests}", **fields)
        place = (f"{PREFIX}.requests", self.shard)
        self.world.cluster.append(place, self.name.encode(), codec.encode(made))

    # ---- processes -----------------------------------------------------------------------------

    def start(self, broker: int, disk: Disk | None = None) -> Store:
        """One process more; `disk`: another one than the broker has.

        Whoever has the lock of the folder says which process has certainly ended; now and then it
        does not know.
        """
        world, plan = self.world, self.world.plan
        former = self.newest.get(broker)
        if disk is not None:
            self.disks[broker] = disk
        disk = self.disks[broker]
        has_lock = former is None or not former.is_alive
        previous = disk.incarnation if has_lock and self._luck.random() < 0.8 else -1
        name = f"s{broker}-{len(self.stores)}"
        luck = world.stream(f"store {name}")
        network = Network(lambda: luck.uniform(0.5, 2) * plan.latency_ms)
        self.networks[name] = network
        clock = Clock(world.scheduler, rate_of(luck), luck.randrange(10**9))
        where = Where(PREFIX, plan.shards, REPLY_PARTITIONS, INCARNATION)

        def connect(process: Process) -> SimulatedTransport:
            reply = luck.randrange(REPLY_PARTITIONS)
            return SimulatedTransport(process, world.cluster, where, reply, clock, network, luck)

        habits = StoreHabits(luck, luck.choice([100, 200, 400]), luck.choice([0.2, 0.5]))
        store = Store(
            world.scheduler,
            name,
            broker,
            disk,
            habits,
            self.name,
            self.timing,
            previous,
            connect,
            self._peer,
            self._told,
        )
        self.stores.append(store)
        self.newest[broker] = store
        world.note("started", name, f"previous {previous}, {disk.storage}")
        return store

    def new_disk(self, broker: int) -> Disk:
        """An empty one, of another machine."""
        self._disks += 1
        return Disk(f"disk-{broker}-{self._disks}")

    def _peer(self, broker: int) -> Store | None:
        store = self.newest.get(broker)
        return store if store is not None and store.is_alive else None

    @property
    def living(self) -> list[Store]:
        """The newest process of each broker that runs, and whose user has not ended it."""
        return [each for each in self.newest.values() if each.is_alive and not each.is_done]

    def _told(self, store: Store, what: str, detail: Any) -> None:
        if what == "leads":
            self._begins(store, detail)
        elif what == "committed":
            place, entries = detail
            known = self._committed_of(store, place)
            if known is not None:
                known |= dict.fromkeys(entries)
                self.met["committed"] += 1
        elif what == "gone":
            self.world.note("ended", store.name)
            self._replace(store)
        else:
            self.world.note(what, store.name, str(detail or ""))

    def _replace(self, store: Store) -> None:
        """A supervisor starts the broker's process again, perhaps late."""
        if self.newest.get(store.broker) is not store or store.broker == self.mourned:
            return
        luck = self.world.stream(f"again {store.name}")
        late_ms = 500 if self.world.is_healing else luck.choice([200, 2_000, 6_000, 20_000])

        def again() -> None:
            if self.newest[store.broker] is store and self.world.takes_newcomers:
                self.start(store.broker)

        self.world.scheduler.after(late_ms, again)

    # ---- while it happens ----------------------------------------------------------------------

    def check(self) -> None:
        """INV-71. Only where two have been told to lead their fences are asked."""
        self._look_at_rows()
        if self._believes_forgeries:
            return
        told: dict[Place, list[Store]] = {}
        for store in self.stores:
            for place in store.leads:  # nothing, of those that are dead
                told.setdefault(place, []).append(store)
        for place, some in told.items():
            if len(some) > 1:
                acting = [each.name for each in some if each.may_lead(place)]
                if len(acting) > 1:
                    raise Violation(
                        f"INV-71: {' and '.join(acting)} act as leaders of {place} at "
                        f"{self.world.scheduler.now_ms} ms"
                    )

    def _begins(self, store: Store, given: Leadership) -> None:
        """INV-78: it has what was committed under all leaders before it."""
        place = (given.topic, given.partition)
        self.met["led"] += 1
        self.world.note("leads", store.name, f"{place} epoch {given.epoch} isr {given.isr}")
        self.require_log(store, place)

    def require_log(self, store: Store, place: Place) -> None:
        """INV-78."""
        if self._believes_forgeries:
            return
        has = set(store.log(place))
        lost = [each for each in self._committed_of(store, place) or () if each not in has]
        if lost:
            raise Violation(
                f"INV-78: {store.name} leads {place} and lacks {len(lost)} committed values, "
                f"{lost[0]} among them"
            )

    def _committed_of(self, store: Store, place: Place) -> dict[Entry, None] | None:
        return self.committed.setdefault((place, store.topic_id(place)), {})

    def _look_at_rows(self) -> None:
        """After an unclean election, or the loss of the last disk, committed values may be gone."""
        records = self.world.cluster.partitions[(f"{PREFIX}.metadata", self.shard)]
        if records.end == self._looked_at:
            return
        for record in reversed(records.records):
            if record.offset < self._looked_at:
                break
            if record.value is None or record.is_marker:
                continue
            at = kept.PARTITIONS.place(record.key or b"")
            if at is None:
                continue
            row = _decode_partition(record.value)
            if row.recovering or (row.leader_epoch >= 0 and not row.isr):
                self.committed[at[1], row.topic_id] = None
                self.met["unclean" if row.recovering else "empty ISR"] += 1
        self._looked_at = records.end

    # ---- what the topics say -------------------------------------------------------------------

    def rows(self) -> dict[Place, Partition]:
        """All partitions, by `coord.metadata`."""
        known = self.world.cluster.newest_by_key(f"{PREFIX}.metadata", self.shard)
        found = {}
        for key, value in known.items():
            at = kept.PARTITIONS.place(key)
            if at is not None and at[0] == self.name:
                found[at[1]] = Partition(*msgspec.structs.astuple(_decode_partition(value)))
        return found

    def head(self) -> Cluster | None:
        """The brokers, by `coord.clusters`."""
        known = self.world.cluster.newest_by_key(f"{PREFIX}.clusters", self.shard)
        value = known.get(codec.encode([self.name]))
        head: Cluster | None = REGISTRY.kinds["brokers"].load(value) if value else None
        return head

    # ---- the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        """Every broker has a process from now on."""
        for broker in self.brokers:
            store = self.newest.get(broker)
            if store is None or not store.is_alive:
                self.start(broker)

    def mourn(self) -> None:
        """In peace one is killed for good."""
        store = self._luck.choice(self.living)
        self.mourned = store.broker
        store.kill()

    def end(self) -> None:
        """Everybody leaves."""
        self.world.takes_newcomers = False
        for store in self.living:
            store.end()
