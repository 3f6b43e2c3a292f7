"""What the batch benchmark switches in Spark's Python workers. They import this file, by name.

Workers live on from one block to the next, so that a block takes back what the one before it did.
"""

import gc
from collections.abc import Iterable

from coordlib.core.engine.pages import Kept, Packing, PagesFold, StoredPages
from coordlib.core.engine.state import Fold, InputRecord, ShardSettings
from coordlib.job.pipelines import fold_group_pages, fold_groups


class _Heap:
    """Whether this worker's collector walks what the daemon has imported."""

    is_thawed = False


def fold_frozen(
    blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings
) -> Fold:
    """The job's fold, in a worker as its daemon has made it."""
    _freeze()
    return fold_groups(blob, records, settings)


def fold_thawed(
    blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings
) -> Fold:
    """The job's fold, in a worker whose collector walks everything after each task."""
    _thaw()
    return fold_groups(blob, records, settings)


def fold_pages_frozen(
    before: StoredPages | bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    packing: Packing,
    kept: Kept,
) -> PagesFold:
    """As `fold_frozen`, of a state in pages."""
    _freeze()
    return fold_group_pages(before, records, settings, packing, kept)


def fold_pages_thawed(
    before: StoredPages | bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    packing: Packing,
    kept: Kept,
) -> PagesFold:
    """As `fold_thawed`, of a state in pages."""
    _thaw()
    return fold_group_pages(before, records, settings, packing, kept)


def _freeze() -> None:
    if _Heap.is_thawed:
        gc.collect()
        gc.freeze()
        _Heap.is_thawed = False


def _thaw() -> None:
    if not _Heap.is_thawed:
        gc.unfreeze()
        _Heap.is_thawed = True
