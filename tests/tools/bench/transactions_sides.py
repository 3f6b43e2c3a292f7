"""The two sides of the transactions benchmark: producers of ours, and Kafka's own.

Both write the same records into the same topic, and commit an offset of a group of their own, which
has no members: what is timed is the way of a transaction, and not how a group divides partitions.
A successor is a consumer of that group that asks for its start position.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from coordlib.client import CoordinatedConsumer, CoordinatedProducer, TransactionError
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import KafkaTransport
from coordlib.core.wire.envelope import shard_of

OURS: Final = "ours"
KAFKAS: Final = "kafka"
TIMEOUT_S: Final = 60.0
_RECORD: Final = bytes(100)


class Failed(Exception):
    """A transaction has failed; `is_fatal`: and its producer with it."""

    def __init__(self, problem: TransactionError | KafkaException) -> None:
        super().__init__(str(problem))
        error = problem.args[0] if isinstance(problem, KafkaException) else problem
        self.is_fatal: bool = error.fatal()


class Copier:
    """A transactional producer of either make, and the group whose offsets it commits.

    All calls but `abort` and `close` raise Failed.

    Args:
        metadata: who commits, as its producer takes it.
        close: what is to be closed with it.
    """

    def __init__(
        self, producer: Any, metadata: Callable[[], Any], close: Callable[[], None]
    ) -> None:
        self._producer, self._metadata, self.close = producer, metadata, close

    def init(self) -> None:
        """Fence and end what an older one of this name has left."""
        self._do(lambda: self._producer.init_transactions(TIMEOUT_S))

    def begin(self, topic: str, records: int, position: int) -> None:
        """Begin, write, and have the group accept this position of partition 0."""
        self._do(lambda: self._begin(topic, records, position))

    def commit(self) -> None:
        self._do(lambda: self._producer.commit_transaction(TIMEOUT_S))

    def abort(self) -> None:
        """End what is open, if that is possible."""
        with suppress(TransactionError, KafkaException):
            self._producer.abort_transaction(TIMEOUT_S)

    def _begin(self, topic: str, records: int, position: int) -> None:
        self._producer.begin_transaction()
        for _ in range(records):
            self._producer.produce(topic, _RECORD)
        rows = [TopicPartition(topic, 0, position)]
        self._producer.send_offsets_to_transaction(rows, self._metadata(), TIMEOUT_S)

    @staticmethod
    def _do(call: Callable[[], None]) -> None:
        try:
            call()
        except (TransactionError, KafkaException) as problem:
            raise Failed(problem) from problem


class Successor:
    """A consumer of a group that is about to read on."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def position(self, topic: str) -> int:
        """Wait until what is committed for partition 0 is certain; -1: nothing is."""
        (found,) = self._consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        return max(-1, int(found.offset))

    def close(self) -> None:
        self._consumer.close()


class Side(Protocol):
    """How the clients of one side are opened. `name` is transactional id and group."""

    def copier(self, name: str, timeout_ms: int) -> Copier: ...

    def successor(self, name: str) -> Successor: ...

    def close(self) -> None: ...


class OurSide:
    """Groups that the job coordinates; all answers come by one transport."""

    def __init__(self, config: Mapping[str, Any], prefix: str, way: str) -> None:
        self._config, self._prefix, self._backend = dict(config), prefix, way
        self._transport = KafkaTransport(self._config, prefix, "bench-transactions")

    def copier(self, name: str, timeout_ms: int) -> Copier:
        producer = CoordinatedProducer(
            {
                **self._config,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "coord.decided.by": self._backend,
            }
        )
        metadata = GroupMetadata("", -1, self._identity(name), self._transport)
        return Copier(producer, lambda: metadata, producer.close)

    def successor(self, name: str) -> Successor:
        own = {"group.id": name, "coord.prefix": self._prefix, "enable.auto.commit": False}
        config = {**self._config, **own}
        return Successor(CoordinatedConsumer(config, transport=self._transport))

    def close(self) -> None:
        self._transport.close()

    def _identity(self, group: str) -> Identity:
        place = self._transport.place
        return Identity(
            group=group,
            client=group,
            token=self._transport.new_token(),
            shard=shard_of(group, place.shards),
            reply=self._transport.reply,
            incarnation=place.incarnation,
            prefix=place.prefix,
        )


class KafkaSide:
    """The broker's own groups, with confluent-kafka's clients alone."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)

    def copier(self, name: str, timeout_ms: int) -> Copier:
        config = {**self._config, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        producer, consumer = Producer(config), Consumer({**self._config, "group.id": name})

        def close() -> None:
            producer.purge()  # after an error that is fatal nothing of it is sent any more
            producer.flush(TIMEOUT_S)
            consumer.close()

        return Copier(producer, consumer.consumer_group_metadata, close)

    def successor(self, name: str) -> Successor:
        return Successor(Consumer({**self._config, "group.id": name}))

    def close(self) -> None:
        """Each client is closed by itself."""


def opened(side: str, config: Mapping[str, Any], prefix: str, way: str) -> Side:
    """The clients of a side. Raises CannotReach."""
    quiet = {**config, "log_level": 2}  # what is tried again needs no line
    return OurSide(quiet, prefix, way) if side == OURS else KafkaSide(quiet)
