"""Everything has a bound, and what the core accepts the sink can write."""

import msgspec
import pytest

from coordlib import limits
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from tests.core.engine.refusals import OTHER_GENERATION, refused
from tests.tools.assigned_groups import let_go
from tests.tools.core import offsets_of
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SHARES,
    Conversation,
    commit,
    completing,
    fetch,
    join,
    leave,
    settings,
    settled,
    stable,
    sync,
)

KB = 1_000


def sizes(talk: Conversation) -> list[int]:
    return [len(output.value or b"") for output in talk.outputs]


def test_three_members_with_400_kb_of_metadata_each_form_a_group() -> None:
    """The leader's answer carries everybody's metadata: 1.6 MB of base64 in one record."""
    talk = Conversation(settings(initial_rebalance_delay_ms=1_000))
    for client in "abc":
        talk.send(join(client, protocols={"range": b"m" * 400 * KB}))
    talk.tick(after_ms=2_000)
    talk.tick(after_ms=2_000)
    talk.end_batch()

    assert talk.group().state == "CompletingRebalance"
    assert max(sizes(talk)) < limits.OUTPUT_BYTES_MAX


def test_a_group_over_four_mebibytes_is_refused() -> None:
    """INV-43. One legal group that no record can hold would stop every shard."""
    talk = Conversation(settings(initial_rebalance_delay_ms=60_000))
    answers = [
        talk.send(join(f"m{number}", protocols={"range": b"m" * 700 * KB})) for number in range(6)
    ]

    assert [len(lines) for lines in answers] == [3, 1, 1, 1, 2, 2]
    assert answers[4:] == [
        refused("answer m4#j1 JoinGroup GROUP_MAX_SIZE_REACHED", generation=0, cause="r0-4"),
        refused("answer m5#j1 JoinGroup GROUP_MAX_SIZE_REACHED", generation=0, cause="r0-5"),
    ]
    talk.end_batch()
    saved = CLASSIC.save(talk.group())
    assert len(saved) < talk.group().size_bytes <= limits.GROUP_BYTES_MAX


def test_a_member_cannot_grow_its_group_over_the_limit_by_joining_again() -> None:
    """A rejoin replaces metadata: only what it adds counts, and shrinking is always allowed."""
    talk = Conversation(settings(initial_rebalance_delay_ms=60_000))
    for number in range(4):
        talk.send(join(f"m{number}", protocols={"range": b"m" * 650 * KB}))
    talk.send(join("small"))
    small, big = "small-t-0-4", "m0-t-0-0"

    assert talk.send(
        join("small", "j2", member=small, protocols={"range": b"m" * 700 * KB})
    ) == refused(
        f"answer small#j2 JoinGroup GROUP_MAX_SIZE_REACHED member={small}",
        generation=0,
        cause="r0-5",
    )
    assert talk.send(join("m0", "j2", member=big)) == [
        f"answer m0#j1 JoinGroup REBALANCE_IN_PROGRESS member={big}"
    ]


@pytest.mark.parametrize("text", ["x", '"', "\\", "\u20ac", "\U0001f600", "\u2028"])
def test_the_size_of_a_group_is_never_more_than_was_counted(text: str) -> None:
    """Names of every alphabet, also of characters that JSON escapes."""
    width = len(text.encode())
    talk = Conversation()
    talk.send(
        join(
            text * (limits.CLIENT_LENGTH_MAX // width),
            text * (limits.CORRELATION_ID_LENGTH_MAX // width),
            protocols={
                f"{number}" + text * (240 // width): b"" for number in range(limits.PROTOCOLS_MAX)
            },
        )
    )
    talk.end_batch()

    (group,) = [cell.value for cell in talk.shard.groups.values()]
    assert group is not None
    assert len(CLASSIC.save(group)) <= group.size_bytes + limits.KIB


def test_as_many_protocols_as_a_request_may_name() -> None:
    """32 are read; one more is refused by the format."""
    many = {f"p{number}": b"m" * 20 * KB for number in range(limits.PROTOCOLS_MAX)}
    talk = Conversation()

    lines = talk.send(join("a", protocols=many))
    refused = talk.send(join("b", protocols={**many, "more": b""}))

    assert lines[-1].startswith("event GenerationStarted generation=1 ")
    assert refused[0].startswith("answer b#j1 Rejected INVALID_REQUEST ")


def test_a_request_over_one_mebibyte_is_not_read() -> None:
    """INV-40: nobody parses what may be anything."""
    talk = Conversation()

    lines = talk.send(join("a", protocols={"range": b"m" * limits.MIB}))

    answer, event = lines
    assert answer.startswith('answer a#j1 Rejected INVALID_REQUEST "The request has 13')
    assert event.startswith("event")
    assert "RequestRejected" in event


def test_an_assignment_that_is_too_large_starts_the_group_over() -> None:
    """As when Kafka cannot append the record: everybody is told, nobody gets a share."""
    talk = Conversation(settings(initial_rebalance_delay_ms=1_000))
    for number in range(4):
        talk.send(join(f"m{number}", protocols={"range": b"m" * 600 * KB}))
    for _ in range(4):
        talk.tick(after_ms=2_000)
    members = list(talk.group().members)
    assert talk.group().state == "CompletingRebalance"
    talk.send(sync("m1", 1, members[1]))

    lines = talk.send(sync("m0", 1, members[0], assignments={members[0]: b"a" * 750 * KB}))

    at = f"r0-{talk.next_offset - 1}"
    assert lines == [
        "answer m0#s1 SyncGroup UNKNOWN_SERVER_ERROR",
        "answer m1#s1 SyncGroup UNKNOWN_SERVER_ERROR",
        f'event RebalanceStarted generation=1 cause={at} reason="assignment too large"',
        "notify RebalanceInProgress generation=1",
    ]
    CLASSIC.check(talk.group())
    assert talk.group().size_bytes <= limits.GROUP_BYTES_MAX


def test_twenty_thousand_offsets_come_in_parts() -> None:
    """A mirror of a large cluster fetches everything at once."""
    talk = Conversation()
    topic = "t" * 200
    for first in range(0, 20_000, 2_500):
        rows = tuple(api.CommittedOffset(topic, p, p) for p in range(first, first + 2_500))
        talk.send(commit("tool", offsets=rows))
    talk.end_batch()
    talk.outputs.clear()

    lines = talk.send(fetch("tool"))

    assert len(lines) > 1
    assert max(sizes(talk)) <= limits.MIB
    assert [f" part={n} " in line for n, line in enumerate(lines)] == [False] + [True] * (
        len(lines) - 1
    )
    assert all(line.endswith(f"parts={len(lines)}") for line in lines)
    assert sum(line.count(f"topic={topic}") for line in lines) == 20_000


def test_named_partitions_come_in_the_order_that_was_asked() -> None:
    """Unknown ones are -1, and an unknown group has none: OffsetFetch never fails."""
    talk = Conversation()
    talk.send(commit("tool"))
    asked = (api.TopicPartitions("u", (3,)), api.TopicPartitions("t", (1, 0)))

    assert talk.send(fetch("tool", topics=asked)) == [
        "answer tool#f OffsetFetch offsets=[(topic=u partition=3 offset=-1 error=NONE), "
        "(topic=t partition=1 offset=-1 error=NONE), (topic=t offset=5 error=NONE)] parts=1"
    ]


@pytest.mark.parametrize(
    "request_",
    [
        fetch("tool", topics=(api.TopicPartitions("t", (0,) * 25_000),)),
        fetch("tool", topics=(api.TopicPartitions("t", (0, 1)), api.TopicPartitions("t", (1,)))),
        api.OffsetDelete(
            v=1, id="f", client="tool", group="g", topics=(api.TopicPartitions("t", (3, 3)),)
        ),
        commit("tool", id="f", offsets=(api.CommittedOffset("t", 1, 1),) * 2),
        let_go("tool", 1, "m", 0, id="f", offsets=(api.CommittedOffset("t", 1, 1),) * 2),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_names_a_partition_once(request_: api.Request) -> None:
    """INV-68: an OffsetFetch of 50 KB that named one partition 25,000 times had 309 MB of answers,
    and a batch that no driver can collect comes again after every restart."""
    talk = Conversation()
    talk.send(commit("tool", offsets=(api.CommittedOffset("t", 0, 5, metadata="\u20ac" * 4_096),)))
    talk.outputs.clear()

    lines = talk.send(request_)

    field = "offsets" if "offsets" in lines[0] else "topics"
    why = f'"{field} names one partition twice: name each once."'
    assert lines[0] == f"answer tool#f Rejected INVALID_REQUEST {why}"
    assert lines[1].startswith(f"event RequestRejected cause=r0-1 reason={why}")
    assert sum(sizes(talk)) < limits.KIB


def test_an_answer_that_is_too_large_has_to_be_asked_for_in_parts() -> None:
    """INV-68: a group of 16 MiB of offsets, whose texts grow when they are written as JSON."""
    talk = Conversation()
    row = api.CommittedOffset("t", 0, 5, metadata='"' * 4_096)
    for first in range(0, 2_100, 70):
        rows = (msgspec.structs.replace(row, partition=p) for p in range(first, first + 70))
        talk.send(commit("tool", offsets=tuple(rows)))
    assert offsets_of(talk.shard.groups["g"]).count == 2_100
    talk.outputs.clear()

    everything = talk.send(fetch("tool"))
    refusal = msgspec.json.decode(talk.outputs[-1].value or b"")
    some = talk.send(fetch("tool", topics=(api.TopicPartitions("t", tuple(range(2_000))),)))

    assert everything == ["answer tool#f OffsetFetch INVALID_REQUEST"]
    assert refusal["message"].startswith("Ask in parts, for some partitions at a time")
    assert [line.split()[2] for line in some] == ["OffsetFetch"] * len(some)
    assert limits.ANSWER_BYTES_MAX - limits.MIB < sum(sizes(talk)[1:]) <= limits.ANSWER_BYTES_MAX
    assert max(sizes(talk)) <= limits.MIB


def test_more_partitions_than_a_fetch_may_name_are_refused() -> None:
    """A list of ten million partitions is 60 MB of answer."""
    rows = tuple(api.TopicPartitions(t, tuple(range(13_000))) for t in "tu")

    (answer, _) = Conversation().send(fetch("tool", topics=rows))

    assert answer.startswith("answer tool#f Rejected INVALID_REQUEST")


def test_the_group_takes_no_more_members_than_it_may() -> None:
    """testJoinGroupShouldReceiveErrorIfGroupOverMaxSize."""
    talk = settled(settings(max_size=2))

    assert talk.send(join("c")) == refused(
        "answer c#j1 JoinGroup GROUP_MAX_SIZE_REACHED", cause="r0-9"
    )
    talk.send(leave("b", FOLLOWER))
    assert "MemberJoined" in talk.send(join("c", "j2"))[0]
    assert talk.send(join("d")) != []


def test_the_last_to_join_an_oversized_group_are_refused() -> None:
    """testLastJoiningMembersAreKickedOutWhenReJoiningGroupWithMaxSize: the limit was lowered.

    Who is refused is out, and the others wait for it no longer.
    """
    talk = settled()
    talk.settings = settings(max_size=1)
    talk.end_batch()
    talk.send(join("a", "j3", member=LEADER, generation=2))

    assert talk.send(join("b", "j3", member=FOLLOWER, generation=2)) == [
        *refused("answer b#j3 JoinGroup GROUP_MAX_SIZE_REACHED member=b-t-0-3", cause="r0-10"),
        "event MemberRemoved generation=2 member=b-t-0-3 cause=r0-10 "
        'reason="group is full" client=b',
        'notify MemberRemoved member=b-t-0-3 reason="group is full"',
        "assign b-t-0-3 gone",
        "answer a#j3 JoinGroup generation=3 protocol_type=demo protocol=range leader=a-t-0-0 "
        "member=a-t-0-0 members=[a-t-0-0:m]",
        'event GenerationStarted generation=3 cause=r0-10 reason="leader rejoined" '
        "protocol_type=demo protocol=range leader=a-t-0-0 members=[a-t-0-0]",
    ]


def test_a_late_duplicate_turns_nobody_away() -> None:
    """The limit was lowered, and an old JoinGroup of b comes once more: b still works."""
    talk = settled()
    talk.settings = settings(max_size=1)
    talk.end_batch()
    talk.send(join("a", "j3", member=LEADER, generation=2))

    assert talk.send(join("b", "j2", member=FOLLOWER, generation=1)) == refused(
        "answer b#j2 JoinGroup ILLEGAL_GENERATION member=b-t-0-3",
        cause="r0-10",
        reason=OTHER_GENERATION,
    )
    assert FOLLOWER in talk.group().members


def test_members_of_a_full_group_rejoin() -> None:
    """testDynamicMembersCanReJoinGroupWithMaxSizeWhileRebalancing: also a second time."""
    talk = settled(settings(max_size=2))
    talk.send(join("a", "j3", member=LEADER, generation=2))
    assert talk.send(join("a", "j3", member=LEADER, generation=2)) == []

    assert "GenerationStarted" in talk.send(join("b", "j3", member=FOLLOWER, generation=2))[-1]
    assert list(talk.group().members) == [LEADER, FOLLOWER]
    assert talk.send(join("c")) == refused(
        "answer c#j1 JoinGroup GROUP_MAX_SIZE_REACHED", generation=3, cause="r0-12"
    )


def test_places_of_a_full_group_are_taken_anew_in_a_rebalance() -> None:
    """As in Kafka: a newcomer that joins before an old member rejoins has its place."""
    talk = settled(settings(max_size=2))
    talk.send_all(join("a", "j3", member=LEADER, generation=2), join("c"))

    assert talk.send(join("d")) == refused(
        "answer d#j1 JoinGroup GROUP_MAX_SIZE_REACHED", cause="r0-11"
    )
    assert talk.send(join("b", "j3", member=FOLLOWER, generation=2))[:2] == refused(
        "answer b#j3 JoinGroup GROUP_MAX_SIZE_REACHED member=b-t-0-3", cause="r0-12"
    )
    assert list(talk.group().members) == [LEADER, "c-t-0-10"]
    assert talk.group().state == "CompletingRebalance"


def test_the_shard_takes_no_more_groups_than_it_may() -> None:
    """Every batch rewrites the shard: a client that invents groups must not slow all others."""
    talk = Conversation(settings(groups_per_shard_max=1))
    talk.send(join("a"))

    assert talk.send(join("a", group="h")) == refused(
        "answer[h] a#j1 JoinGroup GROUP_MAX_SIZE_REACHED",
        generation=0,
        cause="r0-1",
        reason="Delete groups, or other entities, that nobody needs, or raise "
        "groups_per_shard_max: this shard is full.",
    )
    assert talk.send(commit("a", group="h"))[0] == (
        "answer[h] a#c OffsetCommit COORDINATOR_NOT_AVAILABLE"
    )
    assert list(talk.shard.groups) == ["g"]


def test_offsets_beyond_the_limits_are_refused_row_by_row() -> None:
    """testOffsetMetadataTooLargePartialFailure: the other rows of the request are stored."""
    talk = Conversation(settings(offsets_per_group_max=2, offset_metadata_length_max=3))
    rows = (
        api.CommittedOffset("t", 0, 1, metadata="long"),
        api.CommittedOffset("t", 1, 1),
        api.CommittedOffset("t", 2, 1),
        api.CommittedOffset("t", 3, 1),
    )

    assert talk.send(commit("tool", offsets=rows)) == [
        'event GroupCreated cause=r0-0 reason="first commit"',
        "commit t/1 offset=1",
        "commit t/2 offset=1",
        "answer tool#c OffsetCommit failed=[(topic=t error=OFFSET_METADATA_TOO_LARGE), "
        "(topic=t partition=3 error=INVALID_COMMIT_OFFSET_SIZE)]",
        "event OffsetsCommitted cause=r0-0 client=tool offsets=[(topic=t partition=1 offset=1), "
        "(topic=t partition=2 offset=1)]",
        "event CommitRefused cause=r0-0 "
        'reason="INVALID_COMMIT_OFFSET_SIZE, OFFSET_METADATA_TOO_LARGE" client=tool '
        "offsets=[(topic=t offset=1 error=OFFSET_METADATA_TOO_LARGE), "
        "(topic=t partition=3 offset=1 error=INVALID_COMMIT_OFFSET_SIZE)]",
    ]


def test_offsets_that_are_kept_count_for_the_next_commit() -> None:
    """A client that commits one partition at a time must not get past the bound."""
    talk = Conversation(settings(offsets_per_group_max=2))
    for partition in range(2):
        talk.send(commit("tool", offsets=(api.CommittedOffset("t", partition, 1),)))

    refused_row = talk.send(commit("tool", offsets=(api.CommittedOffset("t", 2, 1),)))

    assert refused_row == [
        "answer tool#c OffsetCommit failed="
        "[(topic=t partition=2 error=INVALID_COMMIT_OFFSET_SIZE)]",
        "event CommitRefused cause=r0-2 reason=INVALID_COMMIT_OFFSET_SIZE client=tool "
        "offsets=[(topic=t partition=2 offset=1 error=INVALID_COMMIT_OFFSET_SIZE)]",
    ]
    assert offsets_of(talk.shard.groups["g"]).count == 2


@pytest.mark.parametrize(
    ("session_ms", "rebalance_ms", "accepted"),
    [
        (6_000, 6_000, True),
        (5_999, 6_000, False),
        (1_800_000, 24 * 3_600_000, True),
        (1_800_001, 6_000, False),
        (6_000, 5_999, False),
        (6_000, 24 * 3_600_000 + 1, False),
    ],
)
def test_timeouts_have_bounds(session_ms: int, rebalance_ms: int, accepted: bool) -> None:
    """testJoinGroupSessionTimeoutTooSmall, …TooLarge; CAP is a fifth of the shortest."""
    request = join("a", session_timeout_ms=session_ms, rebalance_timeout_ms=rebalance_ms)

    lines = Conversation().send(request)

    assert (lines[0] == "answer a#j1 JoinGroup INVALID_SESSION_TIMEOUT") is not accepted


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": {}}])
def test_a_join_that_offers_nothing_is_refused(fields: dict[str, object]) -> None:
    """testJoinGroupWithEmptyProtocolType, testJoinGroupWithEmptyGroupProtocol."""
    for talk, generation, cause in ((Conversation(), 0, "r0-0"), (settled(), 2, "r0-9")):
        assert talk.send(join("x", **fields)) == refused(
            "answer x#j1 JoinGroup INCONSISTENT_GROUP_PROTOCOL", "", generation, cause
        )


def test_members_that_the_leader_forgot_get_an_empty_share() -> None:
    """testSyncGroupEmptyAssignment: and members that do not exist get nothing."""
    talk = completing()

    lines = talk.send(sync("a", 2, LEADER, assignments={FOLLOWER: b"p", "nobody": b"q"}))

    assert lines == [
        "assign a-t-0-0 generation=2 protocol=range fence=6",
        "event AssignmentIssued generation=2 member=a-t-0-0 cause=r0-6 fence=6 sync=6",
        "assign b-t-0-3 generation=2 protocol=range assignment=p fence=6",
        "event AssignmentIssued generation=2 member=b-t-0-3 cause=r0-6 fence=6 sync=6 bytes=p",
        "answer a#s1 SyncGroup protocol_type=demo protocol=range fence=6",
    ]


def test_protocols_are_chosen_by_vote_among_those_that_all_offer() -> None:
    """testSelectProtocol: each votes for its first common one; ties go to the oldest member."""
    talk = Conversation(settings(initial_rebalance_delay_ms=1_000))
    offers = ({"a": b"1", "c": b"", "b": b""}, {"b": b"2", "c": b""}, {"b": b"3", "c": b"4"})
    for number, protocols in enumerate(offers):
        talk.send(join(f"m{number}", protocols=protocols))
    assert talk.send(join("m9", protocols={"a": b""})) == refused(
        "answer m9#j1 JoinGroup INCONSISTENT_GROUP_PROTOCOL", generation=0, cause="r0-3"
    )
    for _ in range(3):
        talk.tick(after_ms=1_000)

    assert talk.group().protocol == "b"  # m0 votes for c, the two others for b


def test_the_assignments_of_a_generation_are_fenced_by_an_offset_that_rises() -> None:
    """A store that knows the fence refuses the owner before, also after the group was emptied."""
    talk = stable()
    first = talk.group().fence
    talk.send_all(leave("a", LEADER), leave("b", FOLLOWER), join("a", "again"))
    member = next(iter(talk.group().members))
    talk.send(sync("a", talk.group().generation, member, assignments=SHARES))

    assert talk.group().fence == talk.next_offset - 1 > first
