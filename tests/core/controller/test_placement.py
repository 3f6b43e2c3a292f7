"""Where new partitions lie: the cases of Kafka's AdminRackAwareTest and AdminUtils."""

from collections import Counter

import pytest

from coordlib.core.controller import topics

NO_RACKS = dict.fromkeys(range(5))
RACKS = {0: "a", 1: "b", 2: "b", 3: "c", 4: "c", 5: "a"}


def test_brokers_without_racks_take_turns_as_kafkas_do() -> None:
    """The table in AdminUtils' own comment: ten partitions, three replicas, five brokers."""
    placed = topics.place_replicas(NO_RACKS, 10, 3, seed=0)

    assert placed == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@pytest.mark.parametrize("seed", range(40))
def test_each_rack_has_a_replica_before_any_has_two(seed: int) -> None:
    """A rack that burns takes one replica of three."""
    placed = topics.place_replicas(RACKS, 12, 3, seed)

    assert all(len({RACKS[broker] for broker in some}) == 3 for some in placed.values())
    assert {*Counter(some[0] for some in placed.values()).values()} == {2}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("racks", [NO_RACKS, RACKS, {7: None}, {7: "a", 9: "a"}])
def test_no_broker_has_two_replicas_of_a_partition(racks: dict[int, str | None], seed: int) -> None:
    """However many there are, and whichever offset the numbers come of."""
    for replicas in range(1, len(racks) + 1):
        for some in topics.place_replicas(racks, 7, replicas, seed, first=3).values():
            assert len(set(some)) == len(some) == replicas


def test_partitions_that_come_later_go_on_where_the_others_ended() -> None:
    """CreatePartitions, under the same numbers."""
    whole = topics.place_replicas(NO_RACKS, 10, 3, seed=7)

    assert topics.place_replicas(NO_RACKS, 5, 3, seed=2, first=5).keys() == {5, 6, 7, 8, 9}
    assert len(whole) == 10
