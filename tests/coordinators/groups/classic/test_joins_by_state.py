"""What every JoinGroup does in every state of a group: Kafka's table, state by state."""

import pytest

from coordlib.records import requests as rq
from tests.coordinators.shard.refusals import in_state, refused
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    STATES,
    join,
    said_in,
)

in_every_state = pytest.mark.parametrize("state", STATES)


def check(state: str, request: rq.AnyRequest, expected: dict[str, list[str]]) -> None:
    """Compare everything that follows with the row of the table that names this state."""
    by_state = {name: lines for names, lines in expected.items() for name in names.split()}

    assert said_in(state, request) == in_state(state, by_state[state])


@in_every_state
def test_first_join(state: str) -> None:
    """A process starts. Its JoinGroup is parked until the next generation, in every state."""
    check(
        state,
        join("d"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first member joins"',
                "event MemberJoined member=d-t-0-0 cause=HERE client=d session_timeout_ms=10000 "
                "rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted cause=HERE reason="member joined" client=d',
                "answer d#j1 JoinGroup generation=1 protocol_type=demo protocol=range "
                "leader=d-t-0-0 member=d-t-0-0 members=[d-t-0-0:m]",
                'event GenerationStarted generation=1 cause=HERE reason="member joined" '
                "protocol_type=demo protocol=range leader=d-t-0-0 members=[d-t-0-0]",
            ],
            "Empty": [
                "event MemberJoined generation=2 member=d-t-0-5 cause=HERE client=d "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=d',
                "answer d#j1 JoinGroup generation=3 protocol_type=demo protocol=range "
                "leader=d-t-0-5 member=d-t-0-5 members=[d-t-0-5:m]",
                'event GenerationStarted generation=3 cause=HERE reason="member joined" '
                "protocol_type=demo protocol=range leader=d-t-0-5 members=[d-t-0-5]",
            ],
            "Preparing": [
                "event MemberJoined generation=2 member=d-t-0-10 cause=HERE client=d "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]"
            ],
            "Completing": [
                "event MemberJoined generation=2 member=d-t-0-6 cause=HERE client=d "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=d',
                "notify RebalanceInProgress generation=2",
            ],
            "Stable": [
                "event MemberJoined generation=2 member=d-t-0-8 cause=HERE client=d "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=d',
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_leader_rejoins(state: str) -> None:
    """The leader saw new partitions: it alone may force a rebalance with the same metadata."""
    check(
        state,
        join("a", "j9", member=LEADER),
        {
            "absent Empty": refused("answer a#j9 JoinGroup UNKNOWN_MEMBER_ID member=a-t-0-0"),
            "Preparing": [],
            "Completing": [
                "answer a#j9 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=a-t-0-0 members=[a-t-0-0:m, b-t-0-3:m]"
            ],
            "Stable": [
                'event RebalanceStarted generation=2 cause=HERE reason="leader rejoined" '
                "client=a member=a-t-0-0",
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_follower_rejoins(state: str) -> None:
    """A follower lost its answer, and asks again: no reason to bother everybody."""
    check(
        state,
        join("b", "j9", member=FOLLOWER),
        {
            "absent Empty": refused("answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"),
            "Preparing": [],
            "Completing Stable": [
                "answer b#j9 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=b-t-0-3"
            ],
        },
    )


@in_every_state
def test_follower_changes(state: str) -> None:
    """A consumer subscribed to another topic."""
    check(
        state,
        join("b", "j9", member=FOLLOWER, protocols={"range": b"other"}),
        {
            "absent Empty": refused("answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"),
            "Preparing": [],
            "Completing Stable": [
                'event RebalanceStarted generation=2 cause=HERE reason="metadata changed" '
                "client=b member=b-t-0-3",
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_join_of_unknown(state: str) -> None:
    """A member comes back after it was expelled."""
    check(
        state,
        join("x", member="x-t-0-99"),
        {
            "absent Empty Preparing Completing Stable": refused(
                "answer x#j1 JoinGroup UNKNOWN_MEMBER_ID member=x-t-0-99"
            ),
        },
    )


@in_every_state
def test_join_of_another_type(state: str) -> None:
    """A Connect worker was given the group id of consumers."""
    check(
        state,
        join("x", protocol_type="connect"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first member joins"',
                "event MemberJoined member=x-t-0-0 cause=HERE client=x session_timeout_ms=10000 "
                "rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted cause=HERE reason="member joined" client=x',
                "answer x#j1 JoinGroup generation=1 protocol_type=connect protocol=range "
                "leader=x-t-0-0 member=x-t-0-0 members=[x-t-0-0:m]",
                'event GenerationStarted generation=1 cause=HERE reason="member joined" '
                "protocol_type=connect protocol=range leader=x-t-0-0 members=[x-t-0-0]",
            ],
            "Empty": [
                "event MemberJoined generation=2 member=x-t-0-5 cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=x',
                "answer x#j1 JoinGroup generation=3 protocol_type=connect protocol=range "
                "leader=x-t-0-5 member=x-t-0-5 members=[x-t-0-5:m]",
                'event GenerationStarted generation=3 cause=HERE reason="member joined" '
                "protocol_type=connect protocol=range leader=x-t-0-5 members=[x-t-0-5]",
            ],
            "Preparing Completing Stable": refused(
                "answer x#j1 JoinGroup INCONSISTENT_GROUP_PROTOCOL"
            ),
        },
    )


@in_every_state
def test_join_without_common_protocol(state: str) -> None:
    """A member of a newer release dropped the old assignor."""
    check(
        state,
        join("x", protocols={"new": b""}),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first member joins"',
                "event MemberJoined member=x-t-0-0 cause=HERE client=x session_timeout_ms=10000 "
                "rebalance_timeout_ms=20000 protocols=[new]",
                'event RebalanceStarted cause=HERE reason="member joined" client=x',
                "answer x#j1 JoinGroup generation=1 protocol_type=demo protocol=new "
                'leader=x-t-0-0 member=x-t-0-0 members=[x-t-0-0:""]',
                'event GenerationStarted generation=1 cause=HERE reason="member joined" '
                "protocol_type=demo protocol=new leader=x-t-0-0 members=[x-t-0-0]",
            ],
            "Empty": [
                "event MemberJoined generation=2 member=x-t-0-5 cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[new]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=x',
                "answer x#j1 JoinGroup generation=3 protocol_type=demo protocol=new "
                'leader=x-t-0-5 member=x-t-0-5 members=[x-t-0-5:""]',
                'event GenerationStarted generation=3 cause=HERE reason="member joined" '
                "protocol_type=demo protocol=new leader=x-t-0-5 members=[x-t-0-5]",
            ],
            "Preparing Completing Stable": refused(
                "answer x#j1 JoinGroup INCONSISTENT_GROUP_PROTOCOL"
            ),
        },
    )
