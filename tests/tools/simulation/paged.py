"""A world's batches once more in pages, as the job judges them, beside those of one blob.

Spark keeps a shard in pages, and workers keep them decoded. Here a few workers take turns at
random: each may have judged the batch before, one of a cut that was lost, or none. Whatever they
have kept, outputs and state are those of the blob.  # INV-02
"""

from collections import deque
from random import Random
from typing import Final

from coordlib.core.engine.pages import Kept, Packing, StoredPages, fold_pages, whole
from coordlib.core.engine.state import Fold, InputRecord, ShardSettings
from coordlib.core.registry import REGISTRY
from coordlib.job.operator import pack_pages, unpack_pages
from tests.tools.simulation.violation import Violation

#: What they cost is the same without compression.
PACKING: Final = Packing(bytes, bytes)
WORKERS: Final = 3
#: States of a shard that a driver may begin with: the newest ones, and those of old checkpoints.
REMEMBERED: Final = 8


class Paged:
    """The shards of a world in pages."""

    def __init__(self, luck: Random) -> None:
        self._luck = luck
        #: Shard -> blobs, and the same in pages as Spark stores them.
        self._stored: dict[int, deque[tuple[bytes, bytes]]] = {}
        self._kept: dict[tuple[int, int], Kept] = {}

    def check(
        self, blob: bytes | None, records: list[InputRecord], settings: ShardSettings, done: Fold
    ) -> None:
        """Judge a batch of a shard that has come to `done`. Raises Violation."""
        before = self._before(settings.shard, blob)
        worker = self._kept.setdefault((settings.shard, self._luck.randrange(WORKERS)), {})
        paged = fold_pages(before, records, settings, REGISTRY, PACKING, worker)
        if worker:
            raise Violation("INV-02: a worker keeps pages that it has given away")
        if self._luck.random() < 0.8:  # else the task was killed
            worker.update(paged.kept)
        if paged.outputs != done.outputs or paged.status != done.status:
            raise Violation(f"INV-02: shard {settings.shard} says another thing in pages")
        if whole(paged.stored, REGISTRY, PACKING) != done.blob:
            raise Violation(f"INV-02: shard {settings.shard} has another state in pages")
        remembered = self._stored.setdefault(settings.shard, deque(maxlen=REMEMBERED))
        remembered.append((done.blob, pack_pages(paged.stored)))

    def _before(self, shard: int, blob: bytes | None) -> StoredPages | bytes | None:
        for known, stored in reversed(self._stored.get(shard, ())):
            if known == blob:
                return unpack_pages(stored)
        return blob  # of a rebuild, or of a checkpoint of long ago
