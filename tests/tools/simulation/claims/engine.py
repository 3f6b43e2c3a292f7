"""The claims query in the simulated world: pipeline, sink and the rebuild are the real ones.

What differs from the drivers of groups: no ticks, a state that a snapshot and the log behind it
give again, and an input that its owner may cut.
"""

from typing import Any

from coordlib.core.claims import fold
from coordlib.core.claims.fold import Coordination
from coordlib.core.claims.history import SPACE
from coordlib.core.claims.snapshots import read_pages
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import SNAPSHOTS
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.wire.stored import Layout
from coordlib.errors import LogCut
from coordlib.job.batch import judge_readable
from coordlib.job.pipelines import Pipeline, claims
from coordlib.job.rebuild import Replay
from coordlib.job.start import agree
from tests.tools.defects import Defect
from tests.tools.simulation.checkpoint import Checkpoint, Ranges
from tests.tools.simulation.claims.ledger import ClaimsLedger
from tests.tools.simulation.claims.logs import SimulatedInput, start_of
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.driver_io import ConcurrentUpdate
from tests.tools.simulation.engine import Driver, Engine
from tests.tools.simulation.inspection import Inspector

PREFIX = "coord"
TOPIC_ID = "SimulatedClaims0"
#: Topics of the pipeline, without its prefix, and whether they have one partition alone.
OUTPUTS = ("assignments", "committed", "events", SNAPSHOTS)


class ClaimsInspector(Inspector):
    """Judges batches as a task does, and compares the state with the log."""

    def __init__(self, ledger: ClaimsLedger) -> None:
        super().__init__()
        self._ledger = ledger

    def judge(
        self,
        blob: bytes | None,
        records: list[InputRecord],
        settings: ShardSettings,
        defects: list[Defect],
    ) -> tuple[bytes, list[tuple[Any, ...]]]:
        fresh, rows = judge_readable(fold.fold, blob, records, settings)
        self._ledger.compare_state("the job", fold.begun(fresh, settings))
        return fresh, rows

    def note_topics(self, *_: Any) -> None:
        """Of groups alone."""


def engine_of(
    cluster: Cluster, luck: Any, topic: str, partitions: int, ledger: ClaimsLedger
) -> Engine:
    """What all drivers of the claims query have in common; its topics are made."""
    for name in OUTPUTS:
        cluster.create(f"{PREFIX}.claims.{name}", partitions)
    cluster.create(f"{PREFIX}.claims.progress", 1)
    layout = Layout(shards=partitions, reply_partitions=0, topic_ids={topic: TOPIC_ID}, input=topic)
    settings = ShardSettings(
        shard=-1,
        shards=partitions,
        reply_partitions=0,
        incarnation=TOPIC_ID[:8],
        families={SPACE: Coordination(topic=topic, topic_id=TOPIC_ID)},
        checks_invariants=True,
    )
    engine = Engine(cluster.scheduler, cluster, luck, PREFIX, layout, settings)
    engine.pipeline_of = lambda prefix: claims(prefix, topic)
    engine.inspector = ClaimsInspector(ledger)
    return engine


class ClaimsDriver(Driver):
    """One run of the query; `is_cut`: the one before found its input cut."""

    is_cut = False
    #: Shards whose states began late, in this run.
    late: frozenset[int] = frozenset()

    @property
    def was_rebuilt(self) -> bool:
        """Whether its checkpoint began with the topics."""
        return self.checkpoint.known is not None and self.checkpoint.known.rebuilt_from is not None

    def _begin(self) -> None:
        engine, pipeline = self.engine, self.engine.pipeline
        topic, shards = pipeline.first_input, engine.layout.shards
        replay = Replay.of(engine.settings, SimulatedInput(engine.cluster, topic, shards))
        self._starts = replay.starts
        self._sink.read_progress()
        is_rebuild = self._must_rebuild(replay, pipeline)
        self._identity = agree(
            self._sink,
            self.checkpoint,
            engine.layout,
            pipeline,
            engine.cluster.newest_by_key,
            is_rebuild,
            replay,
        )
        engine.note_cut(self._sink.marker)
        self.late = frozenset(replay.late)
        for shard in self.late:
            engine.clocks.pop(shard, None)
        if self._identity.rebuilt_from is not None and is_rebuild:
            self._check_seeds()
        for place in self._inputs():
            engine.cluster.partitions[place].appended.append(self._wake)
        self._trigger()

    def _must_rebuild(self, replay: Replay, pipeline: Pipeline) -> bool:
        """As `ClaimsQuery`: a checkpoint that cannot go on behind a cut is removed."""
        marker = self._sink.marker
        judged = marker.next_offsets.get(pipeline.first_input, {}) if marker else {}
        if marker is not None and (replay.cut(judged) or self.is_cut):
            clear(self.checkpoint)
            return True
        return self._is_rebuild and marker is not None

    def _check_seeds(self) -> None:
        for shard, blob in self.checkpoint.seeds.items():
            self.compare(f"the rebuilt shard {shard}", shard, blob)

    def compare(self, name: str, shard: int, blob: bytes) -> None:
        """INV-65."""
        settings = self.engine.settings
        own = ShardSettings(
            shard=shard,
            shards=settings.shards,
            reply_partitions=0,
            incarnation=settings.incarnation,
            families=settings.families,
        )
        inspector = self.engine.inspector
        assert isinstance(inspector, ClaimsInspector)
        inspector._ledger.compare_state(name, fold.begun(blob, own))

    def _plan(self, newest: int) -> Ranges:
        before = self.checkpoint.offsets.get(newest, {})
        for place, (_, end) in before.items():
            self._require(place, end)
        logs = self.engine.cluster.partitions
        return {
            place: (max(first, start_of(logs[place])), end)
            for place, (first, end) in super()._plan(newest).items()
        }

    def _first(self, place: tuple[str, int]) -> int:
        return max(super()._first(place), self._starts.get(place[1], 0))

    def _records(self, number: int, shard: int) -> list[InputRecord]:
        planned = self.checkpoint.offsets.get(number)
        if planned is None:
            raise ConcurrentUpdate("Another driver has made the checkpoint anew.")
        for place, (first, end) in planned.items():
            if place[1] == shard and first < end:
                self._require(place, first)
        return super()._records(number, shard)

    def _require(self, place: tuple[str, int], first: int) -> None:
        """failOnDataLoss."""
        start = start_of(self.engine.cluster.partitions[place])
        if first < start:
            raise LogCut("Records are gone.", f"{place}: {first} to {start}", "Begin anew.")


def clear(checkpoint: Checkpoint) -> None:
    """As the folder is removed and made again: another checkpoint, of another id."""
    fresh = Checkpoint(f"{checkpoint.path}+")
    for name in ("path", "known", "offsets", "commits", "states", "seeds"):
        setattr(checkpoint, name, getattr(fresh, name))


def newest_snapshot(cluster: Cluster, topic: str, shard: int, partitions: int) -> World | None:
    """The world of the newest snapshot that readers see."""
    pages = cluster.newest_by_key(f"{PREFIX}.claims.{SNAPSHOTS}", shard)
    found = read_pages(pages.values())
    return None if found is None else World.restore(found.world, topic, shard, partitions)
