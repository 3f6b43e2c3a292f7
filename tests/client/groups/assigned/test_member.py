"""The shell: what its user calls, and by what he is called."""

from collections.abc import Callable
from typing import Any

import pytest

from coordlib.client import AssignedMember
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.requests import Timing
from coordlib.core.wire import api
from coordlib.errors import CannotReach, GroupError, SetupError
from tests.client.groups.assigned.by_hand import ByHand
from tests.client.groups.assigned.play import t

TIMING = Timing(8_000, 12_000, 3_000)


class User:
    """A program with one member."""

    def __init__(
        self, on_revoked: Callable[["User", Partitions], None] | None = None, **more: Any
    ) -> None:
        self.log = ByHand()
        self._on_revoked = on_revoked or User.commit_all
        self.told: list[tuple[str, Partitions]] = []
        self.commits: list[Any] = []
        self.member = AssignedMember(
            "orders",
            transport=self.log,
            client="app",
            timing=TIMING,
            on_assigned=lambda some: self.told.append(("assigned", some)),
            on_revoked=self._revoked,
            on_lost=lambda some: self.told.append(("lost", some)),
            **more,
        )

    def _revoked(self, some: Partitions) -> None:
        self.told.append(("revoked", some))
        self._on_revoked(self, some)

    def commit_all(self, some: Partitions) -> None:
        self.commits.append(self.member.commit_async(dict.fromkeys(some, 9)))

    def works(self, *numbers: int) -> "User":
        self.member.subscribe(["t"])
        self.log.grant(*numbers)
        self.member.poll()
        return self


def wanted(user: User) -> dict[str, Any]:
    request = user.log.newest(api.Subscribe)
    names = ("topics", "pattern", "exclude", "strategy", "capacity")
    return {name: getattr(request, name) for name in names}


def test_what_it_may_work_on_and_by_which_fences() -> None:
    user = User().works(0, 1)
    user.log.tell(0, 1, 2, generation=3, fence=47)
    user.member.poll()

    assert user.told == [("assigned", t(0, 1)), ("assigned", t(2))]
    assert user.member.assignment == t(0, 1, 2)
    assert (user.member.member_id, user.member.generation) == ("app-AbCdEfGh-0-0", 3)
    assert user.member.strategy == "sticky"
    assert user.member.fence_token == 47
    assert user.member.fence_of("t", 2) == 47
    assert user.member.fence_of("t", 3) is None
    assert user.member.may_work()
    assert user.member.stopped_by() is None


def test_a_hand_over_is_one_record_and_the_commits_future_ends_with_it() -> None:
    user = User().works(0, 1)
    user.log.tell(0, release={44: (1,)})
    user.member.poll()

    assert user.told[-1] == ("revoked", t(1))
    released = user.log.newest(api.Release)
    assert [type(each) for each in user.log.written] == [api.Subscribe, api.Release]
    assert (released.cause, released.member) == (44, "app-AbCdEfGh-0-0")
    assert [(row.partition, row.offset) for row in released.offsets] == [(1, 9)]
    (future,) = user.commits
    assert not future.done()
    user.log.answer(released, api.ReleaseResponse, failed=())
    assert future.result(0).error is None


def test_a_commit_may_be_waited_for_in_on_revoked() -> None:
    """commit() would wait for ever for a Release that is written after the callback."""
    seen: list[type[api.Request]] = []

    def wait(user: User, some: Partitions) -> None:
        with pytest.raises(CannotReach):
            user.member.commit(dict.fromkeys(some, 9), timeout_s=0)
        seen.extend(type(each) for each in user.log.written)

    user = User(on_revoked=wait).works(0, 1)
    user.log.tell(0, release={44: (1,)})
    user.member.poll()

    assert seen == [api.Subscribe, api.OffsetCommit]
    assert isinstance(user.log.written[-1], api.Release)


def test_a_subscription_says_all_that_is_wanted() -> None:
    user = User(strategy="range", capacity=3)
    user.member.subscribe(["t", "t", "u"], pattern="v.*", exclude="vx")

    assert wanted(user) == {
        "topics": ("t", "u"),
        "pattern": "v.*",
        "exclude": "vx",
        "strategy": "range",
        "capacity": 3,
    }


def test_topics_may_be_expressions_as_in_a_classic_group() -> None:
    """There `^clicks` finds clicks-eu; on the wire a pattern must match the whole name."""
    user = User()
    user.member.subscribe(["t", "^clicks", "^orders-.$"], pattern="v|w")

    assert wanted(user)["topics"] == ("t",)
    assert wanted(user)["pattern"] == "(?:^clicks).*|(?:^orders-.$).*|(?:v|w)"


def test_no_topics_at_all_is_unsubscribe() -> None:
    user = User().works(0)
    user.member.subscribe([])
    user.member.poll()

    assert user.told[-1] == ("revoked", t(0))
    assert isinstance(user.log.written[-1], api.LeaveGroup)


def test_a_string_is_no_list_of_topics() -> None:
    with pytest.raises(SetupError):
        User().member.subscribe("clicks")


@pytest.mark.parametrize("more", [{"instance": "till-7"}, {"capacity": 0}], ids=str)
def test_what_cannot_be_is_refused_before_anything_is_reached(more: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        User(**more)


def test_a_refusal_for_good_is_raised_by_poll() -> None:
    user = User()
    user.member.subscribe(pattern="(")
    asked = user.log.newest(api.Subscribe)
    user.log.answer(asked, api.SubscribeResponse, error="INVALID_REGULAR_EXPRESSION", message="No.")

    with pytest.raises(GroupError, match="INVALID_REGULAR_EXPRESSION"):
        user.member.poll()


def test_the_with_block_lets_go_and_leaves() -> None:
    user = User().works(0)
    with user.member:
        user.member.close(timeout_s=0)

    assert user.told[-1] == ("revoked", t(0))
    assert [type(each) for each in user.log.written[1:]] == [api.OffsetCommit, api.LeaveGroup]
    assert user.member.assignment == ()
    assert user.member.fence_of(*TopicPartition("t", 0)) is None
