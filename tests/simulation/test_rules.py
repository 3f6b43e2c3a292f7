"""The checks of the rules of time can fail, too: a world that kept them is tampered with."""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from tests.simulation.test_checks import assert_breaks, edit, event, peaceful
from tests.tools.simulation import checks, rules
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.world import PREFIX, World


def edit_ticks(world: World, change: Callable[[Record, dict], Record]) -> None:
    records = world.cluster.partitions[(f"{PREFIX}.requests", 0)].records
    for number, record in enumerate(records):
        value = msgspec.json.decode(record.value or b"{}")
        if value["type"] == "Tick":
            records[number] = change(record, value)


def test_a_peaceful_world_keeps_the_rules() -> None:
    """What follows is about the tampering, and not about the world."""
    world = peaceful()

    rules.check(world, checks.evidence_of(world))


def test_a_heartbeat_of_another_generation_that_nobody_refused_is_seen() -> None:
    """INV-18: no answer means that it was accepted."""
    world = peaceful()
    edit(
        world,
        "requests",
        lambda value: value["type"] == "Heartbeat",
        lambda value: value.update(generation=77),
    )

    assert_breaks("INV-18", lambda: rules.check_heartbeats(checks.evidence_of(world)))


def test_a_deadline_after_its_record_is_seen() -> None:
    """INV-33, rule 2: the killed member is expelled, and of its two lines one is of the record."""
    world = peaceful()
    edit(
        world,
        "events",
        lambda value: event("MemberRemoved")(value) and value["cause"].startswith("deadline:"),
        lambda value: value.update(cause="r0-1"),
    )

    assert_breaks("INV-33", lambda: rules.check_order_of_deadlines(checks.evidence_of(world)))


def test_a_first_join_that_makes_two_members_is_seen() -> None:
    """INV-16, F-01: the second member's JoinGroup becomes a repetition of the first's."""
    world = peaceful()
    first: dict[str, str] = {}

    def is_first_join(value: dict) -> bool:
        return value["type"] == "JoinGroup" and not value.get("member")

    edit(
        world,
        "requests",
        is_first_join,
        lambda value: first.update(client=value["client"], id=value["id"]),
    )
    edit(
        world,
        "requests",
        lambda value: is_first_join(value) and value["client"] != first["client"],
        lambda value: value.update(first),
    )

    assert_breaks("INV-16", lambda: rules.check_first_joins(checks.evidence_of(world)))


def test_who_is_put_out_before_he_could_hear_is_seen() -> None:
    """INV-30, rule 3: who leaves at the end is said to have missed the rejoin of a moment ago."""
    world = peaceful()
    edit(
        world,
        "events",
        lambda value: event("MemberRemoved")(value) and value["reason"] == "session expired",
        lambda value: value.update(reason="did not rejoin in time"),
    )
    world.plan = replace(world.plan, rebalance_timeout_ms=10_000_000)
    evidence = checks.evidence_of(world)

    assert_breaks(
        "INV-30.*rejoin", lambda: rules.check_reactions(world, evidence, rules.Visible(world))
    )


def test_a_session_that_ends_before_its_time_is_seen() -> None:
    """INV-30, rule 3: the killed member had a longer session than it was given."""
    world = peaceful()
    world.plan = replace(world.plan, session_timeout_ms=10_000_000)
    evidence = checks.evidence_of(world)

    assert_breaks(
        "INV-30.*answer", lambda: rules.check_sessions(world, evidence, rules.Visible(world))
    )


def test_a_tick_that_says_too_much_is_seen() -> None:
    """Rule 5: every tick covers all that stands before it."""
    world = peaceful()
    edit_ticks(
        world,
        lambda record, value: record._replace(
            value=msgspec.json.encode({**value, "published": record.offset - 1})
        ),
    )
    evidence, seen = checks.evidence_of(world), rules.Visible(world)

    assert_breaks("rule 5", lambda: rules.check_published(world, evidence, seen, 0))


def test_a_tick_that_comes_late_is_seen() -> None:
    """Rule 6: every tick is five seconds late."""
    world = peaceful()
    edit_ticks(world, lambda record, value: record._replace(true_ms=record.true_ms + 5_000))
    evidence, seen = checks.evidence_of(world), rules.Visible(world)

    assert_breaks("rule 6", lambda: rules.check_owed(world, evidence, seen, 0))


def test_a_clock_that_goes_back_is_seen() -> None:
    """INV-06: through rebuilds and all."""
    world = peaceful()
    world.engine.note_clock(0, world.engine.clocks[0] - 1)

    assert_breaks("INV-06", lambda: checks.check_end(world))
