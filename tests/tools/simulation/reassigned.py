"""Faults of server-assigned groups: topics come and go, wishes change, words come late or never."""

from random import Random

from coordlib.core.wire import api, codec
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.company import unless_healing
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.people import disturbed, join, place_of
from tests.tools.simulation.plan import ASSIGNED, CLASSIC
from tests.tools.simulation.rest import saved_group
from tests.tools.simulation.world import GROUP, INCARNATION, TOPICS, World

#: A member that is none of ours: it heartbeats, and never lets go of anything.
UNWILLING = "unwilling"
_SWITCH = {ASSIGNED: CLASSIC, CLASSIC: ASSIGNED}


# ---- topics --------------------------------------------------------------------------------------


def topic_appears(world: World, luck: Random, for_ms: int) -> None:
    """Somebody makes a topic; members may have wished for it all the time."""
    missing = [topic for topic in TOPICS if topic not in world.topics]
    if missing:
        world.perturbations += 2
        world.cluster.create(missing[0], luck.randint(1, 4))
        world.topics = (*world.topics, missing[0])


def topic_vanishes(world: World, luck: Random, for_ms: int) -> Lasting:
    """The brokers tell of a topic no more, and it cannot be read; then it is back, with all."""
    topic = luck.choice(world.topics)
    if topic not in world.cluster.hidden:
        world.perturbations += 4
        world.cluster.hidden.add(topic)
        yield
        world.cluster.hidden.discard(topic)


def stale_listing(world: World, luck: Random, for_ms: int) -> None:
    """What an older driver has written about topics arrives late."""
    place = place_of(world)
    records = world.cluster.partitions[place].records
    told = [r for r in records if b'"TopicMetadata"' in (r.value or b"")]
    if told:
        world.perturbations += 4
        world.cluster.append(place, None, luck.choice(told).value)


# ---- members ------------------------------------------------------------------------------------


def wish_changes(world: World, luck: Random, for_ms: int) -> None:
    if (program := disturbed(world, luck)) is not None:
        program.say(world.draw_wish(luck))


def late_words(world: World, luck: Random, for_ms: int) -> Lasting:
    """What members wanted before, and what they have let go of, comes once more (rule 12)."""
    place = place_of(world)

    def again() -> None:
        late = _words_of_members(world.cluster.partitions[place].records[-400:])
        if late:
            world.perturbations += 1
            record = luck.choice(late)
            world.cluster.append(place, record.key, record.value)
            if luck.random() < 0.3:
                wish_changes(world, luck, 0)

    return repeated(world, 700, again)


def _words_of_members(records: list[Record]) -> list[Record]:
    words = (b'"Subscribe"', b'"Release"')
    found = [each for each in records if any(word in (each.value or b"") for word in words)]
    return [each for each in found if _is_of_group(each)]


def _is_of_group(record: Record) -> bool:
    request = codec.decode_request(record.value)
    return isinstance(request, api.Subscribe | api.Release) and bool(request.member)


def late_commit(world: World, records: list[Record], luck: Random) -> Record | None:
    """A commit that is late for good: its member is gone, or has the partitions no more.

    One of a member that still has them would be taken, and would be nobody's fault. Best are those
    of a member that has had the partitions, lost them and got them back.
    """
    group = saved_group(world)
    if group is None:
        return None
    members = group.members
    found: list[Record] = []
    back: list[Record] = []
    for record in records:
        request = codec.decode_request(record.value)
        if not isinstance(request, api.OffsetCommit) or request.generation < 0:
            continue
        member = members.get(request.member)
        grants = [member.grant_of(r.topic, r.partition) for r in request.offsets] if member else []
        if all(grant is None or grant.generation > request.generation for grant in grants):
            found.append(record)
            back += [record] if any(grants) else []
    return luck.choice(back or found) if found else None


def never_lets_go(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody heartbeats, and keeps all that he is asked for; others come and have a right to it.

    Nobody works on what he owns, so he must be out one rebalance timeout after he was asked.
    """
    if world.protocol != ASSIGNED:
        return
    world.perturbations += 3
    place, plan, is_on = place_of(world), world.plan, True
    client = f"{UNWILLING}-{luck.getrandbits(24)}"
    request = api.Subscribe(
        v=1,
        id="1",
        client=client,
        group=GROUP,
        topics=TOPICS,
        session_timeout_ms=plan.session_timeout_ms,
        rebalance_timeout_ms=plan.rebalance_timeout_ms,
        strategy=plan.strategies[0] or None,
    )
    offset = world.cluster.append(place, GROUP.encode(), codec.encode(request))
    member = f"{client}-{INCARNATION}-{place[1]}-{offset}"

    def beat() -> bool:
        sign = api.Heartbeat(v=1, id="1", client=client, group=GROUP, generation=0, member=member)
        world.cluster.append(place, GROUP.encode(), codec.encode(sign))
        return is_on

    world.every(plan.heartbeat_interval_ms, beat)
    come = unless_healing(world, lambda: join(world, luck, 0))
    world.scheduler.after(luck.uniform(1_000, 4_000), come)
    yield
    is_on = False


def kind_changes(world: World, luck: Random, for_ms: int) -> None:
    """A deployment from one protocol to the other: all stop, then all start."""
    world.protocol = _SWITCH[world.protocol]
    pause_ms = luck.choice([0, 2_000, 5_000])
    for program in world.living:
        world.perturbations += 2
        program.close()
        world.start_program_after(pause_ms + luck.uniform(0, 3_000), None)
