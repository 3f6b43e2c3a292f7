"""Those who are no members and keep positions by `coord.offsets`, and administrators of groups."""

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from tests.tools.simulation.company import unless_healing
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.people import instance_of, somebody
from tests.tools.simulation.strangers import ELSEWHERE, FAR, name_in
from tests.tools.simulation.world import GROUP, PREFIX, World

QUERY, ADMIN = "query", "admin"
#: Longer than any offset's metadata may be.
TOO_LONG = "x" * 5_000


def write(
    world: World, luck: Random, group: str, rows: Sequence[api.CommittedOffset], **who: Any
) -> None:
    """A position, as a Spark query or a tool writes it."""
    request = api.OffsetCommit(
        v=1,
        id=f"{luck.getrandbits(48)}",
        client=QUERY,
        group=group,
        offsets=tuple(rows),
        **{"generation": -1, "member": "", **who},
    )
    place = (f"{PREFIX}.offsets", shard_of(group, world.plan.shards))
    world.cluster.append(place, group.encode(), codec.encode(request))


def ask(world: World, luck: Random, kind: type[api.Request], group: str, **fields: Any) -> None:
    """An administrator's word about a group."""
    request = kind(v=1, id=f"{luck.getrandbits(48)}", client=ADMIN, group=group, **fields)
    place = (f"{PREFIX}.requests", shard_of(group, world.plan.shards))
    world.cluster.append(place, group.encode(), codec.encode(request))


def a_query(world: World, luck: Random) -> str:
    """The name of a query's group, in any shard."""
    return name_in(world, luck.randrange(world.plan.shards), f"query-{luck.getrandbits(24)}")


def _goes_on(
    world: World, luck: Random, group: str, is_on: Callable[[], bool], every_ms: int
) -> None:
    """A query of its own group: offsets that rise, of some partitions of a topic."""
    topic, done = luck.choice(world.topics), count()

    def step() -> bool:
        offset = next(done)
        some = luck.sample(range(4), luck.randint(1, 4))
        write(world, luck, group, [api.CommittedOffset(topic, each, offset) for each in some])
        return is_on()

    world.every(every_ms, step)


def query_positions(world: World, luck: Random, for_ms: int) -> Lasting:
    """A Spark query keeps its positions; sometimes one of them is none that can be kept."""
    is_on = True
    _goes_on(world, luck, a_query(world, luck), lambda: is_on, luck.choice([300, 900]))

    def stumble() -> None:
        row = api.CommittedOffset(ELSEWHERE, 0, 1, metadata=TOO_LONG)
        write(world, luck, a_query(world, luck), [row])
        if luck.random() < 0.3:  # whoever names a generation must ask where members ask
            write(world, luck, a_query(world, luck), [row], generation=3, member="m")

    yield from repeated(world, 4_000, stumble)
    is_on = False


def query_deleted(world: World, luck: Random, for_ms: int) -> Lasting:
    """A query has ended, and an administrator deletes what it has kept."""
    is_on, group = True, a_query(world, luck)
    _goes_on(world, luck, group, lambda: is_on, 250)
    yield
    is_on = False
    after_ms = luck.choice([300, 1_000, 4_000])
    world.scheduler.after(after_ms, lambda: ask(world, luck, api.DeleteGroup, group))


def of_members(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody commits for the readers who is none, under the name of one that lives.

    Of a topic that nobody reads: while nobody is in the group, what he says is taken.
    """

    def say() -> None:
        program = somebody(world, luck)
        member = program.consumer.member.member_id if program is not None else ""
        row = api.CommittedOffset(ELSEWHERE, 0, FAR + luck.randrange(FAR))
        write(world, luck, GROUP, [row], member=member if luck.random() < 0.7 else "")

    return repeated(world, 700, say)


# ---- administrators -----------------------------------------------------------------------------


def group_deleted(world: World, luck: Random, for_ms: int) -> None:
    """A group with members is to be deleted: now, or when all have left it for a while."""
    team = luck.choice(world.teams)
    ask(world, luck, api.DeleteGroup, team.name)
    if luck.random() < 0.5:
        return
    for program in team.living:
        if program.is_blocked or program.is_stopped:
            continue
        team.perturbations += 3
        program.close()
        world.start_program_after(luck.uniform(9_000, 12_000), instance_of(program), team)
    again = unless_healing(world, lambda: ask(world, luck, api.DeleteGroup, team.name))
    world.scheduler.after(luck.uniform(4_000, 9_000), again)


def offsets_deleted(world: World, luck: Random, for_ms: int) -> None:
    """Positions of one topic are to be forgotten: of one that is read, or of one that nobody is."""
    team = luck.choice(world.teams)
    topic = luck.choice([*world.topics, ELSEWHERE])
    rows = (api.TopicPartitions(topic, tuple(range(max(1, world.cluster.count(topic))))),)
    ask(world, luck, api.OffsetDelete, team.name, topics=rows)


def group_described(world: World, luck: Random, for_ms: int) -> Lasting:
    """An administrator looks at groups, again and again."""

    def look() -> None:
        ask(world, luck, api.DescribeGroup, luck.choice(world.teams).name)

    return repeated(world, 500, look)
