"""What becomes of stores, of their disks and networks, and what operators do to their topics."""

from collections.abc import Callable
from functools import partial
from random import Random

from coordlib.core.wire import api
from coordlib.core.wire.controller import CLUSTER
from tests.tools.simulation import store_moments
from tests.tools.simulation.fleet import UNCLEAN, Fleet
from tests.tools.simulation.late import Heal
from tests.tools.simulation.store import Store
from tests.tools.simulation.world import PREFIX, World

Bring = Callable[[World, Random, int], Heal | None]


def _somebody(world: World, luck: Random, leads: bool = False) -> Store | None:
    """One of those that run; rather one that leads."""
    fleet = world.fleet
    alive = [each for each in (fleet.living if fleet else ()) if not each.is_stopped]
    leading = [each for each in alive if each.leads]
    if leading and (leads or luck.random() < 0.6):
        return luck.choice(leading)
    return luck.choice(alive) if alive else None


def killed(world: World, luck: Random, for_ms: int) -> None:
    if (store := _somebody(world, luck)) is not None:
        store.kill()


def all_killed(world: World, luck: Random, for_ms: int) -> None:
    """The power fails; all that were there come back with their disks."""
    for store in _fleet(world).living:
        store.kill()


def stops(world: World, luck: Random, for_ms: int) -> None:
    """Controlled shutdown; a supervisor starts it again."""
    if (store := _somebody(world, luck)) is not None:
        store.stop_in_order()


def stops_not(world: World, luck: Random, for_ms: int) -> Heal | None:
    """It wants to stop, and is killed before it may."""
    store = _somebody(world, luck, leads=True)
    if store is None:
        return None
    store.stop_in_order()
    return store.kill


def paused(world: World, luck: Random, for_ms: int) -> Heal | None:
    store = _somebody(world, luck, leads=luck.random() < 0.5)
    if store is None:
        return None
    store.stop()
    return store.resume


def switched(name: str) -> Bring:
    """Something about how a store behaves."""

    def bring(world: World, luck: Random, for_ms: int) -> Heal | None:
        store = _somebody(world, luck)
        if store is None:
            return None
        setattr(store.habits, name, True)
        return lambda: setattr(store.habits, name, False)

    return bring


def network(name: str) -> Bring:
    """Something about the network between a store and the log."""

    def bring(world: World, luck: Random, for_ms: int) -> Heal | None:
        store = _somebody(world, luck)
        if store is None:
            return None
        between = _fleet(world).networks[store.name]
        setattr(between, name, True)
        return lambda: setattr(between, name, False)

    return bring


def mute(world: World, luck: Random, for_ms: int) -> Heal | None:
    """A store, rather one that leads, reads everything, and nothing that it writes arrives."""
    store = _somebody(world, luck, leads=True)
    if store is None:
        return None
    between = _fleet(world).networks[store.name]
    between.is_mute = True
    store_moments.watch_mute(world, store, between)

    def heal() -> None:
        between.is_mute = False

    return heal


def slow(world: World, luck: Random, for_ms: int) -> Heal | None:
    store = _somebody(world, luck)
    if store is None:
        return None
    between, slow_ms = _fleet(world).networks[store.name], luck.choice([300, 1_000, 4_000])
    between.extra_ms.append(slow_ms)
    return lambda: between.extra_ms.remove(slow_ms)


def twin(world: World, luck: Random, for_ms: int) -> None:
    """A second process under the same id, on another machine."""
    if (store := _somebody(world, luck)) is not None:
        fleet = _fleet(world)
        fleet.start(store.broker, fleet.new_disk(store.broker))


def disk_lost(world: World, luck: Random, for_ms: int) -> None:
    """Its process dies with it; another one has an empty disk."""
    fleet = _fleet(world)
    if (store := _somebody(world, luck)) is not None:
        fleet.disks[store.broker] = fleet.new_disk(store.broker)
        store.kill()


def removed(world: World, luck: Random, for_ms: int) -> None:
    """An operator removes a broker that runs, and may lead."""
    store = _somebody(world, luck, leads=True)
    if store is not None and store.life.member:
        leaver = api.Leaver(store.life.member)
        _fleet(world).ask(api.LeaveGroup, members=(leaver,), space=CLUSTER)


def forgotten(world: World, luck: Random, for_ms: int) -> None:
    """An operator removes a broker, and forgets it as soon as it is silent."""
    removed(world, luck, for_ms)
    broker = luck.choice(list(_fleet(world).brokers))
    _fleet(world).disks[broker].is_forgotten = True
    for after_ms in (500, 3_000, 12_000):
        ask = partial(_fleet(world).ask, api.UnregisterBroker, broker=broker)
        world.scheduler.after(after_ms, ask)


def words_again(world: World, luck: Random, for_ms: int) -> Heal:
    """What stores wrote comes once more, from wherever it was held up (rule 12, rule 16)."""
    fleet, is_on = _fleet(world), [True]
    place = (f"{PREFIX}.requests", fleet.shard)
    records = world.cluster.partitions[place].records

    def again() -> bool:
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
        return is_on[0]

    world.every(700, again)
    return lambda: is_on.__setitem__(0, False)


def replicas_move(world: World, luck: Random, for_ms: int) -> None:
    """A partition moves to other brokers; now and then it stays after all."""
    fleet = _fleet(world)
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
    fleet = _fleet(world)
    fleet.ask(api.DeleteTopics, topics=(luck.choice(list(fleet.topics)),))


def leaders_elected(world: World, luck: Random, for_ms: int) -> None:
    """Preferred leaders are to lead again; or somebody, where nobody in sync is there."""
    fleet = _fleet(world)
    if luck.random() < 0.7:
        fleet.ask(api.ElectLeaders, election="preferred", partitions=None)
        return
    some = fleet.topics.get(UNCLEAN) or fleet.topics["ledger"]
    name = api.PartitionName(some.topic, 0)
    fleet.ask(api.ElectLeaders, election="unclean", partitions=(name,))


def _fleet(world: World) -> Fleet:
    assert world.fleet is not None, "faults of stores need a cluster"
    return world.fleet


FAULTS: dict[str, Bring] = {
    "store-killed": killed,
    "store-stops": stops,
    "store-stops-not": stops_not,
    "store-paused": paused,
    "store-busy": switched("is_busy"),
    "store-never-lets-go": switched("keeps_all"),
    "asked-while-deaf": store_moments.asked_while_deaf,
    "asked-while-busy": store_moments.asked_while_busy,
    "elected-outside": store_moments.elected_outside,
    "asked-and-rebuilt": store_moments.asked_and_rebuilt,
    "guarded-and-rebuilt": store_moments.guarded_and_rebuilt,
    "dropped-without-one": store_moments.dropped_without_one,
    "added-unheard": store_moments.added_unheard,
    "isr-again-unheard": store_moments.isr_again_unheard,
    "stores-apart": switched("is_apart"),
    "store-cut-off": network("is_cut"),
    "store-deaf": network("is_deaf"),
    "store-acks-lost": network("loses_acks"),
    "store-mute": mute,
    "store-slow": slow,
    "store-twin": twin,
    "disk-lost": disk_lost,
    "all-stores-killed": all_killed,
    "store-removed": removed,
    "store-forgotten": forgotten,
    "store-words-again": words_again,
    "replicas-move": replicas_move,
    "topic-dropped": topic_dropped,
    "leaders-elected": leaders_elected,
}
