"""A client that has gone mad registers ten thousand times a second: what stays of it is bounded.

How fast a shard judges them prints `python -m tests.tools.bench brokers --core`.
"""

from collections.abc import Sequence

import pytest

from coordlib import limits
from coordlib.core.controller.states import Cluster
from coordlib.core.engine.effects import EVENTS, RESPONSES
from coordlib.core.engine.pages import PagesFold
from coordlib.core.engine.time import BURST_MS
from tests.tools import clusters as c
from tests.tools.bench.brokers_core import NAME, SETTINGS, Fleet
from tests.tools.core import Shard

#: A second of them.
FLOOD = 10_000


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(brokers=3, partitions=3, replicas=3)


def judged(fleet: Fleet, brokers: Sequence[int]) -> tuple[PagesFold, Cluster]:
    """A batch of these registrations, and the cluster after it."""
    outcome = fleet.fold([fleet.register(each) for each in brokers])
    return outcome, c.cluster_of(Shard(fleet.blob, SETTINGS), NAME)


def test_one_id_that_registers_again_and_again_is_slowed_down(fleet: Fleet) -> None:
    """A process that ends at its start, or two that fight for one id: what is known of the others,
    what is guarded and what history tells must not grow, and others wait.  # INV-31"""
    before = len(fleet.blob)
    outcome, cluster = judged(fleet, [0] * FLOOD)
    broker = cluster.brokers[0]

    assert list(cluster.brokers) == [0, 1, 2]
    answers = [each.value or b"" for each in outcome.outputs if each.topic == RESPONSES]
    refused = [each for each in answers if b"THROTTLING_QUOTA_EXCEEDED" in each]
    burst = limits.REGISTRATIONS_PER_SECOND_MAX * BURST_MS // 1_000
    assert FLOOD - len(refused) == burst - 1, "it had registered once before"
    assert all(b"throttle_time_ms" in each for each in refused)
    assert len(broker.superseded) == limits.SUPERSEDED_MAX
    assert len(cluster.guards) == 1, "of the one process that led"
    assert len(fleet.blob) < before + limits.KIB
    lines = [each for each in outcome.outputs if each.topic == EVENTS]
    assert len(lines) < 300


def test_a_broker_of_very_many_replicas_registers_less_often() -> None:
    """Each answer names all of them, and each process that was replaced leads some: with 60,000
    that are ten megabytes and a second of the shard. A supervisor that starts it five times a
    second must not take all of the shard."""
    large = Fleet(brokers=3, partitions=6_000, replicas=3)
    outcome, _ = judged(large, [0] * 100)

    answers = [each.value or b"" for each in outcome.outputs if each.topic == RESPONSES]
    refused = sum(b"THROTTLING_QUOTA_EXCEEDED" in each for each in answers)
    counted = 1 + 6_000 // limits.REPLICAS_PER_REGISTRATION
    burst = limits.REGISTRATIONS_PER_SECOND_MAX * BURST_MS // 1_000
    assert 100 - refused <= burst // counted + 1


def test_a_broker_that_restarts_once_a_second_is_never_refused(fleet: Fleet) -> None:
    """Its supervisor starts it anew all night long, and the others register beside it."""
    for _ in range(60):
        fleet.now_ms += 1_000
        outcome = fleet.fold([fleet.register(0)])
        assert b"THROTTLING" not in b"".join(each.value or b"" for each in outcome.outputs)


def test_only_the_broker_id_that_is_flooded_is_slowed_down(fleet: Fleet) -> None:
    """Another broker of the cluster comes back in the middle of it."""
    outcome = fleet.fold([*(fleet.register(0) for _ in range(FLOOD)), fleet.register(1)])

    newest = [each.value or b"" for each in outcome.outputs if each.topic == RESPONSES][-1]
    assert b"THROTTLING" not in newest


def test_ever_new_ids_fill_the_cluster_and_are_refused_then(fleet: Fleet) -> None:
    """The head is written whole whenever one comes; refusals of a flood are told now and then."""
    outcome, cluster = judged(fleet, range(3, 3 + FLOOD))

    assert len(cluster.brokers) == limits.BROKERS_MAX
    assert cluster.size_bytes() < limits.GROUP_BYTES_MAX
    refused = FLOOD - (limits.BROKERS_MAX - 3)
    words = [each.value or b"" for each in outcome.outputs if each.topic == RESPONSES]
    assert sum(b"GROUP_MAX_SIZE_REACHED" in each for each in words) == refused
    lines = [each.value or b"" for each in outcome.outputs if each.topic == EVENTS]
    told = sum(b"RequestRejected" in each for each in lines)
    assert told <= limits.REFUSALS_REPORTED_MAX + refused // limits.REFUSALS_REPORTED_EVERY
    assert judged(fleet, [0, 1, 2])[1].brokers.keys() == cluster.brokers.keys(), "known ones may"
