"""Who reads what couriers have written: the real `CommittedReader`, over the other cluster.

Each record that it hands out is kept with the position behind it, as one who writes both into one
place does. One that begins anew begins at the kept positions; it has forgotten all else.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client import CommittedReader, TornTransaction
from tests.tools.simulation.scheduler import Scheduler
from tests.tools.simulation.transactions.abroad import ABROAD, FarCluster, FarConsumer
from tests.tools.simulation.transactions.fibers import Blocking, Fiber
from tests.tools.simulation.transactions.traps import Struck, Traps
from tests.tools.simulation.transport import SimulatedTransport
from tests.tools.simulation.violation import Violation

POLL_S: Final = 1.0
#: The point behind each record that is handed out.
HANDED_OUT: Final = "handed-out"


class FarReader(Struck, Blocking):
    """One process of it.

    Args:
        luck: draws how long it works on a record.
        connect: makes its transport to the coordinator.
        kept: partition -> position at which it begins.
        hand_out: takes a record, by partition and offset.
    """

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        scheduler: Scheduler,
        far: FarCluster,
        name: str,
        luck: Random,
        traps: Traps,
        connect: Callable[["FarReader"], SimulatedTransport],
        kept: dict[int, int],
        hand_out: Callable[[int, int, str], None],
    ) -> None:
        super().__init__(scheduler, name)
        self.traps, self._luck, self._work_ms = traps, luck, luck.choice([1, 10, 60])
        self._hand_out, self.began = hand_out, dict(kept)
        self.fiber = Fiber(self, self._work)
        self.transport = connect(self)
        self.reader = CommittedReader(
            {"bootstrap.servers": "none", "client.id": name},
            transport=self.transport,
            data_consumer=FarConsumer(self, far),
        )
        self.after(1, self.fiber.resume)

    def stable(self, partition: int) -> int:
        """Up to where everything is decided, as far as it has read."""
        return self.reader.last_stable(KafkaTopicPartition(ABROAD, partition))

    def _work(self) -> None:
        self.reader.assign([KafkaTopicPartition(ABROAD, *each) for each in self.began.items()])
        while True:
            try:
                message = self.reader.poll(POLL_S)
            except TornTransaction as torn:
                raise Violation(f"INV-91: {self.name}: {torn}") from torn
            if message is not None:
                value = (message.value() or b"").decode()
                self._hand_out(message.partition() or 0, message.offset() or 0, value)
                self.maybe_crash(HANDED_OUT)
                self.wait(self._luck.expovariate(1 / self._work_ms), lambda: False)

    def _gone(self) -> None:
        self.transport.close()
