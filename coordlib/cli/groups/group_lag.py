"""How far a group is behind, as of now: the log ends are asked live, so the job may be down.

When the log ended where the group stands is taken from the samples that the job has left.
"""

import time
from collections.abc import Mapping
from typing import Final

from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching
from coordlib.kafka.denied import refusing
from coordlib.kafka.lag import UNKNOWN, Lag, measure
from coordlib.kafka.lag_samples import SampledEnds, newest_samples, sampled_ends
from coordlib.kafka.places import Bounds, Place

TIMEOUT_S: Final = 5.0


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
    with reaching("Kafka stopped answering", "Look into the broker's log."):
        bounds = log_bounds(open_admin(client), offsets, TIMEOUT_S, on_denied=refusing(client))
        sampled = sampled_ends(newest_samples(client, topic, shard, group))
    now_ms = time.time_ns() // 1_000_000
    return {
        place: lag_now(committed, bounds.get(place), sampled.get(place), now_ms)
        for place, committed in offsets.items()
    }


def lag_now(
    committed: int | None, bounds: Bounds | None, sampled: SampledEnds | None, now_ms: int
) -> Lag:
    """The lag by live bounds and earlier samples."""
    if committed is None or bounds is None:
        return UNKNOWN if bounds is None else Lag(log_start=bounds.start, log_end=bounds.end)
    if sampled is None:
        return measure(committed, bounds, None, now_ms)
    sampled.ends.add(now_ms, bounds.end)
    return measure(committed, bounds, sampled.ends, now_ms)
