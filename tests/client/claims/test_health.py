"""Velocity and health by Marshal's own vectors."""

import pytest

from coordlib.client.claims.claim import Health, Verdict, velocity

OK, BEHIND, RELEASE = Verdict.HEALTHY, Verdict.BEHIND, Verdict.RELEASE


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([0] * 10, 0),
        ([1, 2], 1),
        ([1, 2, 3], 1),
        (list(range(1, 11)), 1),
        ([1, 21, 21], 10),
        ([1, 21, 21, 21, 21], 5),
        ([21, 21, 1, 21, 21], 5),
        ([21] + [0] * 9, 0),
        ([], 0),
    ],
)
def test_v10_velocity(samples: list[int], expected: float) -> None:
    assert velocity(samples) == expected


def look(
    currents: list[int], latests: list[int], current: int, latest: int, cycles: int = 0
) -> tuple[Verdict, int]:
    """One judgement of these samples, as Marshal's test sets them by hand."""
    health = Health()
    health.currents.extend(currents)
    health.latests.extend(latests)
    health.cycles_behind = cycles
    return health.judge(current, latest, is_silent=False), health.cycles_behind


FAST = [21, 22, 23, 24, 26, 27, 28, 29, 30, 31]


@pytest.mark.parametrize(
    ("currents", "latests", "current", "latest", "cycles", "expected"),
    [
        ([], [], 0, 0, 0, (OK, 0)),
        ([], [1, 10], 0, 10, 0, (BEHIND, 1)),
        ([1, 6, 11, 16, 21], [1, 11, 21], 21, 21, 1, (OK, 0)),
        ([1, 6, 11, 16, 21], [1, 11, 21, 31], 21, 31, 0, (OK, 0)),
        ([21] * 10, [23] * 10, 21, 23, 0, (BEHIND, 1)),
        ([21] * 10, [23] * 10, 21, 23, 1, (BEHIND, 2)),
        (FAST, list(range(123, 133)), 31, 132, 2, (OK, 0)),
        ([21] * 9 + [22], [1, 11, 21, 32], 22, 32, 0, (BEHIND, 1)),
        ([21] * 9 + [22], [1, 11, 21, 32], 22, 32, 1, (BEHIND, 2)),
        ([21] * 9 + [22], [1, 11, 21, 32], 22, 32, 2, (RELEASE, 3)),
    ],
)
def test_v11_health(
    currents: list[int],
    latests: list[int],
    current: int,
    latest: int,
    cycles: int,
    expected: tuple[Verdict, int],
) -> None:
    assert look(currents, latests, current, latest, cycles) == expected


def wedged(currents: list[int], latests: list[int], current: int, latest: int) -> Verdict:
    health = Health()
    health.currents.extend(currents)
    health.latests.extend(latests)
    return health.judge(current, latest, is_silent=True)


def test_v12_wedged() -> None:
    """A consumer that stands still is released for others only if there is something to read."""
    assert wedged([12] * 3, [12] * 3, 12, 12) is OK
    assert wedged([12] * 3, [13] * 3, 12, 13) is RELEASE
    assert wedged([12] * 3, [12, 13, 14], 14, 14) is RELEASE


def test_a_slow_consumer_keeps_its_claims_if_asked_to() -> None:
    """PR #98: the release of a wedged claim ignored the option."""
    health = Health(releases_if_behind=False)

    assert [health.look(1, 100 * n, is_silent=True) for n in range(1, 8)] == [OK] * 7


def test_a_part_of_a_topic_is_released_only_when_it_is_wedged() -> None:
    health = Health(is_part_of_topic=True)

    assert [health.look(1, 100 * n, is_silent=False) for n in range(1, 8)] == [OK] * 7
    assert health.look(1, 900, is_silent=True) is RELEASE


def test_only_ten_samples_count() -> None:
    health = Health()
    for number in range(1, 30):
        health.look(number, number, is_silent=False)

    assert list(health.currents) == list(range(20, 30))
