"""The leader sends an error in place of an assignment (seed 002, assignment failure)."""

import json

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import COMMITTED, GROUPS, RESPONSES, BrokenInvariant, Output
from coordlib.core.groups.classic.group import Failure, State
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import Refusal
from tests.tools.core import ShardSettings, restore
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SETTINGS,
    SHARES,
    Conversation,
    completing,
    describe,
    heartbeat,
    join,
    settings,
    sync,
)
from tests.tools.random_logs import draw_log

ERROR = {"error": "INCONSISTENT_GROUP_PROTOCOL", "message": "user data of b cannot be read"}
PRODUCTION = msgspec.structs.replace(SETTINGS, checks_invariants=False)


def answers(outputs: list[Output]) -> list[dict[str, object]]:
    """Answers to SyncGroups, whole."""
    found = [json.loads(each.value or b"{}") for each in outputs if each.topic == RESPONSES]
    return [each for each in found if each["type"] == "SyncGroup"]


def failed(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 2: the leader could not assign; b has not asked yet."""
    talk = completing(how)
    talk.send(sync("a", 2, LEADER, **ERROR))
    return talk


@pytest.mark.parametrize("how", [SETTINGS, PRODUCTION], ids=["checked", "production"])
def test_all_members_get_the_leaders_error_those_that_wait_and_those_that_ask_later(
    how: ShardSettings,
) -> None:
    """Without it each member would lead in turn, fail in turn, and leave."""
    talk = completing(how)
    talk.send(sync("b", 2, FOLLOWER))
    seen = len(talk.outputs)
    talk.send(sync("a", 2, LEADER, **ERROR))
    talk.send(sync("b", 2, FOLLOWER, "s2"))

    for answer in answers(talk.outputs[seen:]):
        assert {name: answer[name] for name in ("error", "message", "assignment", "fence")} == {
            **ERROR,
            "assignment": "",
            "fence": 7,
        }
    assert [each["id"] for each in answers(talk.outputs[seen:])] == ["s1", "s1", "s2"]
    assert talk.group().state is State.STABLE
    assert talk.group().failure == Failure(ERROR["error"], ERROR["message"])
    assert [member.assignment for member in talk.group().members.values()] == [b"", b""]


def test_nobody_is_put_out_and_heartbeats_go_on() -> None:
    """The members stay, so that the next rebalance has them all at once."""
    talk = failed()
    talk.send(sync("b", 2, FOLLOWER))
    talk.tick()

    for _ in range(10):
        said = talk.send_all(heartbeat("a", 2, LEADER), heartbeat("b", 2, FOLLOWER))
        assert said == []
        talk.wait(4_000)
    assert list(talk.group().members) == [LEADER, FOLLOWER]


def test_whoever_never_asks_is_out_as_in_any_generation() -> None:
    """A failed assignment does not stop the sync timer: nobody may wait for ever for a member."""
    talk = failed()
    talk.tick()
    talk.send(heartbeat("b", 2, FOLLOWER))

    lines: list[str] = []
    for _ in range(11):
        lines += talk.send_all(heartbeat("a", 2, LEADER), heartbeat("b", 2, FOLLOWER))
        lines += talk.wait(2_000)

    assert [line for line in lines if "did not sync in time" in line]
    assert FOLLOWER not in talk.group().members


def test_the_next_rebalance_begins_as_any_other_and_the_error_is_over() -> None:
    """A newcomer need not wait until the leader tries again."""
    talk = failed()
    talk.send(sync("b", 2, FOLLOWER))
    talk.send(join("c"))

    assert talk.group().failure is None
    assert talk.send(sync("b", 2, FOLLOWER, "late")) == [
        "answer b#late SyncGroup REBALANCE_IN_PROGRESS"
    ]


def test_when_the_leader_joins_again_its_next_assignment_is_given() -> None:
    """The assignor was fixed, or the member that it could not read has left."""
    talk = failed()
    talk.send(sync("b", 2, FOLLOWER))
    talk.send_all(
        join("a", "j3", member=LEADER, generation=2), join("b", "j3", member=FOLLOWER, generation=2)
    )
    talk.send_all(sync("a", 3, LEADER, "s3", assignments=SHARES), sync("b", 3, FOLLOWER, "s3"))

    assert [member.assignment for member in talk.group().members.values()] == [b"p0", b"p1"]
    assert talk.group().failure is None
    assert "error" in answers(talk.outputs)[-1]
    assert answers(talk.outputs)[-1]["error"] == "NONE"


def test_the_error_is_hard_state() -> None:
    """The job dies between the leader's SyncGroup and a follower's."""
    talk = failed()
    blob_before = talk.shard.encode()
    talk.end_batch()
    newest = {(o.topic, o.key): o.value for o in talk.outputs}
    groups = [value for (topic, _), value in newest.items() if topic == GROUPS and value]
    committed = [(k, v) for (topic, k), v in newest.items() if topic == COMMITTED and v]
    rebuilt = restore(groups, committed, talk.shard.status().position)

    for blob in (blob_before, rebuilt):
        talk.load(blob)
        assert talk.send(sync("b", 2, FOLLOWER)) == [
            "answer b#s1 SyncGroup INCONSISTENT_GROUP_PROTOCOL protocol_type=demo "
            "protocol=range fence=6"
        ]
        assert answers(talk.outputs)[-1]["message"] == ERROR["message"]


def test_a_static_member_that_comes_back_gets_the_error_too() -> None:
    """KIP-345: its place is kept, and no rebalance begins that would end the failed generation."""
    talk = Conversation()
    talk.send(join("a", instance="i"))
    talk.send(sync("a", 1, LEADER, instance="i", **ERROR))
    talk.tick()
    talk.send(api.LeaveGroup(v=1, id="l", client="a", group="g", remain=True,
                            members=(api.Leaver(LEADER, "i"),)))  # fmt: skip
    talk.send(join("a", "j2", instance="i"))
    (member,) = talk.group().members

    assert talk.send(sync("a", 1, member, "s2", instance="i")) == [
        "answer a#s2 SyncGroup INCONSISTENT_GROUP_PROTOCOL protocol_type=demo protocol=range "
        "fence=4"
    ]


def test_a_group_at_rest_without_an_assignment_is_described_as_it_is() -> None:
    """An operator looks why nobody reads: the members are there, and have nothing."""
    talk = failed()

    (line,) = talk.send(describe("ops"))
    assert line.startswith("answer ops#d DescribeGroup state=Stable generation=2")


def test_without_a_message_there_is_a_sentence() -> None:
    """An answer with an error always says what to do."""
    talk = completing()
    talk.send(sync("a", 2, LEADER, error="UNKNOWN_SERVER_ERROR"))

    sentence = "Wait for the next rebalance: the leader could not divide."
    assert answers(talk.outputs)[-1]["message"] == sentence
    assert talk.group().failure == Failure("UNKNOWN_SERVER_ERROR", "")


def test_the_error_counts_in_the_shards_bytes() -> None:
    """INV-43: thousands of groups whose leaders write long messages."""
    talk = failed()
    group = talk.group()

    grown = group.kept_frame_bytes - msgspec.structs.replace(group, failure=None).kept_frame_bytes
    assert grown == Failure(ERROR["error"], ERROR["message"]).kept_bytes
    with_it = len(CLASSIC.encode(group))
    without = len(CLASSIC.encode(msgspec.structs.replace(group, failure=None)))
    assert with_it - without <= grown
    assert with_it <= group.kept_bytes


def test_a_full_shard_keeps_the_error_without_its_message() -> None:
    """Members are answered whatever stands in the shard, and its blob keeps its bound."""
    roomy = completing()
    size = roomy.shard._agenda.size_bytes
    how = settings(bytes_max=size * 4 // 5)
    talk = completing(how)
    long = "x" * limits.REASON_LENGTH_MAX
    talk.send(sync("a", 2, LEADER, error="UNKNOWN_SERVER_ERROR", message=long))

    assert talk.group().failure == Failure("UNKNOWN_SERVER_ERROR", "")
    assert talk.group().state is State.STABLE


@pytest.mark.parametrize("broken", ["state", "share"])
def test_a_failed_assignment_that_gives_something_is_no_sound_group(broken: str) -> None:
    """INV-42: the step would be taken back, and the group set aside."""
    group = failed().group()
    if broken == "state":
        group = msgspec.structs.replace(group, state=State.COMPLETING_REBALANCE)
    else:
        leader = msgspec.structs.replace(group.members[LEADER], assignment=b"p0")
        group = msgspec.structs.replace(
            group,
            members={**group.members, LEADER: leader},
            size_bytes=group.size_bytes + leader.size_bytes
            - group.members[LEADER].size_bytes,
        )  # fmt: skip

    with pytest.raises(BrokenInvariant, match="failed"):
        CLASSIC.check(group)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"error": "UNKNOWN_MEMBER_ID"}, "error must be NONE"),
        ({"error": "REBALANCE_IN_PROGRESS"}, "error must be NONE"),
        ({"error": "NO_SUCH_ERROR"}, "error must be NONE"),
        ({"error": ""}, "error must be NONE"),
        (
            {"error": "UNKNOWN_SERVER_ERROR", "assignments": {"m": b"p"}},
            "assignments must be empty",
        ),
        ({"message": "of nothing"}, "message explains an error"),
        ({"error": "NONE", "message": "of nothing"}, "message explains an error"),
        (
            {"error": "UNKNOWN_SERVER_ERROR", "message": "x" * (limits.REASON_LENGTH_MAX + 1)},
            "Expected `str` of length <= 1000",
        ),
    ],
)
def test_an_error_that_no_leader_may_give_is_refused(fields: dict[str, object], fault: str) -> None:
    """An error about membership would put the other members out by one member's word."""
    refusal = codec.decode_request(codec.encode(sync("a", 2, LEADER, **fields)))

    assert isinstance(refusal, Refusal)
    assert refusal.error.name == "INVALID_REQUEST"
    assert refusal.message.startswith(fault)


def test_a_plain_request_has_no_new_fields_on_the_wire() -> None:
    """An older job refuses a field that it does not know, whatever stands in it."""
    plain = json.loads(codec.encode(sync("a", 2, LEADER, assignments=SHARES)))

    assert not plain.keys() & {"error", "message"}
    assert codec.decode_request(codec.encode(sync("a", 2, LEADER, error="NONE"))) == sync(
        "a", 2, LEADER, error="NONE"
    )


def test_random_logs_have_failed_assignments_that_are_asked_for_and_end() -> None:
    """Else the properties of all logs would say nothing about them."""
    seen: set[str] = set()
    for seed in range(10):
        _, talk = draw_log(seed, 150, SETTINGS)
        for number, answer in enumerate(found := answers(talk.outputs)):
            if answer["error"] != "NONE" and "assignment" in answer:
                seen.add("answered")
                seen |= {"over" for later in found[number:] if later["error"] == "NONE"}

    assert seen >= {"answered", "over"}
