"""A plane: what one query of the job reads, how it folds that, and from where it is restored.

The query, its source, sink, marker and rebuild know planes and no protocol. Today there is one,
that of the consumer groups. A protocol with a log of its own is another plane, and another query.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from coordlib.coordinators.registry import REGISTRY
from coordlib.coordinators.shard.restore import Topics, orphans, restore, topics_of
from coordlib.coordinators.shard.shard import Fold, InputRecord, ShardSettings, fold
from coordlib.records.stored import ShardPosition

#: Labels of planes.
GROUPS: Final = "groups"
CLAIMS: Final = "claims"
#: State before, records, settings: what follows. Pure.
Folding = Callable[[bytes | None, Iterable[InputRecord], ShardSettings], Fold]


@dataclass(frozen=True, slots=True)
class Plane:
    """One query's part. Executors get it, so its functions are those of modules."""

    #: All its output topics begin with it.
    prefix: str
    #: Names the query, and its transactional id.
    name: str
    #: Names the plane itself: in logs, and where tests crash it.
    label: str
    #: The topics that it reads, by letter. The id of the first one names the incarnation.
    inputs: Mapping[str, str]
    fold: Folding
    #: The compacted topics from which `restore` makes states, without the prefix.
    restored_from: tuple[str, ...]
    restore: Callable[[Topics, ShardPosition], bytes | None]
    #: The names of entities that a restore leaves out.
    left_out: Callable[[Topics], list[str]]
    #: The pool of Spark's scheduler in which it runs.
    pool: str
    #: Of a plane whose `restore` gives an older state, or none, behind which the input is folded
    #: again: the state that begins where records are gone, from the one before; its settings, and
    #: first and end of the records that are gone.
    late: Callable[[bytes | None, ShardSettings, int, int], bytes] | None = None

    @property
    def first_input(self) -> str:
        """The topic whose partitions are the shards."""
        return next(iter(self.inputs.values()))

    @property
    def query_name(self) -> str:
        """Of the query, and of the sink's transactional id: one driver at a time has it."""
        return f"{self.prefix}-{self.name}"

    @property
    def progress(self) -> str:
        """The topic with marker, layout and keys."""
        return f"{self.prefix}.progress"


def groups(prefix: str) -> Plane:
    """The plane of the registry's families: today the consumer groups."""
    return Plane(
        prefix=prefix,
        name="coordinator",
        label=GROUPS,
        inputs={each.letter: f"{prefix}.{each.topic}" for each in REGISTRY.inputs.values()},
        fold=fold_groups,
        restored_from=tuple(topics_of(REGISTRY)),
        restore=_restore,
        left_out=_orphans,
        pool="coordinator",
    )


def fold_groups(
    blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings
) -> Fold:
    """`fold` with the job's registry."""
    return fold(blob, records, settings, REGISTRY)


def _restore(topics: Topics, position: ShardPosition) -> bytes:
    return restore(topics, position, REGISTRY)


def _orphans(topics: Topics) -> list[str]:
    return orphans(topics, REGISTRY)
