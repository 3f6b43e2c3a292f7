"""Those who wait: where their answer goes, and whom a join phase asks once more."""

import msgspec

from coordlib.core.engine.effects import RESPONSES
from coordlib.core.groups.classic.group import State
from coordlib.core.wire import api
from tests.tools.defects import Defect, in_force
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SETTINGS,
    SHARES,
    Conversation,
    commit,
    heartbeat,
    join,
    leave,
    release,
    settings,
    settled,
    sync,
)


def places(talk: Conversation, kind: type[api.Response]) -> dict[str, int]:
    """In which partition the newest answer of a kind to each client stands."""
    name = kind.__name__.removesuffix("Response").encode()
    return {
        msgspec.json.decode(each.value)["client"]: each.partition
        for each in talk.outputs
        if each.topic == RESPONSES and each.value and b'"type":"%s"' % name in each.value
    }


def test_a_parked_answer_goes_to_the_partition_that_its_request_named() -> None:
    """A client reads no other one, and waits for its session; each of them may read its own."""
    talk = Conversation(msgspec.structs.replace(SETTINGS, reply_partitions=2))
    talk.send_all(join("a", reply=1), sync("a", 1, LEADER, reply=1))
    talk.tick()
    talk.send_all(join("b", reply=1), join("a", "j2", member=LEADER, generation=1, reply=0))
    talk.tick()
    assert places(talk, api.JoinGroupResponse) == {"a": 0, "b": 1}

    talk.send_all(
        sync("b", 2, FOLLOWER, reply=0), sync("a", 2, LEADER, assignments=SHARES, reply=1)
    )
    assert places(talk, api.SyncGroupResponse) == {"a": 1, "b": 0}


def test_a_parked_request_that_comes_again_is_one_request_and_restarts_nothing() -> None:
    """Its client has waited for long, and cannot tell whether the log still has it.  # INV-145"""
    talk = settled()
    talk.send(join("c"))
    rejoin = join("b", "j5", member=FOLLOWER, generation=2)
    assert talk.send(rejoin) == []
    talk.tick()
    timer, state = talk.group().join_timer, talk.group()

    assert talk.send_all(join("c"), rejoin, rejoin, join("c")) == []
    assert (talk.group().join_timer, talk.group().state) == (timer, state.state)
    assert talk.group().members.keys() == state.members.keys()
    lines = talk.send(join("a", "j6", member=LEADER, generation=2))
    assert [line.split()[1] for line in lines] == ["a#j6", "b#j5", "c#j1", "GenerationStarted"]

    fetch = sync("b", 3, FOLLOWER, "s5")
    assert talk.send_all(fetch, fetch) == []
    lines = talk.send(sync("a", 3, LEADER, "s6", assignments=SHARES))
    assert [line.split()[1] for line in lines if "answer" in line] == ["a#s6", "b#s5"]


def test_static_members_that_are_all_away_are_asked_once_more() -> None:
    """KAFKA-9801: b made the group rebalance and is gone; a heartbeats, but did not join in time.
    It is not put out for that, and its time begins again."""
    talk = Conversation()
    talk.send_all(join("a", instance="s"), sync("a", 1, LEADER))
    talk.tick()
    talk.send(join("b"))
    talk.tick()
    talk.send(leave("b", FOLLOWER))
    asked = talk.group().join_timer
    assert asked is not None

    for _ in range(20):
        talk.tick(after_ms=1_000)
        talk.send(heartbeat("a", 1, LEADER))

    again = talk.group().join_timer
    assert (talk.group().state, list(talk.group().members)) == (State.PREPARING_REBALANCE, [LEADER])
    assert again is not None
    assert again.cause > asked.cause
    assert again.duration_ms == asked.duration_ms


def test_an_announced_id_has_all_of_its_time_again_after_a_release() -> None:
    """It could not join while its group was set aside."""
    talk = Conversation(settings(requires_member_id=True))
    talk.send(join("a"))
    talk.tick()
    (announced,) = talk.group().pending
    with in_force([Defect("g", "OffsetCommit", 0)]):
        talk.send(commit("tool"))
    assert talk.group().is_quarantined
    talk.wait(8_000)

    talk.send(release("ops"))

    assert list(talk.group().pending) == [announced]
    assert talk.group().pending[announced].timer.due_ms == talk.shard.clock_ms + 10_000


def test_a_job_that_starts_without_an_initial_delay_ends_one_that_runs() -> None:
    """The deadline was set anew for the same moment, which counts as a defect: quarantine."""
    talk = Conversation(settings(initial_rebalance_delay_ms=3_000))
    talk.send_all(join("a"), join("b"))
    talk.end_batch()
    talk.use(settings(initial_rebalance_delay_ms=0))

    talk.wait(3_000)

    assert not talk.group().is_quarantined
    assert talk.group().generation == 1
