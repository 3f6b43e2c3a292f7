"""Which of librdkafka's keys are a consumer's, and which a producer's.

One dict of keys goes to several clients here. librdkafka warns of a key of the other kind, on
stderr, or does worse: with `transactional.id` a producer that begins no transaction writes nothing,
and with `retries` 0 an idempotent one is not made at all. So clients that a program has not asked
for, those of transports and for questions, are opened without the keys of either kind.

Source: the second column of librdkafka's table of configuration properties (C, P or *).
"""

from collections.abc import Mapping
from typing import Any, Final

from coordlib.errors import SetupError

#: Those that users set on a CoordinatedConsumer are its own: they never come here.
CONSUMERS: Final = frozenset(
    {
        *("group.id", "group.instance.id", "partition.assignment.strategy", "session.timeout.ms"),
        *("heartbeat.interval.ms", "group.protocol.type", "group.protocol"),
        *("group.remote.assignor", "coordinator.query.interval.ms", "max.poll.interval.ms"),
        *("enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store"),
        *("queued.min.messages", "queued.max.messages.kbytes", "fetch.wait.max.ms"),
        *("fetch.queue.backoff.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes"),
        *("fetch.max.bytes", "fetch.min.bytes", "fetch.error.backoff.ms", "offset.store.method"),
        *("isolation.level", "enable.partition.eof", "check.crcs", "auto.commit.enable"),
        *("auto.offset.reset", "offset.store.path", "offset.store.sync.interval.ms"),
        *(
            "consume.callback.max.messages",
            "max.poll.records",
            "allow.auto.create.topics",
            "on_commit",
        ),
    }
)
PRODUCERS: Final = frozenset(
    {
        *("transactional.id", "transaction.timeout.ms", "enable.idempotence"),
        *("enable.gapless.guarantee", "queue.buffering.max.messages"),
        *("queue.buffering.max.kbytes", "queue.buffering.max.ms", "linger.ms"),
        *("message.send.max.retries", "retries", "queue.buffering.backpressure.threshold"),
        *("compression.codec", "compression.type", "batch.num.messages", "batch.size"),
        *("delivery.report.only.error", "sticky.partitioning.linger.ms", "request.required.acks"),
        *("acks", "request.timeout.ms", "message.timeout.ms", "delivery.timeout.ms"),
        *("queuing.strategy", "produce.offset.report", "partitioner", "compression.level"),
        *("on_delivery",),
    }
)
_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")
_TRANSACTIONAL: Final = "transactional.id"


def shared(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that hold for every kind of client."""
    return {key: options[key] for key in options if key not in CONSUMERS and key not in PRODUCERS}


def for_producer(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those of consumers."""
    return {key: options[key] for key in options if key not in CONSUMERS}


def require_servers(options: Mapping[str, Any]) -> None:
    """Raises SetupError: no brokers are named, so nobody would ever answer."""
    if not any(options.get(key) for key in _SERVERS):
        mend = 'For example {"bootstrap.servers": "localhost:9092"}.'
        raise SetupError("The options name no brokers.", _SERVERS[0], mend)


def refuse_transactional(options: Mapping[str, Any]) -> None:
    """Raises SetupError: a key that promises transactions, for a client that makes none."""
    if _TRANSACTIONAL in options:
        mend = "Leave it out here, and give it to the CoordinatedProducer."
        raise SetupError(
            f"{_TRANSACTIONAL} is a producer's key.", repr(options[_TRANSACTIONAL]), mend
        )
