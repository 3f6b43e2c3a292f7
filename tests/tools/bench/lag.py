"""What it costs the driver to sample lag.

    python -m tests.tools.bench.lag [OFFSETS …]    500,000 by default

JSON lines on stdout, one per number of offsets: committed offsets in groups of ten, each in a
partition of its own that grows in every round, the worst case. `sample_bytes` is the memory of a
partition's samples when all of them are there, by tracemalloc. `round_ms` is a round of the sampler
in milliseconds of the processor, records encoded, without the questions to the brokers and without
the producer; in `quiet_round_ms` no log has grown, and no group has lag.
"""

import sys
import tracemalloc
from collections.abc import Iterable
from typing import Final

from coordlib.core.wire import codec
from coordlib.core.wire.stored import LagSample
from coordlib.job.background.committed_log import CommittedOffsets
from coordlib.job.background.lag_sampler import LagSampler, samples_max
from coordlib.kafka.lag import LogEnds
from coordlib.kafka.logs import Bounds, Place
from tests.tools.bench.figures import summary, tell, tell_machine, timed

BENCH: Final = "lag"
OFFSETS: Final = 500_000
PER_GROUP: Final = 10
INTERVAL_MS: Final = 30_000
ROUNDS: Final = 3
#: Partitions whose samples are weighed.
WEIGHED: Final = 50


class World:
    """Groups, the logs that they read, and a sampler whose clock is turned by hand."""

    def __init__(self, offsets: int) -> None:
        self.now_ms, self.written = 0, 0
        self.offsets = CommittedOffsets()
        for number in range(offsets):
            place = Place(f"topic-{number // 100:05}", number % 100)
            self.offsets.put(f"group-{number // PER_GROUP:06}", place, 0)
        places = [place for mine in self.offsets.groups.values() for place in mine]
        self.bounds: dict[Place, Bounds | None] = dict.fromkeys(places, Bounds(0, 0))
        self.sampler = LagSampler(
            self._ask,
            self._write,
            INTERVAL_MS,
            now_ms=lambda: self.now_ms,
            now_s=lambda: self.now_ms / 1000,
        )

    def _ask(self, _: Iterable[Place]) -> dict[Place, Bounds | None]:
        return self.bounds

    def _write(self, sample: LagSample) -> None:
        self.written += len(codec.encode(sample))

    def grow(self) -> None:
        end = self.now_ms
        self.bounds = dict.fromkeys(self.bounds, Bounds(0, end))

    def round(self) -> None:
        self.sampler.turn(self.offsets)


def run(offsets: int) -> None:
    """Measure one size, and say what it took."""
    world = World(offsets)
    quiet = []
    for _ in range(ROUNDS):
        world.now_ms += INTERVAL_MS
        quiet.append(timed(world.round)[1])
    grown = []
    for _ in range(ROUNDS):
        world.now_ms += INTERVAL_MS
        world.grow()
        grown.append(timed(world.round)[1])
    samples = samples_max(offsets)
    tell(
        BENCH,
        "round",
        offsets=offsets,
        samples=samples,
        sample_bytes=sample_bytes(samples),
        written_mb=round(world.written / 2**20, 1),
        quiet_round_ms=summary(quiet[1:]),
        round_ms=summary(grown),
    )


def sample_bytes(samples: int) -> int:
    """Memory per partition whose log grew in every round, when all its samples are there."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [LogEnds(samples) for _ in range(WEIGHED)]
    for turn in range(samples + 5):
        for ends in kept:
            ends.add(1_700_000_000_000 + turn * INTERVAL_MS, 1_000_000 + 50 * turn)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) // WEIGHED


if __name__ == "__main__":
    tell_machine(BENCH)
    for size in [int(text) for text in sys.argv[1:]] or [OFFSETS]:
        run(size)
