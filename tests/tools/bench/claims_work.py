"""What the claims query can take, in an application of its own: a backlog, a load, a sweep.

`caught_up`: a log of so many messages is there, and the query begins with an empty checkpoint.
`load`: 10,000 claims of 200 clients at the rate of Marshal's heartbeats. `step`s of a sweep raise
the rate; one is sustained when all of it is judged and the lag does not grow. A batch's time is
Spark's `durationMs`. The clients run on the same machine.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.batch_figures import of_triggers
from tests.tools.bench.claims_stand import LOOK_EVERY_S, ClaimsStand, claims_stand
from tests.tools.bench.figures import tell, tell_machine

BENCH: Final = "claims"
#: Messages per second that are tried one after the other.
STEPS: Final = (2_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 60_000)
#: Of a load that is not counted: the first batches are several times slower.
WARM_S: Final = 20.0
DRAIN_LIMIT_S: Final = 120.0
#: A query that keeps up has the rest in the batch that runs and the next one, 2 s apart.
DRAIN_MAX_S: Final = 8.0
SENT_SHARE_MIN: Final = 0.98
CAUGHT_UP_LIMIT_S: Final = 1_800.0


def run(*, what: str, **options: Any) -> int:
    """One of the three."""
    if what == "catch_up":
        return catch_up(**options)
    return load(**options) if what == "load" else sweep(**options)


def catch_up(*, messages: int, claims: int) -> int:
    """From the start of a job with an empty checkpoint until a log is judged."""
    tell_machine(BENCH)
    with claims_stand(claims) as stand:
        with phase(to_stderr, f"{messages:,} messages are written"):
            stand.clients.do(do="claim")
            stand.clients.do(do="burst", messages=messages - claims)
        began_s, began = time.time(), time.monotonic()
        stand.costs.begin()
        stand.start("claims")
        running_s = time.monotonic() - began
        stand.must_drain(CAUGHT_UP_LIMIT_S)
        total_s, costs = time.monotonic() - began, stand.costs.figures()
        stand.must_own(claims)
        found = of_triggers(stand.progress(), began_s, time.time())
        tell(
            BENCH,
            "caught_up",
            messages=stand.pace.judged,
            claims=claims,
            total_s=round(total_s, 1),
            until_first_batch_s=round(running_s, 1),
            per_second=round(stand.pace.judged / total_s),
            **found,
            **costs,
        )
    return 0


def load(*, claims: int, rate: float, seconds: float) -> int:
    """The query's batches, processor time and bytes under a steady load."""
    tell_machine(BENCH)
    with claims_stand(claims) as stand:
        stand.start("claims")
        stand.clients.do(do="claim")
        _warm(stand, rate)
        found = measure(stand, rate, seconds)
        stand.must_own(claims)
        tell(BENCH, "load", claims=claims, all_judged=True, **found, **stand.sizes())
    return 0


def sweep(*, claims: int, seconds: float, rates: Sequence[int] = STEPS) -> int:
    """Raise the rate until it is not sustained; tell the highest that was."""
    tell_machine(BENCH)
    highest = 0
    with claims_stand(claims) as stand:
        stand.start("claims")
        stand.clients.do(do="claim")
        _warm(stand, rates[0])
        for rate in rates:
            to_stderr(f"{rate:,} messages a second for {seconds:.0f} s")
            found = measure(stand, rate, seconds)
            is_held = is_sustained(found)
            tell(BENCH, "step", claims=claims, sustained=is_held, **found)
            if not is_held:
                break
            highest = rate
        stand.must_drain(CAUGHT_UP_LIMIT_S)
        stand.must_own(claims)
        tell(BENCH, "highest", claims=claims, sustained_per_s=highest)
    return 0


def _warm(stand: ClaimsStand, rate: float) -> None:
    with phase(to_stderr, "Warming up the job"):
        stand.clients.do(do="beat", seconds=WARM_S, rate=rate)
        stand.must_drain(DRAIN_LIMIT_S)


def measure(stand: ClaimsStand, rate: float, seconds: float) -> dict[str, Any]:
    """One rate for so long; what came of it."""
    stand.read()
    stand.pace.begin()
    judged_before = stand.pace.judged
    stand.costs.begin()
    stand.clients.begin(do="beat", seconds=seconds, rate=rate)
    while not stand.clients.is_done:
        stand.read(LOOK_EVERY_S)
    sent, costs = stand.clients.ended(), stand.costs.figures()
    pace, lag_grew = stand.pace.figures(), stand.pace.lag_grew()
    judged = stand.pace.judged - judged_before
    drained_s = stand.drain(DRAIN_LIMIT_S)
    triggers = of_triggers(stand.progress(), sent["from_s"], sent["to_s"])
    return {
        "target_per_s": round(rate),
        "sent_per_s": sent["sent_per_s"],
        "judged_per_s": round(judged / (sent["to_s"] - sent["from_s"])),
        "late_s": sent["late_s"],
        "lag_s": pace["lag_s"],
        "lag_grew": lag_grew,
        "drained_s": None if drained_s is None else round(drained_s, 1),
        **triggers,
        **costs,
    }


def is_sustained(found: dict[str, Any]) -> bool:
    """Whether the query kept up with a rate, and the clients reached it."""
    return (
        found["sent_per_s"] >= SENT_SHARE_MIN * found["target_per_s"]
        and not found["lag_grew"]
        and found["drained_s"] is not None
        and found["drained_s"] <= DRAIN_MAX_S
    )
