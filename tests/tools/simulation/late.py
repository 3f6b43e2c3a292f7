"""Faults of members whose requests come late or again, and who hear too late or not at all.

They wait for the moment at which they hurt: an open join phase, a JoinGroup that was just written.
"""

from collections.abc import Callable
from random import Random

from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.program import Program
from tests.tools.simulation.world import GROUP, MEMBERS_MAX, PREFIX, World

Heal = Callable[[], None]


def somebody(world: World, luck: Random) -> Program | None:
    """One of those that run."""
    alive = [each for each in world.living if not each.is_stopped]
    return luck.choice(alive) if alive else None


def join(world: World, luck: Random, for_ms: int) -> None:
    """One member more."""
    if len(world.living) < MEMBERS_MAX:
        world.perturbations += 1
        world.start_program()


def job_away(world: World, then: Heal = lambda: None) -> Heal:
    """All drivers end, and no other starts until it is healed; `then` happens before that."""
    world.kill_drivers()
    world.is_supervised = False

    def heal() -> None:
        then()
        world.is_supervised = True
        world.require_driver(0)

    return heal


def late_consent(world: World, luck: Random, for_ms: int) -> Heal | None:
    """A member's old JoinGroup comes once more when a join phase is open, and it is not (rule 12).

    Its user is stuck in something, so it goes on working; its heartbeats go on, too.
    """
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 2
    shard = shard_of(GROUP, world.plan.shards)
    place = (f"{PREFIX}.requests", shard)
    told = world.cluster.partitions[(f"{PREFIX}.events", shard)].records
    member = program.consumer.member.member_id
    is_on, answered = [True], [-1]
    program.habits.is_busy = True
    join(world, luck, for_ms)

    def look() -> bool:
        opened = _open_join_phase(told)
        if opened > answered[0]:
            answered[0] = opened
            records = world.cluster.partitions[place].records
            joins = [each for each in records if _is_join_of(member, each)]
            if joins:
                world.cluster.append(place, joins[0].key, joins[0].value)
        return is_on[0]

    def heal() -> None:
        is_on[0] = program.habits.is_busy = False

    world.every(50, look)
    return heal


def _open_join_phase(told: list[Record]) -> int:
    """Where the history of the group's shard says that a rebalance is under way; -1: none is.

    Of a server-assigned group: that somebody was asked to let go.
    """
    for record in reversed(told):
        value = record.value or b""
        if b'"RebalanceStarted"' in value or b'"ReleaseDemanded"' in value:
            return record.offset
        is_over = b'"GroupSettled"' in value or b'"GroupEmptied"' in value
        if is_over or (b'"GenerationStarted"' in value and b'"assigned"' not in value):
            return -1
    return -1


def _is_join_of(member: str, record: Record) -> bool:
    if not member or member.encode() not in (record.value or b""):
        return False
    request = codec.decode_request(record.value)
    return isinstance(request, api.JoinGroup) and request.member == member


def commit_of_old(world: World, records: list[Record], luck: Random) -> Record | None:
    """A commit of an earlier generation than the newest that commits."""
    commits = [
        (request.generation, record)
        for record in records
        if isinstance(request := codec.decode_request(record.value), api.OffsetCommit)
    ]
    newest = max((generation for generation, _ in commits), default=-1)
    older = [record for generation, record in commits if generation < newest]
    return luck.choice(older) if older else None


def deaf_while_joining(world: World, luck: Random, for_ms: int) -> Heal | None:
    """Its next JoinGroup is written, and then it hears nothing of what comes of it."""
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 1
    network = world.networks[program.name]
    network.goes_deaf_at_join = True
    join(world, luck, for_ms)

    def heal() -> None:
        network.goes_deaf_at_join = network.is_deaf = False

    return heal


def late_and_mute(world: World, luck: Random, for_ms: int) -> Heal | None:
    """It reads late that it must react, and then cannot write (rule 10)."""
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 1
    network = world.networks[program.name]
    network.is_deaf = network.is_mute = True
    join(world, luck, for_ms)

    def hear() -> None:
        network.is_deaf = False

    def heal() -> None:
        network.is_deaf = network.is_mute = False

    world.scheduler.after(luck.uniform(0.5, 0.75) * world.plan.rebalance_timeout_ms, hear)
    return heal


def removed(world: World, luck: Random, for_ms: int) -> Heal | None:
    """An operator removes a member (rule 14): one that works, or one that is parked in a rebalance.

    Half of them hear nothing for a while, so that only their own fence can stop them.
    """
    program = somebody(world, luck)
    if program is None:
        return None
    world.perturbations += 3  # it comes back, perhaps behind somebody who joins meanwhile
    shard = shard_of(GROUP, world.plan.shards)
    told = world.cluster.partitions[(f"{PREFIX}.events", shard)].records
    network, is_on = world.networks[program.name], [True]
    is_deaf, waits = luck.random() < 0.5, luck.random() < 0.5
    if waits:
        join(world, luck, for_ms)

    def look() -> bool:
        member = program.consumer.member.member_id
        if not is_on[0] or (waits and _open_join_phase(told) < 0) or not member:
            return is_on[0]
        network.is_deaf = network.is_deaf or is_deaf
        leaver = api.Leaver(member=member)
        request = api.LeaveGroup(v=1, id="1", client="operator", group=GROUP, members=(leaver,))
        place = (f"{PREFIX}.requests", shard)
        world.cluster.append(place, GROUP.encode(), codec.encode(request))
        return False

    def heal() -> None:
        is_on[0] = network.is_deaf = False

    world.every(20, look)
    return heal
