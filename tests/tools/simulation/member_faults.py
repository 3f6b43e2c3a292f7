"""Faults of members and of their networks: they stop, come and go, and requests come late or again.

The later ones wait for the moment at which they hurt: an open join phase, a JoinGroup that was just
written.
"""

from functools import partial
from random import Random

from coordlib.core.wire import api, codec
from coordlib.core.wire.offsets import KAFKA
from tests.tools.simulation import reassigned
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.people import disturbed, instance_of, join, place_of
from tests.tools.simulation.plan import CLASSIC
from tests.tools.simulation.program import Program
from tests.tools.simulation.transport import Network
from tests.tools.simulation.world import GROUP, PREFIX, World

# ---- programs ------------------------------------------------------------------------------------


def network(world: World, luck: Random) -> Network | None:
    """Somebody's, whose group may rebalance if it fails."""
    program = disturbed(world, luck)
    return None if program is None else world.networks[program.name]


def kill(world: World, luck: Random, for_ms: int) -> None:
    if (program := disturbed(world, luck, by=2)) is not None:
        program.kill()
        _replace(world, program, luck)


def close(world: World, luck: Random, for_ms: int) -> None:
    if (program := disturbed(world, luck, by=2)) is not None:
        program.close()
        _replace(world, program, luck)


def all_leave(world: World, luck: Random, for_ms: int) -> None:
    """A deployment that stops everybody before it starts anybody."""
    pause_ms = luck.choice([2_000, 5_000, 15_000])
    for program in world.living:
        world.perturbations += 2
        program.close()
        world.start_program_after(pause_ms + luck.uniform(0, 3_000), instance_of(program))


def _replace(world: World, program: Program, luck: Random) -> None:
    """Somebody starts it again: at once, or when its session may be over."""
    after_ms = luck.choice([0, 500, 5_000, 30_000])
    world.start_program_after(after_ms, instance_of(program))


def twin(world: World, luck: Random, for_ms: int) -> None:
    """A second process with an instance id that lives already (F-23)."""
    if known := [name for name in map(instance_of, world.living) if name]:
        world.perturbations += 2
        world.start_program(luck.choice(known))


def topic_grows(world: World, luck: Random, for_ms: int) -> None:
    topic = luck.choice(world.topics)
    count = world.cluster.count(topic)
    if count < 12:
        world.perturbations += 2  # noticed by a leader, perhaps by two after each other
        world.cluster.create(topic, count + 1)


# ---- requests that come again --------------------------------------------------------------------


def duplicate(world: World, luck: Random, for_ms: int) -> None:
    """A producer without idempotence tries again: the same bytes at a later offset (F-01)."""
    shard = luck.randrange(world.plan.shards)
    place = (f"{PREFIX}.requests", shard)
    records = world.cluster.partitions[place].records
    if records:
        again = luck.choice(records[-50:])
        request = codec.decode_request(again.value)
        # Who writes in a transaction has idempotence.
        is_in_transaction = isinstance(request, api.PendingCommit) and request.decided_by == KAFKA
        if not is_in_transaction and not isinstance(request, api.Tick):
            world.perturbations += 1
            world.cluster.append(place, again.key, again.value)


def late_commits(world: World, luck: Random, for_ms: int) -> Lasting:
    """Commits of earlier generations come once more, from wherever they were held up (F-04)."""
    place = place_of(world)
    pick = _commit_of_old if world.plan.kind == CLASSIC else reassigned.late_commit

    def again() -> None:
        found = pick(world, world.cluster.partitions[place].records[-500:], luck)
        if found is not None:
            world.cluster.append(place, found.key, found.value)

    return repeated(world, 1_000, again)


def _commit_of_old(world: World, records: list[Record], luck: Random) -> Record | None:
    """A commit of an earlier generation than the newest that commits."""
    commits = [
        (request.generation, record)
        for record in records
        if isinstance(request := codec.decode_request(record.value), api.OffsetCommit)
    ]
    newest = max((generation for generation, _ in commits), default=-1)
    older = [record for generation, record in commits if generation < newest]
    return luck.choice(older) if older else None


def late_consent(world: World, luck: Random, for_ms: int) -> Lasting:
    """A member's old JoinGroup comes once more when a join phase is open, and it is not (rule 12).

    Its user is stuck in something, so it goes on working; its heartbeats go on, too.
    """
    program = disturbed(world, luck, by=2)
    if program is None:
        return
    place = place_of(world)
    told = world.cluster.partitions[(f"{PREFIX}.events", place[1])].records
    member, answered = program.consumer.member.member_id, -1
    program.habits.is_busy = True
    join(world, luck, for_ms)

    def look() -> None:
        nonlocal answered
        opened = _open_join_phase(told)
        if opened > answered:
            answered = opened
            records = world.cluster.partitions[place].records
            joins = [each for each in records if _is_join_of(member, each)]
            if joins:
                world.cluster.append(place, joins[0].key, joins[0].value)

    yield from repeated(world, 50, look)
    program.habits.is_busy = False


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


# ---- answers that come late, or never ------------------------------------------------------------


def deaf_while_joining(world: World, luck: Random, for_ms: int) -> Lasting:
    """Its next JoinGroup is written, and then it hears nothing of what comes of it."""
    if (between := network(world, luck)) is not None:
        between.goes_deaf_at_join = True
        join(world, luck, for_ms)
        yield
        between.goes_deaf_at_join = between.is_deaf = False


def late_and_mute(world: World, luck: Random, for_ms: int) -> Lasting:
    """It reads late that it must react, and then cannot write (rule 10)."""
    if (between := network(world, luck)) is not None:
        between.is_deaf = between.is_mute = True
        join(world, luck, for_ms)
        after_ms = luck.uniform(0.5, 0.75) * world.plan.rebalance_timeout_ms
        world.scheduler.after(after_ms, partial(setattr, between, "is_deaf", False))
        yield
        between.is_deaf = between.is_mute = False


def removed(world: World, luck: Random, for_ms: int) -> Lasting:
    """An operator removes a member (rule 14): one that works, or one that is parked in a rebalance.

    Half of them hear nothing for a while, so that only their own fence can stop them.
    """
    # It comes back, perhaps behind somebody who joins meanwhile.
    program = disturbed(world, luck, by=3)
    if program is None:
        return
    place = place_of(world)
    told = world.cluster.partitions[(f"{PREFIX}.events", place[1])].records
    between, is_on = world.networks[program.name], True
    is_deaf, waits = luck.random() < 0.5, luck.random() < 0.5
    if waits:
        join(world, luck, for_ms)

    def look() -> bool:
        member = program.consumer.member.member_id
        if not is_on or (waits and _open_join_phase(told) < 0) or not member:
            return is_on
        between.is_deaf = between.is_deaf or is_deaf
        leaver = api.Leaver(member=member)
        request = api.LeaveGroup(v=1, id="1", client="operator", group=GROUP, members=(leaver,))
        world.cluster.append(place, GROUP.encode(), codec.encode(request))
        return False

    world.every(20, look)
    yield
    is_on = between.is_deaf = False
