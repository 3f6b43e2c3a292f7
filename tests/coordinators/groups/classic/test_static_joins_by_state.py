"""What the JoinGroup of a static member does in every state of a group: Kafka's table."""

from tests.coordinators.groups.classic.static_states import check, in_every_state
from tests.coordinators.shard.refusals import JUDGED_BEFORE, refused
from tests.tools.driving import FOLLOWER, LEADER, join


@in_every_state
def test_follower_restarts(state: str) -> None:
    """A process comes back under its instance id: it takes the place of the older one. In Stable
    nobody else notices, and the older one is guarded; in Guarded d is no twin but its own retry
    under another correlation id, and waits in its own stead.
    """
    check(
        state,
        join("d", instance="k"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first member joins"',
                "event MemberJoined member=d-NEW cause=HERE client=d instance=k "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted cause=HERE reason="member joined" client=d',
                "answer d#j1 JoinGroup generation=1 protocol_type=demo protocol=range "
                "leader=d-NEW member=d-NEW members=[d-NEW:m]",
                'event GenerationStarted generation=1 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=d-NEW members=[d-NEW]',
            ],
            "Empty": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=k session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=d',
                "answer d#j1 JoinGroup generation=3 protocol_type=demo protocol=range "
                "leader=d-NEW member=d-NEW members=[d-NEW:m]",
                'event GenerationStarted generation=3 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=d-NEW members=[d-NEW]',
            ],
            "Preparing": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=k session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" client=b successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" instance=k replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="static member replaced"',
                "assign b-t-0-3 gone",
            ],
            "Completing": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=k session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" client=b successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" instance=k replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="static member replaced"',
                "assign b-t-0-3 gone",
                'event RebalanceStarted generation=2 cause=HERE reason="static member '
                'replaced" instance=k',
                "notify RebalanceInProgress generation=2",
            ],
            "Stable": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=k session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" client=b successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" instance=k replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=b-t-0-3 cause=HERE "
                'reason="static member replaced" client=b',
                'notify MemberRemoved member=b-t-0-3 reason="static member replaced"',
                "assign b-t-0-3 gone",
                "answer d#j1 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=d-NEW",
            ],
            "Guarded": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=k session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event MemberFenced generation=2 member=d-t-0-9 cause=HERE "
                'reason="static member replaced" instance=k replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=d-t-0-9 cause=HERE "
                'reason="static member replaced" client=d',
                'notify MemberRemoved member=d-t-0-9 reason="static member replaced"',
                "assign d-t-0-9 gone",
                "answer d#j1 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=d-NEW",
            ],
        },
    )


@in_every_state
def test_leader_restarts(state: str) -> None:
    """It leads in the older one's place, and in Stable must not assign again (KIP-814)."""
    check(
        state,
        join("d", instance="i"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first member joins"',
                "event MemberJoined member=d-NEW cause=HERE client=d instance=i "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted cause=HERE reason="member joined" client=d',
                "answer d#j1 JoinGroup generation=1 protocol_type=demo protocol=range "
                "leader=d-NEW member=d-NEW members=[d-NEW:m]",
                'event GenerationStarted generation=1 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=d-NEW members=[d-NEW]',
            ],
            "Empty": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=i session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=d',
                "answer d#j1 JoinGroup generation=3 protocol_type=demo protocol=range "
                "leader=d-NEW member=d-NEW members=[d-NEW:m]",
                'event GenerationStarted generation=3 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=d-NEW members=[d-NEW]',
            ],
            "Preparing": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=i session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" instance=i replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a',
                'notify MemberRemoved member=a-t-0-0 reason="static member replaced"',
                "assign a-t-0-0 gone",
            ],
            "Completing": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=i session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" instance=i replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a',
                'notify MemberRemoved member=a-t-0-0 reason="static member replaced"',
                "assign a-t-0-0 gone",
                'event RebalanceStarted generation=2 cause=HERE reason="static member '
                'replaced" instance=i',
                "notify RebalanceInProgress generation=2",
            ],
            "Stable": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=i session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" instance=i replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a',
                'notify MemberRemoved member=a-t-0-0 reason="static member replaced"',
                "assign a-t-0-0 gone",
                "answer d#j1 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=d-NEW member=d-NEW members=[d-NEW:m=p0, b-t-0-3:m=p1] "
                "skip_assignment=True",
            ],
            "Guarded": [
                "event MemberJoined generation=2 member=d-NEW cause=HERE client=d "
                "instance=i session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                "event HandOverDelayed generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a successor=d-NEW '
                "wait_ms=10000 wait_max_ms=20000",
                "event MemberFenced generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" instance=i replaced_by=d-NEW',
                "event MemberRemoved generation=2 member=a-t-0-0 cause=HERE "
                'reason="static member replaced" client=a',
                'notify MemberRemoved member=a-t-0-0 reason="static member replaced"',
                "assign a-t-0-0 gone",
                "answer d#j1 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=d-NEW member=d-NEW members=[d-NEW:m=p0, d-t-0-9:m=p1] "
                "skip_assignment=True",
            ],
        },
    )


@in_every_state
def test_follower_rejoins(state: str) -> None:
    """With its id and its instance id; who was replaced is fenced for good."""
    check(
        state,
        join("b", "j9", member=FOLLOWER, instance="k"),
        {
            "absent Empty": refused("answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"),
            "Preparing": [],
            "Completing Stable": [
                "answer b#j9 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=b-t-0-3",
            ],
            "Guarded": refused("answer b#j9 JoinGroup FENCED_INSTANCE_ID member=b-t-0-3"),
        },
    )


@in_every_state
def test_follower_changes(state: str) -> None:
    """testStaticMemberRejoinWithFollowerIdAndChangeOfProtocol: under its id it changes what it
    offers, and everybody is asked. A static member has no privilege here."""
    asked = [
        'event RebalanceStarted generation=2 cause=HERE reason="metadata changed" client=b '
        "member=b-t-0-3",
        "notify RebalanceInProgress generation=2",
    ]
    check(
        state,
        join("b", "j9", member=FOLLOWER, instance="k", protocols={"range": b"other"}),
        {
            "absent Empty": refused("answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"),
            "Preparing": [],
            "Completing Stable": asked,
            "Guarded": refused("answer b#j9 JoinGroup FENCED_INSTANCE_ID member=b-t-0-3"),
        },
    )


@in_every_state
def test_leader_rejoins(state: str) -> None:
    """A static leader may force a rebalance as any other does."""
    check(
        state,
        join("a", "j9", member=LEADER, instance="i"),
        {
            "absent": refused("answer a#j9 JoinGroup UNKNOWN_MEMBER_ID member=a-NEW"),
            "Empty": refused("answer a#j9 JoinGroup UNKNOWN_MEMBER_ID member=a-t-0-0"),
            "Preparing": [],
            "Completing": [
                "answer a#j9 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=a-t-0-0 members=[a-t-0-0:m, b-t-0-3:m]",
            ],
            "Stable Guarded": [
                'event RebalanceStarted generation=2 cause=HERE reason="leader '
                'rejoined" client=a member=a-t-0-0',
                "notify RebalanceInProgress generation=2",
            ],
        },
    )


@in_every_state
def test_join_with_instance_of_another(state: str) -> None:
    """Two processes were configured with one instance id, or the older twin rejoins."""
    check(
        state,
        join("b", "j9", member=FOLLOWER, instance="i"),
        {
            "absent Empty": refused("answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"),
            "Preparing Completing Stable Guarded": refused(
                "answer b#j9 JoinGroup FENCED_INSTANCE_ID member=b-t-0-3"
            ),
        },
    )


@in_every_state
def test_join_with_unknown_instance(state: str) -> None:
    """testStaticMemberJoinWithUnknownInstanceIdAndKnownMemberId: unknown, not fenced."""
    check(
        state,
        join("b", "j9", member=FOLLOWER, instance="x"),
        {
            "absent Empty Preparing Completing Stable Guarded": refused(
                "answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"
            ),
        },
    )


@in_every_state
def test_older_twin_rejoins_without_instance(state: str) -> None:
    """The member id is known and that is enough; a replaced one is told that it is fenced, or it
    would join anew and fence its successor.
    """
    check(
        state,
        join("b", "j9", member=FOLLOWER),
        {
            "absent Empty": refused("answer b#j9 JoinGroup UNKNOWN_MEMBER_ID member=b-t-0-3"),
            "Preparing": [],
            "Completing Stable": [
                "answer b#j9 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=b-t-0-3",
            ],
            "Guarded": refused("answer b#j9 JoinGroup FENCED_INSTANCE_ID member=b-t-0-3"),
        },
    )


@in_every_state
def test_late_duplicate_of_first_join(state: str) -> None:
    """The first JoinGroup of b comes once more (rule 12): it is a repeat as long as b is a member,
    and must not take the place back from d.
    """
    check(
        state,
        join("b", instance="k"),
        {
            "absent": [
                'event GroupCreated cause=HERE reason="first member joins"',
                "event MemberJoined member=b-NEW cause=HERE client=b instance=k "
                "session_timeout_ms=10000 rebalance_timeout_ms=20000 protocols=[range]",
                'event RebalanceStarted cause=HERE reason="member joined" client=b',
                "answer b#j1 JoinGroup generation=1 protocol_type=demo protocol=range "
                "leader=b-NEW member=b-NEW members=[b-NEW:m]",
                'event GenerationStarted generation=1 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=b-NEW members=[b-NEW]',
            ],
            "Empty": [
                "event MemberJoined generation=2 member=b-NEW cause=HERE client=b "
                "instance=k session_timeout_ms=10000 rebalance_timeout_ms=20000 "
                "protocols=[range]",
                'event RebalanceStarted generation=2 cause=HERE reason="member joined" client=b',
                "answer b#j1 JoinGroup generation=3 protocol_type=demo protocol=range "
                "leader=b-NEW member=b-NEW members=[b-NEW:m]",
                'event GenerationStarted generation=3 cause=HERE reason="member '
                'joined" protocol_type=demo protocol=range leader=b-NEW members=[b-NEW]',
            ],
            "Preparing": refused(
                "answer b#j1 JoinGroup REBALANCE_IN_PROGRESS member=b-t-0-3", reason=JUDGED_BEFORE
            ),
            "Completing Stable": [
                "answer b#j1 JoinGroup generation=2 protocol_type=demo protocol=range "
                "leader=a-t-0-0 member=b-t-0-3",
            ],
            "Guarded": refused("answer b#j1 JoinGroup FENCED_INSTANCE_ID member=b-t-0-3"),
        },
    )
