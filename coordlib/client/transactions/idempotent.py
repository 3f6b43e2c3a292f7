"""`IdempotentProducer`: records in no transaction, each of which readers are given once.

librdkafka's own idempotence ends with a fatal error: what is sent again by another producer has
other numbers, and may stand in the log twice. Here the coordinator gives the producer id, and each
record has its number in its header. After a fatal error what was not acknowledged is sent again
under the same numbers, and a `CommittedReader` drops the second of two.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from coordlib.client.kit import events as sg
from coordlib.client.kit.calls import uninterrupted
from coordlib.client.kit.config import take_apart
from coordlib.client.kit.process import Closing
from coordlib.client.kit.requests import backoff_ms, error_of, refusal_of
from coordlib.client.kit.transport import (
    KafkaTransport,
    NoFence,
    Transport,
    default_client_id,
    identity_at,
)
from coordlib.client.transactions.data_cluster import (
    DataCluster,
    Given,
    Outgoing,
    Record,
    Writes,
    open_idempotent,
)
from coordlib.client.transactions.life import Place
from coordlib.client.transactions.machine import OnDelivery
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Stamp
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka.clients import is_fatal

_POLL_S: Final = 0.02
ID_TIMEOUT_S: Final = 30.0


class IdempotentProducer(Closing):
    """A producer without transactional id.

    Args:
        config: confluent-kafka's keys, `coord.prefix`, and `coord.bootstrap.servers` if the records
            go to another cluster than the coordinator's; security options of the coordinator's
            brokers are then named with `coord.` before them.
        transport: to the coordinator; None: one of its own.
        open_producer: what opens confluent-kafka's, in tests.

    Raises:
        SetupError: a key that is wrong or not offered.
        CannotReach: no broker, or no answer of the coordinator in 30 s.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        transport: Transport | None = None,
        open_producer: Callable[[Mapping[str, Any]], Writes] = open_idempotent,
    ) -> None:
        options = take_apart(config)
        if "transactional.id" in options.data:
            raise SetupError("An IdempotentProducer has no transactional.id.", "", "Leave it out.")
        client = str(options.data.get("client.id") or default_client_id())
        self._data = DataCluster(options.data, open_producer)
        used = transport or KafkaTransport(options.coordinator, options.prefix, client)
        asking = _AskingForId(client, used)
        try:
            self._producer_id = asking.wait(ID_TIMEOUT_S, self._data.poll)
        finally:
            if transport is None:
                used.close()
        self.identity = asking.identity
        #: Threads may share it, as they share confluent-kafka's; a number is given once.
        self._lock = threading.RLock()
        self._numbers: dict[Place, int] = {}
        self._outgoing = Outgoing(
            {self._data.id: self._data}, lambda _: not self._has_failed, self._delivered, self._lock
        )
        #: Written by a producer that has failed for ever, and not acknowledged.
        self._again: list[Record] = []
        self._has_failed = False

    def produce(self, topic: str, *args: Any, **named: Any) -> None:
        """As confluent-kafka's.

        Raises:
            BufferError: too many records wait; call `poll`.
            SetupError: no such topic, a compacted one, or a header with one of our names.
        """
        on_delivery = named.pop("on_delivery", None) or named.pop("callback", None) or _ignore
        self._outgoing.check_room()
        given = Given.of(args, named)
        self._take(given, self._data.place_of(topic, given.key, given.partition), on_delivery)

    @uninterrupted
    def _take(self, given: Given, place: Place, on_delivery: OnDelivery) -> None:
        """Number and queue it, uninterrupted: a missing number would stop readers.  # INV-141"""
        with self._lock:
            number = self._numbers.get(place, 0)
            self._numbers[place] = number + 1
            stamp = Stamp(i=self.identity.incarnation, p=self._producer_id, s=number)
            self._outgoing.add(given.record(place, stamp, on_delivery))
            self._turn()

    def poll(self, timeout: float = 0.0) -> int:
        """Call the callbacks of delivered records; how many."""
        until_s = time.monotonic() + timeout
        while True:
            self._turn()
            left_s = until_s - time.monotonic()
            served = self._serve(max(0.0, min(_POLL_S, left_s)))
            if served or left_s <= 0:
                return served

    def flush(self, timeout: float = 60.0) -> int:
        """Wait for all records; how many are left."""
        until_s = time.monotonic() + timeout
        while self._left and time.monotonic() < until_s:
            self._turn()
            self._serve(_POLL_S)
        return self._left

    def close(self) -> None:
        """End, after all records, or 10 s."""
        self.flush(10.0)

    # ---- small things -------------------------------------------------------------------------

    @property
    def _left(self) -> int:
        return self._outgoing.held + self._outgoing.in_flight + len(self._again)

    def _delivered(self, record: Record, error: KafkaError | None) -> bool:
        if not is_fatal(error):
            return True
        self._has_failed = True
        self._again.append(record)
        return False

    @uninterrupted
    def _serve(self, timeout_s: float) -> int:
        """Take the acknowledgements of records; how many."""
        return self._data.poll(timeout_s)

    @uninterrupted
    def _turn(self) -> None:
        """Write what may be written; if the producer has failed, by another one."""
        with self._lock:
            if self._has_failed and not self._outgoing.in_flight:
                self._data.reopen()
                self._outgoing.put_back(self._again)
                self._again, self._has_failed = [], False
            self._outgoing.write()


class _AskingForId(NoFence):
    """A transport's handler that waits for a producer id. The shard of the client's name gives it,

    and keeps nothing.
    """

    def __init__(self, client: str, transport: Transport) -> None:
        self._transport, self._attempt = transport, 0
        self._heard: queue.SimpleQueue[sg.NotWritten | api.Response | Exception] = (
            queue.SimpleQueue()
        )
        self.identity = identity_at(transport, client, client)

    def wait(self, timeout_s: float, serve: Callable[[float], object]) -> int:
        """Ask until there is an answer, serving something meanwhile. Raises CannotReach."""
        until_s, wait_ms = time.monotonic() + timeout_s, 0
        self._transport.attach(self)
        try:
            while time.monotonic() < until_s:
                serve(wait_ms / 1000)
                self._ask()
                while self._heard.empty() and time.monotonic() < until_s:
                    self._transport.check()
                    serve(_POLL_S)
                found = self._judge()
                if found is not None:
                    return found
                wait_ms = backoff_ms(self._attempt)
        finally:
            self._transport.detach(self)
        hint = "Check whether the job runs: coord status"
        raise CannotReach("The coordinator has given no producer id in time.", self._where, hint)

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.Received(message=api.Response() as answer):
                self._heard.put(answer)
            case sg.NotWritten():
                self._heard.put(event)

    @property
    def _where(self) -> str:
        return f"client {self.identity.client}"

    def _ask(self) -> None:
        self._attempt += 1
        identity = self.identity
        request = api.InitProducerId(
            v=1,
            id=f"{identity.token}-{self._attempt}",
            client=identity.client,
            reply=identity.reply,
        )
        self._transport.send(self, request)

    def _judge(self) -> int | None:
        """The producer id; None: ask again."""
        if self._heard.empty():
            return None
        heard = self._heard.get_nowait()
        if isinstance(heard, Exception):
            raise heard
        if isinstance(heard, api.InitProducerIdResponse) and isinstance(heard.producer_id, int):
            return heard.producer_id
        if isinstance(heard, api.Response) and not error_of(heard).retriable:
            raise refusal_of(heard, self._where)
        return None


def _ignore(_error: Any, _message: Any) -> None:
    """No delivery callback."""
