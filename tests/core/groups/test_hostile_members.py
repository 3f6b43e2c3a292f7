"""F-21: a client that joins without end, under ever-new ids, and never does what members do.

Its groups have bounds, whatever lies beyond is refused by name, and what it left behind goes by
itself. Groups beside it in the shard do not notice.
"""

import json
from collections import Counter

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import RESPONSES
from coordlib.core.groups.classic.group import State
from coordlib.core.groups.classic.protocol import CLASSIC
from tests.tools import driving
from tests.tools.core import ShardSettings
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    Conversation,
    commit,
    heartbeat,
    join,
    leave,
    settled,
)

HOSTILE = "flooded"
#: Of the stock configuration; Kafka's own, too.
CHECK_INTERVAL_MS = 600_000


def unchecked(**group: object) -> ShardSettings:
    """As deployed: checking a group of a thousand after each of ten thousand joins takes long."""
    return msgspec.structs.replace(driving.settings(**group), checks_invariants=False)


def flood(talk: Conversation, joins: int, groups: int = 1, **fields: object) -> Counter[str]:
    """Joins of ever-new ids; how many were answered with which error at once."""
    before = len(talk.outputs)
    first = talk.next_offset
    for number in range(first, first + joins):
        name = HOSTILE if groups == 1 else f"{HOSTILE}-{number}"
        talk.send(join(f"x{number}", f"x{number}", group=name, **fields))
    answers = [json.loads(o.value or b"") for o in talk.outputs[before:] if o.topic == RESPONSES]
    return Counter(a["error"] for a in answers if a["type"] == "JoinGroup")


def blob_size(talk: Conversation) -> int:
    talk.end_batch()
    return len(talk.shard.encode())


def others_go_on(talk: Conversation) -> None:
    """The settled group beside it: healthy heartbeats are not answered, and c is let in."""
    for client, member in (("a", LEADER), ("b", FOLLOWER)):
        assert talk.send(heartbeat(client, 2, member)) == []
    joined = talk.send(join("c"))
    assert [line.split()[1] for line in joined if line.startswith("event")] == [
        "MemberJoined",
        "RebalanceStarted",
    ]
    assert joined[-1] == "notify RebalanceInProgress generation=2"


def test_ten_thousand_joins_into_one_group_fill_it_and_no_more() -> None:
    """INV-43. A client in a crash loop, without the id that it had."""
    talk = settled(unchecked())

    first = flood(talk, 5_000)
    size = blob_size(talk)
    second = flood(talk, 5_000)

    group = talk.group(HOSTILE)
    # The first was answered when it was alone and has not joined again: as in Kafka, the places
    # of a rebalance belong to those who have. Twice the bound is the most that there can be.
    assert len(group.members) == limits.GROUP_SIZE_MAX + 1
    assert first == {"NONE": 1, "GROUP_MAX_SIZE_REACHED": 3_999}
    assert second == {"GROUP_MAX_SIZE_REACHED": 5_000}
    assert blob_size(talk) - size < 16  # counts of refusals
    assert group.size_bytes <= limits.GROUP_BYTES_MAX
    CLASSIC.check(group)
    others_go_on(talk)


def test_members_that_never_sync_are_out_when_their_time_is_up_and_so_is_their_group() -> None:
    """INV-31. Nobody has to clean up behind them: sync timer, empty group, next check."""
    talk = Conversation(driving.settings(initial_rebalance_delay_ms=1_000))
    flood(talk, 30, session_timeout_ms=6_000, rebalance_timeout_ms=6_000)
    talk.tick()
    talk.wait(3_000)
    assert talk.group(HOSTILE).state == State.COMPLETING_REBALANCE

    talk.tick()
    talk.wait(7_000)

    assert (talk.group(HOSTILE).state, talk.group(HOSTILE).members) == (State.EMPTY, {})
    talk.wait(CHECK_INTERVAL_MS, CHECK_INTERVAL_MS)
    assert talk.end_batch()[0] == f"saved[{HOSTILE}] gone"
    assert talk.shard.rows == {}


def test_a_flood_that_goes_on_keeps_no_join_phase_open() -> None:
    """Those who come after the group is full change nothing about when it is complete."""
    talk = Conversation(driving.settings(max_size=3))
    timeouts = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000}
    flood(talk, 3, **timeouts)
    talk.tick()

    for _ in range(8):
        assert flood(talk, 10, **timeouts)["GROUP_MAX_SIZE_REACHED"] > 0
        talk.tick(after_ms=1_000)

    assert talk.group(HOSTILE).generation == 2


def test_ever_new_groups_fill_the_shard_and_no_more() -> None:
    """INV-43. Every batch rewrites the shard's state: a million groups would stop all others."""
    talk = settled(unchecked(groups_per_shard_max=200))

    first = flood(talk, 5_000, groups=5_000)
    size = blob_size(talk)
    second = flood(talk, 5_000, groups=5_000)

    assert first == {"NONE": 199, "GROUP_MAX_SIZE_REACHED": 4_801}
    assert second == {"GROUP_MAX_SIZE_REACHED": 5_000}
    assert len(talk.shard.groups) == 200
    assert blob_size(talk) == size
    assert talk.send(commit("tool", group="new"))[0] == (
        "answer[new] tool#c OffsetCommit COORDINATOR_NOT_AVAILABLE"
    )
    others_go_on(talk)


def test_hostile_groups_make_room_again_after_their_session_and_the_next_check() -> None:
    """Their members never heartbeat: one session, then the check that finds them empty."""
    talk = Conversation(unchecked(groups_per_shard_max=50))
    flood(talk, 60, groups=60)
    talk.tick()

    talk.wait(12_000)
    assert {cell.value.state for cell in talk.shard.groups.values() if cell.value} == {State.EMPTY}
    talk.wait(CHECK_INTERVAL_MS, CHECK_INTERVAL_MS)

    assert talk.shard.rows == {}
    assert flood(talk, 1, groups=2) == {"NONE": 1}


def test_groups_that_only_commit_stay_for_the_retention_and_no_longer() -> None:
    """Whoever commits without members takes a group's place for the retention, a week by default:
    the bound is there for them, too."""
    talk = Conversation(unchecked(groups_per_shard_max=20, offsets_retention_ms=3_600_000))
    talk.tick()
    for number in range(30):
        talk.send(commit("x", group=f"{HOSTILE}-{number}"))
    assert len(talk.shard.groups) == 20

    talk.wait(3_000_000, CHECK_INTERVAL_MS)
    assert len(talk.shard.groups) == 20
    talk.wait(2 * CHECK_INTERVAL_MS, CHECK_INTERVAL_MS)

    assert talk.shard.rows == {}


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a member"])
def test_announced_ids_have_a_bound_and_an_end(beside: bool) -> None:
    """INV-43. With MEMBER_ID_REQUIRED every first join is an id that must be remembered."""
    talk = Conversation(unchecked(requires_member_id=True))
    if beside:
        talk.send(join("s", group=HOSTILE, instance="s"))
        talk.send(driving.sync("s", 1, "s-t-0-0", group=HOSTILE))
        talk.tick()

    first = flood(talk, 3_000)
    size = blob_size(talk)
    second = flood(talk, 3_000)

    room = limits.GROUP_SIZE_MAX
    assert first == {"MEMBER_ID_REQUIRED": room, "GROUP_MAX_SIZE_REACHED": 3_000 - room}
    assert second == {"GROUP_MAX_SIZE_REACHED": 3_000}
    assert blob_size(talk) == size
    talk.tick()
    for _ in range(11):
        talk.tick(published=talk.shard.published, after_ms=1_000)
        if beside:
            talk.send(heartbeat("s", 1, "s-t-0-0", group=HOSTILE))
    assert talk.group(HOSTILE).pending == {}
    assert flood(talk, 1)["MEMBER_ID_REQUIRED"] == 1
    assert list(talk.group(HOSTILE).members) == (["s-t-0-0"] if beside else [])


def test_a_group_of_announced_ids_alone_goes_at_the_next_check() -> None:
    """It never had a member, and nobody will miss it."""
    talk = Conversation(unchecked(requires_member_id=True))
    flood(talk, 10)
    talk.tick()
    talk.wait(12_000)  # as long as they may still join, the clock's steps are small

    talk.wait(2 * CHECK_INTERVAL_MS, CHECK_INTERVAL_MS)

    assert talk.shard.rows == {}


def test_a_member_is_in_at_the_rebalance_timeout_whoever_else_asks_for_ids() -> None:
    """Announced ids keep a join phase open, but not beyond its own timer."""
    talk = Conversation(driving.settings(requires_member_id=True))
    timeouts = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000}
    for client in ("s1", "s2"):
        talk.send(join(client, group=HOSTILE, instance=client, **timeouts))
        flood(talk, 5, session_timeout_ms=1_800_000)
    talk.tick()
    assert talk.group(HOSTILE).state == State.PREPARING_REBALANCE

    for _ in range(8):
        flood(talk, 5, session_timeout_ms=1_800_000)
        talk.tick(after_ms=1_000)

    assert talk.group(HOSTILE).generation == 2


def test_guards_are_no_more_than_members() -> None:
    """Somebody joins, is made to leave by himself under another name, and joins anew, for ever:
    each owner that was expelled is guarded, and while there is one, nobody new owns anything."""
    talk = Conversation()
    for number in range(200):
        client = f"x{number}"
        talk.send(join(client, group=HOSTILE))
        group = talk.group(HOSTILE)
        member = next((m.member for m in group.members.values() if m.client == client), None)
        assert member is not None
        if group.state == State.COMPLETING_REBALANCE:
            talk.send(driving.sync(client, group.generation, member, group=HOSTILE))
        talk.send(leave("somebody else", member, group=HOSTILE))
        assert len(talk.group(HOSTILE).guards) <= 1

    assert len(talk.group(HOSTILE).members) == 0
    assert blob_size(talk) < 5_000
