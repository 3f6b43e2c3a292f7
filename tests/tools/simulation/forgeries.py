"""Who writes what only the driver may: ticks and listings of their own, and copies of the driver's.

Rule 17: nothing of it counts. So the world goes on as if somebody had written garbage instead, and
that is what is checked: INV-69.
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest
from random import Random
from typing import Final

import msgspec

from coordlib.core.engine.effects import EVENTS, REQUESTS, Output
from coordlib.core.wire import api, codec
from coordlib.core.wire.control import with_signature
from tests.tools.core import InputRecord, Shard
from tests.tools.defects import in_force
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.lasting import Lasting, repeated
from tests.tools.simulation.people import place_of
from tests.tools.simulation.signing import controls, effective
from tests.tools.simulation.world import PREFIX, Violation, World

#: Lines of history that tell of what was refused: a forged record has another one than garbage.
_REFUSALS: Final = (b'"type":"RequestRejected"', b'"type":"CommitRefused"')
_CONTROL: Final = (b'"Tick"', b'"TopicMetadata"', b'"TxnDecided"', b'"FromShard"')


# ---- faults -------------------------------------------------------------------------------------


def forged_ticks(world: World, luck: Random, for_ms: int) -> Lasting | None:
    """All that was asked can be heard, says somebody who wants others' time to run out."""
    place = place_of(world)

    def tick() -> api.Tick:
        newest = world.cluster.partitions[place].end - 1
        return api.Tick(v=1, published=luck.choice([newest, newest, 2**63 - 1]))

    return _again_and_again(world, luck, 300, tick)


def forged_listings(world: World, luck: Random, for_ms: int) -> Lasting | None:
    """There are no topics, or others: whoever believes it takes partitions away from everybody."""

    def listing() -> api.TopicMetadata:
        names = luck.sample(sorted(world.topics), luck.randrange(len(world.topics)))
        rows = tuple(api.Topic(name, luck.randint(1, 9)) for name in sorted(names))
        return api.TopicMetadata(v=1, topics=rows)

    return _again_and_again(world, luck, 1_000, listing)


def copied_control(world: World, luck: Random, for_ms: int) -> Lasting | None:
    """Bytes of the driver's own once more: behind newer ones of the shard, or in another shard."""
    if world.engine.signatures is None:
        return None

    def copy() -> None:
        source, target = (luck.randrange(world.plan.shards) for _ in range(2))
        records = world.cluster.partitions[(f"{PREFIX}.requests", source)].records[-300:]
        told = [each for each in records if _is_control(each)]
        if told:
            value = luck.choice([luck.choice(told), told[-1]]).value
            world.cluster.append((f"{PREFIX}.requests", target), None, value)

    return repeated(world, 500, copy)


def _again_and_again(
    world: World, luck: Random, pause_ms: int, made: Callable[[], api.Control]
) -> Lasting | None:
    """Unless drivers are of before: then nothing tells theirs from others'."""
    if world.engine.signatures is None:
        return None

    def write() -> None:
        world.cluster.append(place_of(world), None, _forge(world, luck, made()))

    return repeated(world, pause_ms, write)


def _forge(world: World, luck: Random, record: api.Control) -> bytes:
    """Unsigned, as it was before, or with a number, a key and a signature that look well."""
    keys = world.engine.settings.keys
    if not keys or luck.random() < 0.4:
        return codec.encode(record)
    number = (luck.choice([len(world.drivers), 2**40]), luck.randrange(1_000))
    name = luck.choice([luck.choice(keys).key, "mine"])
    unsigned = codec.encode(msgspec.structs.replace(record, n=number, key=name))
    return with_signature(unsigned, luck.choice([luck.randbytes(64), _seen(world, luck), b""]))


def _seen(world: World, luck: Random) -> bytes:
    """A signature of the driver's, of another record."""
    told = [each for each in controls(world, place_of(world)[1]).values() if each.sig]
    sig = luck.choice(told).sig if told else b""
    return sig if isinstance(sig, bytes) else b""


def _is_control(record: Record) -> bool:
    value = record.value or b""
    return any(name in value for name in _CONTROL)


# ---- what must be true --------------------------------------------------------------------------


def check(world: World) -> None:
    """INV-69: had garbage stood there instead, everything would have come as it did.

    All requests are judged twice: as they are, and without what must not count.
    """
    _check_starts(world)
    for shard in range(world.plan.shards):
        counts = effective(world, shard)
        idle = controls(world, shard).keys() - counts
        if not idle:
            continue
        records = [
            InputRecord(REQUESTS, each.offset, each.timestamp_ms, each.value)
            for each in world.cluster.partitions[(f"{PREFIX}.requests", shard)].records
            if not each.is_marker
        ]
        without = [
            msgspec.structs.replace(each, value=b"") if each.offset in idle else each
            for each in records
        ]
        real, ideal = _told(world, shard, records), _told(world, shard, without)
        for one, other in zip_longest(real, ideal):
            if one != other:
                raise Violation(f"INV-69: shard {shard} has {one}, without forgeries {other}")


def _check_starts(world: World) -> None:
    """What a driver tells counts because no older one has its number."""
    signers = [each.control.signer for each in world.drivers]
    starts = [each.start for each in signers if each is not None]
    if len(set(starts)) < len(starts):
        raise Violation(f"INV-69: two drivers have one number: {starts}")


def _told(world: World, shard: int, records: list[InputRecord]) -> Iterator[str]:
    """What follows from each request: what is written, but for lines of refusals, and believed."""
    judge = Shard(None, msgspec.structs.replace(world.engine.settings, shard=shard))
    for record in records:
        told = len(judge.outputs)
        with in_force(world.engine.defects):
            judge.judge(record)
        yield from filter(None, map(_line, judge.outputs[told:]))
        yield f"{record.offset}: {judge.published} {judge.control.newest} {judge.topics}"


def _line(output: Output) -> str:
    if output.topic == EVENTS and _is_refusal(output):
        return ""
    value = "gone" if output.value is None else output.value.decode()
    return f"{output.topic} {output.partition} {output.key.decode()} {value}"


def _is_refusal(output: Output) -> bool:
    return any(words in (output.value or b"") for words in _REFUSALS)
