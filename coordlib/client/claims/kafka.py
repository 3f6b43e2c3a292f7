"""Kafka around consumers of claims: one idempotent producer, one reader, a few workers.

Two threads serve all handlers: one reads, judges and feeds; the other waits for acknowledgements
and runs timers, so that a broker that answers no question holds up no sign of life. What may block
(offsets, metadata) runs in workers. An exception of one handler fails that one alone.  # INV-70

Offsets of the claimed partitions are asked for here, too: where their logs begin and end, and what
Kafka's own groups have committed. All of that may block, but for a commit that is not awaited.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from secrets import token_hex
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib import limits
from coordlib.client.claims import events as sg
from coordlib.client.claims.events import CoordinationTopicChanged, log_cut
from coordlib.client.claims.reading import Beginnings, LogReader, LogRecord
from coordlib.client.claims.transport import Coordination, Described, Handler, LogView
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.transport import NO_OFFSET, FailingTransport, while_used
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.errors import CannotReach, CoordError, NotAllowed, SetupError
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import (
    denial,
    error_of,
    is_fatal,
    opening,
    reading,
    reason_of,
    refusing,
    writing,
)
from coordlib.kafka.cluster import NO_ID, topic_id_of
from coordlib.kafka.coordination import coordination_findings
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.options import require_servers, shared
from coordlib.kafka.roles import Kind, Operation, Right
from coordlib.kafka.topics import describe, look_up

_log = logging.getLogger("coordlib.client")
TIMEOUT_S: Final = 5.0
_AGAIN: Final = "Check that the brokers run, then try again."


class KafkaOffsets:
    """Offsets of Kafka's own groups, and the bounds of logs. Used from several threads.

    Args:
        is_committing: whether positions must be copied to Kafka's groups, which takes another right
            than to look at them.
    """

    def __init__(
        self, options: Mapping[str, Any], client: str, *, is_committing: bool = True
    ) -> None:
        self._options = {**options, "client.id": client}
        #: To look at committed offsets, by who may do no more.
        self._needed = Operation.READ if is_committing else Operation.DESCRIBE
        self._admin = Admin(self._options)
        self._lock = threading.Lock()
        #: By group: consumers that never subscribe, and commit by name.
        self._committers: dict[str, Consumer] = {}
        #: Groups that may not be committed to, and were told of.
        self._refused: set[str] = set()

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        """The topics among these that exist; no others are looked up.

        Raises CannotReach, NotAllowed.
        """
        asked = list(topics)
        try:
            found = look_up(self._admin, asked, self._options)
        except KafkaException as problem:
            what = f"No metadata from Kafka: {reason_of(problem)}"
            raise CannotReach(what, ", ".join(asked), _AGAIN) from problem
        ids = {name: topic_id_of(each) for name, each in found.items()}
        return {
            name: Described(len(each.partitions), ids[name] if ids[name] != NO_ID else "")
            for name, each in found.items()
        }

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Log bounds, without partitions that do not answer. Raises CannotReach, NotAllowed."""
        asked = [Place(*place) for place in places]
        denied = refusing(self._options, reading)
        try:
            found = log_bounds(self._admin, asked, TIMEOUT_S, on_denied=denied)
        except (KafkaException, TimeoutError) as problem:
            what = f"Logs cannot be asked for: {reason_of(problem)}"
            where = ", ".join(sorted({each.topic for each in asked}))
            raise CannotReach(what, where, _AGAIN) from problem
        return {TopicPartition(*place): each for place, each in found.items() if each is not None}

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Kafka's committed offsets of a group, where there are any.

        An admin's request: a consumer without the right looks for its coordinator until its time is
        up, and does not say why.

        Raises CannotReach, NotAllowed.
        """
        if not places:
            return {}
        asked = ConsumerGroupTopicPartitions(group, [KafkaTopicPartition(*each) for each in places])
        try:
            answers = self._admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
            found = answers[group].result(TIMEOUT_S).topic_partitions
        except KafkaException as problem:
            raise self._failed("No committed offsets", group, problem, self._needed) from problem
        except TimeoutError as problem:
            what = "No committed offsets: no answer in time."
            raise CannotReach(what, f"group {group}", _AGAIN) from problem
        for row in found:
            if denied := self._denied(group, row.error, self._needed, row.topic):
                raise denied
        rows = ((TopicPartition(row.topic, row.partition), row) for row in found)
        return {place: row.offset for place, row in rows if row.error is None and row.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        """Commit to Kafka's group.

        Awaited: raises CannotReach, NotAllowed. Else never: a missing right is logged once.
        """
        rows = [KafkaTopicPartition(*place, offset) for place, offset in offsets.items()]
        committer = self._committer(group)
        try:
            if not is_awaited:
                committer.poll(0)  # serves the outcomes of commits before
                committer.commit(offsets=rows, asynchronous=True)
                return
            done = committer.commit(offsets=rows, asynchronous=False)
        except KafkaException as problem:
            if not is_awaited:
                self._note(group, problem.args[0])
                return
            raise self._failed("Kafka took no commit", group, problem, Operation.READ) from problem
        for row in done or ():
            if row.error is not None:
                what, needed = "Kafka took no commit", Operation.READ
                raise self._failed(what, group, row.error, needed, row.topic)

    def close(self) -> None:
        for committer in self._committers.values():
            committer.close()

    def _committer(self, group: str) -> Consumer:
        with self._lock:
            if group not in self._committers:
                own: dict[str, Any] = {"group.id": group, "enable.auto.commit": False}
                note = partial(self._committed, group)
                self._committers[group] = Consumer({**self._options, **own, "on_commit": note})
            return self._committers[group]

    def _failed(
        self,
        what: str,
        group: str,
        problem: KafkaException | KafkaError,
        needed: Operation,
        topic: str = "",
    ) -> CannotReach | NotAllowed:
        reason = CannotReach(f"{what}: {reason_of(problem)}", f"group {group}", _AGAIN)
        return self._denied(group, problem, needed, topic) or reason

    def _denied(
        self,
        group: str,
        problem: KafkaException | KafkaError | None,
        needed: Operation,
        topic: str = "",
    ) -> NotAllowed | None:
        """The right on the group, or on a topic of which it has offsets."""
        error = error_of(problem)
        is_of_topic = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        right = reading(topic) if is_of_topic else Right(Kind.GROUP, group, needed)
        return denial(error, right, self._options)

    def _committed(
        self, group: str, error: KafkaError | None, rows: Sequence[KafkaTopicPartition]
    ) -> None:
        """The outcome of a commit that nobody waits for."""
        failed = next((row for row in rows or () if row.error is not None), None)
        if error is not None:
            self._note(group, error)
        elif failed is not None and failed.error is not None:
            self._note(group, failed.error, failed.topic)
        else:
            self._refused.discard(group)

    def _note(self, group: str, error: KafkaError, topic: str = "") -> None:
        denied = self._denied(group, error, Operation.READ, topic)
        if denied is None:
            _log.info("Kafka's group %s has no commit: %s", group, reason_of(error))
        elif group not in self._refused:
            self._refused.add(group)
            _log.warning(
                "Positions are not copied to Kafka's group %s. %s %s; or set commit_to_kafka=False",
                group,
                denied.what,
                denied.hint,
            )


TICK_S: Final = 0.01  # how long one wait for acknowledgements lasts
TIMER_INTERVAL_MS: Final = 50  # how often the handlers' timers are looked at
LOOK_INTERVAL_MS: Final = 5_000  # how often the coordination topic is described anew
WORKERS: Final = 4
PRODUCER_CONFIG: Final[dict[str, Any]] = {
    "enable.idempotence": True,  # rule 12: order is kept and nothing is written twice
    "acks": "all",
    "linger.ms": 1,
    "reconnect.backoff.max.ms": 1_000,  # rule 12
    "compression.type": "none",
}
assert limits.CLAIM_BYTES_MAX < 1_000_000, "the producer's own bound"


class KafkaClaims(FailingTransport[Handler]):
    """The transport of a process; several marshalers may share it.

    Args:
        options: confluent-kafka's, with `bootstrap.servers`.
        topic: the coordination topic.
        client: named in the brokers' logs.
        prefix: of the engine's topics, which may have snapshots; none are needed.
        is_committing: whether handlers need the right to copy positions to Kafka's groups.

    Raises:
        SetupError: the topic's name or settings are not what claims need.
        NotAllowed: a right is missing.
        CannotReach: no broker.
    """

    _timer_interval_ms = TIMER_INTERVAL_MS

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        *,
        client: str = "coordlib",
        prefix: str = "coord",
        is_committing: bool = True,
    ) -> None:
        require_servers(options)
        self._options = options = shared(options)
        super().__init__(topic)
        with opening():
            self._reader = LogReader(options, client, topic)
        try:
            self.place = find_coordination(self._reader.admin, topic, options)
        except CoordError:
            self._reader.close()  # bug B7: whoever fails here leaves nothing behind
            raise
        self.lock = threading.RLock()
        self._beginnings = Beginnings(options, self.place, prefix)
        # What is older than the interval proves nothing any more, and would be written in vain.
        own = {"message.timeout.ms": self.place.interval_ms}
        self._producer = Producer({**options, "client.id": client, **PRODUCER_CONFIG, **own})
        self._offsets = offsets = KafkaOffsets(options, client, is_committing=is_committing)
        self.describe, self.bounds = offsets.describe, offsets.bounds
        self.committed, self.commit = offsets.committed, offsets.commit
        self._workers = ThreadPoolExecutor(WORKERS, "coord-claims")
        self._views: dict[int, LogView] = {}
        self._handlers: list[weakref.ref[Handler]] = []
        #: Of programs that are done with them.
        self._kept: list[Handler] = []
        self._looked_ms = self.now_ms()
        serve = partial(_poll, self._producer, topic, options)
        self._threads = [
            self._start("coord-read", self._reader.read, KafkaClaims._read),
            self._start("coord-send", serve, KafkaClaims._serve),
        ]

    def new_instance(self) -> str:
        return token_hex(4)

    def rng(self) -> Random:
        return Random()

    # ---- handlers -----------------------------------------------------------------------------

    def view_of(self, topic: str) -> LogView:
        return self._views[claims.partition_of(topic, self.place.partitions)]

    def attach(self, handler: Handler) -> None:
        partitions = {claims.partition_of(each, self.place.partitions) for each in handler.topics}
        for each in sorted(partitions):
            if each not in self._views:
                view = self._beginnings.begin(self._reader.admin, each, self.now_ms())
                with self.lock:
                    if each not in self._views:
                        self._views[each] = view
                        self._reader.add(each, view.position)
        with self.lock:
            self._handlers.append(weakref.ref(handler))

    def keep(self, handler: Handler) -> None:
        with self.lock:
            self._kept.append(handler)

    def detach(self, handler: Handler) -> None:
        with self.lock:
            self._kept = [each for each in self._kept if each is not handler]
            self._handlers = [e for e in self._handlers if e() not in (None, handler)]

    def send(
        self, handler: Handler, id_: int, partition: int, made: Callable[[int], AnyMessage]
    ) -> None:
        produced_ms = self.now_ms()
        view = self._views.get(partition)
        newest = -1 if view is None else view.position - 1
        noting = partial(while_used(self._delivered, handler), id_, produced_ms, newest)
        value = claims.encode(made(int(time.time())))
        try:
            self._producer.produce(self.place.topic, value, partition=partition, on_delivery=noting)
        except BufferError as problem:
            why = str(problem)
            self._unsent.put(lambda: self._not_written(handler, id_, why))
        except KafkaException as problem:
            error = problem.args[0]
            self._unsent.put(lambda: self._not_taken(handler, id_, error))

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        if not self._is_closed.is_set():
            self._workers.submit(self._for, handler, work)

    def flush(self, timeout_s: float) -> bool:
        try:
            return self._producer.flush(timeout_s) == 0
        except KafkaException as problem:
            self._give_up(problem)
            return False

    def close(self) -> None:
        self._end(lambda: self._producer.flush(5.0))
        self._is_closed.set()
        for thread in self._threads:
            thread.join(10.0)
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._offsets.close()
        self._reader.close()
        self._end(self._producer.close)

    # ---- sending ------------------------------------------------------------------------------

    def _delivered(
        self,
        handler: Handler,
        id_: int,
        produced_ms: int,
        newest: int,
        error: KafkaError | None,
        of: Message,
    ) -> None:
        """`newest`: it was read before this was produced, which must stand behind it: INV-105."""
        offset = of.offset()
        if error is not None:
            self._not_taken(handler, id_, error)
        elif offset is None:
            self._not_written(handler, id_, NO_OFFSET)
        elif offset <= newest:
            partition = of.partition() or 0
            self._change(log_cut(self.place.topic, partition, newest, f"{offset} is written anew"))
        else:
            self._feed(handler, sg.Acknowledged(self.now_ms(), id_, offset, produced_ms))

    def _not_taken(self, handler: Handler, id_: int, error: KafkaError) -> None:
        if denied := denial(error, writing(self.place.topic), self._options):
            # Kafka's idempotent producer does not come back from it, and no other try would help.
            self._failure = denied
            handler.fail(denied)
            return
        if is_fatal(error):
            self._give_up(KafkaException(error))
        self._not_written(handler, id_, error.str())

    def _not_written(self, handler: Handler, id_: int, why: str) -> None:
        self._feed(handler, sg.NotWritten(self.now_ms(), id_, why))

    def _serve(self, _polled: None) -> None:
        super()._serve(_polled)
        now_ms = self.now_ms()
        if now_ms - self._looked_ms >= LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self._workers.submit(self._look)

    # ---- reading ------------------------------------------------------------------------------

    def _read(self, records: list[tuple[int, LogRecord]]) -> None:
        with self.lock:
            now_ms = self.now_ms()  # once: a start reads hundreds of thousands
            for partition, record in records:
                self._judge(self._views[partition], record, now_ms)
            ended = list(self._reader.ended())
            for partition, asked_ms in ended:
                self._views[partition].read_to_end(asked_ms)
            if ended:
                for handler in self._all():
                    self._feed(handler, sg.ReadToEnd(self.now_ms()))
        self._reader.ask(self.now_ms())

    def _judge(self, view: LogView, record: LogRecord, now_ms: int) -> None:
        judgement = view.judge(record, now_ms)
        if view.read_ms is not None:  # before, nobody has done anything yet
            for handler in self._all():  # one that ends takes itself out
                self._for(handler, partial(handler.judged, view, judgement))

    def _look(self) -> None:
        """Whether the coordination topic is still the same one; no other topic is asked for."""
        try:
            found = look_up(self._reader.admin, [self.place.topic], self._options)
        except NotAllowed as problem:
            self._failure = problem
            for handler in self._all():
                handler.fail(problem)
            return
        except KafkaException as problem:
            _log.info("The coordination topic is not described: %s", reason_of(problem))
            return
        seen = found.get(self.place.topic)
        if seen is None:
            return  # fences close by themselves, as nothing can be read
        was, partitions, topic_id = self.place, len(seen.partitions), topic_id_of(seen)
        if (topic_id, partitions) != (was.topic_id, was.partitions):
            changed = CoordinationTopicChanged(
                f"The coordination topic had {was.partitions} partitions and id {was.topic_id}, "
                f"and has {partitions} and {topic_id} now.",
                was.topic,
            )
            self._change(changed)

    def _give_up(self, problem: Exception) -> None:
        """Nobody goes on. No other producer writes in the place of one that has failed for ever:
        the brokers may have lost the end of a log whose claims are judged once.  # INV-156"""
        if is_fatal(problem):
            hint = (
                "Close these clients and open them anew: they read the log again. If others fail, "
                "too, the brokers may have lost its end."
            )
            self._change(self._failed(problem, hint))
        else:
            self._change(self._failed(problem))

    def _change(self, changed: CoordError) -> None:
        """Fail all handlers: this topic cannot be used any more."""
        self._failure = changed
        for handler in self._all():
            handler.fail(changed)

    # ---- small things -------------------------------------------------------------------------

    def _all(self) -> list[Handler]:
        with self.lock:
            return [handler for each in self._handlers if (handler := each()) is not None]

    def _guarded(self, turn: Callable[[], None]) -> bool:
        """Report a thread that dies; fences then close by themselves."""
        try:
            turn()
            return True
        except (NotAllowed, CoordinationTopicChanged) as problem:
            _log.warning("A thread of the transport ends: %s", problem.what)
            self._failure = problem
            for handler in self._all():  # those that wait for something else than `check`
                handler.fail(problem)
        except Exception as problem:  # noqa: BLE001  # check() raises it, whatever it is
            _log.exception("A thread of the transport failed")
            # A topic that was made anew lacks the records that are to follow: that is the reason.
            self._look()
            if self._failure is None:
                self._give_up(problem)
        return False

    def _named(self, _: Handler) -> str:
        return "A consumer of claims"


def _poll(producer: Producer, topic: str, options: Mapping[str, Any]) -> None:
    """Raises NotAllowed, KafkaException: the producer has failed for ever.

    Without any right to write it fails before its first message.
    """
    try:
        producer.poll(TICK_S)
    except KafkaException as problem:
        if denied := denial(problem, writing(topic), options):
            raise denied from problem
        raise


def find_coordination(admin: Any, topic: str, options: Mapping[str, Any]) -> Coordination:
    """Describe the coordination topic, and check it.

    Raises:
        SetupError: it does not exist, its records are not stamped by the brokers, or its name says
            an interval beyond the bounds.
        CannotReach: no broker answers.
    """
    try:
        interval_ms = claims.heartbeat_interval_ms(topic)
    except ValueError as problem:
        raise SetupError(str(problem), topic, "Name another coordination topic.") from problem
    seen = describe(admin, [topic], options).get(topic)
    fatal = [each for each in coordination_findings(topic, seen) if each.is_fatal]
    if fatal or seen is None:
        raise SetupError(
            "The coordination topic cannot be used.",
            "; ".join(f"{each.topic}: {each.what}, must be {each.must}" for each in fatal),
            " ".join(each.hint for each in fatal),
        )
    return Coordination(topic, seen.partitions, seen.topic_id, interval_ms)
