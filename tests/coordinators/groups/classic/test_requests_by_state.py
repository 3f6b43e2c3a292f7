"""What members ask in every state of a group: Kafka's table, state by state."""

import pytest

from coordlib.records import requests as rq
from tests.coordinators.shard.refusals import OTHER_PROTOCOL, in_state, refused
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SHARES,
    STATES,
    heartbeat,
    leave,
    said_in,
    sync,
)

in_every_state = pytest.mark.parametrize("state", STATES)


def check(state: str, request: rq.AnyRequest, expected: dict[str, list[str]]) -> None:
    """Compare everything that follows with the row of the table that names this state."""
    by_state = {name: lines for names, lines in expected.items() for name in names.split()}

    assert said_in(state, request) == in_state(state, by_state[state])


@in_every_state
def test_leader_syncs(state: str) -> None:
    """The leader brings the assignment."""
    check(
        state,
        sync("a", 2, LEADER, assignments=SHARES),
        {
            "absent Empty": refused("answer a#s1 SyncGroup UNKNOWN_MEMBER_ID", LEADER),
            "Preparing": ["answer a#s1 SyncGroup REBALANCE_IN_PROGRESS"],
            "Completing": [
                "assign a-t-0-0 generation=2 protocol=range assignment=p0 fence=6",
                "event AssignmentIssued generation=2 member=a-t-0-0 cause=HERE fence=6 sync=6 "
                "bytes=p0",
                "assign b-t-0-3 generation=2 protocol=range assignment=p1 fence=6",
                "event AssignmentIssued generation=2 member=b-t-0-3 cause=HERE fence=6 sync=6 "
                "bytes=p1",
                "answer a#s1 SyncGroup protocol_type=demo protocol=range assignment=p0 fence=6",
            ],
            "Stable": [
                "answer a#s1 SyncGroup protocol_type=demo protocol=range assignment=p0 fence=6"
            ],
        },
    )


@in_every_state
def test_follower_syncs(state: str) -> None:
    """A follower fetches its share, before or after the leader spoke."""
    check(
        state,
        sync("b", 2, FOLLOWER),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing": ["answer b#s1 SyncGroup REBALANCE_IN_PROGRESS"],
            "Completing": [],
            "Stable": [
                "answer b#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=6"
            ],
        },
    )


@in_every_state
def test_leader_syncs_with_an_error(state: str) -> None:
    """Seed 002, assignment failure: the leader's assignor raised, and the others wait for it."""
    check(
        state,
        sync("a", 2, LEADER, error="UNSUPPORTED_ASSIGNOR", message="why"),
        {
            "absent Empty": refused("answer a#s1 SyncGroup UNKNOWN_MEMBER_ID", LEADER),
            "Preparing": ["answer a#s1 SyncGroup REBALANCE_IN_PROGRESS"],
            "Completing": [
                "event AssignmentFailed generation=2 member=a-t-0-0 cause=HERE reason=why "
                "client=a error=UNSUPPORTED_ASSIGNOR",
                "assign a-t-0-0 generation=2 protocol=range fence=6",
                "event AssignmentIssued generation=2 member=a-t-0-0 cause=HERE fence=6 sync=6",
                "assign b-t-0-3 generation=2 protocol=range fence=6",
                "event AssignmentIssued generation=2 member=b-t-0-3 cause=HERE fence=6 sync=6",
                "answer a#s1 SyncGroup UNSUPPORTED_ASSIGNOR protocol_type=demo protocol=range "
                "fence=6",
            ],
            "Stable": [
                "answer a#s1 SyncGroup protocol_type=demo protocol=range assignment=p0 fence=6"
            ],
        },
    )


@in_every_state
def test_follower_syncs_with_an_error(state: str) -> None:
    """Only the leader divides: what a follower says of it is a plain SyncGroup."""
    check(
        state,
        sync("b", 2, FOLLOWER, error="UNSUPPORTED_ASSIGNOR", message="why"),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing": ["answer b#s1 SyncGroup REBALANCE_IN_PROGRESS"],
            "Completing": [],
            "Stable": [
                "answer b#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=6"
            ],
        },
    )


@in_every_state
def test_sync_of_old_generation(state: str) -> None:
    """A SyncGroup of the generation before was late."""
    check(
        state,
        sync("b", 1, FOLLOWER),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing Completing Stable": refused(
                "answer b#s1 SyncGroup ILLEGAL_GENERATION", FOLLOWER
            ),
        },
    )


@in_every_state
def test_sync_for_another_protocol(state: str) -> None:
    """A member believes that another assignor was chosen."""
    check(
        state,
        sync("b", 2, FOLLOWER, protocol="sticky"),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing Completing Stable": refused(
                "answer b#s1 SyncGroup INCONSISTENT_GROUP_PROTOCOL",
                FOLLOWER,
                reason=OTHER_PROTOCOL,
            ),
        },
    )


@in_every_state
def test_sync_for_another_type(state: str) -> None:
    """testSyncGroupReturnsAnErrorWhenProtocolTypeIsInconsistent: the group was emptied and taken
    over by another kind of members, or a client mixes up two groups."""
    check(
        state,
        sync("b", 2, FOLLOWER, protocol_type="connect", protocol="range"),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing Completing Stable": refused(
                "answer b#s1 SyncGroup INCONSISTENT_GROUP_PROTOCOL",
                FOLLOWER,
                reason=OTHER_PROTOCOL,
            ),
        },
    )


@in_every_state
def test_sync_that_names_its_protocol(state: str) -> None:
    """testSyncGroupSucceedWhenProtocolTypeAndNameAreConsistent (KIP-559)."""
    check(
        state,
        sync("b", 2, FOLLOWER, protocol_type="demo", protocol="range"),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing": ["answer b#s1 SyncGroup REBALANCE_IN_PROGRESS"],
            "Completing": [],
            "Stable": [
                "answer b#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=6"
            ],
        },
    )


@in_every_state
def test_sync_of_unknown(state: str) -> None:
    """testSyncGroupFromUnknownMember: an expelled member does not know it yet."""
    check(
        state,
        sync("x", 2, "x-t-0-99"),
        {
            "absent Empty Preparing Completing Stable": refused(
                "answer x#s1 SyncGroup UNKNOWN_MEMBER_ID", "x-t-0-99"
            ),
        },
    )


@in_every_state
def test_heartbeat_of_member(state: str) -> None:
    """Silence means yes, but not while the group prepares."""
    check(
        state,
        heartbeat("b", 2, FOLLOWER),
        {
            "absent Empty": ["answer b#h Heartbeat UNKNOWN_MEMBER_ID"],
            "Preparing": ["answer b#h Heartbeat REBALANCE_IN_PROGRESS"],
            "Completing Stable": [],
        },
    )


@in_every_state
def test_heartbeat_of_old_generation(state: str) -> None:
    """A paused member wakes up."""
    check(
        state,
        heartbeat("b", 1, FOLLOWER),
        {
            "absent Empty": ["answer b#h Heartbeat UNKNOWN_MEMBER_ID"],
            "Preparing Completing Stable": ["answer b#h Heartbeat ILLEGAL_GENERATION"],
        },
    )


@in_every_state
def test_heartbeat_of_unknown(state: str) -> None:
    """An expelled member does not know it yet."""
    check(
        state,
        heartbeat("x", 2, "x-t-0-99"),
        {
            "absent Empty Preparing Completing Stable": ["answer x#h Heartbeat UNKNOWN_MEMBER_ID"],
        },
    )


@in_every_state
def test_heartbeat_with_instance(state: str) -> None:
    """A dynamic member names an instance id that nobody has: unknown, not ignored."""
    check(
        state,
        heartbeat("b", 2, FOLLOWER, instance="i"),
        {
            "absent Empty Preparing Completing Stable": ["answer b#h Heartbeat UNKNOWN_MEMBER_ID"],
        },
    )


@in_every_state
def test_follower_leaves(state: str) -> None:
    """A consumer is closed."""
    check(
        state,
        leave("b", FOLLOWER),
        {
            "absent Empty": [
                "answer b#l LeaveGroup members=[(member=b-t-0-3 error=UNKNOWN_MEMBER_ID)]"
            ],
            "Preparing": [
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE reason=left client=b",
                "notify MemberRemoved member=b-t-0-3 reason=left",
                "assign b-t-0-3 gone",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 error=NONE)]",
            ],
            "Completing Stable": [
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE reason=left client=b",
                "notify MemberRemoved member=b-t-0-3 reason=left",
                "assign b-t-0-3 gone",
                "answer b#l LeaveGroup members=[(member=b-t-0-3 error=NONE)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=b',
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_leave_of_unknown(state: str) -> None:
    """A consumer that was expelled is closed."""
    check(
        state,
        leave("x", "x-t-0-99"),
        {
            "absent Empty Preparing Completing Stable": [
                "answer x#l LeaveGroup members=[(member=x-t-0-99 error=UNKNOWN_MEMBER_ID)]"
            ],
        },
    )


@in_every_state
def test_leave_by_another(state: str) -> None:
    """An admin removes a member that may still work (rule 14)."""
    check(
        state,
        leave("admin", FOLLOWER),
        {
            "absent Empty": [
                "answer admin#l LeaveGroup members=[(member=b-t-0-3 error=UNKNOWN_MEMBER_ID)]"
            ],
            "Preparing": [
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="removed by admin"',
                "assign b-t-0-3 gone",
                "answer admin#l LeaveGroup members=[(member=b-t-0-3 error=NONE)]",
            ],
            "Completing Stable": [
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="removed by admin" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="removed by admin"',
                "assign b-t-0-3 gone",
                "answer admin#l LeaveGroup members=[(member=b-t-0-3 error=NONE)]",
                'event RebalanceStarted generation=2 cause=HERE reason="member left" client=admin',
                "notify RebalanceInProgress generation=2",
            ],
        },
    )
