"""Spark's micro-batches, simulated: what is kept, in which order, and what runs again.

A batch is planned (offset log), judged (one task per shard, each with its state), written
(foreachBatch) and committed (commit log). After a crash the planned batch runs again with the same
rows. The core's fold, the sink, the ticks and the checks at the start are the real ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
from confluent_kafka import KafkaException

from coordlib.core.wire.cells import Owned
from coordlib.core.wire.stored import Layout, Marker
from coordlib.errors import CoordError, DriverFenced, ReplayDiffers, StartRefused, TooMuchAtOnce
from coordlib.job.background.ticks import TickWriter
from coordlib.job.batch import PLANNED_MAX, Batch, BatchSize, assemble
from coordlib.job.checkpoint import Ended, Identity
from coordlib.job.control import Signatures, begin
from coordlib.job.judged_log import JudgedLog
from coordlib.job.main.coordinator import output_partitions, positions_at_start
from coordlib.job.pipelines import Pipeline, groups
from coordlib.job.progress import OtherCells, next_marker
from coordlib.job.sink import TransactionalSink
from coordlib.job.start import agree, begun_with, ended_before, not_committed
from tests.tools.core import InputRecord, ShardSettings, UnknownStateVersion
from tests.tools.defects import Defect
from tests.tools.simulation.checkpoint import Checkpoint, Ranges, StateGone
from tests.tools.simulation.cluster import Cluster, Place, Transaction
from tests.tools.simulation.driver_io import (
    TRANSACTION_TIMEOUT_MS,
    Beside,
    CommitUnheard,
    ConcurrentUpdate,
    Killed,
    Resends,
    SimulatedControl,
    SimulatedProducer,
    SimulatedTicks,
    Written,
    places_read,
    rows_of,
)
from tests.tools.simulation.inputs import SimulatedInputs, require_there
from tests.tools.simulation.inspection import Inspector
from tests.tools.simulation.scheduler import Channel, Clock, Process, Scheduler
from tests.tools.simulation.watch import SimulatedWatch

TURN_MS = 100
STATES_KEPT = 3
ROWS_AGAIN = 5
#: So few records fit into any memory, and are planned in any: else small worlds stand still.
RECORDS_THAT_FIT = 16
#: Points at which a driver may die, in the order of a batch.
CRASH_POINTS = ("P0", "P1", "P2", "P3", "P4", "P5", "before-commit", "unheard-commit", "P6", "P7")


@dataclass
class Engine:
    """What all drivers of one prefix have in common, and the faults that they are to meet."""

    scheduler: Scheduler
    cluster: Cluster
    luck: Random
    prefix: str
    layout: Layout
    #: With all keys that any driver has made.
    settings: ShardSettings
    #: How drivers sign that start now; None: they are of before, and do not.
    signatures: Signatures | None = None
    written: Written = field(default_factory=dict)
    max_offsets_per_trigger: int = 1_000
    #: Draws how long a batch takes.
    usual_ms: Callable[[], float] = lambda: 100.0
    #: Delays that come on top while they last.
    extra_ms: list[int] = field(default_factory=list)
    #: The next driver to reach this point dies there.
    crash_at: str | None = None
    #: Every batch is judged twice, as after the loss of an executor.
    recomputes: bool = False
    #: Which EndTxn requests are sent twice.
    resends: Resends = field(default_factory=Resends)
    #: The source brings rows once more that earlier batches had.
    repeats_rows: bool = False
    #: Makes the pipeline of a prefix.
    pipeline_of: Callable[[str], Pipeline] = groups
    #: Whether the driver watches the cluster's topics.
    watches: bool = False
    #: Makes what a driver has beside its batches for transactions.
    beside_of: "Callable[[Driver], Beside]" = lambda _: Beside()
    #: Bugs of the job, with the records that are judged while it has them.
    defects: list[Defect] = field(default_factory=list)
    #: Looks on while batches are judged.
    inspector: Inspector = field(default_factory=Inspector)
    #: Where each committed batch ended, in order: next offset of each input.
    cuts: list[dict[str, dict[str, int]]] = field(default_factory=list)
    #: Outputs of a batch that a driver may collect; 0: all that there are.
    memory_bytes: int = 0
    #: Drivers that ended with a batch that was too much, those of them without a word, and starts
    #: that planned fewer records for it.
    memory_ends: list[int] = field(default_factory=lambda: [0, 0, 0])
    batches: int = 0
    crashes: dict[str, int] = field(default_factory=dict)
    #: Broken promises of the job, in words.
    problems: list[str] = field(default_factory=list)
    #: Shard -> its clock by the newest committed batch.
    clocks: dict[int, int] = field(default_factory=dict)

    @property
    def pipeline(self) -> Pipeline:
        """What the driver's query reads and writes."""
        return self.pipeline_of(self.prefix)

    def note_clock(self, shard: int, clock_ms: int) -> None:
        """INV-06: no shard's clock goes back, through rebuilds and all."""
        before_ms = self.clocks.get(shard, 0)
        if clock_ms < before_ms:
            self.problems.append(f"INV-06: shard {shard} went back from {before_ms} to {clock_ms}")
        self.clocks[shard] = clock_ms

    def note_cut(self, marker: Marker | None) -> None:
        """A batch has been committed; perhaps its driver has not heard so."""
        if marker is not None and marker.next_offsets not in self.cuts[-1:]:
            self.cuts.append(marker.next_offsets)
            for topic, ends in marker.saved.items():
                for partition, end in ends.items():
                    found = self.cluster.end_when_marked((topic, int(partition)))
                    if found < end:  # INV-153: else a rebuild is refused that lacks nothing
                        where = f"{topic}-{partition} ends at {found}, the marker has {end}"
                        self.problems.append(f"INV-153: {where}")

    def batch_ms(self) -> float:
        return self.usual_ms() + sum(self.extra_ms)


class Driver(Process):
    """One run of the job, on a checkpoint. `ended` says why it is over."""

    def __init__(
        self,
        engine: Engine,
        checkpoint: Checkpoint,
        name: str,
        clock: Clock,
        on_end: Callable[["Driver"], None],
        is_rebuild: bool = False,
        owned: Owned = None,
    ) -> None:
        super().__init__(engine.scheduler, name)
        self.engine, self.checkpoint = engine, checkpoint
        #: What it reads and writes: of a cell, its shards alone.
        self.pipeline = replace(engine.pipeline, owned=owned)
        self._shards = self.pipeline.shards(engine.layout.shards)
        self.ended: CoordError | str | None = None
        self._clock, self._on_end, self._is_rebuild = clock, on_end, is_rebuild
        self._channel = Channel(engine.scheduler, lambda: engine.luck.uniform(1, 20))
        cluster = engine.cluster
        self._sink = TransactionalSink(
            self.pipeline,
            self._open_producer,
            cluster.newest_by_key,
            now_s=lambda: (engine.scheduler.now_ms + engine.resends.waited_ms) / 1000,
            others=OtherCells(cluster.init_transactions, cluster.newest_decided),
        )
        # An operator who rebuilds accepts what is lost: a plain start has named it.
        inputs = SimulatedInputs(cluster)
        self._log = JudgedLog(self.pipeline, inputs, accepts_loss=is_rebuild)
        self.ticks: TickWriter | None = None
        self._beside = Beside()
        where = cluster, engine.prefix, self._channel
        self.control = SimulatedControl(self, *where, engine.written)
        self.broker = SimulatedTicks(self.control, cluster)
        self._settings, self._is_idle = engine.settings, False
        self._size = BatchSize(engine.max_offsets_per_trigger, PLANNED_MAX)
        #: Its state is no state: only a rebuild helps.
        self.cannot_read_state = False
        self._identity: Identity | None = None

    def start(self, after_ms: float) -> None:
        self.after(after_ms, lambda: self._guard(self._begin))

    def _begin(self) -> None:
        engine = self.engine
        self._identity = agree(
            self._sink,
            self.checkpoint,
            engine.layout,
            self.pipeline,
            engine.cluster.newest_by_key,
            self._is_rebuild,
            log=self._log,
        )
        self._size = self._planned_size(self._identity)
        self._begin_to_sign(engine)
        engine.note_cut(self._sink.marker)
        if (marker := self._identity.rebuilt_from) is not None:
            engine.inspector.check_rebuilt(marker.checkpoint, marker.batch, self.checkpoint.seeds)
        self._beside = engine.beside_of(self)
        waiting = self._beside.waiting
        self.ticks = TickWriter(
            self.broker,
            positions_at_start(self._sink.marker, self._shards),
            output_partitions(engine.prefix, engine.layout, self._shards),
            lambda: self._clock.now_ms() / 1000,
            waiting.heard,
            waiting.acknowledged,
        )
        for place in self._inputs():
            engine.cluster.partitions[place].appended.append(self._wake)
        self._turn()
        self._beside.start()
        if engine.watches:
            luck = Random(f"{self.name} {engine.luck.random()}")
            told = engine.cluster, engine.prefix, self._shards, self.control
            SimulatedWatch(self, *told, luck).start()
        self._trigger()

    def _planned_size(self, identity: Identity) -> BatchSize:
        """As PipelineQuery plans. Ends without a word count where memory is short alone: elsewhere
        drivers are killed for other reasons."""
        engine, kept, marker = self.engine, self.checkpoint, self._sink.marker
        size = BatchSize(
            engine.max_offsets_per_trigger,
            PLANNED_MAX,
            now_s=engine.scheduler.now_ms / 1_000,
            collected_bytes=engine.memory_bytes or 2 * PLANNED_MAX,
        )
        if (ended := ended_before(kept, identity, marker)) is not None:
            size.limit(ended.records)
            engine.memory_ends[2] += 1
        planned = not_committed(kept, identity, marker) if engine.memory_bytes else None
        if planned is not None:
            kept.write_begun(begun_with(kept, identity, planned, size.records))
        return size

    def _open_producer(self) -> SimulatedProducer:
        cluster, id_ = self.engine.cluster, self.pipeline.query_name
        return SimulatedProducer(cluster, id_, self.maybe_crash, self._give_up, self.engine.resends)

    def _begin_to_sign(self, engine: Engine) -> None:
        if engine.signatures is None:
            return
        others = set(range(engine.layout.shards)).difference(self._shards)
        incarnation, signatures = engine.settings.incarnation, engine.signatures
        authority = begin(self._sink, self.checkpoint, incarnation, self._ends, signatures, others)
        self.control.signer = authority.signer
        self._settings = engine.settings = msgspec.structs.replace(
            engine.settings, keys=authority.keys, verify=engine.signatures.verify
        )

    def _ends(self) -> dict[int, int]:
        places = [(f"{self.engine.prefix}.requests", each) for each in self._shards]
        ends = self.engine.cluster.ends(places, visible=False)
        return {shard: newest + 1 for (_, shard), newest in ends.items()}

    def again(self, after_ms: float, action: Callable[[], None]) -> None:
        """Let something happen in this driver; what goes wrong in it ends it."""
        self.after(after_ms, lambda: self._guard(action))

    def kill(self) -> None:
        if self.is_alive:
            super().kill()
            self.ended = self.ended or "killed"
            self._on_end(self)

    # ---- ticks --------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self.ticks is not None:
            try:
                self.ticks.turn()
            except KafkaException:
                pass  # as TickThread: it waits for the broker
            self.after(TURN_MS, self._turn)

    # ---- batches ------------------------------------------------------------------------------

    def _inputs(self) -> list[Place]:
        return places_read(self.pipeline, self._shards, self.engine.cluster)

    def _wake(self) -> None:
        if self._is_idle:
            self._is_idle = False
            self.after(5, lambda: self._guard(self._trigger))

    def _trigger(self) -> None:
        """Plan the next batch, or take up the one that was not committed."""
        kept = self.checkpoint
        newest = max(kept.offsets, default=-1)
        if newest >= 0 and newest not in kept.commits:
            self._later("P1", lambda: self._judge(newest))
            return
        if not self.engine.cluster.is_up:
            self.after(500, lambda: self._guard(self._trigger))
            return
        ranges = self._plan(newest)
        if not any(first < end for first, end in ranges.values()):
            self._is_idle = True
            return
        self.maybe_crash("P0")
        if newest + 1 in kept.offsets:
            raise ConcurrentUpdate(f"Multiple streaming jobs detected for {newest + 1}")
        kept.offsets[newest + 1] = ranges
        self._later("P1", lambda: self._judge(newest + 1))

    def _plan(self, newest: int) -> Ranges:
        before = self.checkpoint.offsets.get(newest, {})
        left = max(self._size.records, RECORDS_THAT_FIT)
        ranges: Ranges = {}
        for place in self._inputs():
            first = before[place][1] if place in before else self._first(place)
            log = self.engine.cluster.partitions[place]
            if first > log.end or first < log.start:
                require_there(self.engine.cluster, place, log.start - 1, log.end)
            end = min(log.end, first + left)
            left -= end - first
            ranges[place] = (first, end)
        if self.engine.repeats_rows and any(first < end for first, end in ranges.values()):
            again = self.engine.luck.randint(1, ROWS_AGAIN)
            partitions = self.engine.cluster.partitions
            ranges = {
                place: (max(partitions[place].start, first - again), end)
                for place, (first, end) in ranges.items()
            }
        return ranges

    def _first(self, place: Place) -> int:
        """Where a new checkpoint begins: the earliest, or where a rebuild goes on."""
        continued = self._identity.rebuilt_from if self._identity else None
        if continued is None:
            return 0
        return continued.next_offsets.get(place[0], {}).get(str(place[1]), 0)

    def _later(self, point: str, action: Callable[[], None]) -> None:
        """A point at which the driver may die lies between two steps."""
        delay_ms = self.engine.batch_ms() / 3

        def go_on() -> None:
            self.maybe_crash(point)
            action()

        self.after(delay_ms, lambda: self._guard(go_on))

    def _judge(self, number: int) -> None:
        kept, settings = self.checkpoint, self._settings
        for place, (first, end) in kept.offsets[number].items():
            require_there(self.engine.cluster, place, first, end)
        before = kept.state_before(number)
        rows: list[tuple[object, ...]] = []
        fresh = dict(before)
        for shard in self._shards:
            records = self._records(number, shard)
            if not records:
                continue
            self.maybe_crash("P2")
            blob = before.get(shard, kept.seeds.get(shard))
            mine = msgspec.structs.replace(settings, shard=shard)
            inspector, defects = self.engine.inspector, self.engine.defects
            fresh[shard], outputs = inspector.judge(blob, records, mine, defects)
            if self.engine.recomputes and (fresh[shard], outputs) != inspector.judge(
                blob, records, mine, defects
            ):
                self.engine.problems.append(f"INV-07: batch {number} judged twice differs")
            rows += outputs
            kept.states[number] = dict(fresh)
            self.maybe_crash("P3")
        kept.states[number] = fresh
        judged = {shard: blob for shard, blob in fresh.items() if blob is not before.get(shard)}
        self.engine.inspector.note_topics(kept.path, number, judged)
        self._collect(number, rows)
        batch = assemble(number, rows)
        self._later("P4", lambda: self._write(batch))

    def _collect(self, number: int, rows: list[tuple[Any, ...]]) -> None:
        """A few records always fit: what is more may be too much.  # INV-131"""
        engine, identity = self.engine, self._identity
        records = sum(end - first for first, end in self.checkpoint.offsets[number].values())
        wrote = sum(len(row[2] or b"") for row in rows)
        is_small = not engine.memory_bytes or wrote <= engine.memory_bytes
        if is_small or records <= RECORDS_THAT_FIT or identity is None:
            return
        engine.memory_ends[0] += 1
        if engine.luck.random() < 0.5:
            engine.memory_ends[1] += 1
            raise Killed
        records = min(records, self._size.records)
        self.checkpoint.write_ended(
            Ended(checkpoint=identity.checkpoint, batch=number, records=records)
        )
        raise TooMuchAtOnce("The batch has more outputs than there is memory", f"batch {number}")

    def _records(self, number: int, shard: int) -> list[InputRecord]:
        engine, ranges = self.engine, self.checkpoint.offsets[number]
        found = rows_of(engine.cluster, self.pipeline, ranges, shard, self._shards)
        # Spark gives the rows of a key in no order.
        engine.luck.shuffle(found)
        return found

    def _write(self, batch: Batch) -> None:
        assert self._identity is not None
        before = self._sink.marker
        after = next_marker(before, batch, self._identity, self.pipeline.inputs)
        self._log.require_same(before, after)
        written = self._sink.write(batch, self._identity)
        self.engine.note_cut(self._sink.marker)
        statuses = [report.status for report in batch.reports]
        if written:  # else it was committed before, perhaps long ago by a driver that slept since
            for status in statuses:
                self.engine.note_clock(status.shard, status.position.clock_ms)
        if self.ticks is not None:
            self.ticks.batch_committed(statuses, written)
        for report in batch.reports:
            self._size.batch_ended(report.records, report.input_bytes, report.output_bytes)
        now_s = self.engine.scheduler.now_ms / 1_000
        if (fitting := self._size.next(now_s)) != self._size.records:
            self._size.renewed(fitting, now_s)
        self._beside.batch_committed(batch.outputs, statuses)
        self._later("P6", lambda: self._commit(batch.number))

    def _commit(self, number: int) -> None:
        kept = self.checkpoint
        if number in kept.commits:
            raise ConcurrentUpdate(f"Multiple streaming jobs detected for {number}")
        kept.commits.add(number)
        kept.states.pop(number - STATES_KEPT, None)
        self.engine.batches += 1
        self.maybe_crash("P7")
        self._trigger()

    # ---- ends ---------------------------------------------------------------------------------

    def maybe_crash(self, point: str) -> None:
        """It may die here."""
        engine = self.engine
        if engine.crash_at == point and engine.luck.random() < 0.5:
            engine.crash_at = None
            engine.crashes[point] = engine.crashes.get(point, 0) + 1
            if point == "unheard-commit":
                raise CommitUnheard
            raise Killed

    def _give_up(self, transaction: Transaction) -> None:
        time_out, id_ = self.engine.cluster.time_out, self.pipeline.query_name
        self.scheduler.after(TRANSACTION_TIMEOUT_MS, lambda: time_out(id_, transaction))

    def _guard(self, step: Callable[[], None]) -> None:
        """What goes wrong in a step ends the driver, as an exception ends the query."""
        try:
            step()
        except Killed:
            self.kill()
        except ReplayDiffers as problem:
            self.engine.problems.append(f"INV-07: {problem}")
            self.ended = problem
            self.kill()
        except CoordError as problem:
            self.ended = problem
            self.kill()
        except (KafkaException, ConcurrentUpdate, StateGone) as problem:
            self.ended = repr(problem)
            self.kill()
        except (msgspec.MsgspecError, UnknownStateVersion) as problem:
            self.ended, self.cannot_read_state = repr(problem), True
            self.kill()

    @property
    def was_fenced(self) -> bool:
        return isinstance(self.ended, DriverFenced)

    @property
    def was_refused(self) -> bool:
        return isinstance(self.ended, StartRefused)
