"""Who may store and read positions in every state of a group: Kafka's table, state by state."""

import pytest

from coordlib.records import requests as rq
from tests.tools.driving import (
    FOLLOWER,
    STATES,
    commit,
    fetch,
    said_in,
)

in_every_state = pytest.mark.parametrize("state", STATES)


def check(state: str, request: rq.AnyRequest, expected: dict[str, list[str]]) -> None:
    """Compare everything that follows with the row of the table that names this state."""
    by_state = {name: lines for names, lines in expected.items() for name in names.split()}

    assert said_in(state, request) == by_state[state]


@in_every_state
def test_commit_of_member(state: str) -> None:
    """A member commits; while the next generation waits for its leader it may not."""
    check(
        state,
        commit("b", 2, FOLLOWER),
        {
            "absent": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused member=b-t-0-3 cause=HERE reason=ILLEGAL_GENERATION "
                "client=b request_generation=2",
            ],
            "Empty": [
                "answer b#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=b request_generation=2",
            ],
            "Preparing Stable": [
                "commit t/0 offset=5 generation=2 member=b-t-0-3",
                "answer b#c OffsetCommit",
                "event OffsetsCommitted generation=2 member=b-t-0-3 cause=HERE client=b "
                "offsets=[(topic=t offset=5)]",
            ],
            "Completing": [
                "answer b#c OffsetCommit REBALANCE_IN_PROGRESS",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=REBALANCE_IN_PROGRESS client=b request_generation=2",
            ],
        },
    )


@in_every_state
def test_commit_of_old_generation(state: str) -> None:
    """A paused member wakes up, and commits first of all."""
    check(
        state,
        commit("b", 1, FOLLOWER),
        {
            "absent": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused member=b-t-0-3 cause=HERE reason=ILLEGAL_GENERATION "
                "client=b request_generation=1",
            ],
            "Empty": [
                "answer b#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=b request_generation=1",
            ],
            "Preparing Completing Stable": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=ILLEGAL_GENERATION client=b request_generation=1",
            ],
        },
    )


@in_every_state
def test_commit_of_nobody(state: str) -> None:
    """A tool resets positions: only while the group is empty."""
    check(
        state,
        commit("tool"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first commit"',
                "commit t/0 offset=5",
                "answer tool#c OffsetCommit",
                "event OffsetsCommitted cause=HERE client=tool offsets=[(topic=t offset=5)]",
            ],
            "Empty": [
                "commit t/0 offset=5",
                "answer tool#c OffsetCommit",
                "event OffsetsCommitted generation=2 cause=HERE client=tool offsets=[(topic=t "
                "offset=5)]",
            ],
            "Preparing Completing Stable": [
                "answer tool#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 cause=HERE reason=UNKNOWN_MEMBER_ID client=tool",
            ],
        },
    )


@in_every_state
def test_commit_with_member_but_no_generation(state: str) -> None:
    """Kafka's trap 9: a member id without a generation."""
    check(
        state,
        commit("b", -1, FOLLOWER),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first commit"',
                "commit t/0 offset=5 member=b-t-0-3",
                "answer b#c OffsetCommit",
                "event OffsetsCommitted member=b-t-0-3 cause=HERE client=b offsets=[(topic=t "
                "offset=5)]",
            ],
            "Empty": [
                "commit t/0 offset=5 member=b-t-0-3",
                "answer b#c OffsetCommit",
                "event OffsetsCommitted generation=2 member=b-t-0-3 cause=HERE client=b "
                "offsets=[(topic=t offset=5)]",
            ],
            "Preparing Completing Stable": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=ILLEGAL_GENERATION client=b",
            ],
        },
    )


@in_every_state
def test_commit_of_unknown(state: str) -> None:
    """testCommitOffsetInCompletingRebalanceFromUnknownMemberId: who was expelled finished its
    last records; that it is nobody is found before the state is looked at."""
    refused = [
        "answer x#c OffsetCommit UNKNOWN_MEMBER_ID",
        "event CommitRefused generation=2 member=x-t-0-99 cause=HERE "
        "reason=UNKNOWN_MEMBER_ID client=x request_generation=2",
    ]
    check(
        state,
        commit("x", 2, "x-t-0-99"),
        {
            "absent": [
                "answer x#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused member=x-t-0-99 cause=HERE reason=ILLEGAL_GENERATION "
                "client=x request_generation=2",
            ],
            "Empty Preparing Completing Stable": refused,
        },
    )


@in_every_state
def test_fetch_of_named_partitions(state: str) -> None:
    """testFetchOffsetsWithUnknownGroup: also an unknown group has a row for each that is asked."""
    rows = (rq.TopicPartitions("t", (0,)),)
    check(
        state,
        fetch("tool", topics=rows),
        {
            "absent Empty Preparing Completing Stable": [
                "answer tool#f OffsetFetch offsets=[(topic=t offset=-1 error=NONE)] parts=1"
            ],
        },
    )


@in_every_state
def test_fetch_of_anybody(state: str) -> None:
    """Reading positions is always allowed."""
    check(
        state,
        fetch("tool"),
        {
            "absent Empty Preparing Completing Stable": ["answer tool#f OffsetFetch parts=1"],
        },
    )
