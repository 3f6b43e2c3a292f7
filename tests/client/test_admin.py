"""An operator's question over the real core."""

import json
from collections.abc import Iterator

import pytest

from coordlib.client.admin import Admin, _Question
from coordlib.client.kit import events as sg
from coordlib.core.engine import effects
from coordlib.core.engine.effects import SizedRequest, UnreadOutputs
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError
from coordlib.testing.fake_log import INCARNATION, FakeLog
from tests.tools.background import judged


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """A log whose coordinator judges in the background."""
    with judged(FakeLog({"t": 1})) as log:
        yield log


def commit_as(admin: Admin, group: str, *places: tuple[str, int]) -> None:
    """As a tool that is no member."""
    for first in range(0, len(places), 2_000):
        asked = _Question(admin._identity(group))
        rows = [api.CommittedOffset(*place, 7, -1, "m") for place in places[first : first + 2_000]]
        admin._ask(asked, api.OffsetCommit(**asked.envelope(), offsets=tuple(rows)), 10)


def join_as(admin: Admin, group: str, *topics: str, instance: str | None = None) -> str:
    """Become a consumer of these topics, and answer nothing any more; returns its member id."""
    asked = _Question(admin._identity(group))
    wanted = cp.encode_subscription(cp.Subscription(topics=topics))
    request = api.JoinGroup(
        **asked.envelope(),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(api.Protocol("range", wanted),),
        instance=instance,
    )
    (answer,) = admin._ask(asked, request, 10)
    assert isinstance(answer, api.JoinGroupResponse)
    return str(answer.member)


def sync_as(admin: Admin, group: str, member: str) -> None:
    """Lead a group of one, and own something from then on."""
    asked = _Question(admin._identity(group))
    rows = (api.MemberAssignment(member, b"all"),)
    request = api.SyncGroup(**asked.envelope(), generation=1, member=member, assignments=rows)
    admin._ask(asked, request, 10)


def test_a_group_is_described_and_deleted(log: FakeLog) -> None:
    admin = Admin(transport=log.transport())
    assert admin.describe_group("g").state == "Dead"
    commit_as(admin, "g", ("t", 0))
    assert admin.describe_group("g").state == "Empty"

    admin.delete_group("g")

    assert admin.describe_group("g").state == "Dead"
    assert admin.committed("g") == ()
    with pytest.raises(GroupError) as unknown:
        admin.delete_group("g")
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted(log: FakeLog) -> None:
    """Whoever stopped the application forgot one host."""
    admin = Admin(transport=log.transport(), client="app")
    join_as(admin, "g", "t")

    described = admin.describe_group("g")
    with pytest.raises(GroupError) as alive:
        admin.delete_group("g")

    assert (described.state, described.leader) == ("CompletingRebalance", f"app-{INCARNATION}-0-0")
    assert alive.value.code is ErrorCode.NON_EMPTY_GROUP


def test_offsets_are_deleted_where_nobody_reads(log: FakeLog) -> None:
    """Some partitions of one topic, all of another; what is subscribed to is told and kept."""
    admin = Admin(transport=log.transport(), client="app")
    commit_as(admin, "g", ("t", 0), ("u", 0), ("u", 1), ("v", 0), ("v", 1))
    join_as(admin, "g", "t")

    asked, failed = admin.delete_offsets("g", {"t": None, "u": [1, 2], "v": None})

    assert asked == 5
    assert [(row.topic, row.partition, row.error) for row in failed] == [
        ("t", 0, "GROUP_SUBSCRIBED_TO_TOPIC")
    ]
    assert [(row.topic, row.partition) for row in admin.committed("g")] == [("t", 0), ("u", 0)]


def test_offsets_of_a_large_group_come_in_parts_and_go_in_requests(log: FakeLog) -> None:
    """An answer of ten thousand partitions has several records, a request must fit into one."""
    admin = Admin(transport=log.transport())
    topic = "t" * 200
    commit_as(admin, "g", *((topic, partition) for partition in range(10_000)))
    assert len(admin.committed("g")) == 10_000

    assert admin.delete_offsets("g", {topic: None}) == (10_000, ())
    assert admin.committed("g") == ()


def test_offsets_of_an_unknown_group_are_an_error_also_without_partitions(log: FakeLog) -> None:
    with pytest.raises(GroupError) as unknown:
        Admin(transport=log.transport()).delete_offsets("nobody", {"t": None})

    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def removals(log: FakeLog) -> list[tuple[str, str]]:
    """Who was removed, and why, by the group's history."""
    events = [
        json.loads(each.value) for each in log.outputs if each.topic == "events" and each.value
    ]
    return [(e["member"], e["reason"]) for e in events if e["type"] == "MemberRemoved"]


def test_a_member_that_hangs_is_removed_by_its_id(log: FakeLog) -> None:
    """Its thread heartbeats, its handler is stuck: no session ever ends. Nobody knows whether it
    still works, so the group waits for it."""
    member = join_as(Admin(transport=log.transport(), client="app"), "g", "t")
    sync_as(Admin(transport=log.transport(), client="app"), "g", member)
    operator = Admin(transport=log.transport(), client="operator")

    rows = operator.remove_members("g", members=[member, "nobody", member], reason="stuck since 3")

    assert rows == (
        api.LeftMember(member, None, "NONE"),
        api.LeftMember("nobody", None, "UNKNOWN_MEMBER_ID"),
    )
    assert removals(log) == [(member, "removed by operator: stuck since 3")]
    described = operator.describe_group("g")
    assert described.members == ()
    assert described.waits_for == (api.AwaitedMember(member, "app", api.NOT_STOPPED),)


def test_a_static_member_is_removed_by_its_instance(log: FakeLog) -> None:
    """A host that is gone for good holds its partitions until its long session ends; nobody looks
    up the member id that its process had."""
    member = join_as(Admin(transport=log.transport(), client="app"), "g", "t", instance="till-1")
    operator = Admin(transport=log.transport(), client="operator")

    rows = operator.remove_members("g", instances=["till-1", "till-2"])

    assert rows == (
        api.LeftMember("", "till-1", "NONE"),
        api.LeftMember("", "till-2", "UNKNOWN_MEMBER_ID"),
    )
    assert removals(log) == [(member, "removed by operator")]


@pytest.mark.parametrize("instance", [None, "till-1"])
def test_all_members_are_removed_and_the_group_stays(log: FakeLog, instance: str | None) -> None:
    """Before offsets are reset. A group without members is left alone, an unknown one is told."""
    operator = Admin(transport=log.transport(), client="operator")
    member = join_as(operator, "g", "t", instance=instance)

    rows = operator.remove_all_members("g")

    named = ("", instance) if instance else (member, None)
    assert rows == (api.LeftMember(*named, "NONE"),)
    assert operator.describe_group("g").state == "Empty"
    assert operator.remove_all_members("g") == ()
    with pytest.raises(GroupError) as unknown:
        operator.remove_all_members("nobody")
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_removing_members_of_an_unknown_group_finds_none_of_them(log: FakeLog) -> None:
    operator = Admin(transport=log.transport())

    assert operator.remove_members("nobody", members=["m"], instances=["i"]) == (
        api.LeftMember("m", None, "UNKNOWN_MEMBER_ID"),
        api.LeftMember("", "i", "UNKNOWN_MEMBER_ID"),
    )


def test_removing_nobody_is_a_mistake_and_never_means_all(log: FakeLog) -> None:
    """A script filtered the list of members, and none was left."""
    operator = Admin(transport=log.transport())
    join_as(operator, "g", "t")

    with pytest.raises(SetupError):
        operator.remove_members("g", members=[])

    described = operator.describe_group("g")
    assert isinstance(described.members, tuple)
    assert len(described.members) == 1


def test_the_shard_of_a_group_is_told(log: FakeLog) -> None:
    assert Admin(transport=log.transport()).find_coordinator("g") == 0


def test_releasing_a_group_that_does_not_exist(log: FakeLog) -> None:
    admin = Admin(transport=log.transport())

    with pytest.raises(GroupError) as refused:
        admin.release_quarantine("nobody")

    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_no_answer_while_the_job_is_down(log: FakeLog) -> None:
    log.job_is_up = False

    with pytest.raises(CannotReach) as unanswered:
        Admin(transport=log.transport()).release_quarantine("g", timeout_s=0.2)

    assert "coord status" in unanswered.value.hint


def test_a_quarantined_group_is_released(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect met one request; after the fix was deployed the group goes on."""
    admin = Admin(transport=log.transport())
    row = api.CommittedOffset(topic="t", partition=0, offset=1)

    def commit() -> str:
        asked = _Question(admin._identity("g"))
        admin._ask(asked, api.OffsetCommit(**asked.envelope(), offsets=(row,)), 10)
        return "stored"

    commit()
    with monkeypatch.context() as broken:
        broken.setitem(CLASSIC.handlers, api.OffsetCommit, lambda *_, **__: 1 / 0)
        with pytest.raises(GroupError) as unavailable:
            commit()
    assert unavailable.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(GroupError):
        commit()

    admin.release_quarantine("g")

    assert commit() == "stored"


def test_a_question_to_a_coordinator_that_reads_its_state_back_says_so() -> None:
    """A job is rebuilding ten thousand groups: nobody must believe that it is down."""
    log = FakeLog({"t": 1})
    with Admin(transport=log.transport()) as admin:
        asked = _Question(admin._identity("g"))
        asked.feed(sg.Received(0, api.CoordinatorLoading()))

        with pytest.raises(GroupError) as told:
            asked.wait(0.01, lambda: None)

    assert told.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_question_that_has_to_wait_is_asked_again(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard has said so much of late that its readers come first: a tick later it answers."""
    admin = Admin(transport=log.transport())
    commit_as(admin, "g", ("t", 0))
    whole, refused = UnreadOutputs.must_wait, []

    def at_first(
        self: UnreadOutputs, asked: SizedRequest, size_bytes: int, is_unread: bool
    ) -> bool:
        if isinstance(asked.request, api.OffsetFetch) and len(refused) < 2:
            refused.append(asked.request.id)
            return True
        return whole(self, asked, size_bytes, is_unread)

    monkeypatch.setattr(effects, "FREE_BYTES", 0)  # else so small an answer is not counted
    monkeypatch.setattr(effects, "FREE_SHARE", 0)
    monkeypatch.setattr(UnreadOutputs, "must_wait", at_first)
    monkeypatch.setattr(effects, "counted_bytes", lambda size, asked: size)

    assert [row.topic for row in admin.committed("g")] == ["t"]
    assert len(set(refused)) == 2  # ids are never used twice
    refused.clear()
    with pytest.raises(GroupError) as throttled:
        admin.committed("g", timeout_s=0.1)
    assert throttled.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
