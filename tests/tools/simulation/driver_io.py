"""The driver's Kafka clients, simulated: the transactional producer and the writer of ticks.

They are what `TransactionalSink` and `TickWriter` are given; those are the real ones.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from coordlib.core.engine.effects import Output
from coordlib.core.engine.state import Status
from coordlib.core.wire import codec
from coordlib.core.wire.api import Control, Tick
from coordlib.job.background.feeder import Waiting
from coordlib.job.control import Signer
from coordlib.job.pipelines import Pipeline
from coordlib.job.query import chosen
from coordlib.kafka.transactions import RETRY_BACKOFF_MS
from tests.tools.core import InputRecord
from tests.tools.simulation.checkpoint import Ranges, StateGone
from tests.tools.simulation.cluster import Cluster, LateEnd, Outcome, Place, Transaction
from tests.tools.simulation.scheduler import Channel, Process

TRANSACTION_TIMEOUT_MS = 60_000
#: How long the client takes at least until it sends an EndTxn again.
RESENT_AFTER_MS = 0.8 * RETRY_BACKOFF_MS
#: The first one arrives within so many records: a batch writes as many, more or less.
RECORDS_UNTIL_LATE = 12
RETRY_MS = 500


class NoShard(StateGone):
    """The job has no key for a record's partition: Spark ends the query."""


class Killed(BaseException):
    """The process died in the middle of a call; nothing of it may go on."""


class Delivered:
    """What a delivery report is given."""

    def __init__(self, place: Place, offset: int) -> None:
        self._place, self._offset = place, offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset


class Resends:
    """EndTxn requests that are sent twice, half of all while there is `luck`."""

    def __init__(self) -> None:
        self.luck: Random | None = None
        #: How long clients have waited until they sent something again; virtual time stands still
        #: in a transaction.
        self.waited_ms = 0.0

    def draw(self) -> int | None:
        """How many records are written until the first one arrives; None: it is sent once."""
        if self.luck is None or self.luck.random() < 0.5:
            return None
        self.waited_ms += RESENT_AFTER_MS
        return self.luck.randint(0, RECORDS_UNTIL_LATE)


class SimulatedProducer:
    """A transactional producer.

    Args:
        maybe_crash: is asked at every point where the driver may die.
        resends: draws whether an EndTxn is sent twice.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        maybe_crash: Callable[[str], None],
        give_up: Callable[[Transaction], None],
        resends: Resends,
    ) -> None:
        self._cluster, self._id, self._strike = cluster, transactional_id, maybe_crash
        self._give_up, self._resends = give_up, resends
        self._epoch = -1
        #: Where it has asked the coordinator to let it write, in this transaction.
        self._added: set[Place] = set()

    def init_transactions(self, timeout: float) -> None:
        self._epoch = self._cluster.init_transactions(self._id)

    def begin_transaction(self) -> None:
        self._cluster.require_epoch(self._id, self._epoch)
        self._added.clear()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        *,
        on_delivery: Any = None,
    ) -> None:
        self._strike("P5")
        self._cluster.require_epoch(self._id, self._epoch)
        self._cluster.note_record(self._id)
        transaction, place = self._cluster.open_transaction(self._id), (topic, partition)
        if place in self._added and place not in transaction.places:
            # It was ended from elsewhere; a place that is added only now would begin another.
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE))
        self._added.add(place)
        if not transaction.places:
            self._give_up(transaction)
        offset = self._cluster.append(place, key, value, transaction)
        transaction.places[place] = offset
        if on_delivery is not None:
            on_delivery(None, Delivered(place, offset))

    def flush(self, timeout: float) -> None:
        pass

    def poll(self, timeout: float) -> None:
        pass

    def commit_transaction(self, timeout: float) -> None:
        self._strike("before-commit")
        self._cluster.require_epoch(self._id, self._epoch)
        self._cluster.end_transaction(self._id, Outcome.COMMITTED)
        self._strike("unheard-commit")
        if (records := self._resends.draw()) is not None:
            self._cluster.hold_up(self._id, LateEnd(self._epoch, Outcome.COMMITTED, records))

    def abort_transaction(self, timeout: float) -> None:
        self._cluster.require_epoch(self._id, self._epoch)
        self._cluster.end_transaction(self._id, Outcome.ABORTED)


class CommitUnheard(KafkaException):
    """The commit was done and its answer was lost."""

    def __init__(self) -> None:
        super().__init__(KafkaError(KafkaError._TIMED_OUT))


#: Where the drivers' signed records stand: shard and offset -> number.
Written = dict[tuple[int, int], tuple[int, int]]


class SimulatedControl:
    """`ControlWriter`: what it is given arrives in order, and after a while.

    Args:
        written: takes in whatever reached the log with a signature.
    """

    def __init__(
        self, process: Process, cluster: Cluster, prefix: str, channel: Channel, written: Written
    ) -> None:
        self._process, self._cluster, self._topic = process, cluster, f"{prefix}.requests"
        self._channel, self._written = channel, written
        #: None: the driver is of before, and signs nothing.
        self.signer: Signer | None = None
        #: While set, ticks are lost on their way (F-10b).
        self.is_mute = False

    def write(self, shard: int, record: Control, told: Callable[[bool], None]) -> None:
        """Write it; `told`, later, says whether the log took it."""
        value = codec.encode(record) if self.signer is None else self.signer.value(shard, record)
        self._channel.send(lambda: self._arrive(shard, record, value, told))

    def _arrive(
        self, shard: int, record: Control, value: bytes, told: Callable[[bool], None]
    ) -> None:
        if not self._cluster.is_up or (self.is_mute and isinstance(record, Tick)):
            self._process.after(RETRY_MS, lambda: told(False))
            return
        offset = self._cluster.append((self._topic, shard), None, value)
        sent = codec.decode_request(value)
        if self.signer is not None and isinstance(sent, Control) and isinstance(sent.n, tuple):
            self._written[shard, offset] = sent.n
        self._process.after(1, lambda: told(True))


class SimulatedTicks:
    """`Broker` of a TickWriter: writes take time, and are tried again while nobody answers."""

    def __init__(self, control: SimulatedControl, cluster: Cluster) -> None:
        self._control, self._cluster = control, cluster

    def write(self, shard: int, tick: Tick, told: Callable[[bool], None]) -> None:
        self._control.write(shard, tick, told)

    def ends(self, places: Iterable[Place], visible: bool) -> dict[Place, int]:
        return self._cluster.ends(places, visible)

    def serve(self) -> None:
        pass


class ConcurrentUpdate(RuntimeError):
    """Another job has written this batch into the same checkpoint."""


class Beside:
    """What a driver has beside its batches for transactions: here nothing."""

    #: What the outbox had when the driver began.
    waiting = Waiting({}, {}, {})

    def start(self) -> None:
        """From now on it has its turns."""

    def batch_committed(self, outputs: Sequence[Output], statuses: Iterable[Status]) -> None:
        """A batch is there to be seen."""


def places_read(pipeline: Pipeline, shards: Iterable[int], cluster: Cluster) -> list[Place]:
    """The partitions that the source reads, as the job tells it: those that it names, or all that
    a topic has."""
    option = chosen(pipeline.inputs, list(shards))
    if "assign" in option:
        named = json.loads(option["assign"])
        return [(topic, each) for topic, partitions in named.items() for each in partitions]
    topics = option["subscribe"].split(",")
    return [place for topic in topics for place in cluster.partitions if place[0] == topic]


def rows_of(
    cluster: Cluster, pipeline: Pipeline, ranges: Ranges, shard: int, shards: Iterable[int]
) -> list[InputRecord]:
    """What a planned batch has for one shard. Raises NoShard: it has records of no shard."""
    known = set(shards)
    if any(first < end for (_, each), (first, end) in ranges.items() if each not in known):
        raise NoShard(f"A batch has records of partitions that are none of {sorted(known)}")
    letters = {topic: letter for letter, topic in pipeline.inputs.items()}
    return [
        InputRecord(letters[place[0]], each.offset, each.timestamp_ms, each.value)
        for place, (first, end) in ranges.items()
        if place[1] == shard
        for each in cluster.partitions[place].read(first, is_committed=False)[0]
        if each.offset < end
    ]
