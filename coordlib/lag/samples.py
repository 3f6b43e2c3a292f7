"""The samples that jobs left in `coord.lag`, read back: what a log's end was, and when.

Only the newest ones of a shard are read, so that it costs the same however long the topic is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from coordlib.kafka.cluster import partitions_of
from coordlib.kafka.places import Place
from coordlib.kafka.reading import read_to_end
from coordlib.lag.measure import LogEnds, gap_ms
from coordlib.limits import INT64_MAX
from coordlib.records.stored import LagLine, LagSample

#: Newest records that are read of a shard's samples: those of all its groups.
SAMPLES_READ_MAX: Final = 2_000
TIMEOUT_S: Final = 5.0

_NONE: Final = LagLine(topic="", partition=0, committed=None)
_decode: Final = msgspec.json.Decoder(LagSample).decode


@dataclass(slots=True)
class SampledEnds:
    """What samples tell of one partition."""

    ends: LogEnds
    newest: LagLine
    newest_ms: int


def sampled_ends(samples: Iterable[LagSample]) -> dict[Place, SampledEnds]:
    """What samples, in their order, tell of each partition. They may be of several groups."""
    found: dict[Place, SampledEnds] = {}
    for sample in samples:
        for line in sample.lines:
            place = Place(line.topic, line.partition)
            if line.log_end is None:
                if line.committed is not None:  # the topic is gone, and not only one's offset
                    found.pop(place, None)
                continue
            known = found.setdefault(place, SampledEnds(LogEnds(), _NONE, 0))
            known.ends.gap_max_ms = gap_ms(sample.interval_ms)
            _add_since(known, sample.time_ms, line)
            known.ends.add(sample.time_ms, line.log_end)
            known.newest, known.newest_ms = line, sample.time_ms
    return found


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


def newest_samples(
    client: Mapping[str, str],
    topic: str,
    shard: int,
    group: str | None = None,
    on_cut: Callable[[int], None] = lambda _: None,
) -> Iterator[LagSample]:
    """The newest samples of a shard in their order, of one group or of all; none without topic.

    Args:
        on_cut: told how many older records are there and not read, if there are any.

    Raises:
        KafkaException: the brokers do not answer.
    """
    if shard not in partitions_of(client, topic, TIMEOUT_S):
        return
    records = read_to_end(
        client, topic, shard, newest_max=SAMPLES_READ_MAX, on_cut=on_cut, silence_s=TIMEOUT_S
    )
    for record in records:
        if group is None or record.key() == group.encode():
            sample = _read(record.value() or b"")
            if sample is not None:
                yield sample


def _read(value: bytes) -> LagSample | None:
    """None for what no sampler writes; the archive tells of that."""
    try:
        sample = _decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    numbers = [sample.time_ms]
    for line in sample.lines:
        numbers += (line.committed or 0, line.log_start or 0, line.log_end or 0)
    return sample if min(numbers) >= 0 and max(numbers) <= INT64_MAX else None
