"""A copier: a process that reads a topic and writes another one, each unit of work all or nothing.

`CoordinatedConsumer`, `CoordinatedProducer` and `exactly_once` are the real ones; its user's code
is what the documentation tells users to write.
"""

from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any, Final

from coordlib.client import CoordinatedConsumer, CoordinatedProducer, TransactionError, exactly_once
from coordlib.client.groups.state import State as MemberState
from coordlib.client.transactions.machine import State
from coordlib.demo.history import Happened
from coordlib.errors import CoordError
from tests.tools.simulation import waiting
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.data import DataConsumer, Message
from tests.tools.simulation.transactions.fibers import Blocking, Fiber
from tests.tools.simulation.transactions.producer import Habits, UserProducer
from tests.tools.simulation.transport import Network, SimulatedTransport

#: What is copied, and to where. No expression of a reader matches these.
DRAFT, FAIR = "draft", "fair"
#: For the group's answer, and for the commit.
PATIENCE_S: Final = 20.0
POLL_S: Final = 1.0
BREAK_MS: Final = 200
#: How many messages one that is late takes at once.
HASTE: Final = 30
PAUSE_MS: Final = 50


class CopierReader(DataConsumer):
    """Waits as long as it is told to, and lets its copier work on what it has."""

    def __init__(self, cluster: Cluster, copier: "Copier") -> None:
        super().__init__(cluster)
        self._copier = copier

    def poll(self, timeout: float) -> Message | None:
        message = super().poll(0)
        if message is None and timeout > 0:
            self._copier.wait(timeout * 1_000, lambda: False)
            message = super().poll(0)
        return message


class CopierTransport(SimulatedTransport):
    """It is told of the topic that readers need not know of."""

    source = DRAFT

    def partition_counts(self, topics: Any, own: Any = None) -> dict[str, int]:
        known = super().partition_counts(topics, own)
        return known | {self.source: self._cluster.count(self.source)}


class Copier(Blocking):
    """One process.

    Args:
        connect: makes the transport of its consumer.
        record: takes a line of history.
    """

    source, target = DRAFT, FAIR

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        cluster: Cluster,
        name: str,
        transactional_id: str,
        luck: Random,
        config: Mapping[str, Any],
        habits: Habits,
        network: Network,
        connect: Callable[["Copier"], SimulatedTransport],
        record: Callable[[Happened], None],
    ) -> None:
        super().__init__(cluster.scheduler, name)
        self.id, self.network = transactional_id, network
        self._cluster, self._luck, self._habits, self._record = cluster, luck, habits, record
        self._batch = luck.choice([1, 3, 10])
        self._work_ms = luck.choice([1, 10, 60])
        # A unit that takes longer than its transaction may is aborted, for ever.
        self._in_haste = min(HASTE, max(1, habits.timeout_ms // (6 * self._work_ms)))
        self._epochs = luck.choice(["doubtful", "doubtful", "doubtful", "always"])
        self._values, self._targets = count(1), cluster.count(FAIR)
        #: Set when its user wants it to end.
        self.is_ending = False
        self.fiber = Fiber(self, self._work)
        self.transport = connect(self)
        self.consumer = CoordinatedConsumer(
            {**config, "client.id": name, "enable.auto.commit": False},
            transport=self.transport,
            data_consumer=CopierReader(cluster, self),
        )
        waiting.install(self.consumer.member, self)
        self.after(1, self.fiber.resume)

    def _gone(self) -> None:
        self.transport.close()
        self.tell("ended", detail="killed")

    def tell(self, what: str, **fields: Any) -> None:
        """A line of history."""
        self._record(Happened(self.scheduler.now_ms, what, member=self.name, **fields))

    # ---- what its user has written -------------------------------------------------------------

    def _work(self) -> None:
        self.consumer.subscribe([self.source])
        producer: CoordinatedProducer | None = None
        while not self.is_ending:
            try:
                if producer is None:
                    producer = self._open()
                    producer.init_transactions(PATIENCE_S)
                self._unit(producer)
            except TransactionError as error:
                if not error.txn_requires_abort():
                    producer = self._after(producer, error)
            except CoordError:
                if self.consumer.member._machine.state is MemberState.FAILED:
                    break  # a new process may be let in
                self.wait(BREAK_MS, lambda: False)
        if producer is not None:
            producer.close()
        self.consumer.close(PATIENCE_S)
        self.transport.close()

    def _unit(self, producer: CoordinatedProducer) -> None:
        """One; where there was nothing to read, nothing is written."""
        with exactly_once(self.consumer, producer, PATIENCE_S):
            most = self._in_haste if self._habits.is_in_haste else self._batch
            messages = self.consumer.consume(most, POLL_S)
            for message in messages:
                self.wait(self._luck.expovariate(1 / self._work_ms), lambda: False)
                self._copy(producer, f"{message.topic()}-{message.partition()}@{message.offset()}")

    def _copy(self, producer: CoordinatedProducer, source: str) -> None:
        """Write what comes of a record."""
        value = f"{self.name}/{next(self._values)}"
        target = self._luck.randrange(self._targets)
        producer.produce(self.target, value.encode(), source.encode(), target)

    def _after(
        self, producer: CoordinatedProducer | None, error: TransactionError
    ) -> CoordinatedProducer | None:
        """The producer to go on with; None: another one is to be made."""
        if producer is not None and error.retriable() and self._luck.random() < 0.5:
            try:
                if producer.state is State.COMMITTING:
                    producer.commit_transaction(PATIENCE_S)
                elif producer.state is State.ABORTING:
                    producer.abort_transaction(PATIENCE_S)
                return producer
            except TransactionError:
                pass
        self.wait(PAUSE_MS, lambda: False)
        return None

    def _open(self) -> CoordinatedProducer:
        def opened(config: Mapping[str, Any], on_error: Any) -> UserProducer:
            return UserProducer(self, self._cluster, self.network, self.id, self._habits, self.tell)

        return CoordinatedProducer(
            {
                "bootstrap.servers": "none",
                "transactional.id": self.id,
                "transaction.timeout.ms": self._habits.timeout_ms,
                "coord.new.epoch": self._epochs,
            },
            open_producer=opened,
        )
