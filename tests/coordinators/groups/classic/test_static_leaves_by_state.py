"""Leaving and being made to leave with instance ids, in every state: Kafka's table."""

from coordlib.records import requests as rq
from tests.coordinators.groups.classic.static_states import check, in_every_state
from tests.tools.driving import FOLLOWER, LEADER, leave


@in_every_state
def test_leave_with_instance_of_another(state: str) -> None:
    """testLeaveGroupWithFencedInstanceId: a row of its own, and nothing else happens; but a
    former owner says so that it has stopped.
    """
    check(
        state,
        leave("b", rq.Leaver(FOLLOWER, "i")),
        {
            "absent Empty": [
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=i "
                "error=UNKNOWN_MEMBER_ID)]",
            ],
            "Preparing Completing Stable": [
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=i "
                "error=FENCED_INSTANCE_ID)]",
            ],
            "Guarded": [
                "assign d-t-0-9 generation=2 protocol=range assignment=p1 fence=9",
                "event AssignmentIssued generation=2 member=d-t-0-9 cause=HERE fence=9 "
                "sync=6 bytes=p1",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=i "
                "error=FENCED_INSTANCE_ID)]",
            ],
        },
    )


@in_every_state
def test_leave_of_unknown_instance(state: str) -> None:
    """testStaticMembersUnknownInstanceBatchLeaveGroup."""
    check(
        state,
        leave("admin", rq.Leaver("", "x")),
        {
            "absent Empty Preparing Completing Stable Guarded": [
                "answer admin#l LeaveGroup members=[(instance=x error=UNKNOWN_MEMBER_ID)]",
            ],
        },
    )


@in_every_state
def test_leave_by_instance(state: str) -> None:
    """An operator removes whoever has the instance id; it may still be at work."""
    check(
        state,
        leave("admin", rq.Leaver("", "k")),
        {
            "absent Empty": [
                "answer admin#l LeaveGroup members=[(instance=k error=UNKNOWN_MEMBER_ID)]",
            ],
            "Preparing": [
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="removed by admin"',
                "assign b-t-0-3 gone",
                "answer admin#l LeaveGroup members=[(instance=k error=NONE)]",
            ],
            "Completing Stable": [
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="removed by admin"',
                "assign b-t-0-3 gone",
                "answer admin#l LeaveGroup members=[(instance=k error=NONE)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=admin',
                "notify RebalanceInProgress generation=2",
            ],
            "Guarded": [
                "event MemberRemoved generation=2 member=d-t-0-9 cause=HERE "
                'reason="removed by admin" client=d',
                'notify MemberRemoved member=d-t-0-9 reason="removed by admin"',
                "assign d-t-0-9 gone",
                "answer admin#l LeaveGroup members=[(instance=k error=NONE)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=admin',
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_follower_leaves(state: str) -> None:
    """It leaves for good; or it is the older twin, says that it has stopped, and its successor
    need not wait.
    """
    check(
        state,
        leave("b", rq.Leaver(FOLLOWER, "k")),
        {
            "absent Empty": [
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=UNKNOWN_MEMBER_ID)]",
            ],
            "Preparing": [
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE reason=left client=b",
                "notify MemberRemoved member=b-t-0-3 reason=left",
                "assign b-t-0-3 gone",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k error=NONE)]",
            ],
            "Completing Stable": [
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE reason=left client=b",
                "notify MemberRemoved member=b-t-0-3 reason=left",
                "assign b-t-0-3 gone",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k error=NONE)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=b',
                "notify RebalanceInProgress generation=2",
            ],
            "Guarded": [
                "assign d-t-0-9 generation=2 protocol=range assignment=p1 fence=9",
                "event AssignmentIssued generation=2 member=d-t-0-9 cause=HERE fence=9 "
                "sync=6 bytes=p1",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=FENCED_INSTANCE_ID)]",
            ],
        },
    )


@in_every_state
def test_follower_remains(state: str) -> None:
    """KIP-1092: it has stopped and keeps its place; nobody else notices."""
    check(
        state,
        leave("b", rq.Leaver(FOLLOWER, "k"), remain=True),
        {
            "absent Empty": [
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=UNKNOWN_MEMBER_ID)]",
            ],
            "Preparing Completing Stable": [
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k error=NONE)]",
            ],
            "Guarded": [
                "assign d-t-0-9 generation=2 protocol=range assignment=p1 fence=9",
                "event AssignmentIssued generation=2 member=d-t-0-9 cause=HERE fence=9 "
                "sync=6 bytes=p1",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=FENCED_INSTANCE_ID)]",
            ],
        },
    )


@in_every_state
def test_remain_for_another(state: str) -> None:
    """Nobody else knows whether it has stopped; nobody is removed by a word that keeps."""
    check(
        state,
        leave("admin", rq.Leaver(FOLLOWER, "k"), remain=True),
        {
            "absent Empty": [
                "answer admin#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=UNKNOWN_MEMBER_ID)]",
            ],
            "Preparing Completing Stable": [
                "answer admin#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=INVALID_REQUEST)]",
            ],
            "Guarded": [
                "answer admin#l LeaveGroup members=[(member=b-t-0-3 instance=k "
                "error=FENCED_INSTANCE_ID)]",
            ],
        },
    )


@in_every_state
def test_batch_of_all_kinds(state: str) -> None:
    """testStaticMembersFencedInstanceBatchLeaveGroup: each row for itself, one
    rebalance for all.
    """
    check(
        state,
        leave(
            "admin",
            rq.Leaver("", "k"),
            rq.Leaver("", "k"),
            rq.Leaver(LEADER, "k"),
            rq.Leaver("", "x"),
            rq.Leaver("x"),
        ),
        {
            "absent": [
                "answer admin#l LeaveGroup members=[(instance=k "
                "error=UNKNOWN_MEMBER_ID), (instance=k error=UNKNOWN_MEMBER_ID), "
                "(member=a-NEW instance=k error=UNKNOWN_MEMBER_ID), (instance=x "
                "error=UNKNOWN_MEMBER_ID), (member=x error=UNKNOWN_MEMBER_ID)]",
            ],
            "Empty": [
                "answer admin#l LeaveGroup members=[(instance=k "
                "error=UNKNOWN_MEMBER_ID), (instance=k error=UNKNOWN_MEMBER_ID), "
                "(member=a-t-0-0 instance=k error=UNKNOWN_MEMBER_ID), (instance=x "
                "error=UNKNOWN_MEMBER_ID), (member=x error=UNKNOWN_MEMBER_ID)]",
            ],
            "Preparing": [
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="removed by admin"',
                "assign b-t-0-3 gone",
                "answer admin#l LeaveGroup members=[(instance=k error=NONE), "
                "(instance=k error=UNKNOWN_MEMBER_ID), (member=a-t-0-0 instance=k "
                "error=UNKNOWN_MEMBER_ID), (instance=x error=UNKNOWN_MEMBER_ID), "
                "(member=x error=UNKNOWN_MEMBER_ID)]",
            ],
            "Completing Stable": [
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="removed by admin"',
                "assign b-t-0-3 gone",
                "answer admin#l LeaveGroup members=[(instance=k error=NONE), "
                "(instance=k error=UNKNOWN_MEMBER_ID), (member=a-t-0-0 instance=k "
                "error=UNKNOWN_MEMBER_ID), (instance=x error=UNKNOWN_MEMBER_ID), "
                "(member=x error=UNKNOWN_MEMBER_ID)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=admin',
                "notify RebalanceInProgress generation=2",
            ],
            "Guarded": [
                "event MemberRemoved generation=2 member=d-t-0-9 cause=HERE "
                'reason="removed by admin" client=d',
                'notify MemberRemoved member=d-t-0-9 reason="removed by admin"',
                "assign d-t-0-9 gone",
                "answer admin#l LeaveGroup members=[(instance=k error=NONE), "
                "(instance=k error=UNKNOWN_MEMBER_ID), (member=a-t-0-0 instance=k "
                "error=UNKNOWN_MEMBER_ID), (instance=x error=UNKNOWN_MEMBER_ID), "
                "(member=x error=UNKNOWN_MEMBER_ID)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=admin',
                "notify RebalanceInProgress generation=2",
            ],
        },
    )
