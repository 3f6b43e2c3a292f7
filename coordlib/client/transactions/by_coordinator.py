"""Transactions that the coordinator decides: records in any cluster, and offsets of groups.

    produce ─▶ AddPartitionsToTxn ─▶ NONE ─▶ the record is written
    commit ─▶ all records acknowledged ─▶ EndTxn ─▶ NONE: decided ─▶ markers ─▶ TxnMarkersWritten

All happens in the calls of the program, each step whole (`kit/calls.py`, INV-155).
`client/transactions/life.py` has what is sent, and when. If the process dies behind the decision,
the next one of its id writes the markers, or `coord transactions finish` does.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from coordlib import limits
from coordlib.client.kit import events as sg
from coordlib.client.kit.calls import uninterrupted
from coordlib.client.kit.config import require_name, take_apart, whole
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.transport import (
    KafkaTransport,
    NoFence,
    Transport,
    default_client_id,
    identity_at,
)
from coordlib.client.transactions.data_cluster import (
    TIMEOUT,
    TRANSACTION_TIMEOUT_MS,
    DataCluster,
    Given,
    MarkerWriter,
    Outgoing,
    Writes,
    not_delivered,
    open_idempotent,
)
from coordlib.client.transactions.life import Place, TransactionMachine
from coordlib.client.transactions.machine import OnDelivery, Severity, TransactionError
from coordlib.core.wire import api
from coordlib.core.wire.transactions import ABORT, COMMIT
from coordlib.errors import CoordError
from coordlib.kafka.clients import is_fatal

_POLL_S: Final = 0.02
#: Partitions that come within this time are named to the coordinator together.
_LINGER_MS: Final = 5
#: Keys that another way has, so that a program changes one key alone.
_OTHERS: Final = frozenset({"coord.new.epoch", "coord.new.epoch.after.ms"})
OpenData = Callable[[Mapping[str, Any]], Writes]


class CoordinatorTransactions(NoFence):
    """The backend whose transactions the coordinator decides.

    Args:
        config: as `CoordinatedProducer` has it.
        transport: to the coordinator; None: one of its own.
        open_producer: what opens the producer of the data.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        transport: Transport | None,
        open_producer: OpenData = open_idempotent,
    ) -> None:
        options = take_apart(config, _OTHERS)
        data = dict(options.data)
        name = str(data.pop("transactional.id", ""))
        require_name("A transactional.id", name, limits.NAME_LENGTH_MAX)
        timeout_ms = whole(TIMEOUT, data.pop(TIMEOUT, TRANSACTION_TIMEOUT_MS))
        client = str(data.get("client.id") or default_client_id())
        self.where = f"transactional id {name}"
        self._data = DataCluster(data, open_producer)
        self._own = transport is None
        self._transport = transport or KafkaTransport(options.coordinator, options.prefix, client)
        self.identity = identity_at(self._transport, name, client)
        self._machine = TransactionMachine(self.identity, timeout_ms)
        self._clusters: dict[str, DataCluster] = {}
        #: Threads may share a producer, as they share confluent-kafka's: a number is given once.
        self._lock = threading.RLock()
        self._outgoing = self._new_outgoing()
        self._markers: MarkerWriter | None = None
        self._heard: queue.SimpleQueue[sg.NotWritten | api.AnyResponse | Exception] = (
            queue.SimpleQueue()
        )
        #: Commits of offsets that were asked for in this transaction, with their numbers.
        self._commits: dict[tuple[Any, GroupMetadata], int] = {}
        #: Why this transaction cannot be committed: of a record that was not written.
        self._undelivered: TransactionError | None = None
        self._has_fatal = False
        #: Whether a transaction has begun whose end was not asked for.
        self._is_open = False
        self._turned_ms = 0
        self._transport.attach(self)

    # ---- transactions -------------------------------------------------------------------------

    def init(self, timeout: float) -> None:
        """Get an epoch; what the process before has left open is ended first."""
        until_s = time.monotonic() + timeout
        self._begin_init()
        self._until(lambda: self._machine.producer is not None, until_s)

    @uninterrupted
    def _begin_init(self) -> None:
        self._clusters.setdefault(self._data.id, self._data)
        self._machine.init(self._transport.now_ms())

    @property
    def needs_renewal(self) -> bool:
        """Whether the coordinator has forgotten the id."""
        return self._machine.producer is None

    def renew(self) -> None:
        """`init` asks anew."""

    @uninterrupted
    def begin(self) -> None:
        """Begin. The first record, or the first offsets, begin it at the coordinator."""
        self._machine.begin()
        self._commits.clear()
        self._undelivered = None
        self._outgoing = self._new_outgoing()
        self._is_open = True

    def send(
        self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata, timeout: float
    ) -> None:
        """Let these positions wait for the end, and wait until the group has accepted."""
        ours, theirs, until_s = self.identity, metadata.identity, time.monotonic() + timeout
        if (theirs.prefix, theirs.incarnation) != (ours.prefix, ours.incarnation):
            what = "The group and the transactional id have different coordinators."
            where = f"{self.where}, group {theirs.group}"
            raise TransactionError(Severity.ABORTABLE, what, where, "Name the same coordinator.")
        if (rows, metadata) not in self._commits:
            # One after the other: the coordinator numbers them.
            self._until(lambda: not self._machine.has_unaccepted, until_s)
            self._ask_group(rows, metadata)
        number = self._commits[rows, metadata]
        self._until(lambda: self._machine.is_accepted(number), until_s)

    @uninterrupted
    def _ask_group(self, rows: tuple[api.CommittedOffset, ...], metadata: GroupMetadata) -> None:
        number = self._machine.send_offsets(metadata, rows, self._transport.now_ms())
        self._commits[rows, metadata] = number

    @property
    def unaccepted(self) -> str:
        """Whose offsets are not accepted; empty: all are."""
        waiting = [
            f"group {metadata.identity.group}, member {metadata.member}"
            for (_, metadata), number in self._commits.items()
            if not self._machine.is_accepted(number)
        ]
        return next(iter(waiting), "")

    def commit(self, timeout: float) -> None:
        """Commit. The coordinator's answer decides it, and then the markers are written."""
        until_s = time.monotonic() + timeout
        if not self._machine.is_decided:
            self._until(self._ask_for_commit, until_s)
        self._finish(until_s)

    @uninterrupted
    def _ask_for_commit(self) -> bool:
        """Ask for the commit if all records are written; returns whether it did."""
        with self._lock:
            if self._machine.all_are_added and self._outgoing.is_empty:
                self._is_open = False
                self._machine.end(COMMIT, self._transport.now_ms())
            return not self._is_open

    def abort(self, timeout: float) -> None:
        """Abort. Records that are under way still are dropped by readers, behind the markers."""
        until_s = time.monotonic() + timeout
        self._begin_abort()
        self._finish(until_s)

    @uninterrupted
    def _begin_abort(self) -> None:
        with self._lock:
            self._is_open = False
            self._outgoing = self._new_outgoing()  # what becomes of the records does not matter
            self._undelivered = None
            self._machine.end(ABORT, self._transport.now_ms())
        if self._has_fatal:
            self._data.reopen()
            self._has_fatal = False

    # ---- records ------------------------------------------------------------------------------

    def produce(
        self, topic: str, args: tuple[Any, ...], named: dict[str, Any], on_delivery: OnDelivery
    ) -> None:
        """As confluent-kafka's. The first record of a partition waits for the coordinator.

        One that is interrupted (Ctrl-C) has taken the record whole, or not at all.

        Raises:
            BufferError: too many records wait; call `poll`.
            SetupError: no such topic, a compacted one, or a header with one of our names.
        """
        self._raise_problem()
        self._outgoing.check_room()
        given = Given.of(args, named)
        self._take(given, self._data.place_of(topic, given.key, given.partition), on_delivery)

    @uninterrupted
    def _take(self, given: Given, place: Place, on_delivery: OnDelivery) -> None:
        with self._lock:
            if not self._is_open:
                what = "The transaction is being ended by another thread."
                raise TransactionError(Severity.WRONG_STATE, what, self.where)
            self._outgoing.add(given.record(place, self._machine.stamp(place), on_delivery))
        now_ms = self._transport.now_ms()
        if self._machine.is_added(place) or now_ms - self._turned_ms >= _LINGER_MS:
            self._turn()

    def lost(self, error: KafkaError) -> TransactionError:
        """The transaction must be aborted; a producer that has failed for ever is replaced then."""
        return not_delivered(error, self.where)

    def poll(self, timeout: float) -> int:
        """Serve what came, and call the callbacks of delivered records; how many."""
        until_s = time.monotonic() + timeout
        while True:
            self._turn()
            left_s = until_s - time.monotonic()
            served = self._serve(max(0.0, min(_POLL_S, left_s)))
            if served or left_s <= 0:
                return served

    def flush(self, timeout: float) -> int:
        """Wait for all records; how many are left. Raises TransactionError: it must abort."""
        until_s = time.monotonic() + timeout
        while not self._outgoing.is_empty and time.monotonic() < until_s:
            self._turn()
            self._raise_problem()
            self._serve(_POLL_S)
        return self._outgoing.held + self._outgoing.in_flight

    def close(self, is_usable: bool) -> None:  # noqa: ARG002  # the data's producer is another one
        """End."""
        try:
            self._data.flush(5.0)
        finally:
            self._transport.detach(self)
            if self._own:
                self._transport.close()

    # ---- the transport's side -----------------------------------------------------------------

    def feed(self, event: sg.Input) -> None:
        """Take what happened; any thread."""
        match event:
            case sg.Received(message=api.Response() | api.TransactionCompleted() as message):
                self._heard.put(message)
            case sg.NotWritten():
                self._heard.put(event)

    # ---- small things -------------------------------------------------------------------------

    def _new_outgoing(self) -> Outgoing:
        """The records of one transaction: what becomes of them later concerns no other one."""
        made: Outgoing = Outgoing(
            self._clusters,
            self._machine.is_added,
            lambda _, error: self._delivered(made, error),
            self._lock,
        )
        return made

    def _finish(self, until_s: float) -> None:
        self._until(lambda: self._machine.is_over and self._machine.unmarked is None, until_s)

    def _until(self, is_done: Callable[[], bool], until_s: float) -> None:
        """Serve until `is_done`. Raises TransactionError: retriable when time is up."""
        while True:
            self._turn()
            self._raise_problem()
            if is_done():
                self._turn()  # what follows is sent
                return
            if time.monotonic() >= until_s:
                self._transport.check()
                hint = "Call it again: it continues. Check whether the job runs: coord status."
                raise TransactionError(Severity.RETRIABLE, self._missing(), self.where, hint)
            self._serve(_POLL_S)

    def _missing(self) -> str:
        """What the call still waits for, for errors."""
        if self._markers is not None:
            return (
                f"It is decided, and not all markers are written yet. {self._markers.why}".strip()
            )
        if self._machine.all_are_added and not self._outgoing.is_empty:
            return "Not all records are written yet."
        return "The coordinator has not answered yet."

    @uninterrupted
    def _turn(self) -> None:
        """Handle what has come, and send what is due."""
        with self._lock:
            self._turned_ms = now_ms = self._transport.now_ms()
            while not self._heard.empty():
                self._hear(self._heard.get_nowait(), now_ms)
            self._send(now_ms)
            self._outgoing.write()
            self._mark(now_ms)

    @uninterrupted
    def _serve(self, timeout_s: float) -> int:
        """Take the acknowledgements of records; how many."""
        return self._data.poll(timeout_s)

    def _send(self, now_ms: int) -> None:
        for request in self._machine.turn(now_ms):
            self._transport.send(self, request)

    def _hear(self, heard: sg.NotWritten | api.AnyResponse | Exception, now_ms: int) -> None:
        if isinstance(heard, CoordError):
            raise heard
        if isinstance(heard, Exception):
            raise CoordError("The producer has failed.", self.where) from heard
        if isinstance(heard, sg.NotWritten):
            self._machine.not_written(heard.id, heard.why, heard.is_final, now_ms)
        else:
            self._machine.heard(heard, now_ms)

    def _mark(self, now_ms: int) -> None:
        """Write the markers of the transaction that ended."""
        unmarked = self._machine.unmarked
        if unmarked is None:
            self._markers = None
            return
        if self._markers is None:
            self._markers = MarkerWriter(self._clusters, unmarked)
        if unknown := self._markers.unknown:
            raise TransactionError(
                Severity.FATAL,
                "A transaction of this id has no markers yet in another cluster.",
                f"{self.where}, cluster {', '.join(unknown)}",
                f"coord transactions finish {self.identity.group}, with options of that cluster",
            )
        self._machine.marked(self._markers.turn(), now_ms)
        self._send(now_ms)

    def _delivered(self, of: Outgoing, error: KafkaError | None) -> bool:
        """Take the delivery report of a record."""
        self._has_fatal = self._has_fatal or is_fatal(error)
        if error is not None and of is self._outgoing and self._undelivered is None:
            self._undelivered = self.lost(error)
        return True

    def _raise_problem(self) -> None:
        problem = self._machine.problem or self._undelivered
        if problem is not None:
            raise problem
