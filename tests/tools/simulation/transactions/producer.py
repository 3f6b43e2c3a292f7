"""The transactional producer of a user's process, as librdkafka has it: `Transactional`, simulated.

Records are queued and written in order; requests to the transaction coordinator are sent again
until they are answered. An EndTxn that was sent twice may arrive the first time in the middle of
the next transaction (`cluster.LateEnd`). Whatever it does is written down as `tests.tools check`
reads it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from coordlib.core.wire import api, codec
from coordlib.kafka.transactions import RETRY_BACKOFF_MS
from tests.tools.simulation.cluster import Cluster, LateEnd, Outcome, Place, Transaction
from tests.tools.simulation.driver_io import Delivered
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.transport import Network

RETRY_MS: Final = 100
#: While the coordinator still writes the markers of the transaction before.
CONCURRENT_MS: Final = 20
#: By how much librdkafka varies its backoff.
JITTER: Final = 0.2
LATE_RECORDS_MAX: Final = 6
OK, ABORTED, UNKNOWN = "ok", "aborted", "unknown"
#: Where a copier may die, or be stopped, in the order of a unit.
POINTS: Final = (
    "begun",
    "sent",
    "asked",
    "committing",
    "unheard-commit",
    "committed",
    "aborting",
)


@dataclass
class Habits:
    """What may happen to the requests of all copiers of a world."""

    luck: Random
    timeout_ms: int
    #: Whether half of all EndTxn requests are sent twice.
    resends: bool = False
    #: Whether copiers take as much at once as they can.
    is_in_haste: bool = False
    #: Called at each point with its name; does not come back where the process dies.
    maybe_crash: Callable[["UserProducer", str], None] = lambda producer, point: None
    #: What became of all transactions.
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        """One more."""
        self.counts[what] = self.counts.get(what, 0) + 1


class _Queued(NamedTuple):
    place: Place
    key: bytes | None
    value: bytes
    on_delivery: Any


class UserProducer:
    """One producer of a process; the next one of the same id fences it.

    Args:
        process: which waits in `wait`.
        tell: takes a line of history.
    """

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        network: Network,
        transactional_id: str,
        habits: Habits,
        tell: Callable[..., None],
    ) -> None:
        self.process, self._cluster, self._network = process, cluster, network
        self.id, self._habits, self._tell = transactional_id, habits, tell
        self._epoch, self._begun = -1, 0
        #: Names the transaction that is open, for the history.
        self.name = ""
        self._queue: deque[_Queued] = deque()
        self._is_pumping = False
        #: Records that were written and not reported, and what became of others.
        self._flying = 0
        self._reports: deque[tuple[Any, KafkaError | None, Any]] = deque()
        #: What the broker has open of it; None: nothing yet.
        self._open: Transaction | None = None
        self._added: set[Place] = set()
        self._failed: KafkaError | None = None

    # ---- calls of the program ------------------------------------------------------------------

    def init_transactions(self, timeout: float) -> None:
        self._ask(timeout, self._init)

    def _init(self) -> None:
        self._epoch = self._cluster.init_transactions(self.id)

    def begin_transaction(self) -> None:
        self._require_sound()
        self._begun += 1
        self.name = f"{self.id}-{self._epoch}-{self._begun}"
        self._open = None
        self._added.clear()
        self._note("begin")
        self._habits.maybe_crash(self, "begun")

    def produce(
        self,
        topic: str,
        value: bytes = b"",
        key: bytes | None = None,
        partition: int = 0,
        *,
        headers: Any = None,
        on_delivery: Any = None,
    ) -> None:
        self._require_sound()
        request = codec.decode_request(value) if topic.endswith(".requests") else None
        if isinstance(request, api.PendingCommit):
            offsets = {f"{row.topic}-{row.partition}": row.offset for row in request.offsets}
            self._note("offsets", group=request.group, offsets=offsets)
        else:
            places, source = (f"{topic}-{partition}",), (key or b"").decode()
            self._note("sent", value=value.decode(), partitions=places, key=source)
        self._queue.append(_Queued((topic, partition), key, value, on_delivery))
        self._pump_after(self._network.latency_ms())
        self._habits.maybe_crash(self, "asked" if request is not None else "sent")

    def poll(self, timeout: float) -> int:
        if not self._reports and timeout > 0:
            self.process.wait(timeout * 1_000, lambda: bool(self._reports))
        count = len(self._reports)
        for _ in range(count):
            told, error, delivered = self._reports.popleft()
            if told is not None:
                told(error, delivered)
        return count

    def flush(self, timeout: float) -> int:
        self.process.wait(timeout * 1_000, lambda: not (self._queue or self._flying))
        self.poll(0)
        return len(self._queue) + self._flying

    def commit_transaction(self, timeout: float) -> None:
        self._habits.maybe_crash(self, "committing")
        if self.flush(timeout):
            raise _timed_out()
        self._require_sound()
        self._note("ended", detail=UNKNOWN)
        self._end(timeout, Outcome.COMMITTED)
        self._note("ended", detail=OK)
        self._habits.maybe_crash(self, "committed")

    def abort_transaction(self, timeout: float) -> None:
        self._habits.maybe_crash(self, "aborting")
        if self._failed is not None and self._failed.fatal():
            raise KafkaException(self._failed)
        self._queue.clear()
        self._end(timeout, Outcome.ABORTED)
        self._failed = None
        self._note("ended", detail=ABORTED)

    # ---- requests to the transaction coordinator -----------------------------------------------

    def _end(self, timeout: float, outcome: Outcome) -> None:
        if self._open is None:
            self._habits.count("empty")
            return  # it has written nothing, so nobody knows of it
        self._ask(timeout, partial(self._end_txn, outcome))
        self._habits.count(outcome.value)
        if self._habits.resends and self._habits.luck.random() < 0.5:
            # The connection was lost behind the request: it was sent again, and the second one
            # was answered. The first one is still on its way.
            records = self._habits.luck.randint(0, LATE_RECORDS_MAX)
            self._cluster.hold_up(self.id, LateEnd(self._epoch, outcome, records))
            self.process.wait((1 - JITTER) * RETRY_BACKOFF_MS, lambda: False)

    def _end_txn(self, outcome: Outcome) -> None:
        self._require_epoch()
        assert self._open is not None
        if self._open.outcome is Outcome.OPEN:
            self._cluster.end_transaction(self.id, outcome)
        elif self._open.outcome is not outcome:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, fatal=True))
        if outcome is Outcome.COMMITTED:
            self._habits.maybe_crash(self, "unheard-commit")

    def _ask(self, timeout: float, request: Callable[[], None]) -> None:
        """Send it until it is answered. Raises KafkaException: refused, or time is up."""
        until_ms = self._now_ms + timeout * 1_000
        while True:
            self._sleep(self._network.latency_ms())
            if self._is_reachable and not self._cluster.is_ending(self.id):
                request()
                self._sleep(self._network.latency_ms())
                if self._is_reachable and not self._network.loses_acks:
                    return
            if self._now_ms >= until_ms:
                raise _timed_out()
            luck = self._habits.luck
            self._sleep(RETRY_BACKOFF_MS * luck.uniform(1 - JITTER, 1 + JITTER))

    # ---- records -------------------------------------------------------------------------------

    def _pump_after(self, delay_ms: float) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self.process.after(delay_ms, self._pump)

    def _pump(self) -> None:
        """Write all that is queued, as long as brokers take it."""
        self._is_pumping = False
        if not self._queue or self._failed is not None:
            return
        if not self._is_reachable:
            self._pump_after(RETRY_MS)
        elif self._open is None and self._cluster.is_ending(self.id):
            self._pump_after(CONCURRENT_MS)
        else:
            while self._queue and self._failed is None:
                self._write(self._queue.popleft())

    def _write(self, each: _Queued) -> None:
        try:
            self._require_epoch()
            self._cluster.note_record(self.id)
            transaction = self._cluster.open_transaction(self.id)
            if each.place in self._added and each.place not in transaction.places:
                # It was ended from elsewhere.
                what = KafkaError.INVALID_TXN_STATE
                raise KafkaException(KafkaError(what, txn_requires_abort=True))
        except KafkaException as problem:
            self._failed = problem.args[0]
            self._purge(each)
            return
        if not transaction.places:
            give_up = partial(self._cluster.time_out, self.id, transaction)
            self._cluster.scheduler.after(self._habits.timeout_ms, give_up)
        self._open = transaction
        self._added.add(each.place)
        offset = self._cluster.append(each.place, each.key, each.value, transaction)
        transaction.places[each.place] = offset
        self._flying += 1
        self._report_after(each.on_delivery, Delivered(each.place, offset))

    def _purge(self, first: _Queued) -> None:
        for each in (first, *self._queue):
            self._reports.append((each.on_delivery, self._failed, None))
        self._queue.clear()

    def _report_after(self, told: Any, delivered: Delivered) -> None:
        def report() -> None:
            if not self._is_reachable or self._network.loses_acks:
                self.process.after(RETRY_MS, report)
                return
            self._flying -= 1
            self._reports.append((told, None, delivered))

        self.process.after(self._network.latency_ms(), report)

    # ---- small things --------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self.process.scheduler.now_ms

    @property
    def _is_reachable(self) -> bool:
        return self._cluster.is_up and not self._network.is_cut

    def _sleep(self, for_ms: float) -> None:
        self.process.wait(for_ms, lambda: False)

    def _require_epoch(self) -> None:
        if not self._cluster.is_newest(self.id, self._epoch):
            raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    def _require_sound(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _note(self, what: str, **fields: Any) -> None:
        self._tell(what, transaction=self.name, **fields)


def _timed_out() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
