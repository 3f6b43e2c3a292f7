"""A courier: a copier that writes into another cluster, and lets the job's coordinator decide.

`CoordinatedConsumer`, `CoordinatedProducer`, `exactly_once` and the way behind them
(`coordlib/client/transactions/by_coordinator.py`) are the real ones, over simulated connections. A
courier dies, or is stopped, at each arrow of what a transactional id and its coordinator say to
each other.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from coordlib.client import CoordinatedProducer, TransactionError
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.transport import Handler
from coordlib.core.wire import api
from coordlib.demo.history import Happened
from coordlib.errors import CoordError
from tests.tools.simulation.cluster import Cluster, Record
from tests.tools.simulation.transactions import abroad
from tests.tools.simulation.transactions.abroad import ABROAD, FarCluster, FarProducer
from tests.tools.simulation.transactions.copier import Copier, CopierTransport
from tests.tools.simulation.transactions.producer import ABORTED, OK, UNKNOWN, Habits
from tests.tools.simulation.transactions.traps import Struck, Traps
from tests.tools.simulation.transport import Network

#: What is taken abroad. No expression of a reader matches it.
MAIL: Final = "mail"
#: The end of its transaction is decided, and the answer has just come.
UNHEARD: Final = "unheard-end"
#: Points at which a request was handed over and is not written yet.
_ASKED: Final[Mapping[type[api.Request], str]] = {
    api.AddPartitionsToTxn: "adding",
    api.TxnOffsetCommit: "offsets",
    api.EndTxn: "ending",
    api.TxnMarkersWritten: "marked",
}
#: Where a courier may die, or be stopped, in the order of a unit.
POINTS: Final = (
    "initialized",
    "adding",
    abroad.WRITING,
    abroad.WRITTEN,
    "offsets",
    "ending",
    UNHEARD,
    abroad.DECIDED,
    abroad.MARKING,
    "marked",
)
_ANSWER: Final = b'"type":"EndTxn"'


class CourierTransport(CopierTransport):
    """Its process may be struck when it hands over a request, and when the end is answered."""

    source = MAIL
    _process: Struck

    def send(self, handler: Handler, request: api.Request) -> None:
        super().send(handler, request)
        point = _ASKED.get(type(request))
        if point is not None:
            self._process.maybe_crash(point)

    def _arrive(self, record: Record) -> None:
        is_set = UNHEARD in self._process.traps.at
        if is_set and not self._process.is_stopped and self._is_answer(record.value or b""):
            self._process.traps.spring(self._process, UNHEARD)
        super()._arrive(record)

    def _is_answer(self, value: bytes) -> bool:
        return _ANSWER in value and f'"client":"{self._process.name}"'.encode() in value


class ToldProducer(CoordinatedProducer):
    """What it is asked for is written down as `tests.tools check` reads it."""

    def __init__(self, config: Mapping[str, Any], process: "Courier", **named: Any) -> None:
        super().__init__(config, **named)
        self._process = process
        #: Names the transaction that is open, for the history.
        self.name = ""

    def init_transactions(self, timeout: float = 0.0) -> None:
        super().init_transactions(timeout)
        self._process.initialized_ms = self._process.scheduler.now_ms
        self._process.maybe_crash("initialized")

    def begin_transaction(self, timeout: float = 0.0) -> None:
        super().begin_transaction(timeout)
        self.name = self._process.new_name()
        self._note("begin")

    def produce(self, topic: str, *args: Any, **named: Any) -> None:
        value, key, partition = args
        places = (f"{topic}-{partition}",)
        self._note("sent", value=value.decode(), partitions=places, key=key.decode())
        super().produce(topic, *args, **named)

    def send_rows(
        self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
    ) -> None:
        offsets = {f"{row.topic}-{row.partition}": row.offset for row in rows}
        if rows:
            self._note("offsets", group=metadata.identity.group, offsets=offsets)
        super().send_rows(rows, metadata, timeout)

    def commit_transaction(self, timeout: float = 0.0) -> None:
        self._note("ended", detail=UNKNOWN)
        super().commit_transaction(timeout)
        self._note("ended", detail=OK)

    def abort_transaction(self, timeout: float = 0.0) -> None:
        self._process.require_alive()
        super().abort_transaction(timeout)
        self._note("ended", detail=ABORTED)

    def _note(self, what: str, **fields: Any) -> None:
        self._process.tell(what, transaction=self.name, **fields)


class Courier(Struck, Copier):
    """One process, which is a member of the couriers' group."""

    source, target = MAIL, ABROAD
    transport: CourierTransport

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        cluster: Cluster,
        far: FarCluster,
        name: str,
        transactional_id: str,
        luck: Random,
        config: Mapping[str, Any],
        habits: Habits,
        network: Network,
        connect: Callable[[Any], CourierTransport],
        record: Callable[[Happened], None],
        traps: Traps,
    ) -> None:
        self.traps, self._far = traps, far
        #: When it got its newest epoch.
        self.initialized_ms = -1
        super().__init__(
            cluster, name, transactional_id, luck, config, habits, network, connect, record
        )
        self._targets, self._begun = len(far.logs), 0
        self._gives_up_after_ms = luck.choice([5_000, 300_000])

    def new_name(self) -> str:
        """Of its next transaction."""
        self._begun += 1
        return f"{self.name}/{self._begun}"

    def _after(
        self, producer: CoordinatedProducer | None, error: TransactionError
    ) -> CoordinatedProducer | None:
        next_one = super()._after(producer, error)
        if next_one is None and producer is not None:
            with suppress(CoordError):
                producer.close()
        return next_one

    def _open(self) -> CoordinatedProducer:
        def opened(_options: Mapping[str, Any]) -> FarProducer:
            return FarProducer(self, self._far, self.network, self._gives_up_after_ms)

        return ToldProducer(
            {
                "bootstrap.servers": "none",
                "coord.decided.by": "coordinator",
                "transactional.id": self.id,
                "transaction.timeout.ms": self._habits.timeout_ms,
                "client.id": self.name,
            },
            self,
            transport=self.transport,
            open_producer=opened,
        )
