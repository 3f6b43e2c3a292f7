"""Lag of a committed offset, in messages and in seconds, and the samples that tell the time."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from coordlib.core.wire.stored import LagLine, LagSample
from coordlib.kafka.cluster import partitions_of
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.reading import PartitionReader
from coordlib.limits import INT64_MAX

#: Samples of one partition: an hour, at the default interval of 30 s. An idle log needs only two.
SAMPLES_MAX: Final = 120
#: Memory of one partition's samples: two numbers of eight bytes each, with some room to grow, and
#: the objects around them.
SAMPLE_BYTES: Final = 18
SAMPLES_BASE_BYTES: Final = 240
#: A longer time without samples is a gap: the time of a message within it is unknown.
_GAP_MIN_MS: Final = 60_000
_GAP_INTERVALS: Final = 3


def gap_ms(interval_ms: int) -> int:
    """The longest time between two samples that is no gap, where one is due at every interval."""
    return max(_GAP_MIN_MS, _GAP_INTERVALS * interval_ms)


class Since(NamedTuple):
    """When the log's end was at a position; `is_at_least`: at that time or earlier."""

    time_ms: float
    is_at_least: bool


class LogEnds:
    """The newest samples of the end of one partition's log.

    There may be one of these for each of half a million partitions: hence arrays and slots.

    Args:
        gap_max_ms: samples that are farther apart have no line between them.
    """

    __slots__ = ("_ends", "_times_ms", "gap_max_ms", "samples_max")

    def __init__(
        self, samples_max: int = SAMPLES_MAX, gap_max_ms: int = gap_ms(interval_ms=30_000)
    ) -> None:
        self.samples_max, self.gap_max_ms = samples_max, gap_max_ms
        #: Epoch milliseconds, rising; and the log's end at each time. Ends never fall, and of
        #: samples with the same end only the first and the last are there.
        self._times_ms, self._ends = array("q"), array("q")

    def add(self, time_ms: int, end: int) -> None:
        """Add a sample, and drop those that it contradicts.

        A contradiction means that the log was truncated or created again, or the clock was set.
        """
        times, ends = self._times_ms, self._ends
        while ends and (ends[-1] > end or times[-1] >= time_ms):
            del times[-1], ends[-1]
        if len(ends) > 1 and ends[-2] == ends[-1] == end:
            times[-1] = time_ms
        else:
            times.append(time_ms)
            ends.append(end)
        if (beyond := len(ends) - self.samples_max) > 0:
            del times[:beyond], ends[:beyond]

    def since(self, position: int) -> Since | None:
        """When the log's end was last at this position; None without any sample."""
        times, ends = self._times_ms, self._ends
        if not ends:
            return None
        after = bisect_right(ends, position)
        if after == 0:
            return Since(times[0], is_at_least=True)
        left_ms, left_end = times[after - 1], ends[after - 1]
        if after == len(ends):
            return Since(left_ms, is_at_least=False)
        right_ms = times[after]
        if right_ms - left_ms > self.gap_max_ms:
            return Since(right_ms, is_at_least=True)
        share = (position - left_end) / (ends[after] - left_end)
        return Since(left_ms + share * (right_ms - left_ms), is_at_least=False)


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """A group's lag in one partition. None: unknown, say because the topic is gone."""

    log_start: int | None = None
    log_end: int | None = None
    #: Messages that can still be read.
    lag: int | None = None
    lag_seconds: float | None = None
    #: The seconds are a lower bound: there were no samples then.
    is_at_least: bool = False
    #: Messages that were removed before the group had committed them.
    lost: int | None = None
    #: The log ends before the committed offset: it was truncated, or the topic created again.
    is_beyond_end: bool = False


UNKNOWN: Final = Lag()


def measure(committed: int, bounds: Bounds | None, ends: LogEnds | None, now_ms: int) -> Lag:
    """The lag of one committed offset.

    Args:
        bounds: the log's bounds now; None when they could not be read.
        ends: samples of the log's end, the newest included; None for none.
    """
    if bounds is None:
        return UNKNOWN
    position = min(max(committed, bounds.start), bounds.end)
    since = ends.since(position) if ends is not None and position < bounds.end else None
    seconds = None if since is None else round(max(0.0, now_ms - since.time_ms) / 1000, 3)
    return Lag(
        log_start=bounds.start,
        log_end=bounds.end,
        lag=bounds.end - position,
        lag_seconds=0.0 if position == bounds.end else seconds,
        is_at_least=since is not None and since.is_at_least,
        lost=max(0, bounds.start - committed),
        is_beyond_end=committed > bounds.end,
    )


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
