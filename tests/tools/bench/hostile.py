"""What a hostile client costs the others: a flood (`hostile_floods`), and probes beside it.

Parts of the same length, one after the other, on the same running job: quiet; the flood in its
first way; quiet; the flood in its second way, if it has one. Probes join and leave groups of their
own all the time; their answers are timed, those that come after the flood too. At the end it is
quiet once more, with what the flood left behind in the shards' state.

Fails if more was accepted than the caps allow. Whether others waited less than twice as long as
before is told: `within_twice`.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from coordlib.cli.kit.where import Where
from coordlib.errors import CannotReach
from coordlib.job.progress import KEYS_KEY, decode_keys
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.crowd import Record
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.generator import Generator
from tests.tools.bench.hostile_floods import FLOODS, Place, error_of
from tests.tools.bench.load import WARM_SLICE_S
from tests.tools.bench.settle import load_1m
from tests.tools.bench.stand import Stand, standing

BENCH: Final = "hostile"
DRAIN_LIMIT_S: Final = 180.0
#: Of the others' joins, at the median: during the flood to before it.
RATIO_MAX: Final = 2.0
TRANSACTION_TIMEOUT_MS: Final = 900_000
WRITE_TIMEOUT_S: Final = 60.0
#: Without an answer to the flood for as long, all of them are read.
QUIET_S: Final = 1.0


class Hostile(Generator):
    """A generator whose load is a flood."""

    def __init__(self, config: dict[str, str], prefix: str, kind: str) -> None:
        super().__init__(config, prefix, groups=1, members=1)
        self._config = config
        keys = keys_of(config, prefix)
        place = Place(self.place.shards, self.probes.token, keys)
        self.flood = FLOODS[kind](place)
        self._open: Producer | None = None
        #: What the hostile client was answered.
        self.answers: Counter[str] = Counter()

    def begin(self, part: str) -> None:
        """Forget what was measured before."""
        self.probes.forget()
        self.pace.begin()
        self.answers.clear()
        self.lateness_s = 0.0
        self.flood.begin(part)
        if self.flood.IS_TRANSACTION and part in self.flood.PARTS:
            self._open = self._transaction()

    def end(self) -> None:
        """What it has left open is over."""
        if self._open is not None:
            self._open.flush(WRITE_TIMEOUT_S)  # an abort drops what is not sent yet
            self._open.abort_transaction(WRITE_TIMEOUT_S)
            self._open.close()
            self._open = None

    def hear_out(self) -> None:
        """Read the answers to the flood until no more come: they may lie behind the others'."""
        heard = -1
        until = time.monotonic() + DRAIN_LIMIT_S
        while heard != sum(self.answers.values()) and time.monotonic() < until:
            heard = sum(self.answers.values())
            self._run(lambda: False, QUIET_S, rate=0, probes_per_second=0)

    def written(self, topic: str) -> int:
        """Records in a topic of the job's, by the ends of its partitions."""
        places = [
            TopicPartition(f"{self.place.prefix}.{topic}", shard)
            for shard in range(self.place.shards)
        ]
        return sum(self._consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)

    def _transaction(self) -> Producer:
        """Open, until `end`."""
        producer = Producer(
            {
                **self._config,
                "transactional.id": f"hostile-{uuid4().hex[:8]}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        producer.init_transactions(WRITE_TIMEOUT_S)
        producer.begin_transaction()
        return producer

    def _beat(self, count: int) -> None:
        wanted = list(self._wanted(count))
        if self._open is None:
            self.sent += self._write(wanted)
            return
        for value, key, shard in wanted:
            self._open.produce(self.place.requests, value, key, partition=shard)
        self._open.poll(0)
        self.sent += len(wanted)

    def _wanted(self, count: int) -> Iterator[Record]:
        for _ in range(count):
            if (record := self.flood.next()) is None:
                return
            yield record

    def _hear(self, message: Message) -> None:
        error = error_of(message.value() or b"")
        if error is None:
            super()._hear(message)
        else:
            self.answers[error or "notices"] += 1


def keys_of(config: dict[str, str], prefix: str) -> list[str]:
    """The names of the job's keys, which anybody may read. Raises CannotReach."""
    consumer = Consumer(
        {
            **config,
            "group.id": f"coordlib-unused-{uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(f"{prefix}.progress", 0, 0)])
        until = time.monotonic() + WRITE_TIMEOUT_S
        while time.monotonic() < until:
            for message in consumer.consume(1_000, timeout=1.0):
                if message.error() is None and message.key() == KEYS_KEY:
                    return [each.key for each in decode_keys(message.value() or b"").keys]
    finally:
        consumer.close()
    raise CannotReach("The job's keys are not in its topic", f"{prefix}.progress")


def measure(
    hostile: Hostile, stand: Stand, part: str, seconds: float, rate: float, probes: float
) -> dict[str, Any]:
    """One part; what came of it."""
    to_stderr(f"{part}: {seconds:.0f} s")
    costs = Costs(stand.stack)
    hostile.begin(part)
    sent_before, judged_before = hostile.sent, hostile.pace.judged
    lines_before = hostile.written("events")
    costs.begin()
    began = time.monotonic()
    hostile.load(seconds, rate, probes)
    spent_s = time.monotonic() - began
    found = {
        "sent_per_s": round((hostile.sent - sent_before) / spent_s),
        "judged_per_s": round((hostile.pace.judged - judged_before) / spent_s),
        **hostile.pace.figures(),
        **costs.figures(),
    }
    hostile.end()
    drained_s = hostile.drain(DRAIN_LIMIT_S)
    hostile.hear_out()
    return found | {
        # After draining: a probe that the flood delayed most is answered last.
        "join_s": spread(hostile.probes.took_s, 0.5, 0.9, 0.99),
        "probes": len(hostile.probes.took_s),
        "unanswered": hostile.probes.unanswered,
        "refused_probes": hostile.probes.refused,
        "drained_s": None if drained_s is None else round(drained_s, 2),
        "flood_answers": dict(hostile.answers),
        "lines_of_history": hostile.written("events") - lines_before,
        "state_bytes": stand.state_bytes(),
        "generator_late_s": round(hostile.lateness_s, 3),
    }


def run(*, where: Where, kind: str, per_second: int, seconds: int, probes_per_second: float) -> int:
    """Quiet and hostile parts in turn, and how much longer others waited; 1: a cap did not hold."""
    tell_machine(BENCH)
    have_held = True
    with standing(where) as stand:
        hostile = Hostile(stand.config, stand.prefix, kind)
        try:
            _warm_up(hostile, stand, probes_per_second)
            for part in hostile.flood.PARTS:
                quiet = measure(hostile, stand, "quiet", seconds, 0, probes_per_second)
                _tell(kind, "quiet", quiet)
                found = measure(hostile, stand, part, seconds, per_second, probes_per_second)
                cap = capped(found["flood_answers"], hostile.flood.taken_max(seconds))
                have_held = have_held and cap["cap_held"]
                _tell(kind, part, found, **cap, **compared(quiet["join_s"], found["join_s"]))
            after = measure(hostile, stand, "aftermath", seconds, 0, probes_per_second)
            _tell(kind, "aftermath", after, **compared(quiet["join_s"], after["join_s"]))
        finally:
            hostile.close()
    return 0 if have_held else 1


def _warm_up(hostile: Hostile, stand: Stand, probes_per_second: float) -> None:
    with phase(to_stderr, "Warming up the job"):
        hostile.begin("warm")
        # At least once: an idle job writes no batch that would tell how far it is.
        hostile.load(WARM_SLICE_S, 0, probes_per_second)
        while not stand.is_warm():
            hostile.load(WARM_SLICE_S, 0, probes_per_second)
        hostile.drain(DRAIN_LIMIT_S)  # a probe that is forgotten unanswered never leaves


def _tell(kind: str, part: str, found: dict[str, Any], **more: Any) -> None:
    tell(BENCH, part, kind=kind, load_1m=load_1m(), **found, **more)


def capped(answers: dict[str, int], taken_max: int | None) -> dict[str, Any]:
    """What was accepted of a flood, and whether that is no more than may be."""
    taken = answers.get("NONE", 0)
    held = taken_max is None or taken <= taken_max
    return {"taken": taken, "taken_max": taken_max, "cap_held": held}


def compared(quiet: dict[str, float | None], hostile: dict[str, float | None]) -> dict[str, Any]:
    """How much longer others waited, and whether that is within the aim at the median."""
    ratio = {
        share: round(slow / fast, 2)
        if (fast := quiet[share]) and (slow := hostile[share])
        else None
        for share in quiet
    }
    median = ratio["p50"]
    return {"ratio": ratio, "within_twice": median is not None and median <= RATIO_MAX}
