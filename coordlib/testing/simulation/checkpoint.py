"""Spark's checkpoint in memory: what is planned, what is committed, and each batch's states."""

from dataclasses import dataclass, field

from coordlib.records.stored import Marker
from coordlib.streaming.checkpoint import Identity
from coordlib.testing.simulation.cluster import Place

#: First offset, and the one after the last.
Ranges = dict[Place, tuple[int, int]]


@dataclass
class Checkpoint:
    """A folder that survives its drivers."""

    path: str
    known: Identity | None = None
    #: Batch -> (topic, partition) -> first offset and the one after the last.
    offsets: dict[int, Ranges] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    #: Batch -> shard -> blob.
    states: dict[int, dict[int, bytes]] = field(default_factory=dict)
    seeds: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> "Checkpoint":
        """As `cp -r` would make it."""
        return Checkpoint(
            self.path,
            self.known,
            dict(self.offsets),
            set(self.commits),
            {batch: dict(blobs) for batch, blobs in self.states.items()},
            dict(self.seeds),
        )

    def identity(self) -> Identity | None:
        return self.known

    def create(
        self, prefix: str, shards: int, incarnation: str, rebuilt_from: Marker | None = None
    ) -> Identity:
        self.known = Identity(
            checkpoint=self.path,  # every folder has a path of its own here
            prefix=prefix,
            shards=shards,
            incarnation=incarnation,
            rebuilt_from=rebuilt_from,
        )
        return self.known

    def has_batches(self) -> bool:
        return bool(self.offsets)

    def has_committed_batches(self) -> bool:
        return bool(self.commits)

    def write_seed(self, shard: int, blob: bytes) -> None:
        self.seeds[shard] = blob
