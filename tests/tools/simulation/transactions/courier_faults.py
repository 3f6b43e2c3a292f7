"""Faults of couriers, of the cluster into which they write, and of who reads there."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from tests.tools.simulation.late import Heal
from tests.tools.simulation.transactions.abroad import WRITING
from tests.tools.simulation.transactions.courier import POINTS, Courier
from tests.tools.simulation.transactions.couriers import AWAY, LIVES_ON_MS, Couriers
from tests.tools.simulation.transactions.far_reader import HANDED_OUT
from tests.tools.simulation.world import World

#: How often something comes again.
AGAIN_MS: Final = 400
#: At how many points a courier is struck by one fault.
TRAPS: Final = 5


def _couriers(world: World) -> Couriers:
    assert world.couriers is not None
    return world.couriers


def _somebody(couriers: Couriers, luck: Random) -> Courier | None:
    running = [each for each in couriers.living if not each.is_stopped]
    return luck.choice(running) if running else None


def killed(world: World, luck: Random, for_ms: int) -> None:
    """Wherever it is; a supervisor starts it again."""
    courier = _somebody(_couriers(world), luck)
    if courier is not None:
        courier.kill()


def _set(couriers: Couriers, luck: Random, trap: Callable[[Courier], None]) -> None:
    """At some points of a unit, where none is set."""
    for point in luck.sample(POINTS, TRAPS):
        couriers.traps.at.setdefault(point, trap)


def dies_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next courier to reach a point of its unit dies there."""
    _set(_couriers(world), luck, Courier.kill)


def stalls_inside(world: World, luck: Random, for_ms: int) -> None:
    """The next courier to reach a point stands still there; its transaction may be over then."""

    def stall(courier: Courier) -> None:
        courier.stop()
        world.lasting("courier-stalls-inside", for_ms, courier.resume)

    _set(_couriers(world), luck, stall)


def wakes_late(world: World, luck: Random, for_ms: int) -> None:
    """It stands still, its successor goes on, and then it does what it was about to do.

    With a record in its hands above all, which is late then.
    """
    couriers = _couriers(world)

    def stall(courier: Courier) -> None:
        courier.stop()
        couriers.start(courier.name.split("-")[0])
        world.lasting("courier-wakes-late", for_ms, partial(wake, courier))

    def wake(courier: Courier) -> None:
        courier.resume()
        world.scheduler.after(LIVES_ON_MS, courier.kill)

    _set(couriers, luck, stall)
    couriers.traps.at[WRITING] = stall


def _switch(name: str) -> Callable[[World, Random, int], Heal | None]:
    def bring(world: World, luck: Random, for_ms: int) -> Heal | None:
        courier = _somebody(_couriers(world), luck)
        if courier is None:
            return None
        setattr(courier.network, name, True)
        return partial(setattr, courier.network, name, False)

    return bring


def twin(world: World, luck: Random, for_ms: int) -> Heal | None:
    """A second process with the same transactional id: each fences the other in turn."""
    couriers = _couriers(world)
    courier = _somebody(couriers, luck)
    if courier is None:
        return None
    couriers.start(courier.name.split("-")[0])
    return courier.kill


def _again(comes: Callable[[Couriers, Random], None]) -> Callable[[World, Random, int], Heal]:
    def bring(world: World, luck: Random, for_ms: int) -> Heal:
        is_on = [True]

        def again() -> bool:
            if is_on[0]:
                comes(_couriers(world), luck)
            return is_on[0]

        world.every(AGAIN_MS, again)
        return partial(is_on.__setitem__, 0, False)

    return bring


def away(world: World, luck: Random, for_ms: int) -> Heal:
    """Nothing answers there."""
    couriers = _couriers(world)
    couriers.traps.sprung[AWAY] += 1
    couriers.far.is_up = False
    return partial(setattr, couriers.far, "is_up", True)


def reader_killed(world: World, luck: Random, for_ms: int) -> None:
    """Wherever it is, or behind the next record that it hands out."""
    couriers = _couriers(world)
    if luck.random() < 0.3:
        couriers.begin_anew(couriers.reader)
    else:
        couriers.traps.at[HANDED_OUT] = couriers.begin_anew


def reader_paused(world: World, luck: Random, for_ms: int) -> Heal:
    """It keeps what it knows."""
    reader = _couriers(world).reader
    reader.stop()
    return reader.resume


FAULTS: Final[dict[str, Callable[[World, Random, int], Heal | None]]] = {
    "courier-killed": killed,
    "courier-dies-inside": dies_inside,
    "courier-stalls-inside": stalls_inside,
    "courier-wakes-late": wakes_late,
    "courier-cut-off": _switch("is_cut"),
    "courier-acks-lost": _switch("loses_acks"),
    "courier-twin": twin,
    "courier-words-again": _again(Couriers.words_again),
    "courier-records-again": _again(Couriers.record_again),
    "other-cluster-away": away,
    "far-reader-killed": reader_killed,
    "far-reader-paused": reader_paused,
}
