"""Options of `format("coord")`: those of Spark's Kafka source that have a meaning in a group.

Spark hands options over in lower case, so they are compared without case. Java's names and values
(`kafka.*`) become librdkafka's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaException

from coordlib import limits
from coordlib.client.groups.member import topics_of
from coordlib.client.kit.config import take_apart
from coordlib.client.kit.requests import Timing
from coordlib.errors import SetupError
from coordlib.kafka.options import SERVERS, KafkaOptions, wrong_option

_KAFKA: Final = "kafka."
#: Options of Spark's Kafka source that a group leaves no meaning: why, and what to do instead.
_NO_MEANING: Final = {
    "assign": "The coordinator assigns the partitions. Name topics: subscribe.",
    "startingTimestamp": "A group begins at its committed offsets. Reset those: coord offsets.",
    "startingOffsetsByTimestamp": "A group begins at its committed offsets. Reset those: coord "
    "offsets.",
    "startingOffsetsByTimestampStrategy": "A group begins at its committed offsets.",
    "endingOffsets": "A stream has no end. Use Trigger.AvailableNow.",
    "endingTimestamp": "A stream has no end. Use Trigger.AvailableNow.",
    "endingOffsetsByTimestamp": "A stream has no end. Use Trigger.AvailableNow.",
    "minPartitions": "A batch has as many tasks as the session has cores.",
    "maxRecordsPerPartition": "Use maxOffsetsPerTrigger.",
    "groupIdPrefix": "The group has a name: group.id.",
}
#: Java's keys of which the source has its own way: what to use.
_NOT_OF_KAFKA: Final = {
    "auto.offset.reset": "Use startingOffsets.",
    "enable.auto.commit": "The source commits when a batch is through.",
    "session.timeout.ms": "Leave out the prefix kafka.",
    "heartbeat.interval.ms": "Leave out the prefix kafka.",
    "max.poll.interval.ms": "Leave out the prefix kafka.",
    "group.instance.id": "Members of a server-assigned group have no instance id.",
    "partition.assignment.strategy": "Use group.remote.assignor.",
    "group.protocol": "The group is assigned by the coordinator.",
    "key.deserializer": "Keys and values are bytes. Use Spark's functions.",
    "value.deserializer": "Keys and values are bytes. Use Spark's functions.",
    "interceptor.classes": "There are no interceptors.",
}
_DELAY_DEFAULT_MS: Final = 15 * 60_000
#: Milliseconds of the units of `maxTriggerDelay`, as Spark writes them.
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query, checked. Secrets are in no text of it."""

    group: str
    topics: tuple[str, ...]
    pattern: str | None
    #: Where a partition without a committed offset begins.
    otherwise: Literal["earliest", "latest"]
    rows_max: int | None
    rows_min: int
    #: Milliseconds after which a batch may have fewer rows than `rows_min`.
    delay_max_ms: int
    is_strict: bool
    include_headers: bool
    include_fence: bool
    strategy: str | None
    capacity: int
    prefix: str
    timing: Timing
    #: librdkafka's, of the clients for the data and for the coordinator.
    data: Mapping[str, str] = field(repr=False)
    coordinator: Mapping[str, str] = field(repr=False)


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a query.

    Raises:
        SetupError: an option is unknown or has no meaning here, or its value is wrong.
    """
    options = _Options(given)
    names = {options.take("group.id"), options.take("kafka.group.id")} - {None, ""}
    if len(names) > 1:
        raise SetupError(
            "group.id and kafka.group.id name two groups.", " and ".join(sorted(map(str, names)))
        )
    if not (group := next(iter(names), None)):
        raise SetupError("A query needs the name of its group.", "group.id", "Set group.id.")
    config = _config(options)
    topics, pattern = _subscription(options)
    timing = Timing()
    timing = Timing(
        session_timeout_ms=options.number("session.timeout.ms", timing.session_timeout_ms),
        rebalance_timeout_ms=options.number("max.poll.interval.ms", timing.rebalance_timeout_ms),
        heartbeat_interval_ms=options.number("heartbeat.interval.ms", timing.heartbeat_interval_ms),
    )
    parsed = SourceOptions(
        group=group,
        topics=topics,
        pattern=pattern,
        otherwise=_otherwise(options),
        rows_max=options.number("maxOffsetsPerTrigger", None, least=1),
        rows_min=options.number("minOffsetsPerTrigger", 0),
        delay_max_ms=_delay_ms(options),
        is_strict=options.flag("failOnDataLoss", default=True),
        include_headers=options.flag("includeHeaders", default=False),
        include_fence=options.flag("includeFence", default=False),
        strategy=options.take("group.remote.assignor"),
        capacity=options.number("group.capacity", 1, least=1, most=limits.CAPACITY_MAX),
        prefix=config.prefix,
        timing=timing,
        data=config.data,
        coordinator=config.coordinator,
    )
    options.refuse_rest()
    if parsed.rows_max is not None and parsed.rows_min > parsed.rows_max:
        what = "minOffsetsPerTrigger is above maxOffsetsPerTrigger."
        raise SetupError(what, f"{parsed.rows_min} > {parsed.rows_max}")
    return parsed


class _Options:
    """Options that were given, by their names in lower case; what is taken is gone."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._left = {key.lower(): str(value) for key, value in given.items()}
        #: Those that were looked for, by their own spelling.
        self._known: list[str] = []
        for name, hint in _NO_MEANING.items():
            if name.lower() in self._left:
                raise SetupError(f"{name} has no meaning in a group.", name, hint)

    def take(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name.lower(), None)

    def take_all(self, prefix: str) -> dict[str, str]:
        self._known.append(f"{prefix}*")
        found = {key: value for key, value in self._left.items() if key.startswith(prefix)}
        for key in found:
            del self._left[key]
        return found

    def number(self, name: str, default: Any, least: int = 0, most: int = 2**63 - 1) -> Any:
        value = self.take(name)
        if value is None:
            return default
        if not value.isdecimal() or not least <= int(value) <= most:
            bounds = f"from {least}" + (f" to {most:,}" if most < 2**63 - 1 else "")
            raise SetupError(f"{name} is a whole number {bounds}.", repr(value))
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.take(name)
        if value is not None and value.lower() not in ("true", "false"):
            raise SetupError(f"{name} is true or false.", repr(value))
        return default if value is None else value.lower() == "true"

    def refuse_rest(self) -> None:
        if self._left:
            name = min(self._left)
            known = ", ".join(self._known)
            raise SetupError('format("coord") has no such option.', name, f"It has: {known}.")


def _subscription(options: _Options) -> tuple[tuple[str, ...], str | None]:
    topics, pattern = options.take("subscribe"), options.take("subscribePattern")
    if (topics is None) == (pattern is None):
        what = "A query needs one of subscribe and subscribePattern."
        raise SetupError(what, "both" if topics else "neither")
    if topics is None:
        if not pattern:
            raise SetupError("subscribePattern matches nothing.", repr(pattern))
        return (), pattern
    names = [each.strip() for each in topics.split(",")]
    if any(each.startswith("^") for each in names):
        raise SetupError("subscribe takes names.", topics, "Use subscribePattern.")
    return topics_of([each for each in names if each] or names), None


def _otherwise(options: _Options) -> Literal["earliest", "latest"]:
    value = (options.take("startingOffsets") or "latest").strip()
    match value.lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    hint = "It is for partitions without a committed offset. Commit others: coord offsets."
    raise SetupError("startingOffsets is earliest or latest in a group.", value[:100], hint)


def _delay_ms(options: _Options) -> int:
    value = options.take("maxTriggerDelay")
    if value is None:
        return _DELAY_DEFAULT_MS
    digits = value.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = value.strip()[len(digits) :].strip() or "ms"
    if not digits.isdecimal() or unit not in _UNITS:
        raise SetupError("maxTriggerDelay is a time such as 15m.", repr(value))
    return int(digits) * _UNITS[unit]


def _config(options: _Options) -> Any:
    """librdkafka's keys for both kinds of brokers, checked by librdkafka itself."""
    kafka = options.take_all(_KAFKA)
    coordinator = options.take_all("coord.")
    java = {key.removeprefix(_KAFKA): value for key, value in kafka.items()}
    for key, hint in _NOT_OF_KAFKA.items():
        if key in java:
            raise SetupError(f"kafka.{key} has no meaning here.", f"kafka.{key}", hint)
    if not (servers := java.pop(SERVERS, "")):
        hint = 'For example .option("kafka.bootstrap.servers", "localhost:9092").'
        raise SetupError("The options name no brokers.", f"kafka.{SERVERS}", hint)
    config = {SERVERS: servers, **KafkaOptions.from_java(java).values, **coordinator}
    found = take_apart(config)
    _check(found.data)
    if not found.coordinator.items() <= found.data.items():  # else it is checked already
        _check(found.coordinator)
    return found


def _check(config: Mapping[str, Any]) -> None:
    """Raises SetupError: librdkafka has no such key or value. Nothing is connected."""
    try:
        Consumer({**config, "group.id": "-", "log_level": 0}).close()
    except KafkaException as problem:
        wrong = wrong_option(problem)
        if wrong is None:
            raise
        hint = "Options kafka.* have Java's names; those of librdkafka alone are taken, too."
        raise SetupError(wrong.what, wrong.where, hint) from problem
