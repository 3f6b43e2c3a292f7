"""Faults of couriers, of the cluster into which they write, and of who reads there."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from tests.tools.simulation.lasting import Begin, Lasting
from tests.tools.simulation.transactions.abroad import WRITING
from tests.tools.simulation.transactions.courier import POINTS, Courier
from tests.tools.simulation.transactions.couriers import AWAY, LIVES_ON_MS, Couriers
from tests.tools.simulation.transactions.far_reader import HANDED_OUT, FarReader
from tests.tools.simulation.world import World

#: How often something comes again.
AGAIN_MS: Final = 400
#: At how many points a courier is struck by one fault.
TRAPS: Final = 5


def _couriers(world: World) -> Couriers:
    assert world.couriers is not None
    return world.couriers


def somebody(world: World, luck: Random) -> Courier | None:
    """One of those that run."""
    return _couriers(world).somebody(luck)


def reader(world: World, luck: Random) -> FarReader:
    """The newest one; it keeps what it has read."""
    return _couriers(world).reader


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


def twin(world: World, luck: Random, for_ms: int) -> Lasting:
    """A second process with the same transactional id: each fences the other in turn."""
    if (courier := somebody(world, luck)) is not None:
        _couriers(world).start(courier.name.split("-")[0])
        yield
        courier.kill()


def again(comes: Callable[[Couriers, Random], None]) -> Begin[World]:
    """Something comes once more, from wherever it was held up."""

    def begin(world: World, luck: Random, for_ms: int) -> Lasting:
        is_on = True

        def step() -> bool:
            if is_on:
                comes(_couriers(world), luck)
            return is_on

        world.every(AGAIN_MS, step)
        yield
        is_on = False

    return begin


def away(world: World, luck: Random, for_ms: int) -> Lasting:
    """Nothing answers there."""
    couriers = _couriers(world)
    couriers.traps.sprung[AWAY] += 1
    couriers.far.is_up = False
    yield
    couriers.far.is_up = True


def reader_killed(world: World, luck: Random, for_ms: int) -> None:
    """Wherever it is, or behind the next record that it hands out."""
    couriers = _couriers(world)
    if luck.random() < 0.3:
        couriers.begin_anew(couriers.reader)
    else:
        couriers.traps.at[HANDED_OUT] = couriers.begin_anew
