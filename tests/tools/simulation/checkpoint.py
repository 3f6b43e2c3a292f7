"""A checkpoint's folder, simulated: what of Spark's and of ours survives its drivers."""

from dataclasses import dataclass, field

from msgspec import UNSET

from coordlib.core.wire.cells import Owned
from coordlib.core.wire.stored import Marker
from coordlib.job.checkpoint import Begun, Ended, Identity, Planned
from tests.tools.simulation.cluster import Place

Ranges = dict[Place, tuple[int, int]]


class StateGone(RuntimeError):
    """A sleeper wants a state that others, who have gone on, have tidied away."""


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
    #: What its drivers sign control records with.
    kept_secret: bytes | None = None
    #: The batch that has ended a driver, and the one that the newest has begun with.
    noted_end: Ended | None = None
    noted_begin: Begun | None = None

    def copy(self) -> "Checkpoint":
        """As `cp -r` would make it."""
        return Checkpoint(
            self.path,
            self.known,
            dict(self.offsets),
            set(self.commits),
            {batch: dict(blobs) for batch, blobs in self.states.items()},
            dict(self.seeds),
            self.kept_secret,
        )

    def identity(self) -> Identity | None:
        return self.known

    def create(
        self,
        prefix: str,
        shards: int,
        incarnation: str,
        rebuilt_from: Marker | None = None,
        owned: Owned = None,
    ) -> Identity:
        self.known = Identity(
            checkpoint=self.path,  # every folder has a path of its own here
            prefix=prefix,
            shards=shards,
            incarnation=incarnation,
            rebuilt_from=rebuilt_from,
            keys=tuple(range(shards)),
            owned=UNSET if owned is None else owned,
        )
        return self.known

    def state_before(self, number: int) -> dict[int, bytes]:
        """What a batch begins from. Raises StateGone."""
        if number and number - 1 not in self.states:
            raise StateGone(f"The state of batch {number - 1} is kept no more")
        return self.states.get(number - 1, {})

    def has_batches(self) -> bool:
        return bool(self.offsets)

    def has_committed_batches(self) -> bool:
        return bool(self.commits)

    def forget_batches(self) -> None:
        """The identity that is written next is another one: a folder's path is its id here."""
        self.path += "+"
        self.offsets, self.commits, self.states = {}, set(), {}

    def planned(self, _: Identity) -> Planned | None:
        newest = max(self.offsets, default=-1)
        if newest < 0 or newest in self.commits:
            return None
        ranges = self.offsets[newest].items()
        spans = tuple((*place, *span) for place, span in ranges if span[0] < span[1])
        records = sum(end - first for _, _, first, end in spans)
        return Planned(number=newest, records=records, spans=spans)

    def ended(self) -> Ended | None:
        return self.noted_end

    def begun(self) -> Begun | None:
        return self.noted_begin

    def write_ended(self, ended: Ended) -> None:
        self.noted_end = ended

    def write_begun(self, begun: Begun) -> None:
        self.noted_begin = begun

    def write_seed(self, shard: int, blob: bytes, continued: Marker) -> None:
        self.seeds[shard] = blob

    def secret(self) -> bytes | None:
        return self.kept_secret

    def keep_secret(self, secret: bytes) -> bytes:
        self.kept_secret = self.kept_secret or secret
        return self.kept_secret
