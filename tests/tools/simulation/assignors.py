"""Assignors that raise for a while: in one program, or in all, as they run the same code.

The group must come to rest without an assignment, keep its members, and have one again within the
time after which its leader tries again.
"""

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from coordlib.client import ClassicMember
from coordlib.client.groups.assignors import Assignor
from coordlib.client.groups.classic import RETRY_MS
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.people import join, somebody
from tests.tools.simulation.plan import CLASSIC
from tests.tools.simulation.program import Program
from tests.tools.simulation.world import World

KIND: Final = "assignor-raises"


def raises(world: World, luck: Random, for_ms: int) -> Lasting:
    """Some assignors raise whenever they are to divide; and there is something to divide."""
    program = somebody(world, luck)
    if world.protocol != CLASSIC or program is None:
        return
    # At each attempt a rebalance; when it works again one more, and another if it is cooperative.
    world.perturbations += 3 + for_ms // RETRY_MS
    broken = list(_assignors_of(world.living if luck.random() < 0.5 else [program]))

    def fail(*_: object) -> Any:
        raise ArithmeticError("it cannot be divided")

    for assignor in broken:
        vars(assignor)["assign"] = fail
    join(world, luck, for_ms)
    yield
    for assignor in broken:
        vars(assignor).pop("assign", None)


def _assignors_of(programs: Iterable[Program]) -> Iterable[Assignor]:
    for program in programs:
        member = program.consumer.member
        if isinstance(member, ClassicMember):
            yield from member._assignors.values()
