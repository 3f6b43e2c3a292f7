"""How soon joins into classic groups are answered while the claims query works in the same job.

1,000 groups heartbeat all along, and members join and leave groups of their own. Quiet first; then
messages of claims at a high rate; then a backlog that the claims query works off; then quiet again.
What is told of quiet is of both quiet parts. The archive runs, as it does in a deployment.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from coordlib.errors import CannotReach
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.batch_figures import of_triggers
from tests.tools.bench.claims_stand import ClaimsStand, claims_stand
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.generator import Generator

BENCH: Final = "claims"
MEMBERS: Final = 1
HEARTBEAT_S: Final = 3.0
PROBES_PER_SECOND: Final = 10.0
WARM_S: Final = 20.0
DRAIN_LIMIT_S: Final = 900.0
SETTINGS: Final = ("--set", "group.new_groups_per_second_max=1000000")
SHARES: Final = (0.5, 0.99)


class Groups(Generator):
    """The groups, and who joins."""

    def joins(self, seconds: float, until: Callable[[], bool] = lambda: False) -> list[float]:
        """Seconds until each join was answered, for so long or until it holds."""
        self.probes.forget()
        rate = len(self.crowd) / HEARTBEAT_S
        self._run(until, seconds, rate, PROBES_PER_SECOND)
        self._run(lambda: not self.probes.unanswered, DRAIN_LIMIT_S, rate, 0)
        if self.probes.unanswered or self.probes.refused or self.crowd.refused:
            what = f"{self.probes.unanswered} unanswered, {dict(self.crowd.refused)} refused"
            raise CannotReach("Not all groups were answered.", what)
        return self.probes.took_s


def run(*, groups: int, claims: int, messages: int, rate: float, seconds: float) -> int:
    """The parts one after the other, then what they are of quiet."""
    tell_machine(BENCH)
    with claims_stand(claims) as stand:
        stand.start("coordinate", *SETTINGS)
        load = Groups(stand.options, stand.stack.prefix, groups, MEMBERS)
        try:
            with phase(to_stderr, f"{groups:,} groups join"):
                load.settle()
            load.joins(WARM_S)
            stand.clients.do(do="claim")
            stand.clients.do(do="beat", seconds=WARM_S, rate=rate)
            stand.must_drain(DRAIN_LIMIT_S)
            quiet = load.joins(seconds)
            working = _told(stand, load, "at_rate", do="beat", seconds=seconds, rate=rate)
            behind = _told(stand, load, "catching_up", do="burst", messages=messages)
            quiet += load.joins(seconds)
        finally:
            load.close()
        stand.must_own(claims)
        sizes = {"groups": groups, "claims": claims}
        tell(BENCH, "joins", **sizes, **compared(quiet, {"at_rate": working, "behind": behind}))
    return 0


def _told(stand: ClaimsStand, load: Groups, what: str, **order: Any) -> list[float]:
    """Joins from an order to the clients until the job has judged all of it."""
    began_s, looked_s = time.time(), 0.0
    stand.costs.begin()
    stand.clients.begin(**order)
    end: list[int] = []

    def is_judged() -> bool:
        nonlocal looked_s
        if time.monotonic() - looked_s < 0.5:
            return False
        looked_s = time.monotonic()
        stand.read()
        if not end and stand.clients.is_done:
            stand.clients.ended()
            end.append(stand.end())
        return bool(end) and stand.pace.judged >= end[0]

    took_s = load.joins(DRAIN_LIMIT_S, is_judged)
    lasted_s = time.time() - began_s
    stand.must_drain(DRAIN_LIMIT_S)
    found = of_triggers(stand.progress(), began_s, time.time())
    costs = stand.costs.figures()
    tell(BENCH, what, lasted_s=round(lasted_s, 1), joins=len(took_s), **found, **costs)
    return took_s


def compared(quiet: list[float], parts: dict[str, list[float]]) -> dict[str, Any]:
    """Percentiles of each part, and what they are of quiet."""
    calm = spread(quiet, *SHARES)
    found: dict[str, Any] = {"quiet_s": calm, "quiet_joins": len(quiet)}
    for name, took_s in parts.items():
        mine = spread(took_s, *SHARES)
        found[f"{name}_s"], found[f"{name}_joins"] = mine, len(took_s)
        found[f"{name}_of_quiet"] = {
            share: round(mine[share] / calm[share], 2)  # type: ignore[operator]
            for share in mine
            if mine[share] and calm[share]
        }
    return found
