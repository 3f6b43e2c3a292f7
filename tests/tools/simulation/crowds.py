"""Whoever wants more than there is: groups, bytes of a shard, of a group's record, of an answer."""

from collections.abc import Iterator
from itertools import count
from random import Random

import msgspec

from coordlib.core.wire import api, codec
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.people import place_of
from tests.tools.simulation.positions import ask
from tests.tools.simulation.strangers import ELSEWHERE, name_in
from tests.tools.simulation.world import INCARNATION, PREFIX, World

CROWD, FILLER, HOARDER, GREEDY = "crowd", "filler", "hoarder", "greedy"
REPLY = 0
#: So many groups come at once, and then one in so much time: less often than the shard makes them.
AT_ONCE, EVERY_MS, TRIES_AGAIN_MS = 8, 2_500, 1_000
METADATA = "m" * 4_000
#: Topics that only a hoarder wants: families of them, with names as long as can be.
FAMILIES, OF_FAMILY, NAME_LENGTH = 10, 70, 240
LONG_MS = 600_000


class Answers:
    """The answers to one client, read as they come."""

    def __init__(self, world: World, client: str) -> None:
        self._responses = world.cluster.partitions[(f"{PREFIX}.responses", REPLY)]
        self._position, self._client = self._responses.last_stable, client

    def fresh(self) -> Iterator[dict[str, str]]:
        records, self._position = self._responses.read(self._position)
        for record in records:
            value = msgspec.json.decode(record.value or b"{}")
            if value.get("client") == self._client and "id" in value:
                yield value


def new_groups(world: World, luck: Random, for_ms: int) -> Lasting:
    """Ever-new groups that only keep positions: many at once, then fewer than a shard makes.

    Whoever is refused waits for the answer, and a while longer, and tries again.
    """
    # In the readers' shard, or in one where perhaps nobody waits for time to pass.
    shard = luck.randrange(world.plan.shards)
    topic = luck.choice(["offsets", "offsets", "requests"])
    client = f"{CROWD}-{luck.getrandbits(24)}"
    answers, numbers, is_on = Answers(world, client), count(), True
    asked: dict[str, str] = {}

    def write(group: str) -> None:
        request = api.OffsetCommit(
            v=1,
            id=f"{client}-{next(numbers)}",
            client=client,
            group=group,
            reply=REPLY,
            offsets=(api.CommittedOffset(ELSEWHERE, 0, 1),),
        )
        asked[request.id] = group
        place = (f"{PREFIX}.{topic}", shard)
        world.cluster.append(place, group.encode(), codec.encode(request))

    def more() -> bool:
        write(name_in(world, shard, f"{client}-{next(numbers)}"))
        return is_on

    def again() -> None:
        for answer in answers.fresh():
            if answer["error"] != "NONE" and is_on:
                write(asked[answer["id"]])

    for _ in range(AT_ONCE):
        more()
    world.every(EVERY_MS, more)
    yield from repeated(world, TRIES_AGAIN_MS, again)
    is_on = False


def shard_fills(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody fills the readers' shard with metadata of offsets; in the end it is taken away."""
    shard, numbers = place_of(world)[1], count()
    name = f"{FILLER}-{luck.getrandbits(24)}"
    groups = [name_in(world, shard, f"{name}-{number}") for number in range(8)]

    def fill() -> None:
        number = next(numbers)
        row = api.CommittedOffset(ELSEWHERE, number, 1, metadata=METADATA)
        ask(world, luck, api.OffsetCommit, groups[number % len(groups)], offsets=(row,))

    def take_away() -> None:
        for group in groups:
            ask(world, luck, api.DeleteGroup, group)

    yield from repeated(world, 200, fill)
    world.scheduler.after(500, take_away)


def hoarder(world: World, luck: Random, for_ms: int) -> Lasting:
    """A member changes its wish again and again, and keeps all that it was ever given."""
    place = place_of(world)
    group = name_in(world, place[1], HOARDER)
    client = f"{HOARDER}-{luck.getrandbits(24)}"
    world.cluster.elsewhere.update({name: 1 for each in range(FAMILIES) for name in _family(each)})
    numbers, is_on, member = count(), True, ""

    def wish() -> bool:
        nonlocal member
        number = next(numbers)
        request = api.Subscribe(
            v=1,
            id=f"{number}",
            client=client,
            group=group,
            member=member,
            generation=number if member else -1,
            pattern=f"H{number % FAMILIES}.*",
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
        )
        offset = world.cluster.append(place, group.encode(), codec.encode(request))
        member = member or f"{client}-{INCARNATION}-{place[1]}-{offset}"
        return is_on

    # When the driver has told of the topics; the shard knows them by then.
    world.scheduler.after(4_000, lambda: world.every(700, wish) if is_on else None)
    yield
    is_on = False
    world.cluster.elsewhere.clear()
    ask(world, luck, api.LeaveGroup, group, members=(api.Leaver(member=member),))


def _family(number: int) -> list[str]:
    return [f"H{number}-{each:03d}".ljust(NAME_LENGTH, "x") for each in range(OF_FAMILY)]


def greedy_fetch(world: World, luck: Random, for_ms: int) -> None:
    """A small request that asks for much: one partition many times, or many with long metadata."""
    group = name_in(world, place_of(world)[1], GREEDY)
    partitions = luck.choice([1, 60])
    rows = [
        api.CommittedOffset(ELSEWHERE, n, 1, metadata="\u20ac" * 4_000) for n in range(partitions)
    ]
    for first in range(0, partitions, 20):
        ask(world, luck, api.OffsetCommit, group, offsets=tuple(rows[first : first + 20]))
    wanted = (0,) * 1_000 if partitions == 1 else tuple(range(partitions))
    topics = (api.TopicPartitions(ELSEWHERE, wanted),)
    ask(world, luck, api.OffsetFetch, group, topics=topics, reply=REPLY)
