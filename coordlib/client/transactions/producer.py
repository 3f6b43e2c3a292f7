"""`CoordinatedProducer`: confluent-kafka's transactional Producer in shape, for groups of the job.

Who decides about its transactions is one key, `coord.decided.by`: Kafka (`by_kafka.py`), or
the coordinator (`by_coordinator.py`), whose transactions span clusters. The calls are the
same, and so is what they raise. A call that the state does not allow raises and changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.kit import offsets as of
from coordlib.client.kit.config import DECIDED_BY, decider_of
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.process import Closing
from coordlib.client.kit.transport import Transport
from coordlib.client.transactions.by_coordinator import CoordinatorTransactions
from coordlib.client.transactions.by_kafka import KafkaTransactions
from coordlib.client.transactions.data_cluster import open_idempotent, open_transactional
from coordlib.client.transactions.machine import (
    Call,
    Machine,
    Severity,
    State,
    TransactionBackend,
    TransactionError,
)
from coordlib.core.wire import api
from coordlib.core.wire.offsets import KAFKA
from coordlib.errors import CoordError

TIMEOUT_S: Final = 60.0


class CoordinatedProducer(Closing):
    """A producer whose transactions commit offsets of groups that the job coordinates.

    Args:
        config: confluent-kafka's keys, with `transactional.id`; `transaction.timeout.ms` is 15 s
            where it is not set. `coord.decided.by`: `kafka` (default) or `coordinator`.
            Decided by Kafka: a group that has not answered after two thirds of the timeout makes
            the transaction abort. `coord.new.epoch`: `doubtful`, or `always`;
            `coord.new.epoch.after.ms`: from which duration on a transaction is doubtful, at most
            400.
            Decided by the coordinator: `coord.prefix`, and `coord.bootstrap.servers` if the records
            go to another cluster than the coordinator's; security options of the coordinator's
            brokers are then named with `coord.` before them.
        transport: to the coordinator, shared with other clients of this program; where the
            coordinator decides.
        open_producer: what opens confluent-kafka's, in tests.

    Raises:
        SetupError: a key that is missing, wrong or not offered.
        CannotReach: no broker, or no coordinator's topics.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        transport: Transport | None = None,
        open_producer: Callable[..., Any] | None = None,
    ) -> None:
        decider = decider_of(config.get(DECIDED_BY, KAFKA))
        self._backend: TransactionBackend
        if decider == KAFKA:
            self._backend = KafkaTransactions(config, open_producer or open_transactional)
        else:
            self._backend = CoordinatorTransactions(
                config, transport, open_producer or open_idempotent
            )
        self._machine = Machine(self._backend.where)
        self._may_be_committed = False
        self._has_begun = False
        #: Transactions that were begun; a record that fails later concerns no other one.
        self._number = 0

    @property
    def state(self) -> State:
        """Where the producer stands."""
        return self._machine.state

    @property
    def may_be_committed(self) -> bool:
        """Whether the last transaction may count: its commit was called, and no abort succeeded."""
        # Both: a commit that is interrupted where it begins goes on when it is called again.
        return self._may_be_committed or self._machine.state is State.COMMITTING

    # ---- transactions -------------------------------------------------------------------------

    def init_transactions(self, timeout: float = TIMEOUT_S) -> None:
        """Get an epoch; older processes of this transactional id are fenced, and aborted.

        Where the coordinator decides, this process also writes the markers that the one before it
        has not written.

        Raises TransactionError, as all calls below: `retriable()`, `txn_requires_abort()` and
        `fatal()` tell what can be done.
        """
        with self._calling(Call.INIT):
            self._backend.init(timeout)

    def begin_transaction(self, timeout: float = TIMEOUT_S) -> None:
        """Begin. Where the transaction before is doubtful, after a new epoch."""
        if self._machine.state is State.READY and self._backend.needs_renewal:
            self._machine.replaced()
            self._backend.renew()
        if self._machine.state in (State.UNINIT, State.INITIALIZING) and self._has_begun:
            self.init_transactions(timeout)
        with self._calling(Call.BEGIN):
            self._may_be_committed = False
            self._number += 1
            self._backend.begin()
        self._has_begun = True

    def send_offsets_to_transaction(
        self,
        positions: Sequence[KafkaTopicPartition],
        group_metadata: GroupMetadata,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """Let these positions count if the transaction commits; wait until the group has accepted.

        Called again after a retriable error, with the same arguments, it goes on waiting. Called
        for several groups, or several times for one, each call must have been accepted before the
        commit; one that names the same partitions anew takes the place of the older one.

        Args:
            positions: next offsets to read.
            group_metadata: the consumer's, taken when what it has read was begun.
            timeout: seconds.

        Raises SetupError: the consumer has auto-commit.
        """
        group_metadata.refuse_auto_commit()
        self.send_rows(of.rows_of_kafka(positions), group_metadata, timeout)

    def send_rows(
        self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
    ) -> None:
        """The same, of positions as requests have them; none of them asks nothing."""
        with self._calling(Call.SEND_OFFSETS):
            if rows:
                self._backend.send(rows, metadata, timeout)

    def commit_transaction(self, timeout: float = TIMEOUT_S) -> None:
        """Commit: the records are visible, and the offsets count.

        After a retriable error nobody knows yet whether it is committed: call it again. A program
        that ends instead leaves the decision to others; successors wait for it.
        """
        if waiting := self._backend.unaccepted:
            what = "The group has not accepted the offsets of this transaction."
            where = f"{self._backend.where}, {waiting}"
            hint = "Call send_offsets_to_transaction again, or abort_transaction."
            raise TransactionError(Severity.WRONG_STATE, what, where, hint)
        with self._calling(Call.COMMIT):
            self._may_be_committed = True
            self._backend.commit(timeout)

    def abort_transaction(self, timeout: float = TIMEOUT_S) -> None:
        """Abort: the records are never visible, and the offsets are dropped."""
        with self._calling(Call.ABORT):
            self._backend.abort(timeout)
            self._may_be_committed = False

    # ---- records ------------------------------------------------------------------------------

    def produce(self, topic: str, *args: Any, **named: Any) -> None:
        """As confluent-kafka's. A record that is not delivered makes the transaction abort.

        Where the coordinator decides, a record waits in this process until its partition is part of
        the transaction: call `poll` or `flush` if you wait for it.
        """
        on_delivery = named.pop("on_delivery", None) or named.pop("callback", None)
        number = self._number

        def note(error: KafkaError | None, message: Any) -> None:
            is_open = number == self._number and self._machine.state is State.IN_TRANSACTION
            if error is not None and is_open:
                self._machine.failed(self._backend.lost(error))
            if on_delivery is not None:
                on_delivery(error, message)

        with self._calling(Call.PRODUCE):
            self._backend.produce(topic, args, named, note)

    def poll(self, timeout: float = 0.0) -> int:
        """Call the callbacks of delivered records; how many."""
        return self._backend.poll(timeout)

    def flush(self, timeout: float = TIMEOUT_S) -> int:
        """Wait for all records; how many are left."""
        return self._backend.flush(timeout)

    def close(self) -> None:
        """End. An open transaction is aborted, unless its commit is under way."""
        try:
            if self._machine.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                # Else whoever decides does it, when the next process or its timeout comes.
                with suppress(CoordError):
                    self.abort_transaction(5.0)
        finally:
            self._backend.close(self._machine.state is not State.FATAL_ERROR)

    # ---- small things -------------------------------------------------------------------------

    @contextmanager
    def _calling(self, call: Call) -> Iterator[None]:
        """Check a call, and apply its outcome, by the table of states."""
        self._machine.call(call)
        state = self._machine.state
        try:
            yield
        except TransactionError as error:
            self._machine.failed(error)
            raise
        if self._machine.state is state:  # else a record has failed meanwhile
            self._machine.done(call)
