"""Reads one response partition, and reports when it has read to the end.

The end is the last stable offset (rule 9). It is asked for only when a fence needs it and nothing
that was read proves it, over a connection of its own: on the reader's, the broker would answer only
after the fetch that it holds open. The position of the reading comes from messages and, since
transaction markers take offsets too, from the end-of-partition event.

A Progress that names a request's offset was written after that request, which was written after
its produce(). A partition is read in order. So whoever reads such a Progress has read all that
could be read when produce() was called: the same as if the end had been asked for then (rule 9).

An acknowledgement proves something of the log: a request is written behind all that stood there
when produce() was called. If it is not, the log has lost its end since.  # INV-105
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import uuid4

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from coordlib.client.kit.process import boottime_ms
from coordlib.errors import CannotReach, CoordError
from coordlib.kafka.admin import Admin
from coordlib.kafka.clients import denial, hidden, missing, reading, reason_of

#: Requests that were produced so soon after the one before prove nothing more.
STEP_MS: Final = 100
#: While the job is away, requests are kept for so many steps; the newest ones prove the most.
KEPT: Final = 600
#: Of a request that stands where nobody judges it any more.
LOST: Final = "it was lost before it was processed"


class Written(Enum):
    """What an acknowledgement proves of a request."""

    #: It stands behind everything that was known of the log.
    NEWEST = "newest"
    #: The log has lost its end. What was judged there counts, so this request will not be judged.
    CUT = "cut"
    #: The same, of a request that was produced before that was found out.
    LOST = "lost"


class Mark(NamedTuple):
    """What was known of a shard's log at a first produce()."""

    produced_ms: int = 0
    #: The newest record; -1: none.
    newest: int = -1
    #: How often the log had been found cut.
    cuts: int = 0
    #: The request that is produced, if it is always answered; empty: silence may accept it.
    id: str = ""


class Proofs:
    """Acknowledged requests of one transport that no Progress has covered yet.

    Used by two threads: acknowledgements come in one, what is read in the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Per shard (offset, first produce()), in the order of both.
        self._uncovered: dict[int, deque[tuple[int, int]]] = {}
        self._known: dict[int, Mark] = {}
        #: Requests that have no answer yet, with their shards and offsets.
        self._unanswered: dict[str, tuple[int, int]] = {}

    def mark(self, shard: int, now_ms: int, id_: str = "") -> Mark:
        """What is known of the log; to be asked before produce()."""
        return self._known.get(shard, Mark())._replace(produced_ms=now_ms, id=id_)

    def answered(self, id_: str) -> None:
        """A response to this request was read."""
        with self._lock:
            self._unanswered.pop(id_, None)

    def forget(self, token: str) -> None:
        """A member has gone: nobody waits for its answers."""
        with self._lock:
            for id_ in [each for each in self._unanswered if each.startswith(f"{token}-")]:
                del self._unanswered[id_]

    def lost(self, shard: int, before: int) -> list[str]:  # INV-145
        """The requests of before this offset that will have no answer; they are given up."""
        with self._lock:
            found = [i for i, at in self._unanswered.items() if at[0] == shard and at[1] < before]
            for each in found:
                del self._unanswered[each]
            return found

    def acknowledged(self, shard: int, offset: int, mark: Mark) -> Written:
        """The log took a request of this transport; `mark`: as of its produce()."""
        produced_ms = mark.produced_ms
        with self._lock:
            known = self.mark(shard, produced_ms)
            if offset <= mark.newest:
                if mark.cuts < known.cuts:
                    return Written.LOST
                # What stands above is forgotten: the next requests stand behind this one.
                self._known[shard] = Mark(produced_ms, offset, known.cuts + 1)
                self._uncovered.pop(shard, None)
                return Written.CUT
            self._known[shard] = known._replace(newest=max(known.newest, offset))
            if mark.id:
                self._unanswered[mark.id] = shard, offset
            waiting = self._uncovered.setdefault(shard, deque(maxlen=KEPT))
            if not waiting or produced_ms - waiting[-1][1] >= STEP_MS:
                waiting.append((offset, produced_ms))
            return Written.NEWEST

    def progressed(self, shard: int, offset: int) -> int | None:
        """A Progress was read: as of when all has been read by now; None: it proves nothing new."""
        asked_ms = None
        with self._lock:
            known = self.mark(shard, 0)
            self._known[shard] = known._replace(newest=max(known.newest, offset))
            waiting = self._uncovered.get(shard, ())
            while waiting and waiting[0][0] <= offset:
                _, asked_ms = waiting.popleft()
        return asked_ms


_log = logging.getLogger("coordlib.client")

ASK_INTERVAL_MS = 500  # the end is asked for no more often; nor do proofs count more often
LATE_MS = 100  # by then the consumer may have connected
LOOK_INTERVAL_MS = 50  # how often is looked whether it must be asked for
ASK_TIMEOUT_S = 5.0  # an answer that takes longer is of little use: its age counts from the asking
REFRESH_TIMEOUT_S = 1.0  # reading stands still for as long
WAIT_S = 0.02
BATCH = 500
#: Records were removed before they were read; or the partition has lost its end (KIP-320).
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
_LEVEL = IsolationLevel.READ_COMMITTED
CONFIG: dict[str, Any] = {
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 500,  # the end-of-partition event comes with an empty fetch
}


class ResponsesGone(CannotReach):
    """Responses were removed before they were read, or the log has lost its end."""


class LogConsumer:
    """Reads partitions that it is given, in no group, and asks for their ends."""

    def __init__(self, options: Mapping[str, Any], client: str, own: Mapping[str, Any]) -> None:
        fixed = {
            "group.id": f"coordlib-unused-{uuid4().hex}",  # the library wants one
            "client.id": client,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 1_000,  # rule 12
        }
        self._consumer = Consumer({**options, **fixed, **own})
        self.admin = Admin({**options, "client.id": client})
        self._options = options

    def _messages(self, most: int) -> list[Message]:
        """What has come; waits a moment when nothing has."""
        first = self._consumer.poll(WAIT_S)
        return [] if first is None else [first, *self._consumer.consume(most, timeout=0)]

    def close(self) -> None:
        self._consumer.close()


class ResponseReader(LogConsumer):
    """One reader; used by one thread."""

    def __init__(self, config: Mapping[str, Any], client: str, source: TopicPartition) -> None:
        super().__init__(config, client, CONFIG)
        self._source = source
        self._latest = {source: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        #: Next offset to read; everything before it was handed out.
        self._position = 0
        self._asked_ms = self._looked_ms = 0
        self._answer: Future[Any] | None = None
        #: (when asked, the end) of the reading under way.
        self._goal: tuple[int, int] | None = None
        #: When the end was asked for, of the newest reading that reached it; or as of when
        #: something that was read proves as much.
        self.read_ms: int | None = None
        self._is_proved = False
        #: Why nothing is read until the next start.
        self._gone: ResponsesGone | None = None

    def start(self, timeout_s: float) -> None:
        """Start, or begin anew, at the end that is seen now. Raises CannotReach, NotAllowed."""
        asked_ms = boottime_ms()
        try:
            end = int(self._ask_end(timeout_s).result(timeout_s).offset)
        except (KafkaException, TimeoutError) as problem:
            raise self._refusal(problem) from problem
        self._position, self.read_ms, self._asked_ms = end, asked_ms, asked_ms
        self._answer = self._goal = self._gone = None
        if boottime_ms() - asked_ms >= LATE_MS:
            self._know_leader(timeout_s)
        self._consumer.assign([TopicPartition(self._source.topic, self._source.partition, end)])

    def _know_leader(self, timeout_s: float) -> None:
        """A consumer that has connected before it is given a partition does not ask who leads that
        one until librdkafka's next look at its topics, up to 1 s later."""
        try:
            self._consumer.list_topics(self._source.topic, timeout=timeout_s)
        except KafkaException as problem:
            raise self._refusal(problem) from problem

    def ask(self, now_ms: int, lasts_ms: Callable[[], int | None]) -> None:
        """Ask for the end where one must; rule 9: before the reading that is to reach it.

        Args:
            lasts_ms: how old the newest reading may become; None: nothing depends on it.
        """
        if self._answer is not None:
            self._hear(self._answer)
        elif self._goal is None and self._must_look(now_ms):
            self._looked_ms, lasting_ms = now_ms, lasts_ms()
            if lasting_ms is not None and now_ms - (self.read_ms or 0) >= lasting_ms:
                self._asked_ms = now_ms
                self._answer = self._ask_end(ASK_TIMEOUT_S, REFRESH_TIMEOUT_S)

    def _must_look(self, now_ms: int) -> bool:
        newest_ms = max(self._asked_ms, self.read_ms or 0)
        is_time = now_ms - newest_ms >= ASK_INTERVAL_MS
        return is_time and now_ms - self._looked_ms >= LOOK_INTERVAL_MS

    def proved(self, asked_ms: int | None) -> None:
        """What was read shows that all was read that could be at `asked_ms`, if any (`Proofs`)."""
        if asked_ms is not None and asked_ms - (self.read_ms or 0) >= ASK_INTERVAL_MS:
            self.read_ms, self._is_proved = asked_ms, True

    def read(self) -> list[tuple[bytes, bytes]]:
        """What has come, key and value; waits a moment when nothing has.

        Raises ResponsesGone, until the next start; NotAllowed.
        """
        messages = self._messages(BATCH)
        if self._gone is not None:
            raise self._gone
        return [each for message in messages if (each := self._take(message)) is not None]

    def is_at_end(self) -> bool:
        """Whether a newer reading is complete than before; true once for each."""
        is_newer, self._is_proved = self._is_proved, False
        if self._goal is not None and self._position >= self._goal[1]:
            asked_ms, self._goal = self._goal[0], None
            if self.read_ms is None or asked_ms > self.read_ms:
                self.read_ms, is_newer = asked_ms, True
        return is_newer

    def _ask_end(self, timeout_s: float, metadata_s: float | None = None) -> "Future[Any]":
        asked = self.admin.list_offsets(
            self._latest, metadata_s, isolation_level=_LEVEL, request_timeout=timeout_s
        )
        return asked[self._source]

    def _refusal(self, problem: KafkaException | TimeoutError) -> CoordError:
        topic = self._source.topic
        try:
            if denial(problem, reading(topic), self._options) or hidden(
                self.admin, [topic], ASK_TIMEOUT_S
            ):
                return missing(reading(topic), self._options)
        except (KafkaException, TimeoutError):
            pass  # the first failure is the one to tell
        message = f"The end of the responses could not be asked for: {reason_of(problem)}"
        return CannotReach(message, str(self._source))

    def _hear(self, answer: "Future[Any]") -> None:
        if not answer.done():
            return
        self._answer = None
        problem = answer.exception()
        if problem is None:
            self._goal = (self._asked_ms, int(answer.result().offset))
        else:
            _log.info("The end of the responses is not known: %s", reason_of(problem))
            self.admin.forget([self._source.topic])
            self._asked_ms = boottime_ms()  # the question itself may have taken long

    def _take(self, message: Message) -> tuple[bytes, bytes] | None:
        error, offset = message.error(), message.offset()
        if error is None and offset is not None:
            self._position = offset + 1
            return bytes(message.key() or b""), bytes(message.value() or b"")
        if error is not None and error.code() == KafkaError._PARTITION_EOF and offset is not None:
            self._position = max(self._position, offset)
        elif denied := denial(error, reading(self._source.topic), self._options):
            raise denied
        elif error is not None and error.code() in _GONE:
            where = f"{self._source.topic}, partition {self._source.partition}"
            self._gone = ResponsesGone(f"Responses are gone unread: {error.str()}", where)
            raise self._gone
        elif error is not None:
            _log.warning("Reading the responses: %s", error.str())
        return None
