"""The pure fold of claims: bytes of messages in, Judgements out; no Kafka, no Spark, one core.

`judged` is the World alone, as each client runs it; `folded` the engine's fold, from a blob to the
next one, outputs included. The mix is that of a coordination partition at rest: heartbeats of all
claims, positions that move, and an attempt on a live slot in ten messages. Rates are those of the
processor's time, so that work beside this one counts little.
"""

import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from coordlib.coordinators.claims.blob import Coordination
from coordlib.coordinators.claims.fold import fold
from coordlib.coordinators.claims.world import World
from coordlib.coordinators.shard.blob import InputRecord, ShardSettings
from coordlib.records import marshal
from coordlib.records.marshal import ClaimingPartition, Heartbeat, instance_of
from tests.tools.bench.figures import percentile, tell, tell_machine

BENCH: Final = "claims"
TOPIC: Final = "__marshal"
START_MS: Final = 1_700_000_000_000
CLIENTS: Final = 200
_ATTEMPTS: Final = 0.1


def run(messages: int, claims: int, batch: int, repeats: int) -> int:
    """Measure both, and tell them."""
    tell_machine(BENCH)
    log = log_of(messages, claims)
    mix: dict[str, Any] = {"messages": len(log), "claims": claims}
    mix["bytes_each"] = round(sum(len(each.value or b"") for each in log) / len(log))
    tell(BENCH, "judged", **mix, **_rates(lambda: _judge(log), len(log), repeats))
    tell(
        BENCH, "folded", **mix, batch=batch, **_rates(lambda: _fold(log, batch), len(log), repeats)
    )
    world = World(TOPIC, 0, 1)
    for each in log:
        world.judge(each)
    tell(BENCH, "snapshot", claims=len(world.slots), bytes=len(world.snapshot()))
    return 0


def log_of(messages: int, claims: int) -> list[InputRecord]:
    """All claims are won, then heard of at random; the same log for the same numbers."""
    dice, now_ms = Random(1), START_MS
    slots = [(f"group-{n % 20}", f"topic-{n // 64}", n % 64) for n in range(claims)]
    log: list[InputRecord] = []
    for offset in range(claims + messages):
        now_ms += 3
        place = offset if offset < claims else dice.randrange(claims)
        client = place % CLIENTS
        sender: tuple[str, str] = f"client-{client}", f"{client:08x}"
        message = _message(dice, offset, now_ms // 1_000, place, claims, sender, slots[place])
        log.append(InputRecord("m", offset, now_ms, marshal.encode(message)))
    return log


def _message(
    dice: Random,
    offset: int,
    time_s: int,
    place: int,
    claims: int,
    sender: tuple[str, str],
    slot: tuple[str, str, int],
) -> marshal.AnyMessage:
    client, process = sender
    if offset < claims or dice.random() < _ATTEMPTS:
        return ClaimingPartition(marshal.OUR_VERSION, time_s, process, client, *slot)
    instance = instance_of(process, place)
    return Heartbeat(marshal.OUR_VERSION, time_s, instance, client, *slot, offset)


def _judge(log: list[InputRecord]) -> None:
    judge = World(TOPIC, 0, 1).judge
    for each in log:
        judge(each)


def _fold(log: list[InputRecord], batch: int) -> None:
    settings = ShardSettings(
        shard=0,
        shards=1,
        reply_partitions=1,
        incarnation="bench000",
        families={"claims": Coordination(topic=TOPIC, topic_id="bench000")},
    )
    blob: bytes | None = None
    for start in range(0, len(log), batch):
        blob = fold(blob, log[start : start + batch], settings).blob


def _rates(work: Callable[[], None], messages: int, repeats: int) -> dict[str, int]:
    rates = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        rates.append(messages / (time.process_time() - began))
    return {"per_second": round(percentile(rates, 0.5)), "best": round(max(rates))}
