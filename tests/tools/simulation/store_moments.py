"""Faults of stores that wait for the moment at which they hurt: mutants have asked for them."""

from collections.abc import Callable
from functools import partial
from random import Random

from coordlib.client.controller.state import State
from coordlib.core.wire import api, codec
from coordlib.core.wire.controller import CLUSTER
from tests.tools.simulation.disks import Place
from tests.tools.simulation.fleet import Fleet
from tests.tools.simulation.job_faults import rebuild
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.store import Store
from tests.tools.simulation.transport import Network
from tests.tools.simulation.world import PREFIX, World

LOOKS_MS = 20
#: After so long the moment has not come, and is given up.
GIVES_UP_MS = 25_000


def asked_while_deaf(world: World, luck: Random, for_ms: int) -> Lasting:
    """A leader hears nothing, or late; then what it leads is to go to others."""
    found = _leading(world, luck)
    if found is None:
        return
    store, place = found
    network, slow_ms = fleet_of(world).networks[store.name], luck.choice([0, 3_000])
    if slow_ms:
        network.extra_ms.append(slow_ms)
    else:
        network.is_deaf = True
    _move_to_others(world, store, place)
    yield
    if slow_ms:
        network.extra_ms.remove(slow_ms)
    else:
        network.is_deaf = False


def _move_to_others(world: World, leader: Store, place: Place) -> None:
    """What it leads is to go to all others in sync."""
    if others := tuple(each for each in _isr(leader, place) if each != leader.broker):
        move = api.Reassignment(*place, others)
        fleet_of(world).ask(api.AlterPartitionReassignments, partitions=(move,))


def asked_and_rebuilt(world: World, luck: Random, for_ms: int) -> Lasting:
    """A leader that is busy is to let go, and the checkpoint is lost meanwhile (INV-38)."""
    found = _leading(world, luck)
    if found is not None and found[0].row(found[1]) is not None:
        store, place = found
        store.habits.is_busy = True
        _move_to_others(world, store, place)
        world.scheduler.after(2_000, lambda: _rebuild(world))
        yield
        store.habits.is_busy = False


def asked_while_busy(world: World, luck: Random, for_ms: int) -> Lasting:
    """A leader that is busy is to let go, and a follower leaves its ISR meanwhile."""
    found = _leading(world, luck)
    if found is None:
        return
    store, place = found
    stores = {each.broker: each for each in fleet_of(world).living}
    others = [each for each in _isr(store, place) if each != store.broker and each in stores]
    if len(others) < 2:
        return
    move = api.Reassignment(*place, (others[0],))
    fleet_of(world).ask(api.AlterPartitionReassignments, partitions=(move,))
    follower = stores[others[1]]
    store.habits.is_busy = follower.habits.is_apart = True
    yield
    store.habits.is_busy = follower.habits.is_apart = False


def elected_outside(world: World, luck: Random, for_ms: int) -> Lasting | None:
    """A preferred leader is to lead, and has just left the ISR."""
    stores = {each.broker: each for each in fleet_of(world).living}
    for leader in stores.values():
        for place in sorted(leader.leads):
            row = leader.row(place)
            head = stores.get(row.replicas[0]) if row is not None else None
            if head is not None and head is not leader:
                return _elect_outside(world, leader, head, place)
    return None


def _elect_outside(world: World, leader: Store, head: Store, place: Place) -> Lasting:
    head.habits.is_apart = True
    name = api.PartitionName(*place)
    ask = partial(fleet_of(world).ask, api.ElectLeaders, election="preferred", partitions=(name,))
    _once(world, lambda: head.broker not in _isr(leader, place), ask)
    yield
    head.habits.is_apart = False


def guarded_and_rebuilt(world: World, luck: Random, for_ms: int) -> Lasting:
    """A leader that hears nothing is removed, and the checkpoint is lost meanwhile (INV-38)."""
    if (found := _leading(world, luck)) is not None:
        store, fleet = found[0], fleet_of(world)
        fleet.networks[store.name].is_deaf = True
        fleet.ask(api.LeaveGroup, members=(api.Leaver(store.life.member),), space=CLUSTER)
        world.scheduler.after(2_000, lambda: _rebuild(world))
        yield
        fleet.networks[store.name].is_deaf = False


def _rebuild(world: World) -> None:
    if not world.is_healing and world.is_supervised and world.has_history():
        world.perturbations += 1
        rebuild(world)


def dropped_without_one(world: World, luck: Random, for_ms: int) -> Lasting:
    """A topic is dropped while one of its stores is silent; it comes back as a new process."""
    if (found := _leading(world, luck)) is not None:
        store, (topic, _) = found
        store.stop()
        drop = partial(fleet_of(world).ask, api.DeleteTopics, topics=(topic,))
        world.scheduler.after(world.plan.session_timeout_ms + 3_000, drop)
        yield
        store.kill()


def added_unheard(world: World, luck: Random, for_ms: int) -> None:
    """A leader asks to let a follower into the ISR, and hears no answer; then it dies (rule 16)."""
    found = _with_follower(world, luck)
    if found is not None:
        leader, follower, place = found
        follower.habits.is_apart = True
        _once(
            world,
            lambda: follower.broker not in _isr(leader, place),
            lambda: rejoin(),
            lambda: meet(),
        )

    def meet() -> None:
        follower.habits.is_apart = False

    def rejoin() -> None:
        meet()
        _once(world, is_asked, lambda: _part(world, leader, follower))

    def is_asked() -> bool:
        lead = leader.leads.get(place)
        is_under_way = lead is not None and lead.ticket >= 0 and follower.broker in lead.wanted
        return is_under_way and follower.broker not in _isr(leader, place)


def isr_again_unheard(world: World, luck: Random, for_ms: int) -> None:
    """A change that let a follower in comes again after it has left; its leader hears nothing, and
    dies."""
    found = _with_follower(world, luck)
    if found is not None:
        leader, follower, place = found
        follower.habits.is_apart = True
        _once(world, lambda: is_out(), lambda: rejoin(), lambda: meet())

    def meet() -> None:
        follower.habits.is_apart = False

    def is_out() -> bool:
        return follower.broker not in _isr(leader, place)

    def rejoin() -> None:
        meet()
        _once(world, lambda: not is_out(), lambda: leave())

    def leave() -> None:
        follower.habits.is_apart = True
        _once(world, lambda: is_out(), lambda: again(), meet)

    def again() -> None:
        fleet = fleet_of(world)
        log = (f"{PREFIX}.requests", fleet.shard)
        for record in reversed(world.cluster.partitions[log].records):
            if record.key == fleet.name.encode() and _names(record.value, leader, follower, place):
                world.cluster.append(log, record.key, record.value)
                break
        _part(world, leader, follower)


def watch_mute(world: World, store: Store, network: Network) -> None:
    """Count that a leader stops by its lease, before it reads that it was put out; and that another
    one leads then."""
    fleet, stopped = fleet_of(world), set[Place]()

    def look() -> bool:
        if not network.is_mute or not store.is_alive:
            return False
        if store.life.state is State.ACTIVE and not store.is_stopped:
            ended = {place for place in store.leads if not store.may_lead(place)}
            fleet.met["mute and stopped"] += bool(ended and not stopped)
            stopped.update(ended)
        others = [each for each in fleet.living if each is not store]
        is_over = any(each.may_lead(place) for each in others for place in stopped)
        fleet.met["mute and succeeded"] += is_over
        return not is_over

    world.every(LOOKS_MS, look)


def _names(value: bytes | None, leader: Store, follower: Store, place: Place) -> bool:
    request = codec.decode_request(value)
    if not isinstance(request, api.AlterPartition) or request.client != leader.name:
        return False
    rows = [(t.topic, row) for t in request.topics for row in t.partitions]
    return any(
        (topic, row.partition) == place and follower.broker in {each.broker for each in row.isr}
        for topic, row in rows
    )


def _part(world: World, leader: Store, follower: Store) -> None:
    """The leader hears nothing any more, the follower not of it; after a while the leader dies."""
    fleet_of(world).networks[leader.name].is_deaf = True
    follower.habits.is_apart = True

    def end() -> None:
        leader.kill()
        follower.habits.is_apart = False

    world.scheduler.after(1_500, end)


def _once(
    world: World,
    is_so: Callable[[], bool],
    action: Callable[[], None],
    otherwise: Callable[[], None] = lambda: None,
) -> None:
    """Do it as soon as something is so; the other, if that takes too long or peace is made."""
    until_ms = world.scheduler.now_ms + GIVES_UP_MS

    def look() -> bool:
        if world.is_healing or world.scheduler.now_ms > until_ms:
            otherwise()
            return False
        if is_so():
            action()
            return False
        return True

    world.every(LOOKS_MS, look)


def _isr(leader: Store, place: Place) -> tuple[int, ...]:
    row = leader.row(place)
    return row.isr if row is not None else ()


def _leading(world: World, luck: Random) -> tuple[Store, Place] | None:
    stores = [each for each in fleet_of(world).living if not each.is_stopped]
    leads = [(store, place) for store in stores for place in sorted(store.leads)]
    return luck.choice(leads) if leads else None


def _with_follower(world: World, luck: Random) -> tuple[Store, Store, Place] | None:
    """A leader, and the follower that is elected when it is gone."""
    found = _leading(world, luck)
    if found is None:
        return None
    leader, place = found
    row = leader.row(place)
    others = [each for each in (row.replicas if row is not None else ()) if each in row.isr]
    next_ones = [each for each in others if each != leader.broker]
    stores = {each.broker: each for each in fleet_of(world).living}
    if not next_ones or next_ones[0] not in stores:
        return None
    return leader, stores[next_ones[0]], place


def fleet_of(world: World) -> Fleet:
    assert world.fleet is not None, "faults of stores need a cluster"
    return world.fleet
