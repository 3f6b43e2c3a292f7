"""The checks of server-assigned groups can fail: a world that kept them is tampered with."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from tests.simulation.test_checks import assert_breaks, copy, edit, event
from tests.tools.simulation import checks, drawing, handovers, plan, rules, set_aside
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import play
from tests.tools.simulation.situations import count_sometimes
from tests.tools.simulation.wishes import Wish
from tests.tools.simulation.world import PREFIX, REPLY_PARTITIONS, TOPICS, World


@cache
def _plan() -> plan.Plan:
    found = (drawing.draw(seed, kind=plan.ASSIGNED) for seed in range(1_000))
    chosen = next(
        each
        for each in found
        if each.shards == 1 and each.members == 3 and each.more_topics and not each.group_size_max
    )
    return replace(chosen, faults=())


@quiet_logs()
def peaceful() -> World:
    """Three members that want everything, and a fourth that comes later: played to its end."""
    world = World(_plan())
    world.draw_wish = lambda luck: Wish(TOPICS)  # type: ignore[method-assign]
    world.start_program_after(20_000, None)
    play(world)
    return world


def checked(world: World) -> handovers.Evidence:
    return checks.evidence_of(world)


def says(kind: str) -> Callable[[dict], bool]:
    return lambda value: value["type"] == kind


def test_a_peaceful_world_hands_over_and_keeps_every_promise() -> None:
    """What follows is about the tampering; and without demands there would be nothing to see."""
    world = peaceful()

    checks.check_end(world)
    assert any(each.type == "ReleaseDemanded" for each in checked(world).told)
    assert count_sometimes(world)["offsets committed by a Release"] > 0


def test_two_owners_are_seen() -> None:
    """INV-09: the second member was given everything, and the first has let go of nothing yet."""
    world = peaceful()
    everything = {topic: list(range(world.cluster.count(topic))) for topic in world.topics}
    first: list[str] = []

    def is_another(value: dict) -> bool:
        if event("AssignmentIssued")(value) and value["detail"]["partitions"]:
            first.append(value["member"])
        return bool(first) and event("AssignmentIssued")(value) and value["member"] != first[0]

    edit(world, "events", is_another, lambda value: value["detail"].update(partitions=everything))

    assert_breaks("INV-09", lambda: handovers.check_owners(checked(world)))


def test_a_partition_that_is_taken_without_a_word_is_seen() -> None:
    """INV-57: the Release names a demand that there never was."""
    world = peaceful()
    edit(world, "requests", says("Release"), lambda value: value.update(cause=10**6))

    assert_breaks("INV-57", lambda: handovers.check_owners(checked(world)))


def test_a_fence_that_falls_is_seen() -> None:
    """INV-20: a store would refuse the new owner."""
    world = peaceful()

    def lower(value: dict) -> None:
        for row in value["partitions"]:
            row["fence"] = 0

    edit(
        world,
        "responses",
        lambda value: says("AssignmentChanged")(value) and value["release"],
        lower,
    )

    assert_breaks("INV-20", lambda: handovers.check_pictures(checked(world)))


def test_a_demand_that_is_taken_back_is_seen() -> None:
    """INV-57: it may be letting go already."""
    world = peaceful()
    found = handovers.pictures(checked(world))
    asked = next(each for each in found if each.demands)
    had = {spot for each in found if each.member == asked.member for spot in each.fences}
    spot = next(each for some in asked.demands.values() for each in some if each in had)
    fence = next(p.fences[spot] for p in found if p.member == asked.member and spot in p.fences)
    again = {
        "type": "AssignmentChanged",
        "group": "readers",
        "cause": f"r0-{asked.coordinate}",
        "member": asked.member,
        "partitions": [{"topic": spot[0], "partitions": [spot[1]], "fence": fence}],
    }
    last = (f"{PREFIX}.responses", REPLY_PARTITIONS - 1)
    world.cluster.partitions[last].append(None, msgspec.json.encode(again), 0, 0)

    assert_breaks("INV-57.*may keep it", lambda: handovers.check_pictures(checked(world)))


def test_a_notice_without_news_is_seen() -> None:
    """INV-32, rule 13: who owes nothing and gets nothing is left alone."""
    world = peaceful()
    copy(world, "responses", says("AssignmentChanged"))

    assert_breaks("INV-32", lambda: handovers.check_pictures(checked(world)))


def test_a_commit_of_a_partition_that_is_not_owned_is_seen() -> None:
    """INV-18."""
    world = peaceful()
    edit(
        world,
        "requests",
        lambda value: value["type"] == "OffsetCommit" and value["member"] and value["offsets"],
        lambda value: value["offsets"][0].update(partition=77),
    )

    assert_breaks("INV-18.*own", lambda: handovers.check_commits(checked(world)))


def test_who_was_not_asked_and_is_put_out_is_seen() -> None:
    """INV-30: the killed member's session was over, and it owed nothing."""
    world = peaceful()
    edit(
        world,
        "events",
        lambda value: event("MemberRemoved")(value) and value["reason"] == "session expired",
        lambda value: value.update(reason=rules.NOT_LET_GO),
    )
    seen = rules.Visible(world)

    assert_breaks("INV-30", lambda: handovers.check_time_to_let_go(world, checked(world), seen))


def test_who_does_not_let_go_and_stays_is_seen() -> None:
    """INV-29: the Release that met the demand is not there."""
    world = peaceful()
    edit(world, "requests", says("Release"), lambda value: value.update(cause=10**6))
    seen = rules.Visible(world)

    assert_breaks("INV-29", lambda: handovers.check_time_to_let_go(world, checked(world), seen))


def test_a_heartbeat_of_nobody_is_seen() -> None:
    """INV-18: no answer means that it was accepted."""
    world = peaceful()
    edit(world, "requests", says("Heartbeat"), lambda value: value.update(member="nobody"))

    assert_breaks("INV-18.*no member", lambda: rules.check_heartbeats(checked(world)))


def test_a_step_that_broke_by_itself_is_seen() -> None:
    """INV-42: nobody has put a defect there."""
    world = peaceful()
    edit(
        world,
        "events",
        event("GroupSettled"),
        lambda value: value.update(
            type="GroupQuarantined", reason="BrokenInvariant", detail={"exception": "two owners"}
        ),
    )

    assert_breaks("INV-42.*broke", lambda: set_aside.quarantines(checked(world)))


@pytest.mark.parametrize("promise", ["nobody has made", "granted", "run"])
def test_a_group_that_is_not_at_rest_is_seen(promise: str) -> None:
    """INV-28: there is none yet; a member believes something else; one is unknown to it."""
    world = World(_plan())
    world.start_driver(0)
    program = world.start_program(wish=Wish(TOPICS))
    if promise != "nobody has made":
        world.scheduler.run(40_000, world.check)
        checks.check_peace(world)
    if promise == "granted":
        program.fences = dict  # type: ignore[method-assign,assignment]
    if promise == "run":
        world.start_program(wish=Wish(TOPICS))

    assert_breaks(f"INV-28.*{promise}", lambda: checks.check_peace(world))
