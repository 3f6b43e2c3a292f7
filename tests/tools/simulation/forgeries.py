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
from tests.tools.simulation.evidence import Evidence
from tests.tools.simulation.late import Heal
from tests.tools.simulation.reassigned import place_of
from tests.tools.simulation.signing import controls, effective, first_signed, genuine
from tests.tools.simulation.world import PREFIX, Violation, World

#: Lines of history that tell of what was refused: a forged record has another one than garbage.
_REFUSALS: Final = (b'"type":"RequestRejected"', b'"type":"CommitRefused"')
_CONTROL: Final = (b'"Tick"', b'"TopicMetadata"', b'"TxnDecided"', b'"FromShard"')
SITUATIONS: Final = (
    "forged record refused",
    "control record moved to another shard",
    "control record copied",
    "older driver's record came late",
    "prefix of before goes over",
)


# ---- faults -------------------------------------------------------------------------------------


def forged_ticks(world: World, luck: Random, for_ms: int) -> Heal | None:
    """All that was asked can be heard, says somebody who wants others' time to run out."""
    place = place_of(world)

    def tick() -> api.Tick:
        newest = world.cluster.partitions[place].end - 1
        return api.Tick(v=1, published=luck.choice([newest, newest, 2**63 - 1]))

    return _again_and_again(world, luck, 300, tick)


def forged_listings(world: World, luck: Random, for_ms: int) -> Heal | None:
    """There are no topics, or others: whoever believes it takes partitions away from everybody."""

    def listing() -> api.TopicMetadata:
        names = luck.sample(sorted(world.topics), luck.randrange(len(world.topics)))
        rows = tuple(api.Topic(name, luck.randint(1, 9)) for name in sorted(names))
        return api.TopicMetadata(v=1, topics=rows)

    return _again_and_again(world, luck, 1_000, listing)


def copied_control(world: World, luck: Random, for_ms: int) -> Heal | None:
    """Bytes of the driver's own once more: behind newer ones of the shard, or in another shard."""
    if world.engine.signatures is None:
        return None
    is_on = [True]

    def copy() -> bool:
        source, target = (luck.randrange(world.plan.shards) for _ in range(2))
        records = world.cluster.partitions[(f"{PREFIX}.requests", source)].records[-300:]
        told = [each for each in records if _is_control(each)]
        if told:
            value = luck.choice([luck.choice(told), told[-1]]).value
            world.cluster.append((f"{PREFIX}.requests", target), None, value)
        return is_on[0]

    world.every(500, copy)
    return lambda: is_on.__setitem__(0, False)


def _again_and_again(
    world: World, luck: Random, pause_ms: int, made: Callable[[], api.Control]
) -> Heal | None:
    """Unless drivers are of before: then nothing tells theirs from others'."""
    if world.engine.signatures is None:
        return None
    is_on = [True]

    def write() -> bool:
        world.cluster.append(place_of(world), None, _forge(world, luck, made()))
        return is_on[0]

    world.every(pause_ms, write)
    return lambda: is_on.__setitem__(0, False)


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


# ---- situations that a campaign must have met ---------------------------------------------------


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what a run has met."""
    refused = {
        (each.shard, each.offset)
        for each in evidence.told
        if each.type == "RequestRejected" and "written by the job's driver alone" in each.reason
    }
    found["forged record refused"] += len(refused)
    signed = {shard: _signed_bytes(world, shard) for shard in range(world.plan.shards)}
    for shard in range(world.plan.shards):
        counts, written = effective(world, shard), genuine(world, shard)
        found["older driver's record came late"] += len(written - counts)
        for offset in controls(world, shard).keys() - written:
            value = _value(world, shard, offset)
            found["control record copied"] += value in signed[shard]
            others = [signed[each] for each in signed if each != shard]
            found["control record moved to another shard"] += any(value in each for each in others)
    since = sum(first_signed(world, shard) for shard in range(world.plan.shards))
    goes_over = world.plan.unsigned_ms and world.engine.settings.keys and since
    found["prefix of before goes over"] += bool(goes_over)


def _signed_bytes(world: World, shard: int) -> set[bytes]:
    return {_value(world, each, offset) for each, offset in world.engine.written if each == shard}


def _value(world: World, shard: int, offset: int) -> bytes:
    return world.cluster.partitions[(f"{PREFIX}.requests", shard)].at(offset).value or b""
