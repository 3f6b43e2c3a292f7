"""INV-42 in a simulated world: a step breaks, and every check about it can fail."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from tests.simulation.test_checks import assert_breaks, edit, event
from tests.tools.simulation import checks, set_aside
from tests.tools.simulation.drawing import draw
from tests.tools.simulation.plan import Fault, Plan
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import play
from tests.tools.simulation.situations import count_sometimes
from tests.tools.simulation.world import GROUP, World

UNAVAILABLE = set_aside.UNAVAILABLE


@cache
def _plan(is_theirs: bool) -> Plan:
    """A world whose only fault is a step that raises: of the members' group, or of a neighbour."""
    calm = next(
        each
        for each in map(draw, range(1_000))
        if each.shards == 1 and not each.group_size_max and not each.copiers
    )
    for dice in range(100):
        chosen = replace(calm, faults=(Fault(20_000, "poison-step", 8_000, dice),))
        found = set_aside.quarantines(checks.evidence_of(_played(chosen)))
        if found and ({each.group for each in found} == {GROUP}) is is_theirs:
            return chosen
    raise AssertionError("no such luck")


@quiet_logs()
def _played(chosen: Plan) -> World:
    world = World(chosen)
    play(world)
    return world


def broken(is_theirs: bool = True) -> World:
    return _played(_plan(is_theirs))


def looked_at(world: World) -> Callable[[], None]:
    return lambda: set_aside.check(world, checks.evidence_of(world))


def told(error: str, kind: str = "") -> Callable[[dict], bool]:
    return lambda value: value.get("error") == error and (not kind or value["type"] == kind)


def test_a_group_that_broke_goes_on_when_it_is_released() -> None:
    """What follows is about the tampering, and not about the world."""
    met = count_sometimes(broken())

    assert met["group set aside"] > 0
    assert met["group went on after its release"] > 0


def test_members_go_on_beside_a_group_that_broke() -> None:
    """The world demands of them what it demands of all."""
    met = count_sometimes(broken(is_theirs=False))

    assert met["neighbour set aside"] > 0
    assert met["group set aside"] == 0


def test_an_answer_of_a_group_that_is_set_aside_is_seen() -> None:
    """INV-42: a commit during the quarantine, accepted."""
    world = broken()
    edit(world, "responses", told(UNAVAILABLE), lambda value: value.update(error="NONE"))

    assert_breaks("INV-42.*was answered", looked_at(world))


def test_a_group_that_is_refused_and_not_set_aside_is_seen() -> None:
    """INV-42: a quarantine that stops the others."""
    world = broken()
    edit(world, "responses", told("NONE"), lambda value: value.update(error=UNAVAILABLE))

    assert_breaks("INV-42.*is not", looked_at(world))


def test_a_neighbour_that_does_not_go_on_is_seen() -> None:
    """INV-42: somebody else's commit is lost in the confusion."""
    world = broken()
    edit(
        world,
        "responses",
        lambda value: told("NONE")(value) and value["client"] == set_aside.NEIGHBOUR,
        lambda value: value.update(error="UNKNOWN_MEMBER_ID"),
    )

    assert_breaks("INV-42.*did not go on", looked_at(world))


def test_history_of_a_group_that_is_set_aside_is_seen() -> None:
    """INV-42: it is kept as it was, so nothing happens in it."""
    world = broken()
    edit(
        world, "events", event("GroupReleased"), lambda value: value.update(type="OffsetsCommitted")
    )

    assert_breaks("INV-42: OffsetsCommitted", looked_at(world))


@pytest.mark.parametrize(
    ("kind", "change", "promise"),
    [
        ("GroupQuarantined", {"type": "HandOverDelayed"}, "had not been set aside"),
        ("GroupReleased", {"generation": 99}, "released with 99"),
    ],
)
def test_a_release_of_another_group_than_was_set_aside_is_seen(
    kind: str, change: dict, promise: str
) -> None:
    """INV-42: nothing was to be released, or something else was kept."""
    world = broken()
    edit(world, "events", event(kind), lambda value: value.update(change))

    assert_breaks(f"INV-42.*{promise}", looked_at(world))


def test_an_expulsion_soon_after_the_release_is_seen() -> None:
    """INV-42: the killed member had a longer session than the release gave it."""
    world = broken()
    world.plan = replace(world.plan, session_timeout_ms=10_000_000)

    assert_breaks("INV-42.*after the release", looked_at(world))
