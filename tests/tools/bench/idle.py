"""What a prefix pays for transactions while nobody has one: records and batches of a running job.

    without     nobody has ever had a transaction
    with        each way had some, and they are over; their ids and groups are kept

Counted are the ends of all topics of the prefix, by the broker. Samples of lag are left out of what
is compared: groups have them that have committed, in whatever way. Fails if the second part has a
record or a batch that the first one had not.
"""

import time
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from coordlib.cli.kit.where import Where
from coordlib.errors import CannotReach
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.figures import tell, tell_machine
from tests.tools.bench.settle import load_1m
from tests.tools.bench.stand import Stand, standing
from tests.tools.bench.transactions_load import TIMEOUT_MS
from tests.tools.bench.transactions_sides import OURS, opened

BENCH: Final = "idle"
WAYS: Final = ("kafka", "coordinator")
TRANSACTIONS: Final = 20
PARTITIONS: Final = 2
#: Without a record for as long, what was under way is over.
CALM_S: Final = 10.0
CALM_LIMIT_S: Final = 120.0
LOOK_EVERY_S: Final = 0.5
#: Written every half minute for groups with committed offsets.
LAG: Final = "lag"
Counts = dict[str, int]


class Counter:
    """How many records each topic of the prefix has had."""

    def __init__(self, config: Mapping[str, Any], prefix: str) -> None:
        self._prefix = prefix
        self._consumer = Consumer({**config, "group.id": f"coordlib-unused-{uuid4().hex}"})

    def close(self) -> None:
        self._consumer.close()

    def ends(self) -> Counts:
        """By topic, without the prefix; marks of transactions count, too."""
        found: Counts = {}
        for name, topic in self._consumer.list_topics(timeout=10).topics.items():
            if name.startswith(f"{self._prefix}."):
                places = [TopicPartition(name, number) for number in topic.partitions]
                ends = (self._consumer.get_watermark_offsets(p, timeout=10)[1] for p in places)
                found[name.removeprefix(f"{self._prefix}.")] = sum(ends)
        return found

    def until_calm(self) -> None:
        """Wait until nothing is written any more, but for lag. Raises CannotReach."""
        until = time.monotonic() + CALM_LIMIT_S
        before, since = self.ends(), time.monotonic()
        while time.monotonic() - since < CALM_S:
            time.sleep(LOOK_EVERY_S)
            now = self.ends()
            if grown(before, now, LAG):
                before, since = now, time.monotonic()
            if time.monotonic() > until:
                raise CannotReach("The job does not come to rest", str(grown(before, now)))


def grown(before: Counts, after: Counts, *but: str) -> Counts:
    """What each topic has got, if anything."""
    more = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in sorted(more.items()) if count and name not in but}


def paid(without: Counts, with_them: Counts) -> Counts:
    """What the second part had more than the first; nothing is what should be there."""
    return {name: n for name, n in grown(without, with_them, LAG).items() if n > 0}


def _count(stand: Stand, counter: Counter, seconds: float) -> tuple[Counts, int | None]:
    """Records of each topic, and batches, in a while."""
    before, first = counter.ends(), stand.batches()
    time.sleep(seconds)
    last = stand.batches()
    batches = None if first is None or last is None else last - first
    return grown(before, counter.ends()), batches


def _transact(stand: Stand) -> None:
    """Some transactions of each way, by clients that then end."""
    topic = f"idle-{uuid4().hex[:8]}"
    create_topic(stand.config, topic, PARTITIONS)
    for way in WAYS:
        side = opened(OURS, stand.config, stand.prefix, way)
        try:
            copier = side.copier(f"idle-{way}-{uuid4().hex[:8]}", TIMEOUT_MS)
            try:
                copier.init()
                for number in range(TRANSACTIONS):
                    copier.begin(topic, 1, number + 1)
                    copier.commit()
            finally:
                copier.close()
        finally:
            side.close()


def run(*, where: Where, seconds: float) -> int:
    """Both parts; 1: the second one had more. Raises CannotReach."""
    tell_machine(BENCH)
    with standing(where) as stand:
        counter = Counter(stand.config, stand.prefix)
        try:
            found = []
            for part in ("without", "with"):
                if part == "with":
                    with phase(to_stderr, f"{TRANSACTIONS} transactions of each way"):
                        _transact(stand)
                with phase(to_stderr, "Waiting for rest"):
                    counter.until_calm()
                records, batches = _count(stand, counter, seconds)
                tell(BENCH, part, seconds=seconds, records=records, batches=batches)
                found.append({**records, "batches": batches or 0})
        finally:
            counter.close()
    more = paid(*found)
    tell(BENCH, "paid", load_1m=load_1m(), for_transactions=more or "nothing")
    return 1 if more else 0
