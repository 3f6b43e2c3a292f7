"""Samples every group's lag, and writes it to `coord.lag`; the archive makes a table of it.

No answer waits for it, and no decision of a group depends on it. A lost sample is not repeated.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, Message
from msgspec import UNSET, UnsetType

from coordlib.core.wire import codec
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import LagLine, LagSample
from coordlib.job.background.committed_log import CommittedOffsets
from coordlib.kafka.lag import (
    SAMPLE_BYTES,
    SAMPLES_BASE_BYTES,
    SAMPLES_MAX,
    LogEnds,
    gap_ms,
    measure,
)
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.producer import LastingProducer
from coordlib.limits import MIB

LINES_MAX: Final = 1_000  # per record: with the longest of topic names about 500 KB
#: Memory of all samples: of more than 167,772 partitions that grow each one has fewer than 120.
SAMPLES_BYTES_MAX: Final = 384 * MIB

_log = structlog.get_logger()

#: The bounds of partitions that exist, None for those that do not; unreadable ones are left out.
AskBounds = Callable[[Iterable[Place]], Mapping[Place, Bounds | None]]
Write = Callable[[LagSample], None]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def samples_max(partitions: int) -> int:
    """How many samples each of this many partitions may have; a line needs two."""
    room = SAMPLES_BYTES_MAX // max(1, partitions) - SAMPLES_BASE_BYTES
    return max(2, min(SAMPLES_MAX, room // SAMPLE_BYTES))


class Whose(NamedTuple):
    """What samples name beside the group; left out for consumer groups."""

    kind: str | UnsetType = UNSET
    space: str | UnsetType = UNSET


class LagSampler:
    """One round after the other, at most every `interval_ms`.

    Args:
        ask: may raise KafkaException or TimeoutError: the next turn repeats the round.
        earlier: samples of earlier runs.
        whose: kind and space of what has the offsets.
        now_ms: the clock of the samples' times; `now_s`: a monotonic clock.
    """

    def __init__(
        self,
        ask: AskBounds,
        write: Write,
        interval_ms: int,
        earlier: Mapping[Place, LogEnds] = MappingProxyType({}),
        *,
        whose: Whose = Whose(),  # noqa: B008  immutable
        now_ms: Callable[[], int] = wall_clock_ms,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._whose = whose
        self._ask, self._write, self._interval_ms = ask, write, interval_ms
        self._now_ms, self._now_s = now_ms, now_s
        self._due_s = now_s()
        #: After a round: only of partitions with a committed offset then.
        self._ends = dict(earlier)
        #: Deleted offsets that no sample has reported yet, by group.
        self._deleted: dict[str, set[Place]] = {}
        #: Of each group without lag: the hash of its last written sample.
        self._quiet: dict[str, int] = {}
        #: Groups that have committed since their newest sample.
        self._moved: set[str] = set()
        #: The logs in the round before, if all of it was written.
        self._bounds: Mapping[Place, Bounds | None] = {}
        #: The group that the round before could not write; empty: it was whole.
        self._begin_at = ""
        self.rounds = 0

    def changed(self, group: str, place: Place, offset: int | None) -> None:
        """A committed offset was set or deleted."""
        self._moved.add(group)
        if offset is None:
            self._deleted.setdefault(group, set()).add(place)
        elif group in self._deleted:
            self._deleted[group].discard(place)

    def turn(self, offsets: CommittedOffsets) -> None:
        """Take a round of samples if it is time. Raises KafkaException, TimeoutError."""
        if self._now_s() < self._due_s:
            return
        bounds = self._ask({place for mine in offsets.groups.values() for place in mine})
        now_ms = self._now_ms()
        self._note_ends(offsets, bounds, now_ms)
        grown, self._bounds = _differing(self._bounds, bounds), {}
        groups = {*offsets.groups, *self._deleted}
        # Else those at the end of the alphabet would never come to be written.
        for group in sorted(groups, key=lambda group: (group < self._begin_at, group)):
            self._begin_at = group
            mine = offsets.groups.get(group, {})
            if group in self._moved or group not in self._quiet or not grown.isdisjoint(mine):
                self._tell(group, tuple(self._lines(group, mine, bounds, now_ms)), now_ms)
                self._moved.discard(group)
        self._moved.clear()
        self._begin_at, self._bounds = "", bounds
        self.rounds += 1
        self._due_s = self._now_s() + self._interval_ms / 1000

    def _note_ends(
        self, offsets: CommittedOffsets, bounds: Mapping[Place, Bounds | None], now_ms: int
    ) -> None:
        wanted = {place for mine in offsets.groups.values() for place in mine}
        gone = {place for place, found in bounds.items() if found is None}
        self._ends = {p: ends for p, ends in self._ends.items() if p in wanted and p not in gone}
        most, gap_max_ms = samples_max(len(bounds)), gap_ms(self._interval_ms)
        for place, found in bounds.items():
            if found is not None:
                ends = self._ends.get(place)
                if ends is None:
                    ends = self._ends[place] = LogEnds()
                ends.samples_max, ends.gap_max_ms = most, gap_max_ms
                ends.add(now_ms, found.end)

    def _lines(
        self,
        group: str,
        mine: Mapping[Place, int],
        bounds: Mapping[Place, Bounds | None],
        now_ms: int,
    ) -> Iterator[LagLine]:
        for place in sorted(self._deleted.get(group, ())):
            yield LagLine(topic=place.topic, partition=place.partition, committed=None)
        for place, committed in sorted(mine.items()):
            lag = measure(committed, bounds.get(place), self._ends.get(place), now_ms)
            yield LagLine(
                topic=place.topic,
                partition=place.partition,
                committed=committed,
                log_start=lag.log_start,
                log_end=lag.log_end,
                lag=lag.lag,
                lag_seconds=lag.lag_seconds,
                is_at_least=lag.is_at_least,
                lost=lag.lost,
                is_beyond_end=lag.is_beyond_end,
            )

    def _tell(self, group: str, lines: tuple[LagLine, ...], now_ms: int) -> None:
        """Write a group's sample, unless it equals the one before and has no age that grows."""
        is_quiet = all(line.lag in (0, None) and line.committed is not None for line in lines)
        number = hash(lines) if lines and is_quiet else None
        if number is None or self._quiet.get(group) != number:
            for first in range(0, len(lines), LINES_MAX):
                part = lines[first : first + LINES_MAX]
                self._write(self._sample(group, part, now_ms))
        self._deleted.pop(group, None)
        self._quiet.pop(group, None)
        if number is not None:
            self._quiet[group] = number

    def _sample(self, group: str, lines: tuple[LagLine, ...], now_ms: int) -> LagSample:
        return LagSample(
            time_ms=now_ms,
            interval_ms=self._interval_ms,
            group=group,
            lines=lines,
            kind=self._whose.kind,
            space=self._whose.space,
        )


def _differing(
    before: Mapping[Place, Bounds | None], now: Mapping[Place, Bounds | None]
) -> set[Place]:
    """The partitions whose logs changed, or whose bounds were read only once."""
    here = {place for place, found in now.items() if before.get(place, _NOT_KNOWN) != found}
    return here | (before.keys() - now.keys())


_NOT_KNOWN: Final = object()


class LagTopic:
    """Writes samples to `coord.lag`, each to the partition of its group's shard."""

    def __init__(self, client_options: Mapping[str, Any], prefix: str, shards: int) -> None:
        self._topic, self._shards = f"{prefix}.lag", shards
        self._producer = LastingProducer(client_options, "lag samples")
        #: Why the newest sample with a delivery report was not written; empty: it was.
        self.failure = ""

    def write(self, sample: LagSample) -> None:
        """Queue a sample; its outcome is logged. Raises KafkaException, TimeoutError."""
        self._producer.produce(
            self._topic,
            codec.encode(sample),
            sample.group.encode(),
            shard_of(sample.group, self._shards),
            on_delivery=self._note,
        )
        self._producer.poll()

    def serve(self) -> None:
        """Deliver the outcome of samples. Raises KafkaException."""
        self._producer.renew()
        self._producer.poll()

    def close(self) -> None:
        self._producer.close()

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        self.failure = "" if error is None else error.str()
        if error is not None:
            _log.warning("a lag sample was not written", error=error.str())
