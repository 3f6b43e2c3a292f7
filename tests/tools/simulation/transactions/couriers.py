"""What a world has beside its groups where couriers are: another cluster, and who reads there.

A group of couriers takes all records of one topic into another cluster, in transactions that the
job's coordinator decides (`courier.py`, `loner.py`). One `CommittedReader` at a time hands out what
is committed there (`far_reader.py`).

A reader that begins anew keeps its position alone. The page of limits says what it then cannot
tell: a copy of a record whose first stands before its begin. So one is only stopped, and keeps what
it knows, where such a copy stands before it, and what it has begun behind is not copied.
"""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from coordlib.core.wire import api, codec
from coordlib.core.wire.data_headers import Marker, Txn
from coordlib.core.wire.envelope import shard_of
from coordlib.demo.history import Happened
from tests.tools.simulation.transactions.abroad import ABROAD, FarCluster
from tests.tools.simulation.transactions.beside import Faults, TransactionsBeside
from tests.tools.simulation.transactions.courier import MAIL, Courier, CourierTransport
from tests.tools.simulation.transactions.crew import FOR_EVER_MS, SUPERVISOR_LOOKS_MS, Crew
from tests.tools.simulation.transactions.far_reader import FarReader
from tests.tools.simulation.transactions.loner import LONERS, Loner
from tests.tools.simulation.transactions.producer import Habits
from tests.tools.simulation.transactions.traps import Traps
from tests.tools.simulation.transport import SimulatedTransport
from tests.tools.simulation.world import PREFIX, REPLY_PARTITIONS, World

GROUP: Final = "couriers"
READER: Final = "reader abroad"
#: Begins the names of those who are no members.
LONER: Final = "loner"
STARTS_MS: Final = 3_000
#: How long one lives that has a successor, and wakes up.
LIVES_ON_MS: Final = 3_000
#: The coordinator takes none that is shorter.
TIMEOUTS_MS: Final = (6_000, 8_000, 15_000)
#: Situations that only a fault knows of.
AWAY, WORD_AGAIN = "other cluster away", "courier's request came again"
RECORD_AGAIN, READER_AGAIN = "courier's record came again", "reader abroad began anew"
#: Requests that may come once more, from wherever they were held up.
_WORDS: Final = (
    *(api.InitProducerId, api.AddPartitionsToTxn, api.TxnOffsetCommit, api.EndTxn),
    api.TxnMarkersWritten,
)
_NEWEST: Final = 300


class HandedOut(NamedTuple):
    """A record that the reader has handed out."""

    partition: int
    offset: int


class Couriers(Crew[Courier]):
    """All couriers of one world, their cluster, and its reader."""

    def __init__(self, world: World) -> None:
        luck = world.stream("couriers")
        super().__init__(world, luck)
        self.shard = shard_of(GROUP, world.plan.shards)
        self.sources = luck.randint(1, 3)
        self.far = FarCluster(luck.randint(2, 3))
        self.records = luck.choice([20, 60])
        self.loners = luck.choice([0, 1])
        #: Who assigns: the members, or, without strategy, the coordinator.
        is_assigned = luck.random() < 0.4 and world.engine.watches
        self.strategy = None if is_assigned else luck.choice(["range", "cooperative-sticky"])
        self.habits = Habits(luck, luck.choice(TIMEOUTS_MS))
        self.traps = Traps()
        self.faults = Faults(world.stream("beside couriers"))
        #: What was handed out, in its order, and the position behind it in each partition.
        self.handed_out: list[HandedOut] = []
        self.kept = dict.fromkeys(range(len(self.far.logs)), 0)
        self.readers: list[FarReader] = []

    @property
    def groups(self) -> tuple[str, ...]:
        """Those that take records abroad: that of the couriers, and that of which nobody is one."""
        return (GROUP, LONERS) if self.loners else (GROUP,)

    @property
    def reader(self) -> FarReader:
        """The newest one."""
        return self.readers[-1]

    # ---- the beginning -------------------------------------------------------------------------

    def begin(self) -> None:
        """Couriers one after the other; a reader; records that are to be taken abroad."""
        world = self.world
        world.cluster.create_quietly(MAIL, self.sources, is_listed=False)
        if self.strategy is None:
            world.cluster.elsewhere[MAIL] = self.sources
        world.engine.beside_of = lambda driver: TransactionsBeside(driver, self.faults)
        for number in range(world.plan.couriers):
            self.start_first(f"courier{number}", STARTS_MS)
        for number in range(self.loners):
            self.start_first(f"{LONER}{number}", STARTS_MS)
        for _ in range(self.records):
            at_ms = self.luck.uniform(0, world.plan.length_ms)
            place = (MAIL, self.luck.randrange(self.sources))
            world.scheduler.after(at_ms, partial(world.cluster.append, place, None, b""))
        self.start_reader()
        world.every(SUPERVISOR_LOOKS_MS, self.look_after)
        world.lasting("couriers", FOR_EVER_MS, self.heal)

    def start(self, name: str) -> Courier:
        """A process more; another one of this transactional id is fenced by it."""
        world = self.world
        process_name = f"{name}-{len(self.processes)}"
        luck = world.stream(process_name)
        network, clock = self.network(luck), self.clock(luck)

        def connect(process: Any) -> CourierTransport:
            reply = luck.randrange(REPLY_PARTITIONS)
            return CourierTransport(process, world.cluster, self.where, reply, clock, network, luck)

        kind = Loner if name.startswith(LONER) else Courier
        courier = kind(
            world.cluster,
            self.far,
            process_name,
            f"id-{name}",
            luck,
            self.config(GROUP, self.strategy),
            self.habits,
            network,
            connect,
            world.history.append,
            self.traps,
        )
        return self.started(name, courier)

    # ---- who reads -----------------------------------------------------------------------------

    def start_reader(self) -> None:
        """At the kept positions."""
        world = self.world
        name = f"reader-abroad-{len(self.readers)}"
        luck = world.stream(name)
        network, clock = self.network(luck), self.clock(luck)

        def connect(process: FarReader) -> SimulatedTransport:
            return SimulatedTransport(process, world.cluster, self.where, 0, clock, network, luck)

        reader = FarReader(
            world.scheduler, self.far, name, luck, self.traps, connect, self.kept, self._hand_out
        )
        self.readers.append(reader)

    def begin_anew(self, reader: FarReader) -> None:
        """One dies, and the next one begins at the kept positions; where it may (see above)."""
        if self.may_begin_anew and reader is self.reader:
            self.traps.sprung[READER_AGAIN] += 1
            reader.kill()
            self.start_reader()

    def _hand_out(self, partition: int, offset: int, value: str) -> None:
        """Kept in one place with the position behind it."""
        self.handed_out.append(HandedOut(partition, offset))
        self.kept[partition] = offset + 1
        self._tell("read", partitions=(f"{ABROAD}-{partition}",), offset=offset, value=value)

    def read_to_the_end(self) -> None:
        """When all transactions have ended. Raises AssertionError."""
        names = tuple(f"{ABROAD}-{number}" for number in self.kept)
        for number, log in enumerate(self.far.logs):
            assert self.reader.stable(number) == len(log)
        self._tell("read_to_end", partitions=names, began_ms=self.world.scheduler.now_ms)

    def _tell(self, what: str, **fields: Any) -> None:
        now_ms = self.world.scheduler.now_ms
        self.world.history.append(Happened(now_ms, what, member=READER, **fields))

    # ---- the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything works from now on; who stood still wakes up, and soon older ones are gone."""
        self.habits.is_in_haste = True
        self.faults.end()
        self.traps.at.clear()
        for courier in self.processes:
            courier.resume()
        self.world.scheduler.after(LIVES_ON_MS, self._put_out)

    def _put_out(self) -> None:
        """Processes of before.

        What a process leaves unmarked the next one of its id marks. So one is started again that
        was fenced, and would hear of it only with its next transaction, for which there may be no
        record.
        """
        super().heal()
        for newest in self.living:
            others = [each for each in self.processes if each.id == newest.id]
            if newest.initialized_ms < max(each.initialized_ms for each in others):
                newest.kill()

    def kill(self) -> None:
        """The world is over: no thread stays."""
        super().kill()
        for reader in self.readers:
            reader.kill()

    # ---- what comes again ----------------------------------------------------------------------

    def words_again(self, luck: Random) -> None:
        """One of the newest requests of couriers stands in its log once more."""
        cluster = self.world.cluster
        place = f"{PREFIX}.requests", luck.randrange(self.world.plan.shards)
        records = cluster.partitions[place].records[-_NEWEST:]
        said = [each for each in records if isinstance(codec.decode_request(each.value), _WORDS)]
        if said:
            again = luck.choice(said)
            self.traps.sprung[WORD_AGAIN] += 1
            cluster.append(place, again.key, again.value)

    def record_again(self, luck: Random) -> None:
        """One of the newest records or markers stands in its partition once more."""
        number = luck.randrange(len(self.far.logs))
        begun, log = self.reader.began[number], self.far.logs[number]
        first = max(0, len(log) - 20)
        known = [at for at in range(first, len(log)) if at >= begun or log[at].value is None]
        known = [at for at in known if log[at].repeats < 0]
        if known:
            at = luck.choice(known)
            self.traps.sprung[RECORD_AGAIN] += 1
            self.far.append(number, log[at]._replace(repeats=at))

    @property
    def may_begin_anew(self) -> bool:
        """Whether no copy of a record stands where a reader would begin, without the first."""
        return not any(
            record.repeats >= 0 and record.value is not None and record.repeats < kept <= at
            for number, kept in self.kept.items()
            for at, record in enumerate(self.far.logs[number])
        )

    # ---- what stands abroad --------------------------------------------------------------------

    def stamped(self, partition: int) -> Iterator[tuple[int, Txn, int]]:
        """Records of transactions: offset, transaction, and number in it."""
        for offset, record in enumerate(self.far.logs[partition]):
            said = record.said
            if said is not None and not isinstance(said, Marker) and said.txn is not None:
                yield offset, said.txn, said.s
