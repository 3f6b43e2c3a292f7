"""What the pure core spends on each request of a flood: no Kafka, no Spark, one core.

    python -m tests.tools.bench.hostile_core

JSON lines on stdout: microseconds of the processor for each request, batch after batch of one
shard, answers included, as a worker has it that keeps the shard's pages.
"""

import sys
import time
from typing import Final

import msgspec

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.engine.pages import fold_pages
from coordlib.core.engine.state import InputRecord
from coordlib.core.registry import REGISTRY
from tests.tools.bench import core_transactions
from tests.tools.bench.core_state import PACKING
from tests.tools.bench.figures import tell, tell_machine
from tests.tools.bench.hostile_floods import FLOODS, Place

BENCH: Final = "hostile core"
BATCHES: Final = 4
BATCH: Final = 2_500
#: As shards are by default, and with the job's key.
SETTINGS: Final = msgspec.structs.replace(core_transactions.SETTINGS, families={})


def costs(kind: str, part: str, batch: int, batches: int = BATCHES) -> list[int]:
    """Microseconds of each request, by batch."""
    flood = FLOODS[kind](Place(1, "x", [each.key for each in SETTINGS.keys]))
    flood.begin(part)
    done = fold_pages(None, [], SETTINGS, REGISTRY, PACKING, {})
    offset, found = 0, []
    for number in range(batches):
        now_ms = core_transactions.START_MS + 300 * number
        written = [record for _ in range(batch) if (record := flood.next()) is not None]
        records = [
            InputRecord(REQUESTS, offset + n, now_ms, each.value) for n, each in enumerate(written)
        ]
        offset += len(records)
        began = time.process_time()
        done = fold_pages(done.stored, records, SETTINGS, REGISTRY, PACKING, done.kept)
        found.append(round((time.process_time() - began) / len(records) * 1_000_000))
    return found


def main() -> int:
    """A line for each part of each flood."""
    tell_machine(BENCH)
    for kind, flood in FLOODS.items():
        for part in flood.PARTS:
            tell(BENCH, part, kind=kind, batch=BATCH, us_each=costs(kind, part, BATCH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
