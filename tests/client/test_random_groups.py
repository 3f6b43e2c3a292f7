"""Groups of three to six members with random luck: whatever happens, one owner; in the end, all.

Each seed is a course of joins, leaves, and of members that are cut off, deaf or busy for a while;
some are static, and are replaced by a newer process, or an operator removes them.
Virtual time makes a course of minutes a matter of milliseconds.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from coordlib.client.groups.assignors import (
    BOTH,
    EAGER,
    AssignorFailed,
    FunctionAssignor,
    RebalanceMode,
)
from coordlib.client.groups.classic import RETRY_MS
from coordlib.client.kit.fence import AssignmentFailed
from coordlib.core.wire import api
from tests.client import cooperative
from tests.client.world import User, World
from tests.tools.examples import seeds

PARTITIONS = 7
FEW, MANY = 3, 6
SETTLING_MS = 90_000
FAULTS = ("cut", "deaf", "busy", "job")


class Course:
    """One seed's course of events."""

    def __init__(
        self, seed: int, assignors: Callable[[Random], Any], has_twins: bool = False
    ) -> None:
        self.luck = Random(seed)
        self.has_twins = has_twins
        self.assignors = assignors
        self.world = self.new_world()
        # Courses with few kinds of faults reach corners that a mixture of all hides.
        faults = self.luck.sample(FAULTS, self.luck.randint(1, len(FAULTS)))
        self.kinds = [*faults, "join", "leave"]
        if has_twins:
            self.kinds += ["twin", "twin", "remove"]
        self.events = 0
        self.names = iter(range(1_000))
        for _ in range(FEW):
            self.join()

    def new_world(self) -> World:
        return World({"t": PARTITIONS})

    def play(self, events: int) -> None:
        for _ in range(events):
            self.happen()
            for_ms = self.luck.choice([0, 300, 2_000, 7_000])
            if self.luck.random() < 0.5:
                self.world.run(for_ms, self.luck.choice([100, 500]))
            else:
                self.world.log.stumble(for_ms, self.luck, self.some_poll)
        for user in self.world.users:
            self.heal(user)
        self.world.log.job_is_up = True
        self.world.run(SETTLING_MS)

    def some_poll(self) -> None:
        if self.luck.random() < 0.3:
            self.luck.choice(self.world.users).poll()
        self.world.check()

    def happen(self) -> None:
        user = self.luck.choice(self.world.users)
        match self.luck.choice(self.kinds):
            case "cut":
                self.switch(user.transport, "is_cut")
            case "deaf":
                self.switch(user.transport, "is_deaf")
            case "busy":
                self.switch(user, "is_busy")
            case "job":
                self.switch(self.world.log, "job_is_up")
            case "join" if len(self.working()) < MANY:
                self.join()
            case "leave" if user.errors or len(self.working()) > FEW:
                self.close(user)
            case "twin" if user.instance is not None and not user.errors:
                self.join(user.instance)
            case "remove":
                self.remove(user)

    def working(self) -> list[User]:
        """Those who have not been replaced."""
        return [user for user in self.world.users if not user.errors]

    def switch(self, of: Any, what: str) -> None:
        self.events += 1
        setattr(of, what, not getattr(of, what))

    def heal(self, user: User) -> None:
        for of, what in (
            (user.transport, "is_cut"),
            (user.transport, "is_deaf"),
            (user, "is_busy"),
        ):
            if getattr(of, what):
                self.switch(of, what)

    def join(self, instance: str | None = None) -> None:
        self.events += 1
        name = f"m{next(self.names)}"
        if self.has_twins and instance is None:
            instance = self.luck.choice([None, f"of {name}"])
        self.world.enter(name, self.assignors(self.luck), ["t"], **self.ways(instance))

    def ways(self, instance: str | None) -> dict[str, Any]:
        """What else is to be said of the next member."""
        return {"instance": instance}

    def remove(self, user: User) -> None:
        """An operator thinks that it hangs. Who comes back is one change more."""
        self.events += 2
        leaver = api.Leaver(user.member.member_id or "nobody")
        request = api.LeaveGroup(v=1, id="l", client="ops", group="orders", members=(leaver,))
        self.world.log.append(user.member.identity.shard, request)

    def close(self, user: User) -> None:
        if not user.transport.is_cut and not user.transport.is_deaf and not user.is_busy:
            self.events += 1
            self.world.close(user)

    def everything_is_owned(self) -> bool:
        held = [each.partition for user in self.world.users for each in user.owns]
        return sorted(held) == list(range(PARTITIONS))


def only_cooperative(luck: Random) -> Any:
    return (cooperative.assignor(),)


def old_or_new(luck: Random) -> Any:
    """In the middle of a rolling upgrade: some run eagerly, some cooperatively."""
    return luck.choice([(cooperative.assignor(), "range"), (cooperative.assignor(),)])


class CourseInRacks(Course):
    """Replicas move to other racks at any time; most members say where they run."""

    def happen(self) -> None:
        racks = self.world.log.racks
        if self.luck.random() < 0.4:
            self.events += 1
            racks["t"] = [self.luck.sample("abc", 2) for _ in range(PARTITIONS)]
        super().happen()

    def ways(self, instance: str | None) -> dict[str, Any]:
        return {"instance": instance, "rack": self.luck.choice(["a", "b", "c", None])}


class CourseWithFailures(Course):
    """Everybody's assignor raises for a while, again and again."""

    def __init__(self, seed: int, modes: str) -> None:
        self.raises = False
        self.failed = 0
        ours = ("range", EAGER) if modes == "eager" else ("cooperative-sticky", BOTH)
        super().__init__(seed, lambda _: (self.failing(*ours),))

    def failing(self, name: str, modes: frozenset[RebalanceMode]) -> FunctionAssignor:
        def divide(*given: Any) -> Any:
            self.failed += self.raises
            if self.raises:
                raise ArithmeticError("it cannot be divided")
            return cooperative.divide(*given)

        return FunctionAssignor(name, divide, modes, is_sticky=modes is BOTH)

    def happen(self) -> None:
        if self.luck.random() < 0.3:
            self.switch(self, "raises")
        super().happen()

    def working(self) -> list[User]:
        return self.world.users

    def close(self, user: User) -> None:
        if len(self.world.users) > FEW:
            super().close(user)

    def play(self, events: int) -> None:
        self.world.run(3_000)
        self.switch(self, "raises")
        self.join()
        self.world.run(2_000)
        super().play(events)
        self.raises = False
        self.world.run(RETRY_MS)


@pytest.mark.parametrize("modes", ["eager", "cooperative"])
@pytest.mark.parametrize("seed", seeds(3, 6))
def test_assignors_that_fail_never_bring_two_owners_or_put_anybody_out(
    modes: str, seed: int
) -> None:
    """A failure comes between any two steps of a rebalance, and some of the members hear of it
    late, or never."""
    course = CourseWithFailures(seed, modes)
    course.play(25)

    assert course.everything_is_owned()
    assert {type(each) for user in course.world.users for each in user.errors} <= {
        AssignorFailed,
        AssignmentFailed,
    }
    retries = course.world.log.now_ms // RETRY_MS
    assert course.world.generations <= 2 * (course.events + retries) + 2
    assert course.failed > 0


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", seeds(3, 8))
def test_replicas_that_move_never_bring_two_owners_or_rebalances_without_end(
    assignor: str, seed: int
) -> None:
    """A cooperative leader divides twice in a row, perhaps by other racks each time."""
    course = CourseInRacks(seed, lambda luck: (assignor,))
    course.play(25)

    assert course.everything_is_owned()
    assert course.world.log.racks_asked > 0
    assert course.world.generations <= 2 * course.events + 2


@pytest.mark.parametrize("seed", seeds(12, 30))
def test_cooperative_members_never_share_a_partition_and_own_all_in_the_end(seed: int) -> None:
    """`World.check` looks at every moment of virtual time."""
    course = Course(seed, only_cooperative)
    course.play(25)

    assert course.everything_is_owned()
    assert course.world.generations <= 2 * course.events + 2


@pytest.mark.parametrize("seed", seeds(6, 15))
def test_members_of_both_modes_never_share_a_partition(seed: int) -> None:
    course = Course(seed, old_or_new)
    course.play(20)

    assert course.everything_is_owned()
    assert course.world.generations <= 2 * course.events + 2


@pytest.mark.parametrize("seed", seeds(4, 10))
def test_eager_members_never_share_a_partition(seed: int) -> None:
    course = Course(seed, lambda _: "range")
    course.play(20)

    assert course.everything_is_owned()
    assert course.world.generations <= course.events + 2


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_static_members_and_their_twins_never_share_a_partition(seed: int) -> None:
    """Who was replaced stops for good and lets its successor have everything; who was removed
    comes back."""
    course = Course(seed, lambda _: "range", has_twins=True)
    course.play(25)

    assert course.everything_is_owned()
    assert course.world.generations <= 2 * course.events + 2
