"""Samples of logs' ends with their times, read back from `coord.lag`.

Only the newest ones of a shard are read, so that the cost does not grow with the topic.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from coordlib.core.wire.stored import LagLine, LagSample
from coordlib.kafka.cluster import partitions_of
from coordlib.kafka.lag import LogEnds, gap_ms
from coordlib.kafka.places import Place
from coordlib.kafka.reading import PartitionReader
from coordlib.limits import INT64_MAX

#: The number of newest records that are read of a shard, those of all its groups.
SAMPLES_READ_MAX: Final = 2_000
TIMEOUT_S: Final = 5.0

_NONE: Final = LagLine(topic="", partition=0, committed=None)
_decode: Final = msgspec.json.Decoder(LagSample).decode


@dataclass(slots=True)
class SampledEnds:
    """The log ends of one partition that samples give."""

    ends: LogEnds
    newest: LagLine
    newest_ms: int


def sampled_ends(samples: Iterable[LagSample]) -> dict[Place, SampledEnds]:
    """The log ends of each partition, from samples in their order, perhaps of several groups."""
    found: dict[Place, SampledEnds] = {}
    for sample in samples:
        for line in sample.lines:
            place = Place(line.topic, line.partition)
            if line.log_end is None:
                if line.committed is not None:  # the topic is gone, not only the offset of a group
                    found.pop(place, None)
                continue
            known = found.setdefault(place, SampledEnds(LogEnds(), _NONE, 0))
            known.ends.gap_max_ms = gap_ms(sample.interval_ms)
            _add_since(known, sample.time_ms, line)
            known.ends.add(sample.time_ms, line.log_end)
            known.newest, known.newest_ms = line, sample.time_ms
    return found


def _add_since(known: SampledEnds, time_ms: int, line: LagLine) -> None:
    """Add the time at which the log's end was at the group's position, by the sampler itself.

    The sampler has more samples than it wrote: it writes none for a group without lag.
    """
    if not line.lag or line.lag_seconds is None or line.is_at_least:
        return
    since_ms = time_ms - round(1000 * line.lag_seconds)
    position = max(line.committed or 0, line.log_start or 0)
    if known.newest_ms < since_ms < time_ms and position >= (known.newest.log_end or 0):
        known.ends.add(since_ms, position)


def newest_samples(
    client: Mapping[str, str],
    topic: str,
    shard: int,
    group: str | None = None,
    on_cut: Callable[[int], None] = lambda _: None,
) -> Iterator[LagSample]:
    """The newest samples of a shard in their order, of one group or of all; none without topic.

    Args:
        on_cut: called with the number of older records that are not read, if there are any.

    Raises:
        KafkaException: the brokers do not answer.
    """
    if shard not in partitions_of(client, topic, TIMEOUT_S):
        return
    with PartitionReader(client) as reader:
        for record in reader.read(
            topic, shard, newest_max=SAMPLES_READ_MAX, on_cut=on_cut, silence_s=TIMEOUT_S
        ):
            if group is None or record.key() == group.encode():
                sample = _read(record.value() or b"")
                if sample is not None:
                    yield sample


def _read(value: bytes) -> LagSample | None:
    """Decode a sample; None for a record of another writer, which the archive reports."""
    try:
        sample = _decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    numbers = [sample.time_ms]
    for line in sample.lines:
        numbers += (line.committed or 0, line.log_start or 0, line.log_end or 0)
    return sample if min(numbers) >= 0 and max(numbers) <= INT64_MAX else None
