"""An end of a transaction that was sent twice, and of which the first arrives late.

The job's clients lose the connection after they have sent EndTxn, and send it once more. The second
is answered. The first arrives while the next transaction is open, and would end it half-way
(INV-99).
"""

from random import Random

from tests.tools.simulation.late import Heal
from tests.tools.simulation.world import World


def comes_late(world: World, luck: Random, for_ms: int) -> Heal:
    """Half of all transactions are such ones. No member notices anything."""
    resends = world.engine.resends
    resends.luck = luck

    def heal() -> None:
        resends.luck = None

    return heal
