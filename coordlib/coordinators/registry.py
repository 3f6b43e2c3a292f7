"""Which protocol judges which request. A new protocol adds its machine here and nothing else."""

from types import ModuleType
from typing import Final

from coordlib.coordinators.classic import machine as classic
from coordlib.records import requests as rq

MACHINES: Final[dict[str, ModuleType]] = {classic.KIND: classic}
MACHINE_OF: Final[dict[type[rq.Request], ModuleType]] = {
    request: machine for machine in MACHINES.values() for request in machine.HANDLERS
}
