"""What static members ask in every state of a group: Kafka's table, state by state."""

from tests.coordinators.groups.classic.static_states import check, in_every_state
from tests.coordinators.shard.refusals import refused
from tests.tools.driving import FOLLOWER, commit, heartbeat, sync


@in_every_state
def test_sync_with_instance_of_another(state: str) -> None:
    """testStaticMemberFenceDuplicateSyncingFollower: not another one's share."""
    check(
        state,
        sync("b", 2, FOLLOWER, instance="i"),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing Completing Stable Guarded": refused(
                "answer b#s1 SyncGroup FENCED_INSTANCE_ID", FOLLOWER
            ),
        },
    )


@in_every_state
def test_sync_with_unknown_instance(state: str) -> None:
    """An instance id that nobody has."""
    check(
        state,
        sync("b", 2, FOLLOWER, instance="x"),
        {
            "absent Empty Preparing Completing Stable Guarded": refused(
                "answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER
            ),
        },
    )


@in_every_state
def test_sync_of_follower(state: str) -> None:
    """A static follower fetches its share; a replaced one does not."""
    check(
        state,
        sync("b", 2, FOLLOWER, instance="k"),
        {
            "absent Empty": refused("answer b#s1 SyncGroup UNKNOWN_MEMBER_ID", FOLLOWER),
            "Preparing": [
                "answer b#s1 SyncGroup REBALANCE_IN_PROGRESS",
            ],
            "Completing": [],
            "Stable": [
                "answer b#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=6",
            ],
            "Guarded": refused("answer b#s1 SyncGroup FENCED_INSTANCE_ID", FOLLOWER),
        },
    )


@in_every_state
def test_heartbeat_with_instance_of_another(state: str) -> None:
    """testStaticMemberHeartbeatLeaderWithInvalidMemberId: also the quiet way must look at it."""
    check(
        state,
        heartbeat("b", 2, FOLLOWER, instance="i"),
        {
            "absent Empty": [
                "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
            ],
            "Preparing Completing Stable Guarded": [
                "answer b#h Heartbeat FENCED_INSTANCE_ID",
            ],
        },
    )


@in_every_state
def test_heartbeat_with_unknown_instance(state: str) -> None:
    """An instance id that nobody has."""
    check(
        state,
        heartbeat("b", 2, FOLLOWER, instance="x"),
        {
            "absent Empty Preparing Completing Stable Guarded": [
                "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
            ],
        },
    )


@in_every_state
def test_heartbeat_of_follower(state: str) -> None:
    """Silence means yes; the replaced one is told, every time."""
    check(
        state,
        heartbeat("b", 2, FOLLOWER, instance="k"),
        {
            "absent Empty": [
                "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
            ],
            "Preparing": [
                "answer b#h Heartbeat REBALANCE_IN_PROGRESS",
            ],
            "Completing Stable": [],
            "Guarded": [
                "answer b#h Heartbeat FENCED_INSTANCE_ID",
            ],
        },
    )


@in_every_state
def test_heartbeat_without_instance(state: str) -> None:
    """As Kafka: the member id is enough. The replaced one is fenced all the same."""
    check(
        state,
        heartbeat("b", 2, FOLLOWER),
        {
            "absent Empty": [
                "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
            ],
            "Preparing": [
                "answer b#h Heartbeat REBALANCE_IN_PROGRESS",
            ],
            "Completing Stable": [],
            "Guarded": [
                "answer b#h Heartbeat FENCED_INSTANCE_ID",
            ],
        },
    )


@in_every_state
def test_heartbeat_of_old_generation_when_fenced(state: str) -> None:
    """Fencing is found before the generation is looked at."""
    check(
        state,
        heartbeat("b", 1, FOLLOWER, instance="i"),
        {
            "absent Empty": [
                "answer b#h Heartbeat UNKNOWN_MEMBER_ID",
            ],
            "Preparing Completing Stable Guarded": [
                "answer b#h Heartbeat FENCED_INSTANCE_ID",
            ],
        },
    )


@in_every_state
def test_commit_with_instance_of_another(state: str) -> None:
    """A position from a process that lost its place is not taken; Empty looks at the generation
    of an anonymous commit only.
    """
    check(
        state,
        commit("b", 2, FOLLOWER, instance="i"),
        {
            "absent": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused member=b-t-0-3 cause=HERE "
                "reason=ILLEGAL_GENERATION client=b request_generation=2",
            ],
            "Empty": [
                "answer b#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=b request_generation=2",
            ],
            "Preparing Completing Stable Guarded": [
                "answer b#c OffsetCommit FENCED_INSTANCE_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=FENCED_INSTANCE_ID client=b request_generation=2",
            ],
        },
    )


@in_every_state
def test_commit_with_unknown_instance(state: str) -> None:
    """testGenericGroupOffsetCommitWithUnknownInstanceId."""
    check(
        state,
        commit("b", 2, FOLLOWER, instance="x"),
        {
            "absent": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused member=b-t-0-3 cause=HERE "
                "reason=ILLEGAL_GENERATION client=b request_generation=2",
            ],
            "Empty Preparing Completing Stable Guarded": [
                "answer b#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=b request_generation=2",
            ],
        },
    )


@in_every_state
def test_commit_of_follower(state: str) -> None:
    """The older twin finished its last records too late."""
    check(
        state,
        commit("b", 2, FOLLOWER, instance="k"),
        {
            "absent": [
                "answer b#c OffsetCommit ILLEGAL_GENERATION",
                "event CommitRefused member=b-t-0-3 cause=HERE "
                "reason=ILLEGAL_GENERATION client=b request_generation=2",
            ],
            "Empty": [
                "answer b#c OffsetCommit UNKNOWN_MEMBER_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=UNKNOWN_MEMBER_ID client=b request_generation=2",
            ],
            "Preparing Stable": [
                "commit t/0 offset=5 generation=2 member=b-t-0-3",
                "answer b#c OffsetCommit",
                "event OffsetsCommitted generation=2 member=b-t-0-3 cause=HERE "
                "client=b offsets=[(topic=t offset=5)]",
            ],
            "Completing": [
                "answer b#c OffsetCommit REBALANCE_IN_PROGRESS",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=REBALANCE_IN_PROGRESS client=b request_generation=2",
            ],
            "Guarded": [
                "answer b#c OffsetCommit FENCED_INSTANCE_ID",
                "event CommitRefused generation=2 member=b-t-0-3 cause=HERE "
                "reason=FENCED_INSTANCE_ID client=b request_generation=2",
            ],
        },
    )


@in_every_state
def test_commit_without_generation_but_with_instance(state: str) -> None:
    """testSimpleGroupOffsetCommitWithInstanceId: nobody's commit into a group that lives."""
    check(
        state,
        commit("b", instance="k"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first commit"',
                "commit t/0 offset=5",
                "answer b#c OffsetCommit",
                "event OffsetsCommitted cause=HERE client=b offsets=[(topic=t offset=5)]",
            ],
            "Empty": [
                "commit t/0 offset=5",
                "answer b#c OffsetCommit",
                "event OffsetsCommitted generation=2 cause=HERE client=b "
                "offsets=[(topic=t offset=5)]",
            ],
            "Preparing Completing Stable Guarded": [
                "answer b#c OffsetCommit FENCED_INSTANCE_ID",
                "event CommitRefused generation=2 cause=HERE reason=FENCED_INSTANCE_ID client=b",
            ],
        },
    )
