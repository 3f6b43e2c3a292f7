"""Every check can fail: a world that kept its promises is tampered with, one promise at a time."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import msgspec
import pytest

from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.tools.simulation import checks, commits, drawing, one_fold, plan
from tests.tools.simulation.cluster import Record
from tests.tools.simulation.evidence import Asked
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import play
from tests.tools.simulation.wishes import Wish
from tests.tools.simulation.world import GROUP, PREFIX, Violation, World


@quiet_logs()
def peaceful() -> World:
    """A world without faults, played to its end."""
    world = World(replace(_plan(), faults=(), unsigned_ms=0))
    play(world)
    return world


@cache
def _plan() -> plan.Plan:
    found = (drawing.draw(seed, kind=plan.CLASSIC) for seed in range(1_000))
    return next(
        each
        for each in found
        if each.shards == 1 and each.members == 3 and each.more_topics and not each.group_size_max
    )


def edit(
    world: World, topic: str, where: Callable[[dict], bool], change: Callable[[dict], None]
) -> None:
    """Change the first record of an output topic that fits."""
    for (name, _), partition in world.cluster.partitions.items():
        if name != f"{PREFIX}.{topic}":
            continue
        for number, record in enumerate(partition.records):
            if record.value is None:
                continue
            value = msgspec.json.decode(record.value)
            if where(value):
                change(value)
                changed = record._replace(value=msgspec.json.encode(value))
                partition.records[number] = changed
                return
    raise AssertionError(f"no such record in {topic}")


def copy(world: World, topic: str, where: Callable[[dict], bool]) -> None:
    """Write the first record of an output topic that fits once more."""
    for (name, _), partition in world.cluster.partitions.items():
        found: list[Record] = [
            record
            for record in partition.records
            if name == f"{PREFIX}.{topic}"
            and record.value is not None
            and where(msgspec.json.decode(record.value))
        ]
        if found:
            partition.append(found[0].key, found[0].value, 0, 0)
            return
    raise AssertionError(f"no such record in {topic}")


def a_commit(value: dict) -> bool:
    return bool(value.get("type") == "OffsetCommit" and value["offsets"])


def event(kind: str) -> Callable[[dict], bool]:
    return lambda value: value["type"] == kind and value["group"] == GROUP


def assert_breaks(promise: str, check: Callable[[], None]) -> None:
    with pytest.raises(Violation, match=promise):
        check()


def test_a_peaceful_world_keeps_every_promise() -> None:
    """What follows is about the tampering, and not about the world."""
    world = peaceful()

    checks.check_end(world)
    # One member was killed, and perhaps what it had done and not committed was done again.
    assert sum(program.acts for program in world.programs) >= world.plan.messages


def test_two_workers_on_one_partition_are_seen() -> None:
    """INV-09, INV-21."""
    world = World(replace(_plan(), faults=(), unsigned_ms=0))
    world.start_driver(0)
    first, second = world.start_program(), world.start_program()
    world.scheduler.run(40_000, world.check)
    first.consumer.member._machine.held.delivered = second.may_act_on()

    assert_breaks("INV-21", world.check)


def test_partitions_without_owner_and_members_apart_are_seen() -> None:
    """INV-10, INV-28."""
    world = World(replace(_plan(), faults=(), unsigned_ms=0))
    world.start_driver(0)
    member = world.start_program().consumer.member._machine
    assert_breaks("INV-28", lambda: checks.check_peace(world))

    world.scheduler.run(40_000, world.check)
    checks.check_peace(world)
    member.held.usable = lambda now_ms: ()  # type: ignore
    assert_breaks("INV-10", lambda: checks.check_peace(world))


def test_an_owner_that_does_not_read_the_topic_is_seen() -> None:
    """INV-10: with several topics, not everybody may work on everything."""
    world = World(replace(_plan(), faults=(), unsigned_ms=0))
    world.start_driver(0)
    programs = [world.start_program(wish=Wish(world.topics)) for _ in range(2)]
    world.scheduler.run(40_000, world.check)
    checks.check_peace(world)

    owner = next(each for each in programs if each.consumer.member.assignment)
    owner.wishes = [(0, Wish())]

    assert_breaks("INV-10.*reads", lambda: checks.check_peace(world))


def test_a_dead_member_that_nobody_replaces_is_seen() -> None:
    """INV-29, INV-31: its session is not over yet, so its partitions have no owner."""
    world = World(replace(_plan(), faults=(), unsigned_ms=0))
    world.start_driver(0)
    first, _ = world.start_program(), world.start_program()
    world.scheduler.run(40_000, world.check)
    checks.check_mourned(world)

    first.kill()
    world.scheduler.run(41_000, world.check)
    assert_breaks("INV-29", lambda: checks.check_mourned(world))


def test_a_batch_that_differs_when_it_is_judged_again_is_seen() -> None:
    """INV-07."""
    world = peaceful()
    world.engine.problems.append("INV-07: batch 3 judged twice differs")

    assert_breaks("INV-07", lambda: checks.check_end(world))


def test_a_lost_commit_is_seen() -> None:
    """INV-22, INV-59: the topic of committed offsets says something else."""
    world = peaceful()
    edit(world, "committed", lambda value: True, lambda value: value.update(offset=1_000))

    evidence = checks.evidence_of(world)
    assert_breaks("INV-59", lambda: commits.check_committed(world, world.readers, evidence))


def test_a_member_id_given_twice_is_seen() -> None:
    """INV-16."""
    world = peaceful()
    ids: list[str] = []
    edit(world, "events", event("MemberJoined"), lambda value: ids.append(value["member"]))
    edit(
        world,
        "events",
        lambda value: event("MemberJoined")(value) and value["member"] != ids[0],
        lambda value: value.update(member=ids[0]),
    )

    assert_breaks("INV-16", lambda: checks.check_ids(checks.evidence_of(world)))


def test_an_event_written_twice_is_seen() -> None:
    """INV-34, INV-36."""
    world = peaceful()
    copy(world, "events", event("GenerationStarted"))

    assert_breaks("INV-36", lambda: checks.check_ids(checks.evidence_of(world)))


@pytest.mark.parametrize("kind", ["JoinGroup", "SyncGroup", "OffsetCommit"])
def test_two_answers_and_none_are_seen(kind: str) -> None:
    """INV-17."""
    world = peaceful()
    copy(world, "responses", lambda value: value["type"] == kind)
    assert_breaks("INV-17.*twice", lambda: checks.check_answers(checks.evidence_of(world)))

    world = peaceful()
    edit(
        world,
        "responses",
        lambda value: value["type"] == kind,
        lambda value: value.update(cause="r9-9"),
    )
    assert_breaks("INV-17.*never", lambda: checks.check_answers(checks.evidence_of(world)))


def test_a_generation_that_is_left_out_is_seen() -> None:
    """INV-11."""
    world = peaceful()
    edit(world, "events", event("GenerationStarted"), lambda value: value.update(generation=7))

    assert_breaks("INV-11", lambda: checks.check_generations(checks.evidence_of(world)))


def test_a_group_that_is_too_large_is_seen() -> None:
    """INV-43: three members were in, and two were to be the most."""
    world = peaceful()
    world.plan = replace(world.plan, group_size_max=2, statics=0)

    assert_breaks("INV-43", lambda: checks.check_size(world, checks.evidence_of(world)))


def test_a_commit_of_an_old_generation_is_seen() -> None:
    """INV-18."""
    world = peaceful()
    edit(world, "requests", a_commit, lambda value: value.update(generation=77))

    assert_breaks("INV-18", lambda: commits.check_commits(checks.evidence_of(world)))


def test_a_commit_of_a_stranger_is_seen() -> None:
    """INV-18: the history says that somebody committed who is not in the group."""
    world = peaceful()
    edit(world, "events", event("OffsetsCommitted"), lambda value: value.update(member="stranger"))

    assert_breaks("INV-18.*no member", lambda: commits.check_strangers(checks.evidence_of(world)))


def test_a_fetch_that_shows_an_older_offset_is_seen() -> None:
    """INV-23."""
    world = peaceful()
    edit(
        world,
        "responses",
        lambda value: value["type"] == "OffsetFetch" and value.get("offsets"),
        lambda value: value["offsets"][0].update(offset=5_000),
    )

    assert_breaks("INV-23", lambda: commits.check_commits(checks.evidence_of(world)))


def test_a_position_of_the_batch_that_deletes_its_group_counts() -> None:
    """INV-23: it is judged after the batch's requests, and the group comes back with it."""
    row = api.CommittedOffset("t", 0, 7)
    position = api.OffsetCommit(
        v=1, id="p", client="query", group=GROUP, generation=-1, member="", offsets=(row,)
    )
    found = SimpleNamespace(
        group=GROUP,
        told=[
            SimpleNamespace(
                group=GROUP,
                type="OffsetsDeleted",
                kind=plan.CLASSIC,
                cause="r0-4",
                shard=0,
                offset=4,
                detail={"offsets": [{"topic": "t", "partition": 0}]},
            )
        ],
        judged=[
            Asked(0, 4, 0, api.DeleteGroup(v=1, id="d", client="admin", group=GROUP)),
            Asked(0, 9, 0, position, COMMITS),
            Asked(0, 5, 0, api.OffsetFetch(v=1, id="f", client="admin", group=GROUP)),
        ],
        answers={
            "o0-9": [{"error": "NONE"}],
            "r0-5": [{"offsets": [{"topic": "t", "partition": 0, "offset": 7}]}],
        },
        is_assigned=lambda _: False,
    )

    commits.check_commits(found)  # type: ignore[arg-type]  # all that it reads

    found.answers["r0-5"][0]["offsets"][0]["offset"] = -1
    assert_breaks("INV-23", lambda: commits.check_commits(found))  # type: ignore[arg-type]


def test_an_early_expulsion_is_seen() -> None:
    """INV-30: the log has a heartbeat of the member a moment before it is expelled."""
    world = peaceful()
    edit(
        world,
        "events",
        lambda value: event("MemberRemoved")(value) and value["reason"].startswith("left"),
        lambda value: value.update(reason="session expired"),
    )

    assert_breaks("INV-30", lambda: checks.check_expiries(world, checks.evidence_of(world)))


def test_a_storm_of_rebalances_is_seen() -> None:
    """INV-32."""
    world = peaceful()
    for _ in range(50):
        copy(world, "events", event("GenerationStarted"))

    evidence = checks.evidence_of(world)
    assert_breaks("INV-32", lambda: checks.check_storm(world, evidence, world.readers))


@pytest.mark.parametrize(
    ("topic", "promise"), [("events", "INV-37"), ("committed", "INV-38"), ("assignments", "INV-38")]
)
def test_outputs_that_no_fold_makes_are_seen(topic: str, promise: str) -> None:
    """INV-02, INV-35, INV-37, INV-38."""
    world = peaceful()
    (shard,) = [
        partition
        for (name, _), partition in world.cluster.partitions.items()
        if name == f"{PREFIX}.{topic}"
    ]
    shard.append(b'["phantom"]', b"{}", 0, 0)

    # Nothing else looks at phantoms: evidence of events is not decoded here.
    assert_breaks(promise, lambda: one_fold.check(world, checks.evidence_of(world)))


def test_all_records_of_the_topic_are_there_to_be_processed() -> None:
    """The checks of the end compare with these."""
    world = peaceful()

    ends = [p.end for (name, _), p in world.cluster.partitions.items() if name in world.topics]
    assert sum(ends) == world.plan.messages
