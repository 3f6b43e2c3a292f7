"""A member that writes batches into a Delta table, one process: the real client, and a reader.

Real are `AssignedMember` with its state machine and its looks, `Writes`, `Share`, `settle` and, in
half of the processes, `DeltaFiles`. Simulated are Spark's queries (`query.py`) and what
`SparkGroupReader` does with them: it stops a query between two batches when its partitions change,
and begins the next one at what is committed.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from threading import Event
from typing import Any, Final

from coordlib.client.groups.member import AssignedMember
from coordlib.client.groups.reading import TopicIds
from coordlib.client.groups.state import State
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.requests import Timing
from coordlib.client.spark.delta_writes import Share, Tables, Writes
from coordlib.client.transactions.delta_commits import DeltaFiles, Table
from coordlib.errors import CoordError
from tests.tools.simulation import waiting
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.lake.delta_rs import DeltaRs
from tests.tools.simulation.lake.query import WRITTEN, Asking, Query
from tests.tools.simulation.lake.table import Access, LakeTable, SparkLake, Store
from tests.tools.simulation.transactions.fibers import SLICE_MS, Fiber
from tests.tools.simulation.transactions.traps import Struck, Traps
from tests.tools.simulation.transport import Network, SimulatedTransport

GROUP: Final = "lake"
#: What is read. No expression of a reader matches it.
RAIN: Final = "rain"
TURN_MS: Final = 200
#: As `gather_s` of a reader.
GATHER_MS: Final = 300
LEAVE_S: Final = 10.0
HASTE: Final = 40


class LakeMember(Struck):
    """One process.

    Args:
        connect: makes its transport.
        traps: they may maybe_crash it at each point that one of its threads comes to.
    """

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        cluster: Cluster,
        name: str,
        luck: Random,
        timing: Timing,
        store: Store,
        network: Network,
        connect: Callable[["LakeMember"], SimulatedTransport],
        traps: Traps,
    ) -> None:
        super().__init__(cluster.scheduler, name)
        self.cluster, self.network = cluster, network
        self._luck, self.traps = luck, traps
        self.batch_max = luck.choice([1, 3, 10])
        self._work_ms = luck.choice([10, 100, 600])
        self._patience_ms = timing.rebalance_timeout_ms / 2
        self.fibers: list[Fiber] = []
        #: Set when its user wants it to end; and whether it has ended.
        self.is_ending = self.is_closed = False
        self.access = Access(store, self._pause, self.maybe_crash)
        self.spark = SparkLake(self.access)
        self.transport = connect(self)
        self.member = AssignedMember(
            GROUP,
            transport=self.transport,
            on_assigned=self._given,
            on_revoked=self._asked_back,
            on_lost=self._lost,
            client=name,
            timing=timing,
        )
        waiting.install(self.member, self)
        self.member.commit_checker.opener = self._files if luck.random() < 0.5 else self._table
        self.member.commit_checker.spawn = self._look
        self._ids = TopicIds(self.transport.topic_ids, lambda work: work(), self.transport.now_ms)
        asking: Any = Asking(self.member, self)  # as much of a member as they use
        self._writes = Writes(asking, Tables(asking, self._ids))
        self._writes.on_written = partial(self.maybe_crash, WRITTEN)
        self._held: set[TopicPartition] = set()
        self._run: Query | None = None
        self._runs: list[Query] = []
        self._ended: dict[str, Event] = {}
        self._settled_ms = 0.0
        #: The fences for which committed offsets were asked, and the answer to come.
        self._asked: tuple[dict[TopicPartition, int], Any] | None = None
        self._thread(self._work)

    # ---- threads -------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether it has ended, or is dead."""
        return self.is_closed or not self.is_alive

    def _thread(self, work: Callable[[], None]) -> None:
        fiber = Fiber(self, work)
        self.fibers = [each for each in self.fibers if not each.is_over] + [fiber]
        self.after(1, fiber.resume)

    def wait(self, for_ms: float, is_over: Callable[[], bool]) -> bool:
        """One of its threads waits, and everything else goes on. Raises Gone."""
        fiber = next(each for each in self.fibers if each.is_running)
        until_ms = self.scheduler.now_ms + for_ms
        while not is_over() and (left_ms := until_ms - self.scheduler.now_ms) > 0:
            fiber.sleep(max(1, min(SLICE_MS, left_ms)))
        return is_over()

    def _pause(self, for_ms: float) -> None:
        self.wait(for_ms, lambda: False)

    @property
    def knows_commits(self) -> bool:
        """Whether it tells an old copy of the table, as it was when it was made, from the table."""
        known = self._writes._table
        return known is None or known[2].written is None or known[2].written.version > 0

    def kill(self) -> None:
        """At whatever it is; nothing of it goes on."""
        if not self.is_alive:
            return
        super().kill()
        self.transport.close()
        for fiber in self.fibers:
            if not fiber.is_running:
                fiber.resume()  # its thread ends

    # ---- the reader ----------------------------------------------------------------------------

    def _work(self) -> None:
        self.member.subscribe([RAIN])
        while not self.is_ending:
            try:
                self._turn()
            except CoordError:
                if self.member._machine.state is State.FAILED:
                    break
            if self._run is not None and self._run.problem is not None:
                break  # the query has failed: a reader leaves
            self.wait(TURN_MS, lambda: False)
        self._close()

    def _close(self) -> None:
        try:
            self.member.close(LEAVE_S)
        except CoordError:
            pass
        self._give_up()
        self.wait(self._patience_ms, lambda: all(each.is_over for each in self._runs))
        self.is_closed = True
        self.transport.close()

    def _turn(self) -> None:
        self.member.poll(0)
        run = self._run
        self._writes.hear(None if run is None else run.share)
        if run is not None and self._writes.has_ended(run.share):
            self._give_up()
            self._settle()
        elif self._has_other_set() and self.scheduler.now_ms >= self._settled_ms:
            self._change()

    def _has_other_set(self) -> bool:
        reads = set(self._run.share.fences) if self._run is not None else set()
        return self._held != reads

    def _change(self) -> None:
        if self._run is not None:
            if not self._run.is_in_batch:
                self._give_up()
        elif self.member.may_work() and all(each.is_over for each in self._runs):
            self._begin()

    def _begin(self) -> None:
        found = {each: self.member.fence_of(*each) for each in sorted(self._held)}
        fences = {each: fence for each, fence in found.items() if fence is not None}
        if not fences or len(fences) < len(found):
            return
        if self._asked is None or self._asked[0] != fences:
            self._asked = fences, self.member.committed_async(fences)
        if not self._asked[1].done():
            return
        answer, self._asked = self._asked[1].result(0), None
        if answer.error is None:
            begin = {TopicPartition(row.topic, row.partition): row.offset for row in answer.offsets}
            self._start(fences, {each: max(begin.get(each, 0), 0) for each in fences})

    def _start(self, fences: dict[TopicPartition, int], begin: dict[TopicPartition, int]) -> None:
        identity, ended = self.member.identity, Event()
        name = f"{self.member.member_id}-{len(self._ended)}"
        self._ended[name] = ended
        share = Share(
            group=identity.group,
            member=self.member.member_id,
            generation=self.member.generation,
            log=f"{identity.incarnation}-{identity.shard}",
            fences=fences,
            checkpoint=name,
            batches_before=0,
            may_work=lambda: not ended.is_set() and self.member.may_work(),
            writes=self._writes,
        )
        self._run = Query(self, share, begin)
        self._runs = [*(each for each in self._runs if not each.is_over), self._run]
        self._thread(self._run.work)

    def ended_of(self, share: Share) -> Event:
        """Set as soon as a run may not act any more."""
        return self._ended[share.checkpoint]

    def _give_up(self) -> None:
        """Without waiting for its batch."""
        if self._run is not None:
            self.ended_of(self._run.share).set()
            self._run = None

    def _settle(self) -> None:
        self._settled_ms = self.scheduler.now_ms + GATHER_MS

    def work_ms(self) -> float:
        """How long the user's code takes for the next batch."""
        return self._luck.expovariate(1 / self._work_ms)

    # ---- callbacks -----------------------------------------------------------------------------

    def _given(self, partitions: Partitions) -> None:
        self._held.update(partitions)
        self._settle()

    def _asked_back(self, partitions: Partitions) -> None:
        """A batch may go on for half the rebalance timeout."""
        run = self._run
        if run is not None and not run.share.fences.keys().isdisjoint(partitions):
            self.wait(self._patience_ms, lambda: not run.is_in_batch)
            self._give_up()
            self.wait(self._patience_ms / 4, lambda: run.is_over)
        self._held.difference_update(partitions)
        self._settle()

    def _lost(self, partitions: Partitions) -> None:
        self._give_up()
        self._held.difference_update(partitions)
        self._settle()

    # ---- looks ---------------------------------------------------------------------------------

    def _look(self, look: Callable[[], None]) -> None:
        """Beside everything else, in a thread."""
        self._thread(look)

    def _table(self, uri: str, app: str) -> Table:
        return LakeTable(self.spark, uri, app)

    def _files(self, uri: str, app: str) -> Table:
        return DeltaFiles(uri, app, DeltaRs(self.access))
