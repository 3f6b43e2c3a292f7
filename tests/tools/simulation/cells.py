"""Jobs with ranges of one prefix's shards, started, killed, moved and crossed by luck.

Those who ask are no members, and copiers whose transactions cross cells: what is put out then
depends on the log alone, through all rebuilds. So in the end each shard's outputs must be those of
one fold over its log, each once and in order, whichever jobs have written them, and no message
of a shard may wait.
"""

import json
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from coordlib.core.wire import api, codec
from coordlib.core.wire.cells import Owned, ShardRange
from coordlib.core.wire.envelope import shard_of
from coordlib.job.batch import assemble, judge_readable
from coordlib.job.pipelines import fold_groups
from tests.tools.core import InputRecord
from tests.tools.simulation.cells_beside import CellsBeside, Copier
from tests.tools.simulation.checkpoint import Checkpoint
from tests.tools.simulation.drawing import draw
from tests.tools.simulation.driver_io import Beside
from tests.tools.simulation.engine import CRASH_POINTS, Driver
from tests.tools.simulation.scheduler import Clock, rate_of
from tests.tools.simulation.signed_worlds import signatures_of
from tests.tools.simulation.world import PREFIX, World

SHARDS = 4
LOW, HIGH, MIDDLE, ONE = ShardRange(0, 1), ShardRange(2, 3), ShardRange(1, 2), ShardRange(3, 3)
#: What an operator starts, by mistake or not.
RANGES: tuple[Owned, ...] = (LOW, HIGH, LOW, HIGH, MIDDLE, ONE, None)
GROUPS, COPIERS = 24, 3
TROUBLE_MS, PEACE_MS = 60_000, 150_000


class CellsWorld:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.luck = Random(f"cells {seed}")
        # A rebuild forgets what new groups have booked, so no fold would judge alike.
        plan = replace(draw(seed, ()), shards=SHARDS, sizes=1, new_groups_per_second=0)
        self.world = World(plan)
        self.engine, self.cluster = self.world.engine, self.world.cluster
        self.engine.signatures = signatures_of(seed)
        if self.luck.random() < 0.5:  # then half of all transactions are doubtful
            self.engine.resends.luck = Random(f"resends {seed}")
        self.engine.beside_of = self._beside
        names = (f"copier-{number}" for number in range(COPIERS))
        self.copiers = [Copier(self.cluster, PREFIX, name, GROUPS, seed) for name in names]
        self.drivers: list[Driver] = []
        self.folders: dict[Owned, Checkpoint] = {}
        self.count: Counter[str] = Counter()
        self.is_peace = False

    def run(self) -> list[str]:
        """What is wrong in the end."""
        scheduler = self.world.scheduler
        for first in self.luck.choice([(None,), (LOW, HIGH)]):
            self.start(first)
        scheduler.after(100, self._ask)
        scheduler.after(100, self._copy)
        scheduler.after(3_000, self._disturb)
        scheduler.run(TROUBLE_MS, lambda: None)
        self._make_peace()
        scheduler.run(TROUBLE_MS + PEACE_MS, lambda: None)
        return [*self.engine.problems, *self._differences()]

    # -- what happens ---------------------------------------------------------------------------

    def start(self, owned: Owned, is_rebuild: bool = False, after_ms: float = 0) -> None:
        """A job; with `is_rebuild` in an empty folder, else in that of its range, if any."""
        if is_rebuild or owned not in self.folders:
            self.folders[owned] = Checkpoint(f"folder-{len(self.drivers)}")
            is_rebuild = is_rebuild or self._has_history()
        luck = Random(f"driver {self.luck.random()}")
        clock = Clock(self.world.scheduler, rate_of(luck), luck.randrange(10**9))
        name = f"driver-{len(self.drivers)}"
        made = Driver(self.engine, self.folders[owned], name, clock, self._ended, is_rebuild, owned)
        self.drivers.append(made)
        made.start(after_ms)

    def _has_history(self) -> bool:
        return bool(self.cluster.partitions[f"{PREFIX}.progress", 0].records)

    def _ended(self, driver: Driver) -> None:
        """A supervisor starts it again, but for the exit codes that it must not."""
        if driver.was_fenced:
            self.count["fenced"] += 1
        elif driver.was_refused:
            self.count["refused"] += 1
            if self.is_peace:
                self.start(driver.pipeline.owned, is_rebuild=True, after_ms=1_000)
        else:
            self.count["died"] += 1
            owned = driver.pipeline.owned
            known = self.folders[owned].identity() is not None
            self.start(owned, not known and self._has_history(), self.luck.uniform(500, 4_000))

    def _ask(self) -> None:
        """A position of some group, by who is no member of it."""
        luck, group = self.luck, f"group-{self.luck.randrange(GROUPS)}"
        request = api.OffsetCommit(
            v=1,
            id=f"{luck.getrandbits(48)}",
            client="query",
            group=group,
            generation=-1,
            member="",
            offsets=(api.CommittedOffset("t", luck.randrange(3), luck.randrange(1_000)),),
        )
        place = (f"{PREFIX}.requests", shard_of(group, SHARDS))
        self.cluster.append(place, group.encode(), codec.encode(request))
        if not self.is_peace:
            self.world.scheduler.after(luck.uniform(10, 300), self._ask)

    def _copy(self) -> None:
        """Transactions over groups of any shards; in peace those that are open end."""
        for copier in self.copiers:
            copier.step(is_to_begin=not self.is_peace)
        self.world.scheduler.after(self.luck.uniform(20, 200), self._copy)

    def _beside(self, driver: Driver) -> Beside:
        owned = driver.pipeline.shards(SHARDS)
        return CellsBeside(driver, [each for each in range(SHARDS) if each not in owned])

    def _disturb(self) -> None:
        """One of the things that operators, kernels and mistakes do."""
        if self.is_peace:
            return
        luck = self.luck
        alive = [driver for driver in self.drivers if driver.is_alive]
        what = luck.choice(["kill", "crash", "start", "start", "rebuild", "rebuild", "pause"])
        if what == "kill" and alive:
            luck.choice(alive).kill()
        elif what == "crash":
            self.engine.crash_at = luck.choice(CRASH_POINTS)
        elif what == "start":
            self.start(luck.choice(RANGES))
        elif what == "rebuild":
            self.start(luck.choice(RANGES), is_rebuild=True)
        elif alive:
            sleeper = luck.choice(alive)
            sleeper.stop()
            self.world.scheduler.after(luck.uniform(1_000, 15_000), sleeper.resume)
        self.count[what] += 1
        self.world.scheduler.after(luck.uniform(500, 8_000), self._disturb)

    def _make_peace(self) -> None:
        """Each shard has a job again. Those of before may live: they are fenced."""
        self.is_peace = True
        self.engine.crash_at = None
        for owned in (LOW, HIGH):
            self.start(owned, is_rebuild=True, after_ms=5_000)

    # -- what must be so ------------------------------------------------------------------------

    def _differences(self) -> list[str]:
        found = [f"a message waits: {key!r}" for key in self._waiting()]
        for shard in range(SHARDS):
            expected, seen = self._folded(shard), self._seen(shard)
            for topic in expected:
                if expected[topic] != seen[topic]:
                    found.append(
                        f"{topic} of shard {shard}: {len(seen[topic])} records, "
                        f"and {len(expected[topic])} are due"
                    )
        return found

    def _waiting(self) -> list[bytes]:
        """Messages of shards that nobody is known to have judged."""
        topic = f"{PREFIX}.outbox"
        keys = (key for s in range(SHARDS) for key in self.cluster.newest_by_key(topic, s))
        return [key for key in keys if not key.startswith(b'["')]

    def _folded(self, shard: int) -> dict[str, list[Any]]:
        records = self.cluster.partitions[f"{PREFIX}.requests", shard].read(0, False)[0]
        inputs = [InputRecord("r", each.offset, each.timestamp_ms, each.value) for each in records]
        settings = msgspec.structs.replace(self.engine.settings, shard=shard)
        _, rows = judge_readable(fold_groups, None, inputs, settings)
        return _of_requests(assemble(0, rows).outputs, shard)

    def _seen(self, shard: int) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"events": [], "committed": [], "responses": []}
        for topic in ("events", "committed"):
            records = self.cluster.partitions[f"{PREFIX}.{topic}", shard].read(0)[0]
            found[topic] = [(e.key, e.value) for e in records if not _is_expiry(e.value)]
        for number in range(self.cluster.count(f"{PREFIX}.responses")):
            records = self.cluster.partitions[f"{PREFIX}.responses", number].read(0)[0]
            answers = ((each.key, each.value) for each in records)
            found["responses"] += [each for each in answers if _is_answer(each[1], shard)]
        return found


def _of_requests(outputs: Any, shard: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"events": [], "committed": [], "responses": []}
    for each in outputs:
        is_answer = each.topic != "responses" or _is_answer(each.value, shard)
        if each.topic in found and is_answer and not _is_expiry(each.value):
            found[each.topic].append((each.key, each.value))
    return found


def _is_expiry(value: bytes | None) -> bool:
    """Of what retention deletes at one moment a rebuild may change the order."""
    return value is None or b'"cause":"deadline:retention"' in value


def _is_answer(value: bytes | None, shard: int) -> bool:
    told = json.loads(value or b"{}")
    return "id" in told and str(told.get("cause", "")).startswith(f"r{shard}-")
