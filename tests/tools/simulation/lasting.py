"""Faults as generators: what breaks, `yield`, what heals it. One without an end never yields."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.tools.simulation.plan import Fault
from tests.tools.simulation.stage import Stage

if TYPE_CHECKING:
    from tests.tools.simulation.claims.world import ClaimsWorld
    from tests.tools.simulation.world import World

AnyWorld = TypeVar("AnyWorld", "World", "ClaimsWorld")
#: What has begun: it goes on when it is to be healed.
Lasting = Iterator[None]
#: Begins a fault now: the world, the fault's own luck, and how long it lasts, in milliseconds.
Begin = Callable[[AnyWorld, Random, int], Lasting | None]
#: Draws whom a fault meets; None: there is nobody.
Pick = Callable[[AnyWorld, Random], Any]


def bring(world: AnyWorld, fault: Fault, begin: Begin[AnyWorld]) -> None:
    """Break it now; what lasts is healed after its time."""
    world.note("fault", fault.kind, str(fault.for_ms))
    begun = begin(world, Random(f"{world.plan.seed} {fault.dice}"), fault.for_ms)
    if begun is not None and next(begun, False) is None:
        world.lasting(fault.kind, fault.for_ms, lambda: next(begun, None))


def repeated(world: Stage, every_ms: int, act: Callable[[], object]) -> Lasting:
    """Do it every so often, for the last time when the fault is over."""
    is_on = True

    def step() -> bool:
        act()
        return is_on

    world.every(every_ms, step)
    yield
    is_on = False


def switched(pick: Pick[AnyWorld], name: str) -> Begin[AnyWorld]:
    """A flag of what is picked is set, or of a part of it: `network.is_cut`."""
    path, _, flag = name.rpartition(".")

    def begin(world: AnyWorld, luck: Random, for_ms: int) -> Lasting:
        if (found := pick(world, luck)) is not None:
            part = attrgetter(path)(found) if path else found
            setattr(part, flag, True)
            yield
            setattr(part, flag, False)

    return begin


def slowed(pick: Pick[AnyWorld], *by_ms: int) -> Begin[AnyWorld]:
    """What is picked takes one of these times longer."""

    def begin(world: AnyWorld, luck: Random, for_ms: int) -> Lasting:
        if (found := pick(world, luck)) is not None:
            more_ms = luck.choice(by_ms)
            found.extra_ms.append(more_ms)
            yield
            found.extra_ms.remove(more_ms)

    return begin


def paused(pick: Pick[AnyWorld]) -> Begin[AnyWorld]:
    """A process stands still, wherever it is."""

    def begin(world: AnyWorld, luck: Random, for_ms: int) -> Lasting:
        if (process := pick(world, luck)) is not None:
            process.stop()
            yield
            process.resume()

    return begin


def killed(pick: Pick[AnyWorld]) -> Begin[AnyWorld]:
    """A process dies, wherever it is; a supervisor starts it again."""

    def begin(world: AnyWorld, luck: Random, for_ms: int) -> None:
        if (process := pick(world, luck)) is not None:
            process.kill()

    return begin
