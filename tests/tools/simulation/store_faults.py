"""What becomes of stores, of their disks and networks, and what operators do to their topics."""

from functools import partial
from random import Random

from coordlib.core.wire import api
from coordlib.core.wire.controller import CLUSTER
from tests.tools.simulation import store_moments
from tests.tools.simulation.fleet import UNCLEAN
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.store import Store
from tests.tools.simulation.store_moments import fleet_of
from tests.tools.simulation.transport import Network
from tests.tools.simulation.world import PREFIX, World


def somebody(world: World, luck: Random, leads: bool = False) -> Store | None:
    """One of those that run; rather one that leads."""
    alive = [each for each in fleet_of(world).living if not each.is_stopped]
    leading = [each for each in alive if each.leads]
    if leading and (leads or luck.random() < 0.6):
        return luck.choice(leading)
    return luck.choice(alive) if alive else None


def somebody_perhaps_leading(world: World, luck: Random) -> Store | None:
    """In half of the times rather one that leads."""
    return somebody(world, luck, leads=luck.random() < 0.5)


def network(world: World, luck: Random) -> Network | None:
    """What is between somebody and the log."""
    store = somebody(world, luck)
    return None if store is None else fleet_of(world).networks[store.name]


def all_killed(world: World, luck: Random, for_ms: int) -> None:
    """The power fails; all that were there come back with their disks."""
    for store in fleet_of(world).living:
        store.kill()


def stops(world: World, luck: Random, for_ms: int) -> None:
    """Controlled shutdown; a supervisor starts it again."""
    if (store := somebody(world, luck)) is not None:
        store.stop_in_order()


def stops_not(world: World, luck: Random, for_ms: int) -> Lasting:
    """It wants to stop, and is killed before it may."""
    if (store := somebody(world, luck, leads=True)) is not None:
        store.stop_in_order()
        yield
        store.kill()


def mute(world: World, luck: Random, for_ms: int) -> Lasting:
    """A store, rather one that leads, reads everything, and nothing that it writes arrives."""
    if (store := somebody(world, luck, leads=True)) is not None:
        between = fleet_of(world).networks[store.name]
        between.is_mute = True
        store_moments.watch_mute(world, store, between)
        yield
        between.is_mute = False


def twin(world: World, luck: Random, for_ms: int) -> None:
    """A second process under the same id, on another machine."""
    if (store := somebody(world, luck)) is not None:
        fleet = fleet_of(world)
        fleet.start(store.broker, fleet.new_disk(store.broker))


def disk_lost(world: World, luck: Random, for_ms: int) -> None:
    """Its process dies with it; another one has an empty disk."""
    fleet = fleet_of(world)
    if (store := somebody(world, luck)) is not None:
        fleet.disks[store.broker] = fleet.new_disk(store.broker)
        store.kill()


def removed(world: World, luck: Random, for_ms: int) -> None:
    """An operator removes a broker that runs, and may lead."""
    store = somebody(world, luck, leads=True)
    if store is not None and store.life.member:
        leaver = api.Leaver(store.life.member)
        fleet_of(world).ask(api.LeaveGroup, members=(leaver,), space=CLUSTER)


def forgotten(world: World, luck: Random, for_ms: int) -> None:
    """An operator removes a broker, and forgets it as soon as it is silent."""
    removed(world, luck, for_ms)
    broker = luck.choice(list(fleet_of(world).brokers))
    fleet_of(world).disks[broker].is_forgotten = True
    for after_ms in (500, 3_000, 12_000):
        ask = partial(fleet_of(world).ask, api.UnregisterBroker, broker=broker)
        world.scheduler.after(after_ms, ask)


def words_again(world: World, luck: Random, for_ms: int) -> Lasting:
    """What stores wrote comes once more, from wherever it was held up (rule 12, rule 16)."""
    fleet = fleet_of(world)
    place = (f"{PREFIX}.requests", fleet.shard)
    records = world.cluster.partitions[place].records

    def again() -> None:
        ours = [each for each in records[-400:] if each.key == fleet.name.encode()]
        words = [each for each in ours if b'"Heartbeat"' not in (each.value or b"")]
        # Changes of the ISR are what hurts most when it comes late.
        altered = [each for each in words if b'"AlterPartition"' in (each.value or b"")]
        released = [each for each in words if b'"Release"' in (each.value or b"")]
        targets = [each for each in words if b'"BrokerHeartbeat"' in (each.value or b"")]
        for some in (words, altered, released, targets):
            if some:
                found = luck.choice(some[-60:])
                world.cluster.append(place, found.key, found.value)

    return repeated(world, 700, again)


def replicas_move(world: World, luck: Random, for_ms: int) -> None:
    """A partition moves to other brokers; now and then it stays after all."""
    fleet = fleet_of(world)
    topic = luck.choice(list(fleet.topics))
    partition = luck.randrange(len(fleet.topics[topic].assignment or {}))
    target = tuple(luck.sample(list(fleet.brokers), luck.randint(2, len(fleet.brokers))))
    move = api.Reassignment(topic, partition, target)
    fleet.ask(api.AlterPartitionReassignments, partitions=(move,))
    if luck.random() < 0.3:
        back = api.Reassignment(topic, partition, None)
        world.scheduler.after(
            luck.uniform(0, 3_000),
            lambda: fleet.ask(api.AlterPartitionReassignments, partitions=(back,)),
        )


def topic_dropped(world: World, luck: Random, for_ms: int) -> None:
    """The operator makes it anew when all have deleted it."""
    fleet = fleet_of(world)
    fleet.ask(api.DeleteTopics, topics=(luck.choice(list(fleet.topics)),))


def leaders_elected(world: World, luck: Random, for_ms: int) -> None:
    """Preferred leaders are to lead again; or somebody, where nobody in sync is there."""
    fleet = fleet_of(world)
    if luck.random() < 0.7:
        fleet.ask(api.ElectLeaders, election="preferred", partitions=None)
        return
    some = fleet.topics.get(UNCLEAN) or fleet.topics["ledger"]
    name = api.PartitionName(some.topic, 0)
    fleet.ask(api.ElectLeaders, election="unclean", partitions=(name,))
