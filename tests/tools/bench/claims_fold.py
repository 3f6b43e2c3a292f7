"""The pure fold of claims: bytes of messages in, Judgements out; no Kafka, no Spark, one core.

`judged` is the World alone, as each client runs it; `folded` the engine's fold, from a blob to the
next one, outputs included. The mix is that of a coordination partition at rest: heartbeats of all
claims, positions that move, and an attempt on a live slot in ten messages. Rates are those of the
processor's time, so that work beside this one counts little; making the messages does not count.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

from coordlib.core.claims.fold import Coordination, fold
from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.wire import claims as marshal
from coordlib.core.wire.claims import ClaimingPartition, Heartbeat, instance_of
from tests.tools.bench.figures import percentile, tell, tell_machine

BENCH: Final = "claims"
#: Its heartbeat interval is 60 s.
TOPIC: Final = "__marshal"
START_MS: Final = 1_700_000_000_000
CLIENTS: Final = 200
_ATTEMPTS: Final = 0.1

Batch = list[InputRecord]


def run(messages: int, claims: int, batch: int, repeats: int) -> int:
    """Measure both, and tell them."""
    tell_machine(BENCH)
    folded, judged = [], []
    for _ in range(repeats):  # by turns
        world = World(TOPIC, 0, 1)
        judged.append(_seconds(partial(_judge, world), messages, claims, batch))
        folded.append(_seconds(_Engine().fold, messages, claims, batch))
    count = claims + messages
    mix: dict[str, Any] = {"messages": count, "claims": len(world.slots)}
    tell(BENCH, "judged", **mix, **_rates(judged, count))
    tell(BENCH, "folded", **mix, batch=batch, **_rates(folded, count))
    tell(BENCH, "snapshot", claims=len(world.slots), bytes=len(world.snapshot()))
    return 0


def log_of(messages: int, claims: int, batch: int) -> Iterator[Batch]:
    """All claims are won, then heard of at random; the same log for the same numbers.

    Batch by batch: five million messages at once would be 2 GB.
    """
    dice, now_ms = Random(1), START_MS
    slots = [(f"group-{n % 20}", f"topic-{n // 64}", n % 64) for n in range(claims)]
    part: Batch = []
    for offset in range(claims + messages):
        now_ms += 3
        place = offset if offset < claims else dice.randrange(claims)
        client = place % CLIENTS
        sender: tuple[str, str] = f"client-{client}", f"{client:08x}"
        message = _message(dice, offset, now_ms // 1_000, place, claims, sender, slots[place])
        part.append(InputRecord("m", offset, now_ms, marshal.encode(message)))
        if len(part) == batch:
            yield part
            part = []
    if part:
        yield part


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


def _judge(world: World, part: Batch) -> None:
    judge = world.judge
    for each in part:
        judge(each)


class _Engine:
    """The engine's fold, one batch after the other."""

    def __init__(self) -> None:
        self._blob: bytes | None = None
        self._settings = ShardSettings(
            shard=0,
            shards=1,
            reply_partitions=1,
            incarnation="bench000",
            families={"claims": Coordination(topic=TOPIC, topic_id="bench000")},
        )

    def fold(self, part: Batch) -> None:
        self._blob = fold(self._blob, part, self._settings).blob


def _seconds(work: Callable[[Batch], None], messages: int, claims: int, batch: int) -> float:
    """The processor's time for a whole log."""
    spent = 0.0
    for part in log_of(messages, claims, batch):
        began = time.process_time()
        work(part)
        spent += time.process_time() - began
    return spent


def _rates(seconds: list[float], messages: int) -> dict[str, float]:
    rates = [messages / each for each in seconds]
    return {
        "per_second": round(percentile(rates, 0.5)),
        "best": round(max(rates)),
        "seconds": round(percentile(seconds, 0.5), 1),
    }
