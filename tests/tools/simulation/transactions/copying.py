"""What a world has beside its groups where users' transactions are: copiers, and who reads theirs.

A group of copiers moves all records of one topic into another. Its offsets are decided by the
copiers' own transactions of Kafka. Somebody reads the copies, committed ones only, as they come.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from coordlib.core.wire.envelope import shard_of
from coordlib.demo.history import Happened
from tests.tools.simulation.scheduler import Gone, Process
from tests.tools.simulation.transactions.beside import Faults, TransactionsBeside
from tests.tools.simulation.transactions.copier import DRAFT, FAIR, Copier, CopierTransport
from tests.tools.simulation.transactions.crew import FOR_EVER_MS, SUPERVISOR_LOOKS_MS, Crew
from tests.tools.simulation.transactions.producer import Habits, UserProducer
from tests.tools.simulation.transactions.tellers import Tellers
from tests.tools.simulation.world import PREFIX, REPLY_PARTITIONS, World

GROUP: Final = "copiers"
READER: Final = "reader of copies"
STARTS_MS: Final = 3_000
READS_MS: Final = 250
TIMEOUTS_MS: Final = (4_000, 8_000, 15_000)


class Copying(Crew[Copier]):
    """All copiers of one world."""

    def __init__(self, world: World) -> None:
        plan, luck = world.plan, world.stream("copiers")
        super().__init__(world, luck)
        self.shard = shard_of(GROUP, plan.shards)
        self.sources, self.targets = luck.randint(1, 3), luck.randint(1, 3)
        self.records = luck.choice([20, 60, 120])
        #: Whether the coordinator assigns.
        self.is_assigned = luck.random() < 0.4 and world.engine.watches
        self.mode = luck.choice(["range", "cooperative-sticky"])
        self.habits = Habits(world.stream("copiers' requests"), luck.choice(TIMEOUTS_MS))
        self.habits.maybe_crash = self._strike
        #: What happens to the copier that comes to a point next, by the name of the point.
        self.traps: dict[str, Callable[[Copier], None]] = {}
        #: Situations that only a fault knows of.
        self.met: Counter[str] = Counter()
        #: What fails of that which the driver does beside its batches.
        self.faults = Faults(world.stream("beside"))
        #: Processes whose transactions the job decides.
        self.tellers = Tellers(world)
        self._positions = dict.fromkeys(range(self.targets), 0)

    # ---- the beginning -------------------------------------------------------------------------

    def begin(self) -> None:
        """The topics; copiers one after the other; records that are to be copied."""
        world = self.world
        for topic, partitions in ((DRAFT, self.sources), (FAIR, self.targets)):
            world.cluster.create_quietly(topic, partitions, is_listed=False)
        if self.is_assigned:
            world.cluster.elsewhere[DRAFT] = self.sources
        world.engine.beside_of = lambda driver: TransactionsBeside(driver, self.faults)
        for number in range(world.plan.copiers):
            self.start_first(f"k{number}", STARTS_MS)
        for _ in range(self.records):
            at_ms = self.luck.uniform(0, world.plan.length_ms)
            place = (DRAFT, self.luck.randrange(self.sources))
            world.scheduler.after(at_ms, partial(self._append, place))
        self.tellers.begin()
        world.every(READS_MS, self._read)
        world.every(SUPERVISOR_LOOKS_MS, self.look_after)
        world.lasting("copiers", FOR_EVER_MS, self.heal)

    def _append(self, place: tuple[str, int]) -> None:
        self.world.cluster.append(place, None, b"")

    # ---- processes -----------------------------------------------------------------------------

    def start(self, name: str) -> Copier:
        """A process more; another one of this transactional id is fenced by it."""
        world = self.world
        process_name = f"{name}-{len(self.processes)}"
        luck = world.stream(f"copier {process_name}")
        network, clock = self.network(luck), self.clock(luck)

        def connect(process: Process) -> CopierTransport:
            reply = luck.randrange(REPLY_PARTITIONS)
            return CopierTransport(process, world.cluster, self.where, reply, clock, network, luck)

        copier = Copier(
            world.cluster,
            process_name,
            f"copier-{name}",
            luck,
            self.config(GROUP, None if self.is_assigned else self.mode),
            self.habits,
            network,
            connect,
            world.history.append,
        )
        return self.started(name, copier)

    def heal(self) -> None:
        """Everything works from now on. Processes of before may still be stopped: they are gone."""
        self.habits.resends, self.habits.is_in_haste = False, True
        self.faults.end()
        self.tellers.heal()
        self.traps.clear()
        super().heal()

    def end(self) -> None:
        """Their user ends them in good order."""
        self.tellers.end()
        super().end()

    def kill(self) -> None:
        """The world is over: no thread stays."""
        self.tellers.kill()
        super().kill()

    # ---- faults inside of a unit ---------------------------------------------------------------

    def _strike(self, producer: UserProducer, point: str) -> None:
        """A copier comes to a point of its unit. Raises Gone: it dies there."""
        copier = producer.process
        assert isinstance(copier, Copier)
        if not copier.is_alive:
            raise Gone
        trap = self.traps.pop(point, None)
        if trap is not None:
            trap(copier)
            self.met[f"copier struck at {point}"] += 1
            copier.wait(1, lambda: False)  # for ever, or as long as it is stopped

    def has_pending(self) -> bool:
        """Whether offsets of the group wait for a decision, as the topics say."""
        place = f"{PREFIX}.transactions", self.shard
        records = self.world.cluster.partitions[place].read(0)[0]
        newest = {record.key: record.value for record in records}
        return any(newest.values())

    # ---- who reads -----------------------------------------------------------------------------

    def _read(self) -> bool:
        """What is committed by now, in order."""
        cluster = self.world.cluster
        for partition, position in self._positions.items() if cluster.is_up else ():
            found, self._positions[partition] = cluster.partitions[FAIR, partition].read(position)
            for record in found:
                self._tell(
                    "read",
                    partitions=(f"{FAIR}-{partition}",),
                    offset=record.offset,
                    value=(record.value or b"").decode(),
                )
        return True

    def read_to_the_end(self) -> None:
        """When all transactions have ended. Raises KafkaException, AssertionError."""
        self.world.cluster.require_up()
        self._read()
        for partition, position in self._positions.items():
            assert position == self.world.cluster.partitions[FAIR, partition].end
        names = tuple(f"{FAIR}-{partition}" for partition in self._positions)
        self._tell("read_to_end", partitions=names, began_ms=self.world.scheduler.now_ms)

    def _tell(self, what: str, **fields: Any) -> None:
        now_ms = self.world.scheduler.now_ms
        self.world.history.append(Happened(now_ms, what, member=READER, **fields))
