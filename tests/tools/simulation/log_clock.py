"""How far a shard's clock has gone between two records, from their timestamps alone (rule 1).

The longest step of the clock (CAP) depends on who is a member just then. So there are two bounds:
the clock goes at least as far as with the shortest timeout that anybody has ever named, and at most
as far as the brokers' timestamps.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Final

from coordlib import limits
from coordlib.core.wire import api
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.evidence import Evidence
from tests.tools.simulation.world import PREFIX

#: CAP is this part of the shortest timeout of a live member.
CAP_SHARE: Final = 5


class LogClock:
    """The clock of one shard, as an outsider can know it. Places are offsets of `requests`."""

    def __init__(self, records: Iterable[Record], cap_ms: int = limits.CLOCK_CAP_IDLE_MS) -> None:
        steps = list(_steps_ms(records))
        self._least = list(accumulate((min(step, cap_ms) for step in steps), initial=0))
        self._most = list(accumulate(steps, initial=0))

    def least_ms(self, first: int, last: int) -> int:
        """By how much the clock has gone on from one record to a later one, at the least."""
        return self._least[last] - self._least[first] if last > first else 0

    def most_ms(self, first: int, last: int) -> int:
        """The same, at the most."""
        return self._most[last] - self._most[first] if last > first else 0


def of_requests(evidence: Evidence, shard: int) -> LogClock:
    """That of a shard."""
    named = [
        timeout_ms
        for each in evidence.asked
        if each.shard == shard
        for timeout_ms in _timeouts_ms(each.request)
    ]
    shortest_ms = min((timeout_ms for timeout_ms in named if timeout_ms > 0), default=0)
    cap_ms = shortest_ms // CAP_SHARE or limits.CLOCK_CAP_IDLE_MS
    return LogClock(evidence.cluster.partitions[(f"{PREFIX}.requests", shard)].records, cap_ms)


def _timeouts_ms(request: api.Request) -> tuple[int, ...]:
    """Those for which somebody is waited for, if the request is accepted."""
    match request:
        case api.JoinGroup() | api.Subscribe():
            return request.session_timeout_ms, request.rebalance_timeout_ms
        case api.RegisterBroker():
            return request.session_timeout_ms, request.release_timeout_ms
        case api.InitProducerId():
            return (request.timeout_ms,)
    return ()


def of_positions(evidence: Evidence, shard: int) -> LogClock:
    """The time of the records of `coord.offsets`, on which new groups count that come by it."""
    return LogClock(evidence.cluster.partitions[(f"{PREFIX}.offsets", shard)].records)


def _steps_ms(records: Iterable[Record]) -> Iterator[int]:
    for before, after in pairwise(records):
        yield max(after.timestamp_ms - before.timestamp_ms, 0)
