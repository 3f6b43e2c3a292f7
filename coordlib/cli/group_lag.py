"""How far a group is behind, as of now: the log ends are asked live, so the job may be down.

When the log was where the group stands is taken from the samples that the job left in `coord.lag`:
the newest ones of the group's shard, so that this costs the same however long the topic is.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from coordlib.errors import CannotReach
from coordlib.lag import UNKNOWN, Bounds, Lag, LogEnds, Place, measure
from coordlib.log_bounds import log_bounds
from coordlib.records.stored import LagLine, LagSample

#: Newest records that are read of a shard's samples: those of all its groups.
SAMPLES_READ_MAX: Final = 2_000
#: With a newer sample than this, what was produced since lies on a line between it and now. Else
#: nobody knows when it came: the job was down, or the group had no lag and was not sampled.
GAP_MAX_MS: Final = 60_000
TIMEOUT_S: Final = 5.0

_NONE: Final = LagLine(topic="", partition=0, committed=None)
_decode: Final = msgspec.json.Decoder(LagSample).decode


@dataclass(slots=True)
class SampledEnds:
    """What samples tell of one partition."""

    ends: LogEnds
    newest: LagLine
    newest_ms: int


def read_lag(
    client: Mapping[str, str],
    topic: str,
    shard: int,
    group: str,
    offsets: Mapping[Place, int | None],
) -> dict[Place, Lag]:
    """The lag of each partition; log start and end alone where nothing is committed.

    Args:
        topic: of the samples; it need not be there.

    Raises:
        CannotReach: the brokers stopped answering.
    """
    try:
        bounds = log_bounds(AdminClient({**client, "log_level": "0"}), offsets, TIMEOUT_S)
        sampled = sampled_ends(_newest_samples(client, topic, shard, group))
    except KafkaException as problem:
        raise CannotReach(
            "Kafka stopped answering", problem.args[0].str(), "Look into the broker's log."
        ) from problem
    now_ms = time.time_ns() // 1_000_000
    return {
        place: lag_now(committed, bounds.get(place), sampled.get(place), now_ms)
        for place, committed in offsets.items()
    }


def sampled_ends(samples: Iterable[LagSample]) -> dict[Place, SampledEnds]:
    """What a group's samples, in their order, tell of each partition."""
    found: dict[Place, SampledEnds] = {}
    for sample in samples:
        for line in sample.lines:
            place = Place(line.topic, line.partition)
            if line.log_end is None:
                found.pop(place, None)
                continue
            known = found.setdefault(place, SampledEnds(LogEnds(), _NONE, 0))
            _add_since(known, sample.time_ms, line)
            known.ends.add(sample.time_ms, line.log_end)
            known.newest, known.newest_ms = line, sample.time_ms
    return found


def lag_now(
    committed: int | None, bounds: Bounds | None, sampled: SampledEnds | None, now_ms: int
) -> Lag:
    """The lag by live bounds and earlier samples."""
    if committed is None or bounds is None:
        return UNKNOWN if bounds is None else Lag(log_start=bounds.start, log_end=bounds.end)
    if sampled is None:
        return measure(committed, bounds, None, now_ms)
    end = sampled.newest.log_end or 0
    has_gap = now_ms - sampled.newest_ms > GAP_MAX_MS
    if has_gap:
        sampled.ends.add(now_ms - 1, min(end, bounds.end))
    sampled.ends.add(now_ms, bounds.end)
    lag = measure(committed, bounds, sampled.ends, now_ms)
    is_since = has_gap and bool(lag.lag) and max(committed, bounds.start) >= end
    return replace(lag, lag_seconds=0.0, is_at_least=True) if is_since else lag


def _add_since(known: SampledEnds, time_ms: int, line: LagLine) -> None:
    """When the log ended where the group stood, by the sampler's own samples.

    It took more of them than it has written: a group leaves none while it has no lag.
    """
    if not line.lag or line.lag_seconds is None or line.is_at_least:
        return
    since_ms = time_ms - round(1000 * line.lag_seconds)
    position = max(line.committed or 0, line.log_start or 0)
    if known.newest_ms < since_ms < time_ms and position >= (known.newest.log_end or 0):
        known.ends.add(since_ms, position)


def _newest_samples(
    client: Mapping[str, str], topic: str, shard: int, group: str
) -> list[LagSample]:
    consumer = Consumer(
        {
            **client,
            "group.id": "coordlib-reader",  # required by the client; never joined or committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        if known.error is not None or shard not in known.partitions:
            return []
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, shard), timeout=TIMEOUT_S)
        first = max(low, end - SAMPLES_READ_MAX)
        consumer.assign([TopicPartition(topic, shard, first)])
        return _read_to(consumer, end, group) if first < end else []
    finally:
        consumer.close()


def _read_to(consumer: Consumer, end: int, group: str) -> list[LagSample]:
    found: list[LagSample] = []
    while True:
        record = consumer.poll(TIMEOUT_S)
        if record is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = record.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return found
            raise KafkaException(error)
        if record.key() == group.encode():
            try:
                found.append(_decode(record.value() or b""))
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass  # none of ours; the archive tells of it
        if (record.offset() or 0) + 1 >= end:
            return found
