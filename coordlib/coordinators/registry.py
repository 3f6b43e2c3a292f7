"""Which kind of group judges which request. A new protocol adds its machine here, nothing else."""

from typing import Final

from coordlib.coordinators.groups.assigned import machine as assigned
from coordlib.coordinators.groups.classic import machine as classic
from coordlib.coordinators.shard.kind import Machine
from coordlib.records import requests as rq

#: By kind. The first one judges what could concern any kind while there is no group.
MACHINES: Final[dict[str, Machine]] = {each.KIND: each for each in (classic, assigned)}
#: Whose kind a group becomes that a request makes.
MACHINE_OF: Final[dict[type[rq.Request], Machine]] = {
    request: machine for machine in reversed(MACHINES.values()) for request in machine.HANDLERS
}
