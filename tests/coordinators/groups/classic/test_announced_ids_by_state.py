"""Announced ids (KIP-394) in every state of a group: Kafka's table, state by state.

x was told its id and has not joined yet.
"""

from collections.abc import Callable

import pytest

from coordlib.records import requests as rq
from tests.coordinators.shard.refusals import in_state, refused
from tests.tools.driving import (
    STATES,
    Conversation,
    commit,
    heartbeat,
    join,
    leave,
    settings,
    sync,
)

in_every_state = pytest.mark.parametrize("state", STATES)


def announced(state: str) -> tuple[Conversation, str]:
    """A group in this state to which x is announced, and its id."""
    talk = STATES[state]()
    talk.use(settings(requires_member_id=True))
    member_id = f"x-t-0-{talk.next_offset}"
    talk.send(join("x", "x1"))
    talk.tick()
    return talk, member_id


def said_in(state: str, make: Callable[[str], rq.AnyRequest]) -> list[str]:
    """What follows a request that is made with the id of x, here and there called ANNOUNCED."""
    talk, member_id = announced(state)
    here = str(talk.next_offset)
    lines = talk.send(make(member_id))
    return [
        line.replace(f"r0-{here}", "HERE")
        .replace(f"-t-0-{here}", "-NEW")
        .replace(member_id, "ANNOUNCED")
        for line in lines
    ]


def check(state: str, make: Callable[[str], rq.AnyRequest], expected: dict[str, list[str]]) -> None:
    """Compare everything that follows with the row of the table that names this state."""
    by_state = {name: lines for names, lines in expected.items() for name in names.split()}

    assert said_in(state, make) == in_state(state, by_state[state])


@in_every_state
def test_first_join_is_announced(state: str) -> None:
    """A client that cannot know its id is told it first. Nothing begins, in any state."""
    check(
        state,
        lambda m: join("d"),
        {
            "absent Empty Preparing Completing Stable": [
                "answer d#j1 JoinGroup MEMBER_ID_REQUIRED member=d-NEW",
            ],
        },
    )


@in_every_state
def test_repeat_is_given_the_same_id(state: str) -> None:
    """Its answer was lost: a second id would hold up every join phase for nothing."""
    check(
        state,
        lambda m: join("x", "x1"),
        {
            "absent Empty Preparing Completing Stable": [
                "answer x#x1 JoinGroup MEMBER_ID_REQUIRED member=ANNOUNCED",
            ],
        },
    )


@in_every_state
def test_announced_joins(state: str) -> None:
    """It joins with its id, and now it is a member."""
    check(
        state,
        lambda m: join("x", "x2", member=m),
        {
            "absent": [
                "event MemberJoined member=ANNOUNCED cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted cause=HERE reason="member joined" client=x '
                "member=ANNOUNCED",
                "answer x#x2 JoinGroup generation=1 protocol_type=demo protocol=range "
                "leader=ANNOUNCED member=ANNOUNCED members=[ANNOUNCED:m]",
                'event GenerationStarted generation=1 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=ANNOUNCED '
                "members=[ANNOUNCED]",
            ],
            "Empty": [
                "event MemberJoined generation=2 member=ANNOUNCED cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" '
                "client=x member=ANNOUNCED",
                "answer x#x2 JoinGroup generation=3 protocol_type=demo protocol=range "
                "leader=ANNOUNCED member=ANNOUNCED members=[ANNOUNCED:m]",
                'event GenerationStarted generation=3 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=ANNOUNCED '
                "members=[ANNOUNCED]",
            ],
            "Preparing": [
                "event MemberJoined generation=2 member=ANNOUNCED cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
            ],
            "Completing Stable": [
                "event MemberJoined generation=2 member=ANNOUNCED cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" '
                "client=x member=ANNOUNCED",
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_announced_joins_with_instance(state: str) -> None:
    """testJoinGroupExistingPendingMemberWithGroupInstanceId: ids are announced to dynamic members
    only; for the instance id this is nobody.
    """
    check(
        state,
        lambda m: join("x", "x2", member=m, instance="i"),
        {
            "absent Empty Preparing Completing Stable": refused(
                "answer x#x2 JoinGroup UNKNOWN_MEMBER_ID member=ANNOUNCED"
            ),
        },
    )


@in_every_state
def test_announced_joins_with_another_protocol(state: str) -> None:
    """What fits nobody is refused, except in an Empty group; its id stays for another try."""
    check(
        state,
        lambda m: join("x", "x2", member=m, protocols={"other": b""}),
        {
            "absent": [
                "event MemberJoined member=ANNOUNCED cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[other]",
                'event RebalanceStarted cause=HERE reason="member joined" client=x '
                "member=ANNOUNCED",
                "answer x#x2 JoinGroup generation=1 protocol_type=demo protocol=other "
                'leader=ANNOUNCED member=ANNOUNCED members=[ANNOUNCED:""]',
                'event GenerationStarted generation=1 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=other leader=ANNOUNCED '
                "members=[ANNOUNCED]",
            ],
            "Empty": [
                "event MemberJoined generation=2 member=ANNOUNCED cause=HERE client=x "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[other]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" '
                "client=x member=ANNOUNCED",
                "answer x#x2 JoinGroup generation=3 protocol_type=demo protocol=other "
                'leader=ANNOUNCED member=ANNOUNCED members=[ANNOUNCED:""]',
                'event GenerationStarted generation=3 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=other leader=ANNOUNCED '
                "members=[ANNOUNCED]",
            ],
            "Preparing Completing Stable": refused(
                "answer x#x2 JoinGroup INCONSISTENT_GROUP_PROTOCOL member=ANNOUNCED"
            ),
        },
    )


@in_every_state
def test_announced_leaves(state: str) -> None:
    """Scala's way, not Java's: who was never in the group begins no rebalance by leaving."""
    check(
        state,
        lambda m: leave("x", m),
        {
            "absent Empty Preparing Completing Stable": [
                "answer x#l LeaveGroup members=[(member=ANNOUNCED error=NONE)]",
            ],
        },
    )


@in_every_state
def test_announced_syncs(state: str) -> None:
    """An announced id is no member."""
    check(
        state,
        lambda m: sync("x", 2, m),
        {
            "absent Empty Preparing Completing Stable": refused(
                "answer x#s1 SyncGroup UNKNOWN_MEMBER_ID", "ANNOUNCED"
            ),
        },
    )


@in_every_state
def test_announced_heartbeats(state: str) -> None:
    """An announced id is no member."""
    check(
        state,
        lambda m: heartbeat("x", 2, m),
        {
            "absent Empty Preparing Completing Stable": [
                "answer x#h Heartbeat UNKNOWN_MEMBER_ID",
            ],
        },
    )


@in_every_state
def test_announced_commits(state: str) -> None:
    """An announced id is no member."""
    check(
        state,
        lambda m: commit("x", 2, m),
        {
            "absent": [
                "answer x#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused member=ANNOUNCED cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=x request_generation=2",
            ],
            "Empty Preparing Completing Stable": [
                "answer x#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 member=ANNOUNCED cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=x request_generation=2",
            ],
        },
    )


@in_every_state
def test_announced_by_another(state: str) -> None:
    """The same correlation id from another client is another request."""
    check(
        state,
        lambda m: join("y", "x1"),
        {
            "absent Empty Preparing Completing Stable": [
                "answer y#x1 JoinGroup MEMBER_ID_REQUIRED member=y-NEW",
            ],
        },
    )
