"""Who writes into the topics and is no member: garbage, floods, commits, neighbours."""

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import msgspec

from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.people import place_of, somebody
from tests.tools.simulation.world import GROUP, INCARNATION, PREFIX, World

#: A topic that no member reads: an offset of it does no harm, should nobody be in the group.
ELSEWHERE = "elsewhere"
#: Where no partition ends: whoever begins there skips everything.
FAR = 1_000_000
STRANGER, NEIGHBOUR = "stranger", "neighbour"
GARBAGE = (
    b"",
    b"{",
    b"\xff\xfe\x00",
    b"[" * 5_000,
    b'{"v":1,"type":"Heartbeat","id":"x","client":"a","group":"readers"}',
    b'{"v":9,"type":"JoinGroup","id":"x","client":"a","group":"readers"}',
    b'{"v":1,"type":"Tick","published":1e400}',
    b'{"v":1,"type":"Tick","published":9223372036854775807}',
    b'{"v":1,"type":"DescribeGroup","id":"x","client":"\\u001b[31m","group":"readers"}',
    b"x" * 70_000,
)


def garbage(world: World, luck: Random, for_ms: int) -> None:
    """What nobody can read, or what belongs elsewhere (F-18)."""
    for _ in range(luck.randint(1, 5)):
        place = (
            f"{PREFIX}.{luck.choice(['requests', 'offsets'])}",
            luck.randrange(world.plan.shards),
        )
        value = luck.choice((*GARBAGE, luck.randbytes(luck.randrange(200))))
        world.cluster.append(place, None, value)


def flood(world: World, luck: Random, for_ms: int) -> Lasting:
    """Ever-new members of another group that never sync (F-21)."""
    group = f"hostile-{luck.randrange(100)}"
    shard = shard_of(group, world.plan.shards)

    def join() -> None:
        for _ in range(5):
            name = f"h{luck.getrandbits(32)}"
            request = api.JoinGroup(
                v=1,
                id="1",
                client=name,
                group=group,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                protocol_type="consumer",
                protocols=(api.Protocol(name="range", metadata=b""),),
            )
            world.cluster.append((f"{PREFIX}.requests", shard), None, codec.encode(request))

    return repeated(world, 100, join)


# ---- commits of those who are no members ------------------------------------------------------


def commits(world: World, luck: Random, for_ms: int) -> Lasting:
    """Operators, zombies and members of other groups commit into the group (F-35).

    Those without a generation may do so while nobody is in it, so they name a topic that nobody
    reads. The others are refused whatever happens: what they say would make members skip all.
    """
    place = place_of(world)
    shard = place[1]
    foreign = f"{STRANGER}-{INCARNATION}-{shard}-{_join_elsewhere(world, luck, shard)}"

    def commit() -> None:
        who = luck.choice((_anonymous, _without_generation, _zombie, _of_another_group))
        fields = who(world, luck, foreign)
        request = api.OffsetCommit(
            v=1, id=f"{luck.getrandbits(48)}", client=STRANGER, group=GROUP, **fields
        )
        world.cluster.append(place, None, codec.encode(request))

    return repeated(world, 700, commit)


def _anonymous(world: World, luck: Random, foreign: str) -> dict[str, Any]:
    return {"generation": -1, "member": "", "offsets": _offsets(ELSEWHERE, luck)}


def _without_generation(world: World, luck: Random, foreign: str) -> dict[str, Any]:
    """It knows a member's name, and that is all."""
    program = somebody(world, luck)
    member = program.consumer.member.member_id if program else ""
    return {"generation": -1, "member": member, "offsets": _offsets(ELSEWHERE, luck)}


def _zombie(world: World, luck: Random, foreign: str) -> dict[str, Any]:
    """A process that was put out, and has not heard, but for the newest generation."""
    newest, gone = 0, [foreign]
    for record in world.cluster.partitions[
        (f"{PREFIX}.events", shard_of(GROUP, world.plan.shards))
    ].records[-300:]:
        value = msgspec.json.decode(record.value or b"{}")
        if value.get("group") == GROUP:
            newest = max(newest, value["generation"])
            gone += [value["member"]] if value["type"] == "MemberRemoved" else []
    return {"generation": newest, "member": gone[-1], "offsets": _offsets(world.topics[0], luck)}


def _of_another_group(world: World, luck: Random, foreign: str) -> dict[str, Any]:
    program = somebody(world, luck)
    generation = max(0, program.consumer.member.generation) if program else 0
    offsets = _offsets(world.topics[0], luck)
    return {"generation": generation, "member": foreign, "offsets": offsets}


def _offsets(topic: str, luck: Random) -> tuple[api.CommittedOffset, ...]:
    return (api.CommittedOffset(topic=topic, partition=0, offset=FAR + luck.randrange(FAR)),)


def _join_elsewhere(world: World, luck: Random, shard: int) -> int:
    """A member of another group of the shard; where it asked, of which its id is made."""
    request = api.JoinGroup(
        v=1,
        id=f"{luck.getrandbits(48)}",
        client=STRANGER,
        group=name_in(world, shard, "strangers"),
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=(api.Protocol(name="range", metadata=b""),),
    )
    return world.cluster.append((f"{PREFIX}.requests", shard), None, codec.encode(request))


# ---- a group beside it ------------------------------------------------------------------------


def name_in(world: World, shard: int, name: str) -> str:
    """A group that lies in this shard."""
    names = (f"{name}-{number}" for number in count())
    return next(each for each in names if shard_of(each, world.plan.shards) == shard)


def neighbour(world: World, luck: Random, group: str, is_on: Callable[[], bool]) -> None:
    """Somebody who is no member keeps positions in a group of his own, now and from now on."""
    place = (f"{PREFIX}.requests", shard_of(group, world.plan.shards))
    steps = count()

    def write() -> bool:
        row = api.CommittedOffset(topic=ELSEWHERE, partition=0, offset=next(steps))
        request = api.OffsetCommit(
            v=1,
            id=f"{luck.getrandbits(48)}",
            client=NEIGHBOUR,
            group=group,
            generation=-1,
            member="",
            offsets=(row,),
        )
        world.cluster.append(place, None, codec.encode(request))
        return is_on()

    write()
    world.every(500, write)
