"""Random logs of one coordination partition, by dice alone."""

from random import Random
from typing import Any, Final

from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims
from tests.tools.claims import driving
from tests.tools.claims.driving import record

KINDS: Final = (
    "Heartbeat",
    "Heartbeat",
    "ClaimingPartition",
    "ReleasingPartition",
    "ClaimingMessages",
    "ReleaseGroup",
)
_PROCESSES: Final = ("0123abcd", "89abcdef")
_ODD: Final = ("", "i-1", "0123ABCD", "0123abcd-", "0123abcd-007", "0123abcdef", "\x1b[31m", "é")
_RAW: Final = (b"banana", b"", None, b"\xff/", b"Heartbeat/1/2/i/c/g/t/-1/5", b"x" * 2_049)


def hostile(
    seed: int,
    length: int,
    *,
    topic: str = driving.TOPIC,
    partition: int = 0,
    partitions: int = 1,
) -> list[InputRecord]:
    """Everything that anybody could write, often with the epoch of the owner."""
    dice, log = Random(seed), list[InputRecord]()
    world = World(topic, partition, partitions)
    now_ms = driving.START_MS
    for offset in range(length):
        now_ms += _step_ms(dice, world.interval_ms)
        if dice.random() < 0.05:
            value = dice.choice(_RAW)
        else:
            value = claims.encode(_message(dice, world, offset, now_ms))
        if dice.random() < 0.02 and value:
            place = dice.randrange(len(value))
            value = value[:place] + bytes([dice.randrange(256)]) + value[place + 1 :]
        log.append(record(offset, -1 if dice.random() < 0.03 else now_ms, value))
        world.judge(log[-1])
    return log


def _step_ms(dice: Random, interval_ms: int) -> int:
    """Mostly small; sometimes the very boundaries, an hour, or back."""
    exact = (0, 1, interval_ms * 2 // 5, interval_ms * 2 // 5 + 1, interval_ms, -interval_ms)
    if dice.random() < 0.3:
        return dice.choice((*exact, 3_600_000))
    return dice.randrange(interval_ms // 3)


def _message(dice: Random, world: World, offset: int, now_ms: int) -> claims.AnyMessage:
    kind = dice.choice(KINDS)
    fields: dict[str, Any] = {"client": dice.choice("ab"), "group": dice.choice("gggh")}
    fields["version"] = 2 if dice.random() < 0.7 else dice.choice((0, 1, 4))
    fields["instance"] = _instance(dice, offset)
    if kind == "ReleaseGroup":
        pause_s = dice.choice((-1, 0, 1, 60, 600, 10**10))
        fields["expire_s"] = now_ms // 1_000 + pause_s
        return driving.message(kind, now_ms, fields)
    if kind != "ClaimingPartition":
        fields["offset"] = dice.choice((0, -1, offset, 7, 2**63 - 1))
    place = fields["group"], dice.choice(("t", "t", "u", "v")), dice.choice((0, 0, 1))
    _, fields["topic"], fields["partition"] = place
    slot = world.slots.get(place)
    if slot is not None and dice.random() < 0.5:  # as its owner would
        fields["client"], fields["instance"] = slot.client, slot.instance
        if fields["version"] == 2:
            fields["instance"] = f"{slot.instance[:8]}-{slot.epoch}"
    return driving.message(kind, now_ms, fields)


def _instance(dice: Random, offset: int) -> str:
    process, roll = dice.choice(_PROCESSES), dice.random()
    if roll < 0.3:
        return process
    if roll > 0.93:
        return dice.choice(_ODD)
    return f"{process}-{max(0, offset - dice.randrange(-1, 8))}"


def crowded(seed: int, length: int) -> list[InputRecord]:
    """Attempts, signs and releases of more slots than there is room for."""
    dice, log = Random(seed), list[InputRecord]()
    world, now_ms = World(driving.TOPIC, 0, 1), driving.START_MS
    for offset in range(length):
        now_ms += dice.choice((0, 1_000, 1_000, 10_000, 24_000))
        place = ("g", "t", dice.randrange(9))
        slot = world.slots.get(place)
        kind = "ClaimingPartition" if slot is None else dice.choice(KINDS[:-1])
        epoch = slot.epoch if slot else offset
        fields = {"partition": place[2], "instance": f"0123abcd-{epoch}"}
        log.append(record(offset, now_ms, driving.message(kind, now_ms, fields)))
        world.judge(log[-1])
    return log
