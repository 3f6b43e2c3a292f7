"""A pipeline: what one query of the job reads, how it folds that, and from where it is restored."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from coordlib.core.claims.fold import (
    MESSAGES,
    begin_at,
    begin_late,
    belongs,
    coordination,
    positions_of,
)
from coordlib.core.claims.fold import fold as fold_claims
from coordlib.core.claims.snapshots import Snapshot, UnreadableSnapshot, read_pages
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import ASSIGNMENTS, COMMITTED, SNAPSHOTS
from coordlib.core.engine.fold import fold
from coordlib.core.engine.pages import Kept, Packing, PagesFold, StoredPages, fold_pages
from coordlib.core.engine.state import (
    Fold,
    InputRecord,
    ShardSettings,
    Topics,
    orphans,
    restore,
    topics_of,
)
from coordlib.core.engine.step import UnknownSavedVersion
from coordlib.core.registry import REGISTRY
from coordlib.core.wire.cells import Owned, named, shards_of
from coordlib.core.wire.stored import CommittedValue, ShardPosition
from coordlib.core.wire.topics import claims_prefix, own_topics
from coordlib.errors import SetupError
from coordlib.job.batch import FoldFn, FoldingPages

#: Labels of pipelines.
GROUPS: Final = "groups"
CLAIMS: Final = "claims"
#: The form of keys in `committed`.
_decode_key: Final = msgspec.json.Decoder(tuple[str, str, int]).decode
_decode_committed: Final = msgspec.json.Decoder(CommittedValue).decode


class RestoreFns(NamedTuple):
    """Each change of an entity is saved: the topics have the state at the marker."""

    restore: Callable[[Topics, ShardPosition], bytes]
    #: The names of entities that a restore leaves out.
    left_out: Callable[[Topics], list[str]]


class Snapshots(NamedTuple):
    """Whole shards are saved, from time to time: the input behind them is folded again."""

    #: The state at the newest snapshot; None: there is none.
    begin: Callable[[Topics, ShardSettings], bytes | None]
    #: The state of a log that lacks records from this offset on, up to its beginning.
    late: Callable[[Topics, ShardSettings, int], bytes]
    #: A compacted topic that such a state has no records of: what stands there is withdrawn, and
    #: written again when its records have been read.
    unknown_when_late: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One query's part. Executors get it, so its functions are those of modules."""

    #: All its output topics begin with it.
    prefix: str
    #: Names the query, and its transactional id.
    name: str
    #: Names the pipeline itself: in logs, and where tests crash it.
    label: str
    #: The topics that it reads, by letter. The id of the first one names the incarnation.
    inputs: Mapping[str, str]
    fold: FoldFn
    #: The compacted topics from which `restore` makes states, without the prefix.
    restored_from: tuple[str, ...]
    restore: "RestoreFns | Snapshots"
    #: The pool of Spark's scheduler in which it runs.
    pool: str
    #: As `fold`, of a state in pages; None: its state is one blob.
    fold_pages: FoldingPages | None = None
    #: Whether a record that is too much for the job may be rejected. Not where others judge the
    #: same log: they would judge it.
    sets_aside: bool = False
    #: Its shards, where other jobs have the rest (a job instance); None: all.
    owned: Owned = None

    @property
    def first_input(self) -> str:
        """The topic whose partitions are the shards."""
        return next(iter(self.inputs.values()))

    @property
    def query_name(self) -> str:
        """Of the query, and of the sink's transactional id: one driver at a time has it."""
        return self.id_of(self.owned)

    def id_of(self, owned: Owned) -> str:
        """The same, of the job that has these shards."""
        return named(f"{self.prefix}-{self.name}", owned)

    def shards(self, count: int) -> range:
        """Shards owned by this job, given the total count."""
        return shards_of(self.owned, count)

    @property
    def progress(self) -> str:
        """The topic with marker, layout and keys."""
        return f"{self.prefix}.progress"


def groups(prefix: str, owned: Owned = None) -> Pipeline:
    """The pipeline of the registry's families: today the consumer groups.

    Args:
        owned: the shards that this job has; None: all.
    """
    return Pipeline(
        prefix=prefix,
        name="coordinator",
        label=GROUPS,
        inputs={each.letter: f"{prefix}.{each.topic}" for each in REGISTRY.inputs.values()},
        fold=fold_groups,
        restored_from=tuple(topics_of(REGISTRY)),
        restore=RestoreFns(_restore, _orphans),
        pool="coordinator",
        fold_pages=fold_group_pages,
        sets_aside=True,
        owned=owned,
    )


def claims(prefix: str, topic: str) -> Pipeline:
    """The pipeline of claims beside the groups of this prefix; `topic`: the coordination topic.

    The coordination topic is read and never written to: all outputs stand below a prefix of their
    own.  # INV-66

    Raises SetupError: the topic is one of the job's own, so that it would read what it writes.
    """
    if topic in own_topics(prefix):
        raise SetupError(
            "The coordination topic is one of the job's own.",
            topic,
            "Name the topic that the consumers of claims write.",
        )
    return Pipeline(
        prefix=claims_prefix(prefix),
        name="coordinator",
        label=CLAIMS,
        inputs={MESSAGES: topic},
        fold=fold_claims,
        restored_from=(SNAPSHOTS, COMMITTED),
        restore=Snapshots(_snapshot, _late, ASSIGNMENTS),
        pool=CLAIMS,
    )


def fold_groups(
    blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings
) -> Fold:
    """`fold` with the job's registry."""
    return fold(blob, records, settings, REGISTRY)


def fold_group_pages(
    before: StoredPages | bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    packing: Packing,
    kept: Kept,
) -> PagesFold:
    """`fold_pages` with the job's registry."""
    return fold_pages(before, records, settings, REGISTRY, packing, kept)


def _restore(topics: Topics, position: ShardPosition) -> bytes:
    return restore(topics, position, REGISTRY)


def _orphans(topics: Topics) -> list[str]:
    return orphans(topics, REGISTRY)


def _snapshot(topics: Topics, settings: ShardSettings) -> bytes | None:
    found = _newest(topics)
    return begin_at(found) if found is not None and belongs(found, settings) else None


def _late(topics: Topics, settings: ShardSettings, gap_from: int) -> bytes:
    """Only positions are known: those of the snapshot, and what was committed since."""
    found, positions = _newest(topics), {}
    if found is not None and belongs(found, settings):
        where = coordination(settings).topic, settings.shard, settings.shards
        positions = positions_of(World.restore(found.world, *where))
    for key, value in topics[COMMITTED].items():
        kept = _decode_committed(value)
        positions[_decode_key(key)] = kept.offset, kept.topic_id or ""
    return begin_late(positions, gap_from, settings, found.pages if found else 0)


def _newest(topics: Topics) -> Snapshot | None:
    try:
        return read_pages(topics[SNAPSHOTS].values())
    except UnreadableSnapshot as problem:
        raise UnknownSavedVersion(str(problem)) from problem
