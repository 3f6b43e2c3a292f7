"""What a world has beside its groups where a Delta table decides: members, and their table."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

from coordlib.client.machine.wording import Timing
from coordlib.client.spark import writes
from coordlib.kafka.layout import Place as Where
from coordlib.records.partitioner import shard_of
from tests.tools.simulation.lake.member import GROUP, HASTE, RAIN, LakeMember
from tests.tools.simulation.lake.table import DeltaLog, LakeTable, Store
from tests.tools.simulation.scheduler import Clock, Gone, Process, rate_of
from tests.tools.simulation.transport import Network, SimulatedTransport
from tests.tools.simulation.world import INCARNATION, PREFIX, REPLY_PARTITIONS, World

STARTS_MS: Final = 3_000
SUPERVISOR_LOOKS_MS: Final = 1_000
#: How soon a process is started again.
AGAIN_MS: Final = (100, 2_000, 8_000)
FOR_EVER_MS: Final = 10**9


class Lake:
    """All members of one world, and the table that they write."""

    def __init__(self, world: World) -> None:
        self.world, self.luck = world, world.stream("lake")
        self.shard = shard_of(GROUP, world.plan.shards)
        self.partitions = self.luck.randint(1, 4)
        self.records = self.luck.choice([20, 60, 120])
        self.store = Store(DeltaLog(), world.stream("lake's store"))
        self.store.step_ms = self.luck.choice([20, 200, 1_000])
        #: What happens to the member that comes to a point next, by the name of the point.
        self.traps: dict[str, Callable[[LakeMember], None]] = {}
        self.met: Counter[str] = Counter()
        #: All processes; and the newest of each place.
        self.members: list[LakeMember] = []
        self.newest: dict[str, LakeMember] = {}
        self._seen: set[str] = set()
        self._is_healed = self._is_ending = False

    # ---- the beginning -------------------------------------------------------------------------

    def begin(self) -> None:
        """The topic; members one after the other; records that are to be written once."""
        world = self.world
        world.cluster.create_quietly(RAIN, self.partitions, is_listed=False)
        world.cluster.elsewhere[RAIN] = self.partitions
        for number in range(world.plan.lake_members):
            at_ms = self.luck.uniform(0, STARTS_MS)
            world.scheduler.after(at_ms, partial(self._start_first, f"d{number}"))
        for _ in range(self.records):
            at_ms = self.luck.uniform(0, world.plan.length_ms)
            place = RAIN, self.luck.randrange(self.partitions)
            world.scheduler.after(at_ms, partial(world.cluster.append, place, None, b""))
        world.every(SUPERVISOR_LOOKS_MS, self._look_after)
        world.lasting("lake", FOR_EVER_MS, self.heal)

    def _start_first(self, name: str) -> None:
        self.start(name)

    def start(self, name: str) -> LakeMember:
        """A process more."""
        world, plan = self.world, self.world.plan
        process_name = f"{name}-{len(self.members)}"
        luck = world.stream(f"lake member {process_name}")
        network = Network(lambda: luck.uniform(0.5, 2) * plan.latency_ms)
        clock = Clock(world.scheduler, rate_of(luck), luck.randrange(10**9))
        where = Where(PREFIX, plan.shards, REPLY_PARTITIONS, INCARNATION)

        def connect(process: Process) -> SimulatedTransport:
            reply = luck.randrange(REPLY_PARTITIONS)
            return SimulatedTransport(process, world.cluster, where, reply, clock, network, luck)

        timing = Timing(
            session_timeout_ms=plan.session_timeout_ms,
            rebalance_timeout_ms=plan.rebalance_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
        )
        member = LakeMember(
            world.cluster, process_name, luck, timing, self.store, network, connect, self._strike
        )
        if self._is_healed:
            member.batch_max = HASTE
        self.members.append(member)
        self.newest[name] = member
        world.note("lake member starts", process_name)
        return member

    @property
    def living(self) -> list[LakeMember]:
        """The newest process of each place that runs, and is not stopped."""
        return [each for each in self.newest.values() if not (each.is_done or each.is_stopped)]

    def _look_after(self) -> bool:
        """A supervisor: what has ended is started again some time later."""
        for name, member in list(self.newest.items()):
            if member.is_done and member.name not in self._seen:
                self._seen.add(member.name)
                again = partial(self._start_again, name, member)
                self.world.scheduler.after(self.luck.choice(AGAIN_MS), again)
        return True

    def _start_again(self, name: str, before: LakeMember) -> None:
        if self.newest.get(name) is before and not self._is_ending:
            self.start(name)

    def heal(self) -> None:
        """Everything works from now on."""
        self._is_healed, self.store.fails = True, False
        self.store.step_ms = min(self.store.step_ms, 100)
        self.traps.clear()
        for member in self.members:
            member.batch_max = HASTE

    def end(self) -> None:
        """Their user ends them in good order."""
        self._is_ending = True
        for member in self.members:
            member.is_ending = True

    def kill(self) -> None:
        """The world is over: no thread stays."""
        self._is_ending = True
        for member in self.members:
            member.kill()

    # ---- faults inside of a batch or of a look -------------------------------------------------

    def _strike(self, member: LakeMember, point: str) -> None:
        """A member comes to a point. Raises Gone: it dies there, or has died."""
        if not member.is_alive:
            raise Gone
        trap = self.traps.pop(point, None)
        if trap is not None:
            self.met[f"lake member struck at {point}"] += 1
            trap(member)
            member.wait(1, lambda: False)  # for ever, or as long as it is stopped


@contextmanager
def with_the_table() -> Iterator[None]:
    """While it lasts, writers open the simulated table in place of Spark's."""
    with patch.object(writes, "SparkTable", LakeTable):
        yield
