"""What a shard's state costs a batch, from what Spark keeps to what it keeps next; no Spark.

The ways take turns batch by batch, on the same records:

- whole: the state is one blob, as the job had it before it had pages
- read: in pages, by a worker that has kept none
- kept: in pages, by the worker that judged the batch before
- moved: in pages, by a worker that judged the batch before the last: Spark takes any idle one

A batch has a heartbeat of every tenth member, as batches of 0.3 s have at an interval of 3 s, and
commits of one group in a hundred. An empty one costs what the state costs.
"""

import gc
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from coordlib.config import ShardConfig
from coordlib.core.engine.pages import Kept, Packing, fold_pages
from coordlib.core.engine.state import InputRecord
from coordlib.core.registry import REGISTRY
from coordlib.job.operator import pack_pages, pack_state, unpack_pages, unpack_state
from tests.tools.bench import core
from tests.tools.bench.figures import Took, percentile, tell, tell_machine, timed
from tests.tools.core import fold

#: Room for a hundred thousand members of the stock's metadata.
SETTINGS = msgspec.structs.replace(core.SETTINGS, bounds=ShardConfig(bytes_max=256 * 2**20))
PACKING = Packing(pack_state, unpack_state)
BEATING, CHANGING = 10, 100


class Sides:
    """One shard as each way has it; all of the same content."""

    def __init__(self, blob: bytes) -> None:
        self.whole = pack_state(blob)
        begun = fold_pages(blob, [], SETTINGS, REGISTRY, PACKING, {})
        self.pages = pack_pages(begun.stored)
        #: Of two workers that judge all batches by themselves, and of two that take turns.
        self.kept, self.turns = begun.kept, [self._pages([], {})[1], self._pages([], {})[1]]

    def batch(self, records: list[InputRecord]) -> dict[str, Took]:
        """Judge them in each way."""
        took: dict[str, Took] = {}
        whole, took["whole"] = timed(lambda: self._whole(records))
        (read, _), took["read"] = timed(lambda: self._pages(records, {}))
        (kept, self.kept), took["kept"] = timed(lambda: self._pages(records, self.kept))
        (moved, now), took["moved"] = timed(lambda: self._pages(records, self.turns[0]))
        assert read == moved == kept, "what a worker keeps makes no difference"
        self.turns = [self.turns[1], now]
        self.whole, self.pages = whole, kept
        return took

    def _whole(self, records: list[InputRecord]) -> bytes:
        return pack_state(fold(unpack_state(self.whole), records, SETTINGS).blob)

    def _pages(self, records: list[InputRecord], kept: Kept) -> tuple[bytes, Kept]:
        stored = unpack_pages(self.pages)
        assert stored is not None
        done = fold_pages(stored, records, SETTINGS, REGISTRY, PACKING, kept)
        return pack_pages(done.stored), done.kept


def _measured(groups: int, members: int, repeats: int) -> Iterator[dict[str, Any]]:
    made, log, blob = core.settled(groups, members, SETTINGS)
    sides, draw = Sides(blob), Random(1)
    everybody = [(group, number) for group in made for number in range(members)]
    gc.collect()
    gc.freeze()  # the log's; what a worker keeps is walked, as in the job
    busy: list[dict[str, Took]] = []
    empty: list[dict[str, Took]] = []
    for _ in range(repeats):
        log.now_ms += 300
        beats = draw.sample(everybody, max(1, len(everybody) // BEATING))
        records = [group.heartbeat(number, 2) for group, number in beats]
        records += [group.commit(0, 2, 0, 10) for group in made[::CHANGING]]
        busy.append(sides.batch(records))
        empty.append(sides.batch([]))
    gc.unfreeze()
    for way in busy[0]:
        yield {
            "way": way,
            "batch_ms": percentile([each[way].cpu_ms for each in busy], 0.5),
            "empty_batch_ms": percentile([each[way].cpu_ms for each in empty], 0.5),
            "packed_bytes": len(sides.whole if way == "whole" else sides.pages),
            "blob_bytes": len(unpack_state(sides.whole)),
        }


def run(groups: tuple[int, ...], members: int, repeats: int) -> int:
    """A line for each size and way."""
    tell_machine("core")
    for count in groups:
        for line in _measured(count, members, repeats):
            tell("core", "state", groups=count, members=members, **line)
    return 0
