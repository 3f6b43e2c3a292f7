"""Pausing groups and setting their positions: all of it, or said per partition."""

from collections.abc import Mapping
from typing import Any

import pytest

from coordlib.client.claims.admin import ClaimsAdmin, _Work
from coordlib.client.claims.resetting import Outcome, ResetPlan, Step
from coordlib.client.kit.events import TopicPartition
from coordlib.errors import SetupError
from coordlib.kafka.clients import missing
from coordlib.kafka.roles import Kind, Operation, Right
from tests.client.claims.fake_claims import FakeClaimsTransport
from tests.client.claims.world import GROUP, HEARTBEAT, HI_MS, World, t


class Admin:
    """An admin's process, whose work goes on as time does."""

    def __init__(self, world: World, positions: Mapping[TopicPartition, int], **more: int) -> None:
        self.world = world
        self.transport: FakeClaimsTransport = world.log.transport()
        plan = ResetPlan(
            GROUP,
            "admin",
            self.transport.new_instance(),
            positions,
            world.log.place.partitions,
            HI_MS,
            more.get("timeout_ms", 60_000),
        )
        self.work = _Work(self.transport, plan)

    @property
    def life(self):  # type: ignore[no-untyped-def]
        return self.work._machine

    def run(self) -> tuple[Outcome, ...]:
        for _ in range(2_000):
            if self.life.step is Step.DONE:
                return self.life.outcomes()
            self.world.run(100)
        raise AssertionError(f"The admin is still {self.life.step.value}")


def reading(world: World, *counts: int) -> None:
    for partition, count in enumerate(counts):
        world.log.put("t", partition, count)


def test_rewind_consumer() -> None:
    """Marshal's TestRewindConsumer: two partitions of 4 messages; p0 to 0, p1 to 2."""
    world = World({"t": 2})
    reading(world, 4, 4)
    a = world.enter("a", greedy_claims=True)
    world.run(2 * HI_MS)
    outcomes = Admin(world, {t(0)[0]: 0, t(1)[0]: 2}).run()
    world.run(2_000)

    assert outcomes == (Outcome(t(0)[0], 4, 0), Outcome(t(1)[0], 4, 2))
    assert a.offsets(0) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert a.offsets(1) == [0, 1, 2, 3, 2, 3]
    assert a.claims == t(0, 1)


def test_a_dead_consumers_partition_is_waited_for() -> None:
    world = World({"t": 1})
    reading(world, 10)
    a = world.enter("a")
    world.run(HI_MS)
    a.die()
    admin = Admin(world, {t(0)[0]: 3})
    world.run(1_000)
    assert admin.life.holders() == {t(0)[0]: "a"}

    assert admin.run() == (Outcome(t(0)[0], 10, 3),)
    assert world.position(0) == 3


def test_who_does_not_let_go_is_named_and_the_old_positions_stay() -> None:
    """B10: Marshal's admin looked once after 5 s, and then succeeded anyway."""
    world = World({"t": 2})
    reading(world, 10, 10)
    a = world.enter("a", maximum_claims=1)
    world.run(HI_MS)
    (mine,) = a.claims
    other = t(1 - mine.partition)[0]
    admin = Admin(world, {mine: 1, other: 2}, timeout_ms=4 * HI_MS)
    while admin.life.step is not Step.DONE:
        world.marshals(HEARTBEAT, "go", other.partition, 7)
        world.run(HI_MS // 2)
    outcomes = {each.place: each for each in admin.life.outcomes()}
    world.run(2_000)

    assert "client go still holds it" in outcomes[other].error
    assert outcomes[mine].error
    assert outcomes[mine].new is None
    assert world.position(mine.partition) == 10
    assert world.log.world("t").paused_by(GROUP) is None


def test_b10_an_admin_that_cannot_keep_its_claims_alive_says_so() -> None:
    """A failed heartbeat never showed: its health was 0 in both cases."""
    world = World({"t": 2})
    reading(world, 5, 5)
    world.enter("a", greedy_claims=True)
    world.run(HI_MS)
    world.marshals(HEARTBEAT, "go", 1, 5)
    admin = Admin(world, {t(0)[0]: 1, t(1)[0]: 1}, timeout_ms=8 * HI_MS)
    while admin.life.step is not Step.DONE:
        world.marshals(HEARTBEAT, "go", 1, 5)
        world.run(500)
        admin.transport.is_unacknowledged = any(
            each.epoch is not None for each in admin.life._targets.values()
        )
        if admin.life.step in (Step.RELEASING, Step.RESUMING):
            admin.transport.is_unacknowledged = False
    outcomes = admin.life.outcomes()

    assert all(each.error for each in outcomes)
    assert any("kept alive" in each.error for each in outcomes)
    world.run(4 * HI_MS)
    assert world.position(0) == 5


@pytest.mark.parametrize("dies_after_ms", [50, 200, 400, 700, 1_000, 1_500, 2_500, 4_000])
def test_an_admin_that_dies_leaves_a_group_that_goes_on(dies_after_ms: int) -> None:
    """The pause ends by itself, its claims expire, and running it again completes the work."""
    world = World({"t": 2})
    reading(world, 10, 10)
    a = world.enter("a", greedy_claims=True)
    world.run(HI_MS)
    dead = Admin(world, {t(0)[0]: 3, t(1)[0]: 4}, timeout_ms=2 * HI_MS)
    world.run(dies_after_ms)
    dead.transport.is_stopped = True
    world.run(12 * HI_MS)
    assert a.claims == t(0, 1)
    outcomes = Admin(world, {t(0)[0]: 3, t(1)[0]: 4}).run()

    assert [(each.new, each.error) for each in outcomes] == [(3, ""), (4, "")]


def test_a_group_without_positions_gets_its_first_ones() -> None:
    world = World({"t": 1})
    reading(world, 10)
    outcomes = Admin(world, {t(0)[0]: 6}).run()
    a = world.enter("a")
    world.run(1_000)

    assert outcomes == (Outcome(t(0)[0], 0, 6),)
    assert a.offsets(0) == [6, 7, 8, 9]


def test_pause_and_resume_go_to_all_coordination_partitions() -> None:
    world = World({"t": 1})
    transport = world.log.transport()
    admin = ClaimsAdmin({"client.id": "admin"}, transport=transport)
    admin.pause(GROUP, 60)
    assert all(len(log) == 1 for log in world.log.records)
    assert world.log.world("t").paused_by(GROUP) == "admin"
    admin.resume(GROUP)

    assert world.log.world("t").paused_by(GROUP) is None


@pytest.mark.parametrize("for_s", [-1, 0, 300 * 365 * 86_400, float("nan")])
def test_a_pause_that_cannot_be_is_refused(for_s: float) -> None:
    world = World({"t": 1})
    admin = ClaimsAdmin({"client.id": "admin"}, transport=world.log.transport())

    with pytest.raises(SetupError):
        admin.pause(GROUP, for_s)
    assert world.log.records == [[], []]


@pytest.mark.parametrize("positions", [{}, {("t", 0): -1}, {("t", 0): 2**63}])
def test_positions_that_cannot_be_are_refused(positions: dict[tuple[str, int], int]) -> None:
    world = World({"t": 1})
    admin = ClaimsAdmin({"client.id": "admin"}, transport=world.log.transport())

    with pytest.raises(SetupError):
        admin.set_positions(GROUP, positions)
    assert world.log.records == [[], []]


def test_kafkas_group_has_the_new_positions_before_the_log_has_them() -> None:
    """As a consumer that releases: what watches Kafka's group must not see a position of before
    behind the release (PR #84)."""
    world = World({"t": 2})
    reading(world, 10, 10)
    world.enter("a", greedy_claims=True)
    world.run(2 * HI_MS)
    admin = Admin(world, {t(0)[0]: 3, t(1)[0]: 4})
    seen: list[tuple[int | None, int]] = []
    for _ in range(200):
        world.run(50)
        seen.append((world.position(0), world.log.committed[GROUP, t(0)[0]]))
        if admin.life.step in (Step.RELEASING, Step.RESUMING, Step.DONE):
            break

    assert seen[-1][1] == 3
    assert all(copied == 3 for position, copied in seen if position == 3)
    assert all(each.is_copied for each in admin.run())


def test_a_reader_that_begins_late_does_not_undo_what_was_set() -> None:
    """Nobody was there for eight intervals: what is read says nothing, and Kafka's group had the
    positions of before."""
    world = World({"t": 1})
    reading(world, 10)
    a = world.enter("a")
    world.run(2 * HI_MS)
    world.close(a)
    Admin(world, {t(0)[0]: 3}).run()
    world.run(9 * HI_MS)
    begins = {number: len(log) for number, log in enumerate(world.log.records)}
    late = world.enter("late", begins=begins)
    world.run(8 * HI_MS)

    assert late.claims == t(0)
    assert late.offsets(0) == [3, 4, 5, 6, 7, 8, 9]


def test_positions_are_set_where_kafkas_group_may_not_be_committed_to() -> None:
    """An operator may look at the group, and not commit to it: the log decides, and he is told."""
    world = World({"t": 1})
    reading(world, 10)
    a = world.enter("a")
    world.run(2 * HI_MS)
    admin = Admin(world, {t(0)[0]: 3})

    def refuse(*_: object, **__: object) -> None:
        raise missing(Right(Kind.GROUP, GROUP, Operation.READ), {})

    admin.transport.commit = refuse  # type: ignore[method-assign]
    (outcome,) = admin.run()
    copies = {world.log.committed[GROUP, t(0)[0]]}
    for _ in range(40):
        world.run(50)
        copies.add(world.log.committed[GROUP, t(0)[0]])

    assert outcome == Outcome(t(0)[0], 10, 3, is_copied=False)
    assert a.offsets(0)[-7:] == [3, 4, 5, 6, 7, 8, 9]
    assert 3 in copies, "the first sign of the next owner copies it"


def test_what_was_not_set_is_not_left_in_kafkas_group() -> None:
    """It was interrupted after Kafka had the new positions."""
    world = World({"t": 1})
    reading(world, 10)
    world.enter("a")
    world.run(2 * HI_MS)
    admin = Admin(world, {t(0)[0]: 3})
    usual = admin.transport.commit

    def commit(*asked: Any, **how: Any) -> None:
        """From here on its signs are not acknowledged, so that it waits."""
        admin.transport.is_unacknowledged = True
        usual(*asked, **how)

    admin.transport.commit = commit  # type: ignore[method-assign]
    for _ in range(100):
        world.run(50)
        if admin.life.step is Step.SETTLING:
            break
    assert world.log.committed[GROUP, t(0)[0]] == 3
    admin.transport.commit = usual  # type: ignore[method-assign]
    admin.work._do(admin.life.interrupt("it was interrupted", world.log.now_ms))
    admin.transport.is_unacknowledged = False
    (outcome,) = admin.run()

    assert outcome.error == "it was interrupted"
    assert world.log.committed[GROUP, t(0)[0]] == 10
