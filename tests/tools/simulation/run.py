"""One seed, from its plan to its verdict: faults, then a time of peace, then the checks."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from coordlib.client.groups.classic import RETRY_MS
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.demo.history import Happened
from tests.tools.simulation import commits, drawing, signing
from tests.tools.simulation.checks import (
    check_end,
    check_mourned,
    check_peace,
    evidence_of,
)
from tests.tools.simulation.fleet import Fleet
from tests.tools.simulation.kinds import KINDS
from tests.tools.simulation.lake import checks as lake_checks
from tests.tools.simulation.lake.members import Lake, with_the_table
from tests.tools.simulation.lasting import bring
from tests.tools.simulation.plan import Plan
from tests.tools.simulation.program import Program
from tests.tools.simulation.situations import count_sometimes
from tests.tools.simulation.story import tell
from tests.tools.simulation.transactions import checks as copies
from tests.tools.simulation.transactions import courier_checks as carried
from tests.tools.simulation.transactions.copying import TIMEOUTS_MS, Copying
from tests.tools.simulation.transactions.couriers import Couriers
from tests.tools.simulation.transactions.fibers import on_world_time
from tests.tools.simulation.watch import KNOWN_MS
from tests.tools.simulation.world import (
    GROUP,
    METADATA_REFRESH_MS,
    PREFIX,
    TRIES_AGAIN_MS,
    Violation,
    World,
)

if TYPE_CHECKING:
    from tests.tools.simulation.claims.world import ClaimsWorld

AnyWorld = TypeVar("AnyWorld", World, "ClaimsWorld")
MEMBER_STARTS_MS = 3_000
_COMPACTED = (
    *(".groups", ".committed", ".assignments", ".progress", ".clusters", ".metadata"),
    *(".transactions", ".outbox"),
)
COMPACTION_MS = 7_000
#: In which copiers work off what they could not while things were broken.
COPIES_MS = 20_000
#: In which members write into their table what they could not while things were broken.
WRITES_MS = 8_000
#: A user polls every half second at the latest, to let go and to take over, twice if cooperative.
USER_LOOKS_MS = 2_500
#: A supervisor waits up to five seconds, and the rebuild of a lost checkpoint begins after two.
DRIVER_STARTS_MS = 7_000


@dataclass
class Outcome:
    """What one run was, and what it broke. Of groups, or of claims (`claims/run.py`)."""

    #: A Plan of either.
    plan: Any
    events: int = 0
    simulated_ms: int = 0
    acts: int = 0
    batches: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    sometimes: dict[str, int] = field(default_factory=dict)
    violation: str | None = None
    history: list[Happened] = field(default_factory=list)
    #: The end of it in words, when a promise was broken.
    story: list[str] = field(default_factory=list)


def run(chosen: Plan) -> Outcome:
    """Play a plan to its end. Violations are in the outcome; other exceptions are defects."""
    return run_in(World(chosen))


def run_in(world: World) -> Outcome:
    """As `run`, for who wants to look at the world afterwards."""
    outcome = watched(world, _to_its_end)
    if outcome.violation is not None:
        outcome.story = tell(world)
    outcome.acts = sum(program.acts for program in world.programs)
    outcome.sometimes = count_sometimes(world)
    return outcome


def watched(world: AnyWorld, *plays: Callable[[AnyWorld], None]) -> Outcome:
    """What is said of every world that has played this, whether it broke a promise or not."""
    outcome = Outcome(world.plan, history=world.history)
    try:
        for each in plays:
            each(world)
    except Violation as broken:
        outcome.violation = str(broken)
    except AssertionError as broken:
        outcome.violation = f"assertion: {broken!r}"
    outcome.events = world.scheduler.events
    outcome.simulated_ms = world.scheduler.now_ms
    outcome.batches = world.engine.batches
    for line in world.history:
        if line.what == "fault":
            outcome.faults[line.member] = outcome.faults.get(line.member, 0) + 1
    return outcome


def _to_its_end(world: World) -> None:
    """Raises Violation. Threads of copiers end with it, whatever happens."""
    try:
        play(world)
        look_back(world)
    finally:
        for crew in (world.copying, world.couriers, world.lake):
            if crew is not None:
                crew.kill()


def play(world: World) -> None:
    """Faults, then peace, then everybody leaves. Raises Violation."""
    has_threads = world.plan.copiers or world.plan.couriers or world.plan.lake_members
    with on_world_time(world.scheduler) if has_threads else nullcontext(), with_the_table():
        _play(world)


def _play(world: World) -> None:
    length_ms = world.plan.length_ms
    _begin(world)
    world.scheduler.run(length_ms, world.check)
    world.heal_all()
    settled_ms = length_ms + peace_ms(world)
    world.scheduler.run(settled_ms, world.check)
    check_peace(world)
    world.takes_newcomers = False
    if world.fleet is not None:
        world.fleet.mourn()
    mourned = who_leaves_others(world)
    if mourned is not None or world.fleet is not None:
        if mourned is not None:
            mourned.kill()
        settled_ms += mourning_ms(world)
        world.scheduler.run(settled_ms, world.check)
        check_mourned(world)
    if world.fleet is not None:
        world.fleet.end()
    settled_ms = _settle_transactions(world, settled_ms)
    for team in world.teams:
        for program in team.living:
            program.close()
    world.scheduler.run(settled_ms + leaving_ms(world), world.check)
    check_end(world)


def who_leaves_others(world: World) -> Program | None:
    """A member whose process may die: somebody is left in another one. None: there is no such."""
    living = world.living
    return next((each for each in living if not {*living} <= {*each.mates}), None)


def _settle_transactions(world: World, settled_ms: int) -> int:
    """Those who write beside the groups come to their end; until when that took."""
    if (world.copying, world.couriers, world.lake) == (None, None, None):
        return settled_ms
    has_copies = world.copying is not None or world.couriers is not None
    settled_ms += copying_ms(world) if has_copies else writing_ms(world)
    world.scheduler.run(settled_ms, world.check)
    if world.copying is not None:
        copies.check_copied(world.copying)
        world.copying.end()
    if world.couriers is not None:
        carried.check_carried(world.couriers)
        world.couriers.end()
    if world.lake is not None:
        lake_checks.check_written(world.lake)
        world.lake.end()
    return settled_ms


def _begin(world: World) -> None:
    chosen, luck = world.plan, world.stream("beginning")
    signing.begin(world)
    if chosen.brokers:
        world.fleet = Fleet(world)
        world.fleet.begin()
    if chosen.copiers:
        world.copying = Copying(world)
        world.copying.begin()
    if chosen.couriers:
        world.couriers = Couriers(world)
        world.couriers.begin()
    if chosen.lake_members:
        world.lake = Lake(world)
        world.lake.begin()
    world.start_driver(luck.uniform(0, 2_000))
    for number in range(chosen.members):
        instance = f"instance-{number}" if number < chosen.statics else None
        world.start_program_after(luck.uniform(0, MEMBER_STARTS_MS), instance)
    for fault in chosen.faults:
        world.scheduler.after(fault.at_ms, partial(bring, world, fault, KINDS[fault.kind].begin))
    _produce(world, world.stream("data"))
    world.every(COMPACTION_MS, lambda: _compact(world))


def look_back(world: World) -> None:
    """An operator puts the group, which is empty by now, back to where it has been (INV-23).

    Static members have kept their places: then it is refused, and nothing must have changed.
    """
    place = (f"{PREFIX}.requests", shard_of(GROUP, world.plan.shards))
    offsets = [
        api.CommittedOffset(topic=topic, partition=number, offset=number // 2)
        for topic in world.topics
        for number in range(world.cluster.count(topic))
    ]
    who: dict[str, Any] = {"v": 1, "client": "operator", "group": GROUP, "reply": 0}
    seek = api.OffsetCommit(**who, id="1", generation=-1, member="", offsets=tuple(offsets))
    for request in (seek, api.OffsetFetch(**who, id="2", topics=None)):
        world.cluster.append(place, None, codec.encode(request))
    world.scheduler.run(world.scheduler.now_ms + leaving_ms(world), world.check)
    commits.check(evidence_of(world))


def _produce(world: World, luck: Random) -> None:
    for _ in range(world.plan.messages):
        at_ms = luck.uniform(0, world.plan.length_ms)
        dice = luck.random()
        world.scheduler.after(at_ms, partial(_append, world, dice))


def _append(world: World, dice: float) -> None:
    places = [
        (topic, number) for topic in world.topics for number in range(world.cluster.count(topic))
    ]
    world.cluster.append(places[int(dice * len(places))], None, b"")


def _compact(world: World) -> bool:
    for (topic, _), partition in world.cluster.partitions.items():
        if topic.endswith(_COMPACTED):
            partition.compact()
    return True


def peace_ms(world: World) -> int:
    """INV-28: by when everything has settled (time-and-fencing.md, what follows).

    S + CAP/2 + 8D + RT, counted from the moment at which a driver runs and a leader has seen the
    newest metadata, or tries again where its assignor has raised; and from the moment at which the
    last of those is in for whom the dead left no place.
    """
    chosen = world.plan
    cap_ms = min(chosen.session_timeout_ms, chosen.rebalance_timeout_ms) // 5
    longest_batch_ms = 3 * chosen.batch_ms
    waits_ms = chosen.session_timeout_ms + cap_ms + TRIES_AGAIN_MS if chosen.group_size_max else 0
    # The driver tells of topics; members need not look, unless the kind has changed.
    watch_ms = KNOWN_MS if world.engine.watches else 0
    if any(fault.kind == "kind-changes" for fault in chosen.faults):
        waits_ms = chosen.session_timeout_ms + cap_ms + TRIES_AGAIN_MS
    if any(fault.kind == "assignor-raises" for fault in chosen.faults):
        waits_ms += RETRY_MS
    return (
        DRIVER_STARTS_MS
        + METADATA_REFRESH_MS
        + watch_ms
        + waits_ms
        + chosen.session_timeout_ms
        + cap_ms // 2
        + 8 * longest_batch_ms
        + chosen.rebalance_timeout_ms
    )


def mourning_ms(world: World) -> int:
    """INV-29, INV-31: by when others have what a dead member had (likewise).

    It goes within S + CAP/2 + 2D + V + 4L; the others rejoin when they hear of it, and 8D settle
    them. The rebalance timeout passes only where somebody does not rejoin, and here all do.
    """
    chosen = world.plan
    cap_ms = min(chosen.session_timeout_ms, chosen.rebalance_timeout_ms) // 5
    longest_batch_ms = 3 * chosen.batch_ms
    return (
        chosen.session_timeout_ms
        + cap_ms // 2
        + 10 * longest_batch_ms
        + chosen.marker_delay_ms
        + 8 * chosen.latency_ms
        + USER_LOOKS_MS
    )


def copying_ms(world: World) -> int:
    """INV-96, INV-97: by when copiers are done, counted from when the members are settled.

    A transaction that was left open ends at its timeout, with two batches and a fetch behind it;
    an owner that was lost is missed one session after it was heard last.
    """
    chosen, longest_batch_ms = world.plan, 3 * world.plan.batch_ms
    return (
        max(TIMEOUTS_MS)
        + chosen.session_timeout_ms
        + chosen.rebalance_timeout_ms
        + 20 * longest_batch_ms
        + 10 * chosen.latency_ms
        + COPIES_MS
    )


def writing_ms(world: World) -> int:
    """INV-96, INV-97: by when all is in the table and committed, counted as for copiers.

    Of a dead member's batch, that it is decided about: one session after it was heard last the next
    owner fetches, waits two seconds, looks, and says what it has found.
    """
    chosen, longest_batch_ms = world.plan, 3 * world.plan.batch_ms
    return chosen.session_timeout_ms + 10 * longest_batch_ms + WRITES_MS


def leaving_ms(world: World) -> int:
    """By when everybody has left, and it is written."""
    return 5_000 + 10 * world.plan.batch_ms + 5 * world.plan.marker_delay_ms


def run_seed(seed: int, kinds: tuple[str, ...] = ()) -> Outcome:
    return run(drawing.draw(seed, kinds))
