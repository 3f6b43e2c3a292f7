"""What a driver does for transactions beside its batches, on virtual time: the real watch of
decisions and the real feeder, over the simulated cluster.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from coordlib.core.engine.effects import OUTBOX, Output
from coordlib.core.engine.state import Status
from coordlib.core.wire.api import Control, TxnDecided
from coordlib.job.background.decisions import DecisionWatch, Look, Seen
from coordlib.job.background.feeder import Feeder, Waiting, waiting_in
from tests.tools.simulation.cluster import Cluster, Partition
from tests.tools.simulation.driver_io import Beside

if TYPE_CHECKING:
    from tests.tools.simulation.engine import Driver

TURN_MS: Final = 50
#: After a turn that failed, as the threads wait.
RETRY_MS: Final = 500
#: Points at which a driver may die, beside those of a batch.
CRASH_POINTS: Final = ("before-look", "decided", "before-feed", "fed")


class Faults:
    """What goes wrong of it, in all drivers of a world."""

    def __init__(self, luck: Random) -> None:
        self.luck = luck
        #: Half of all looks fail.
        self.looks_fail = False
        #: Readers are answered by brokers that know less than others.
        self.looks_are_short = False
        self.counts: dict[str, int] = {}

    def end(self) -> None:
        """Nothing goes wrong any more."""
        self.looks_fail = self.looks_are_short = False

    def count(self, what: str) -> None:
        """One more."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def may_fail(self, what: str) -> None:
        """Raises KafkaException, half of the time, while looks fail."""
        if self.looks_fail and self.luck.random() < 0.5:
            self.count(what)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class SimulatedDecisions:
    """`Broker` of a DecisionWatch."""

    def __init__(self, driver: "Driver", cluster: Cluster, prefix: str, faults: Faults) -> None:
        self._driver, self._cluster, self._topic = driver, cluster, f"{prefix}.requests"
        self._faults = faults
        #: Shard -> what was answered before: an answer that took its time.
        self._before: dict[int, int] = {}

    def stable_ends(self, shards: Iterable[int]) -> dict[int, int]:
        self._cluster.require_up()
        self._faults.may_fail("question failed")
        found = {shard: self._partition(shard).last_stable for shard in shards}
        if self._faults.looks_are_short and self._faults.luck.random() < 0.5:
            found = {shard: self._before.get(shard, 0) for shard in found}
        else:
            self._before |= found
        return found

    def log_starts(self, shards: Iterable[int]) -> dict[int, int]:
        self._cluster.require_up()
        return dict.fromkeys(shards, 0)

    def look(self, look: Look) -> Seen:
        """As a reader of committed records finds them: record by record, and then the end."""
        self._cluster.require_up()
        self._driver.maybe_crash("before-look")
        self._faults.may_fail("look failed")
        partition = self._partition(look.shard)
        end = partition.last_stable
        if self._faults.looks_are_short and self._faults.luck.random() < 0.5:
            end = min(end, self._faults.luck.randint(look.offsets[0], look.offsets[-1] + 1))
            self._faults.count("look was short")
        found: set[int] = set()
        for record in partition.read(look.offsets[0])[0]:
            if record.offset >= end:
                break
            found.add(record.offset)
            if record.offset >= look.offsets[-1]:
                return Seen(found, record.offset + 1)
        return Seen(found, max(look.offsets[0], end))

    def write(self, shard: int, record: TxnDecided, told: Callable[[str], None]) -> None:
        self._driver.control.write(shard, record, _with_reason(told))
        self._driver.maybe_crash("decided")

    def serve(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _partition(self, shard: int) -> Partition:
        return self._cluster.partitions[self._topic, shard]


class TransactionsBeside(Beside):
    """One driver's watch of decisions and feeder, and when they have their turns."""

    def __init__(self, driver: "Driver", faults: Faults) -> None:
        self._driver, engine = driver, driver.engine
        self._faults = faults
        clock = engine.scheduler
        self.waiting = self._waiting()
        self._feeder = Feeder(
            self._feed, lambda: None, self.waiting, now_s=lambda: clock.now_ms / 1_000
        )
        broker = SimulatedDecisions(driver, engine.cluster, engine.prefix, faults)
        self._decisions = DecisionWatch(broker, now_s=lambda: clock.now_ms / 1_000)

    def start(self) -> None:
        """Both have their turns from now on, as their threads have."""
        self._decide()
        self._feed_on()

    def batch_committed(self, outputs: Sequence[Output], statuses: Iterable[Status]) -> None:
        """Tell both."""
        self._feeder.batch_committed(outputs)
        self._decisions.learn(statuses)

    def _waiting(self) -> Waiting:
        engine = self._driver.engine
        topic, read = f"{engine.prefix}.{OUTBOX}", engine.cluster.newest_by_key
        return waiting_in({shard: read(topic, shard) for shard in range(engine.layout.shards)})

    def _decide(self) -> None:
        is_well = self._decisions.turn()
        self._driver.again(TURN_MS if is_well else RETRY_MS, self._decide)

    def _feed_on(self) -> None:
        after_ms = TURN_MS
        try:
            self._feeder.turn()
        except KafkaException:
            after_ms = RETRY_MS
        self._driver.again(after_ms, self._feed_on)

    def _feed(self, shard: int, record: Control, told: Callable[[str], None]) -> None:
        self._driver.maybe_crash("before-feed")
        self._faults.count("fed")
        self._driver.control.write(shard, record, _with_reason(told))
        self._driver.maybe_crash("fed")


def _with_reason(told: Callable[[str], None]) -> Callable[[bool], None]:
    return lambda is_taken: told("" if is_taken else "not taken")
