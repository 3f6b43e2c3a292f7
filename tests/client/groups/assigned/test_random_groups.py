"""Server-assigned groups with random luck: whatever happens, one owner; in the end, all is owned.

The courses of classic groups, and more: users want other topics, and topics gain partitions.
"""

from typing import Any

import pytest

from tests.client.groups.assigned.world import AssignedUser, AssignedWorld
from tests.client.test_random_groups import PARTITIONS, Course
from tests.client.world import World
from tests.tools.examples import seeds

MORE_MAX = 4


class AssignedCourse(Course):
    """One seed's course of events in a group that is divided by one strategy."""

    def __init__(self, seed: int, strategy: str) -> None:
        self.strategy = strategy
        super().__init__(seed, lambda _: strategy)
        self.kinds += ["wish", "grow", "remove"]

    def new_world(self) -> World:
        return AssignedWorld({"t": PARTITIONS, "u": 2}, self.strategy)

    def ways(self, instance: str | None) -> dict[str, Any]:
        return {"capacity": self.luck.choice([1, 1, 2, 5])}

    def happen(self) -> None:
        match self.luck.choice([*self.kinds, "else"]):
            case "wish":
                self.wish(self.luck.choice(self.world.users))
            case "grow" if self.world.log.topics["t"] < PARTITIONS + MORE_MAX:
                self.events += 1
                self.world.log.topics["t"] += 1
                self.world.log.tell_topics()
            case _:
                super().happen()

    def wish(self, user: Any) -> None:
        """Everybody goes on wanting t, so that in the end all of it is owned."""
        assert isinstance(user, AssignedUser)
        self.events += 1
        user.member.subscribe(self.luck.choice([["t"], ["t", "u"], ["^[tu]"]]))

    def everything_is_owned(self) -> bool:
        held = [each.partition for user in self.world.users for each in user.owns if each[0] == "t"]
        return sorted(held) == list(range(self.world.log.topics["t"]))


@pytest.mark.parametrize("strategy", ["sticky", "uniform", "range", "roundrobin"])
@pytest.mark.parametrize("seed", seeds(5, 12))
def test_members_never_share_a_partition_and_own_all_in_the_end(seed: int, strategy: str) -> None:
    """`World.check` looks at every moment of virtual time."""
    course = AssignedCourse(seed, strategy)
    course.play(25)

    assert course.everything_is_owned()
    assert not [user for user in course.world.users if user.errors]
    assert course.world.generations <= 2 * course.events + 2
