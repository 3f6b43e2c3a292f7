"""What operators ask: descriptions, and the deletion of offsets and of groups.

What they are answered in each state of a group stands in `by_state`.
"""

import msgspec
import pytest

from coordlib import limits
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import shard_of
from tests.tools.core import offsets_of
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SETTINGS,
    Conversation,
    commit,
    delete,
    delete_offsets,
    describe,
    empty,
    fetch,
    find,
    heartbeat,
    join,
    leave,
    settings,
    settled,
    sync,
)
from tests.tools.static_groups import stable as static_stable


def test_describe_names_instances() -> None:
    """testDescribeGroupStableForStaticMember."""
    assert static_stable().send(describe("ops")) == [
        "answer ops#d DescribeGroup state=Stable generation=2 protocol_type=demo protocol=range "
        "leader=a-t-0-0 members=[(member=a-t-0-0 instance=i client=a assignment=p0), "
        "(member=b-t-0-3 instance=k client=b assignment=p1)]"
    ]


def test_any_shard_tells_where_a_group_belongs() -> None:
    """Who knew the right one would not have to ask."""
    home = shard_of("g", 4)
    for shard in range(4):
        talk = Conversation(msgspec.structs.replace(SETTINGS, shards=4, shard=shard))

        assert talk.send(find("ops")) == [f"answer ops#f FindCoordinator shard={home}"]
        assert talk.shard.rows == {}


# -- offsets of consumers --------------------------------------------------------------------


def consumers(metadata: bytes) -> Conversation:
    """A stable group of one consumer with this metadata and offsets of t, u and v."""
    talk = Conversation()
    fields = {"protocol_type": "consumer", "protocols": {"range": metadata}}
    talk.send_all(join("a", **fields), sync("a", 1, LEADER))
    talk.tick()
    rows = tuple(api.CommittedOffset(topic, p, 5) for topic in "tuv" for p in (0, 1))
    talk.send(commit("a", 1, LEADER, offsets=rows))
    return talk


def wants(*topics: str, version: int = 3) -> bytes:
    return cp.encode_subscription(cp.Subscription(version=version, topics=topics))


@pytest.mark.parametrize(
    "metadata", [wants("t"), wants("t", version=0), wants("t") + b"of tomorrow", wants("t")[:-6]]
)
def test_offsets_of_subscribed_topics_are_kept(metadata: bytes) -> None:
    """testDeleteOffsetOfStableConsumerGroup: partition by partition, and one that has none is
    no error. What stands behind version 0 of the metadata is not looked at."""
    talk = consumers(metadata)
    asked = (("u", 0), ("t", 0), ("w", 7), ("t", 1))

    lines = talk.send(delete_offsets("ops", *asked))

    at = f"r0-{talk.next_offset - 1}"
    assert lines == [
        "commit u/0 gone",
        f"event OffsetsDeleted generation=1 cause={at} reason=deleted client=ops "
        "offsets=[(topic=u)]",
        "answer ops#o OffsetDelete failed=[(topic=t error=GROUP_SUBSCRIBED_TO_TOPIC), "
        "(topic=t partition=1 error=GROUP_SUBSCRIBED_TO_TOPIC)]",
        f"event RequestRejected generation=1 cause={at} error=GROUP_SUBSCRIBED_TO_TOPIC "
        "request=OffsetDelete client=ops partitions=(t=[0, 1])",
    ]
    assert offsets_of(talk.shard.groups["g"]).count == 5


@pytest.mark.parametrize("metadata", [b"", b"m", wants("t")[:5], b"\xff\xff\x00\x00\x00\x00"])
def test_metadata_that_nobody_can_read_may_mean_any_topic(metadata: bytes) -> None:
    """testDeleteOffsetOfConsumerGroupWithUnparsableProtocol."""
    talk = consumers(metadata)

    assert talk.send(delete_offsets("ops", ("v", 0))) == [
        "answer ops#o OffsetDelete failed=[(topic=v error=GROUP_SUBSCRIBED_TO_TOPIC)]",
        f"event RequestRejected generation=1 cause=r0-{talk.next_offset - 1} "
        "error=GROUP_SUBSCRIBED_TO_TOPIC request=OffsetDelete client=ops partitions=(v=[0])",
    ]


def test_who_joins_meanwhile_counts_already() -> None:
    """A consumer of v is parked in a rebalance; its start position must not vanish."""
    talk = consumers(wants("t"))
    fields = {"protocol_type": "consumer", "protocols": {"range": wants("v")}}
    talk.send(join("b", **fields))

    assert talk.send(delete_offsets("ops", ("v", 0))) == [
        "answer ops#o OffsetDelete failed=[(topic=v error=GROUP_SUBSCRIBED_TO_TOPIC)]",
        f"event RequestRejected generation=1 cause=r0-{talk.next_offset - 1} "
        "error=GROUP_SUBSCRIBED_TO_TOPIC request=OffsetDelete client=ops partitions=(v=[0])",
    ]


def test_an_empty_group_of_consumers_subscribes_to_nothing() -> None:
    """testDeleteOffsetOfEmptyConsumerGroup."""
    talk = consumers(wants("t"))
    talk.send(leave("a", LEADER))

    assert talk.send(delete_offsets("ops", ("t", 0)))[0] == "commit t/0 gone"


# -- a group that is gone --------------------------------------------------------------------


def test_a_deleted_group_takes_its_offsets_with_it() -> None:
    """testDeleteEmptyGroupWithStoredOffsets; all of it is one batch's transaction."""
    talk = consumers(wants("t"))
    talk.send(leave("a", LEADER))
    talk.end_batch()

    lines = talk.send(delete("ops"))

    at = f"r0-{talk.next_offset - 1}"
    assert lines == [
        *(f"commit {topic}/{p} gone" for topic in "tuv" for p in (0, 1)),
        f'event OffsetsDeleted generation=2 cause={at} reason="group deleted" client=ops '
        "offsets=[(topic=t), (topic=t partition=1), (topic=u), (topic=u partition=1), "
        "(topic=v), (topic=v partition=1)]",
        f"event GroupDeleted generation=2 cause={at} reason=deleted client=ops",
        "answer ops#d DeleteGroup",
    ]
    assert talk.send(fetch("ops")) == ["answer ops#f OffsetFetch parts=1"]
    assert talk.end_batch() == ["saved gone"]
    assert talk.end_batch() == []
    assert talk.shard.rows == {}


def test_a_group_that_came_again_in_the_same_batch_is_saved_once() -> None:
    """A tombstone behind the new group's state would delete it at the next compaction."""
    talk = empty()
    talk.end_batch()
    talk.send_all(delete("ops"), join("a", "again"))

    assert [line for line in talk.end_batch() if line.startswith("saved")] == [
        "saved CompletingRebalance generation=1"
    ]


def test_a_group_that_came_and_went_in_one_batch_leaves_a_tombstone() -> None:
    """Where batches end must not show in the compacted topic."""
    talk = Conversation()
    talk.send_all(commit("ops"), delete("ops"))

    assert talk.end_batch() == ["saved gone"]


def test_a_position_after_the_deletion_makes_a_group_that_only_keeps_positions() -> None:
    """testOffsetWriteAfterGroupRemoved: nothing of the old group comes back with it, not even
    after a rebuild."""
    talk = consumers(wants("t"))
    talk.send_all(leave("a", LEADER), delete("ops"))

    assert talk.send(commit("tool"))[0].endswith('reason="first commit"')
    assert (talk.group().generation, talk.group().protocol_type) == (0, None)
    assert talk.send(fetch("tool")) == [
        "answer tool#f OffsetFetch offsets=[(topic=t offset=5 error=NONE)] parts=1"
    ]


def test_members_of_the_old_group_are_nobody_in_the_new_one() -> None:
    """Generations begin anew, so the number alone would let a zombie commit."""
    talk = empty()
    old_fence = talk.group().fence
    talk.send_all(delete("ops"), join("b", "again"))
    (member,) = talk.group().members
    talk.send(sync("b", 1, member))

    assert talk.group().generation == 1
    assert talk.group().fence > old_fence
    assert talk.send(heartbeat("a", 1, LEADER)) == ["answer a#h Heartbeat UNKNOWN_MEMBER_ID"]
    assert talk.send(commit("a", 1, LEADER))[0] == "answer a#c OffsetCommit UNKNOWN_MEMBER_ID"


def test_a_deleted_group_makes_room_for_another() -> None:
    """The bound of groups per shard counts those that are there."""
    talk = Conversation(settings(groups_per_shard_max=1))
    talk.send(commit("ops"))
    assert "COORDINATOR_NOT_AVAILABLE" in talk.send(commit("ops", group="h"))[0]
    talk.send(delete("ops"))

    assert "GroupCreated" in talk.send(commit("ops", group="h"))[0]


def test_a_group_is_not_deleted_by_anybody_in_the_offsets_topic() -> None:
    """There it would have no order with the group's joins."""
    talk = settled()

    assert "RequestRejected" in talk.send(delete("ops"), topic="o")[-1]


@pytest.mark.parametrize("text", ['"', "\u20ac", "x"])
def test_the_largest_deletion_fits_into_records(text: str) -> None:
    """INV-43: one name, ten thousand partitions, in the refusal or in the line of history."""
    topic = text * (limits.NAME_LENGTH_MAX // len(text.encode()))
    partitions = tuple(range(limits.OFFSETS_PER_REQUEST_MAX))
    request = api.OffsetDelete(
        v=1, id="o", client="ops", group="g", topics=(api.TopicPartitions(topic, partitions),)
    )
    talk = consumers(wants(topic))
    assert "quarantined" not in str(talk.send(request)).lower()
    assert '"request":"OffsetDelete"' in str(talk.outputs[-1].value)
    talk.send(leave("a", LEADER))
    for first in range(0, len(partitions), 1_000):
        rows = (api.CommittedOffset(topic, p, 1) for p in partitions[first : first + 1_000])
        talk.send(commit("ops", offsets=tuple(rows)))

    lines = talk.send(request)

    assert "GroupQuarantined" not in str(lines)
    assert len(lines) == len(partitions) + 2
    assert max(len(output.value or b"") for output in talk.outputs) < limits.OUTPUT_BYTES_MAX
    more = api.OffsetDelete(
        v=1, id="o", client="ops", group="g", topics=(api.TopicPartitions("t", (*partitions, 1)),)
    )
    assert talk.send(more)[0].startswith("answer ops#o Rejected INVALID_REQUEST")


def test_history_of_a_large_group_comes_in_several_lines() -> None:
    """INV-43: a hundred thousand partitions are 57 MB of detail."""
    talk = Conversation(settings(offsets_per_group_max=25_000))
    topic = "t" * limits.NAME_LENGTH_MAX
    for first in range(0, 25_000, 2_500):
        rows = (api.CommittedOffset(topic, p, 1) for p in range(first, first + 2_500))
        talk.send(commit("ops", offsets=tuple(rows)))

    lines = talk.send(delete("ops"))

    told = [line.count("topic=") for line in lines if line.startswith("event OffsetsDeleted")]
    assert told == [10_000, 10_000, 5_000]
    assert "GroupDeleted" in lines[-2]


def test_commits_of_more_partitions_than_a_request_may_name_are_refused() -> None:
    """10,000 rows are read; one more is refused by the format."""
    rows = tuple(api.CommittedOffset("t", p, 0) for p in range(limits.OFFSETS_PER_REQUEST_MAX + 1))
    talk = Conversation()

    assert talk.send(commit("ops", offsets=rows[1:]))[-2] == "answer ops#c OffsetCommit"
    assert talk.send(commit("ops", offsets=rows))[0].startswith(
        "answer ops#c Rejected INVALID_REQUEST"
    )


def test_offsets_are_stored_as_given() -> None:
    """Below zero, back, of an older epoch: testCommitOffset* knows no other rule than Kafka's."""
    talk = settled()
    rows = (api.CommittedOffset("t", 0, -7, leader_epoch=3), api.CommittedOffset("t", 1, 5))
    talk.send(commit("b", 2, FOLLOWER, offsets=rows))
    talk.send(commit("b", 2, FOLLOWER, offsets=(api.CommittedOffset("t", 1, 2, 0, "m"),)))

    for stable_only in (False, True):
        assert talk.send(fetch("b", require_stable=stable_only)) == [
            "answer b#f OffsetFetch offsets=[(topic=t offset=-7 leader_epoch=3 error=NONE), "
            "(topic=t partition=1 offset=2 metadata=m error=NONE)] parts=1"
        ]
