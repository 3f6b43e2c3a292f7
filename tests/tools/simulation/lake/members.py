"""What a world has beside its groups where a Delta table decides: members, and their table."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

from coordlib.client.kit.requests import Timing
from coordlib.client.spark import delta, delta_writes
from coordlib.core.wire.envelope import shard_of
from coordlib.history import delta_append
from tests.tools.simulation.lake.member import GROUP, HASTE, RAIN, LakeMember
from tests.tools.simulation.lake.table import DeltaLog, LakeTable, Store, newest_snapshot
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.transactions.crew import FOR_EVER_MS, SUPERVISOR_LOOKS_MS, Crew
from tests.tools.simulation.transactions.traps import Traps
from tests.tools.simulation.transport import SimulatedTransport
from tests.tools.simulation.world import REPLY_PARTITIONS, World

STARTS_MS: Final = 3_000


class Lake(Crew[LakeMember]):
    """All members of one world, and the table that they write."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.stream("lake"))
        self.shard = shard_of(GROUP, world.plan.shards)
        self.partitions = self.luck.randint(1, 4)
        self.records = self.luck.choice([20, 60, 120])
        self.store = Store(DeltaLog(), world.stream("lake's store"))
        self.store.step_ms = self.luck.choice([20, 200, 1_000])
        self.traps = Traps()
        self._is_healed = False

    # ---- the beginning -------------------------------------------------------------------------

    def begin(self) -> None:
        """The topic; members one after the other; records that are to be written once."""
        world = self.world
        world.cluster.create_quietly(RAIN, self.partitions, is_listed=False)
        world.cluster.elsewhere[RAIN] = self.partitions
        for number in range(world.plan.lake_members):
            self.start_first(f"d{number}", STARTS_MS)
        for _ in range(self.records):
            at_ms = self.luck.uniform(0, world.plan.length_ms)
            place = RAIN, self.luck.randrange(self.partitions)
            world.scheduler.after(at_ms, partial(world.cluster.append, place, None, b""))
        world.every(SUPERVISOR_LOOKS_MS, self.look_after)
        world.lasting("lake", FOR_EVER_MS, self.heal)

    def start(self, name: str) -> LakeMember:
        """A process more."""
        world, plan = self.world, self.world.plan
        process_name = f"{name}-{len(self.processes)}"
        luck = world.stream(f"lake member {process_name}")
        network, clock = self.network(luck), self.clock(luck)

        def connect(process: Process) -> SimulatedTransport:
            reply = luck.randrange(REPLY_PARTITIONS)
            return SimulatedTransport(
                process, world.cluster, self.where, reply, clock, network, luck
            )

        timing = Timing(
            session_timeout_ms=plan.session_timeout_ms,
            rebalance_timeout_ms=plan.rebalance_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
        )
        member = LakeMember(
            world.cluster, process_name, luck, timing, self.store, network, connect, self.traps
        )
        if self._is_healed:
            member.batch_max = HASTE
        return self.started(name, member)

    @property
    def living(self) -> list[LakeMember]:
        """The newest process of each place that runs, and is not stopped."""
        return [each for each in self.newest.values() if not (each.is_done or each.is_stopped)]

    def heal(self) -> None:
        """Everything works from now on."""
        self._is_healed, self.store.fails = True, False
        self.store.place = self.store.log
        self.store.step_ms = min(self.store.step_ms, 100)
        self.traps.at.clear()
        for member in self.processes:
            member.batch_max = HASTE


@contextmanager
def with_the_table() -> Iterator[None]:
    """While it lasts, writers open the simulated table in place of Spark's."""
    with (
        patch.object(delta_writes, "SparkTable", LakeTable),
        patch.object(delta, "newest_snapshot", newest_snapshot),
        patch.object(delta_append, "newest_snapshot", newest_snapshot),
    ):
        yield
