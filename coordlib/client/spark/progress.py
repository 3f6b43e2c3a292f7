"""`publish_progress`: any query's positions as committed offsets of a group without members.

The query does not change: a listener gets each finished batch and writes the query's positions to
`coord.offsets`. So `coord groups describe` shows it with its lag, like any group.
"""

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.offsets import parts_of_commit
from coordlib.client.kit.transport import Name, default_client_id
from coordlib.client.spark.positions import end_offsets
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import NotAllowed, SetupError
from coordlib.kafka.clients import denial, reason_of, writing
from coordlib.kafka.layout import find_place
from coordlib.kafka.options import for_producer, refuse_transactional
from coordlib.kafka.producer import LastingProducer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger()
_RETRY_S: Final = 1.0
_REPEAT_S: Final = 60.0
#: Seconds between two replacements of a producer that has failed for ever, at least.
_REOPEN_S: Final = 10.0


class Publication:
    """The newest positions of one query, on their way to the log.

    They are written when they change, at most once a second while the broker is away; positions
    that the log did not take are written again, the newest ones. After a fatal error another
    producer does it. Answers are not read: the coordinator may refuse to create the group at this
    moment, or an operator may have deleted it. So all is written again once a minute, and at
    `close`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        group: str,
        prefix: str = "coord",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        Name(group=group, prefix=prefix)  # nobody reads the answer that would refuse it
        refuse_transactional(config)
        place = find_place(config, prefix)
        self._group, self._topic = group, f"{prefix}.offsets"
        self._client, self._numbers = default_client_id(), count(1)
        self._shard = shard_of(group, place.shards)
        options = {**for_producer(config), "linger.ms": 0, "delivery.timeout.ms": 10_000}
        self._options = options
        #: Why the brokers refuse the newest positions, if they do.
        self._failure: NotAllowed | None = None
        self._producer = LastingProducer(options, "progress", _REOPEN_S, now_s)
        self._lock = threading.Lock()
        self._newest: dict[TopicPartition, int] = {}
        self._batch = -1
        #: Those that the log has taken.
        self._taken: dict[TopicPartition, int] = {}
        self._wake, self._is_closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=f"progress of {group}", daemon=True)
        self._thread.start()

    def hear(self, progress: Any) -> None:
        """Take Spark's report of a finished batch; one of an older batch is ignored."""
        with self._lock:
            if progress["batchId"] < self._batch:
                return
            self._batch = progress["batchId"]
            self._newest.update(end_offsets(progress))
        self._wake.set()

    @property
    def is_written(self) -> bool:
        """Whether the log has taken the newest positions."""
        with self._lock:
            return self._newest == self._taken

    def close(self, timeout_s: float = 10.0) -> bool:
        """Write what is not written yet, and end; whether all was written within the time.

        Raises NotAllowed: the brokers refuse the positions.
        """
        self.end()
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive() and self.is_written

    def end(self) -> None:
        """As `close`, without waiting."""
        self._is_closed = True
        self._wake.set()

    def _run(self) -> None:
        while True:
            is_news = self._wake.wait(_REPEAT_S)
            self._wake.clear()
            is_last = self._is_closed
            try:
                self._write(is_last, is_all=is_last or not is_news)
            except (KafkaException, TimeoutError) as problem:
                self._failed(problem)
            if is_last:
                return
            if not self.is_written:
                threading.Event().wait(_RETRY_S)
                self._wake.set()

    def _write(self, is_last: bool, is_all: bool) -> None:
        """Raises KafkaException, TimeoutError."""
        self._producer.renew(at_once=is_last)
        if self._producer.is_broken:
            return
        with self._lock:
            new = {p: at for p, at in self._newest.items() if is_all or self._taken.get(p) != at}
        rows = tuple(
            api.CommittedOffset(each.topic, each.partition, at) for each, at in sorted(new.items())
        )
        for part in parts_of_commit(rows) if rows else ():
            self._produce(part)
        self._producer.flush(10.0)

    def _failed(self, problem: KafkaException | TimeoutError | KafkaError) -> None:
        self._failure = denial(problem, writing(self._topic), self._options)
        reason = self._failure.what if self._failure is not None else reason_of(problem)
        _log.warning("progress is not published", group=self._group, error=reason)

    def _produce(self, rows: tuple[api.CommittedOffset, ...]) -> None:
        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._failed(error)
                return
            with self._lock:
                self._taken.update(
                    {TopicPartition(row.topic, row.partition): row.offset for row in rows}
                )
            self._failure = None

        request = api.OffsetCommit(
            v=1,
            id=f"progress-{next(self._numbers)}",
            client=self._client,
            group=self._group,
            offsets=rows,
        )
        self._producer.produce(
            self._topic,
            codec.encode(request),
            key=self._group.encode(),
            partition=self._shard,
            on_delivery=note,
        )


def publish_progress(
    query: "StreamingQuery",
    group: str,
    *,
    config: Mapping[str, Any],
    prefix: str = "coord",
    spark: "SparkSession | None" = None,
) -> Publication:
    """Publish a query's positions as a group's offsets; the query itself does not change.

    The group must have no members: their positions are their own (UNKNOWN_MEMBER_ID, in history).

    Args:
        query: a running one, with at least one Kafka source.
        group: the name of the group.
        config: confluent-kafka's keys, at least `bootstrap.servers`.
        prefix: the coordinator's topic prefix.
        spark: the session that the query was started in; by default the active one.

    It ends by itself when the query does.

    Raises:
        SetupError: the query is not one of this session, or this is no name of a group.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """
    from pyspark.sql import SparkSession

    streams = (spark or SparkSession.active()).streams
    if query.isActive and str(query.id) not in {str(each.id) for each in streams.active}:
        hint = "Name the session that it was started in: spark=..."
        raise SetupError(
            "A session gets events of its own queries only.", f"query {query.id}", hint
        )
    publication = Publication(config, group, prefix)
    is_ended = threading.Lock()

    def end() -> None:
        if is_ended.acquire(blocking=False):  # Spark may report it twice
            publication.end()
            streams.removeListener(listener)

    listener = _listener(str(query.id), publication, end)
    streams.addListener(listener)
    if query.lastProgress is not None:
        publication.hear(query.lastProgress)
    if not query.isActive:  # perhaps it ended before the listener was added
        end()
    return publication


def _listener(id_: str, publication: Publication, end: Callable[[], None]) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing was read yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            if str(event.progress.id) == id_:
                publication.hear(event.progress)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing was read since."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            if str(event.id) == id_:
                # Other queries' listeners wait for this one to return.
                threading.Thread(target=end, name="end of progress", daemon=True).start()

    return Listener()
