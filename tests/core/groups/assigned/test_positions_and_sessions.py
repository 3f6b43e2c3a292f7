"""What lies in coord.offsets has no fixed place among the requests: it must not move a session."""

import msgspec
import pytest

from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from tests.tools.assigned_groups import B, stable
from tests.tools.core import InputRecord, fold
from tests.tools.driving import SETTINGS, Conversation, commit, heartbeat

POSITION = codec.encode(commit("anybody", -1, B))
HALF_A_SESSION_MS = 5_000


def silent_for_half_a_session() -> Conversation:
    """a heartbeats; of b nothing was heard for half its session, and nothing is heard any more."""
    talk = stable()
    for _ in range(HALF_A_SESSION_MS // 1_000):
        talk.wait(1_000)
        talk.send(heartbeat("a", 2, "a-t-0-1"))
    return talk


@pytest.mark.parametrize("checks", [True, False])
def test_a_position_that_names_a_dead_member_does_not_keep_it_alive(checks: bool) -> None:
    """INV-02: the same log in two cuts ended the same membership at two times.

    A position in coord.offsets named a member that had died. Its rows were refused, and its session
    began anew, at the end of the batch in which the position happened to be read.
    """
    how = msgspec.structs.replace(SETTINGS, checks_invariants=checks)
    talk = silent_for_half_a_session()
    cut = len(talk.log)
    talk.wait(HALF_A_SESSION_MS + 2_000)
    position = InputRecord(COMMITS, 0, talk.now_ms - HALF_A_SESSION_MS, POSITION)

    one = fold(None, [*talk.log, position], how)
    first = fold(None, [*talk.log[:cut], position], how)
    second = fold(first.blob, talk.log[cut:], how)

    removed = [
        [
            (event["member"], event["reason"], event["time_ms"])
            for output in outputs
            if output.topic == "events"
            for event in [msgspec.json.decode(output.value or b"")]
            if event["type"] == "MemberRemoved"
        ]
        for outputs in (one.outputs, [*first.outputs, *second.outputs])
    ]
    assert removed[0] == removed[1]
    assert removed[0][0][:2] == (B, "session expired")


def test_a_commit_without_a_generation_renews_nothing_among_the_requests_either() -> None:
    """Whoever names a member must name a generation, as at Kafka's coordinator."""
    talk = silent_for_half_a_session()
    talk.send(commit("anybody", -1, B))

    lines = talk.wait(HALF_A_SESSION_MS)

    assert [line.split()[3] for line in lines if line.startswith("event MemberRemoved")] == [
        f"member={B}"
    ]


def test_a_commit_of_which_nothing_is_stored_is_no_sign_of_life() -> None:
    """INV-24: a refused request changes nothing, and that includes when a member was last heard."""
    talk = silent_for_half_a_session()
    refused = talk.send(commit("b", 2, B, offsets=(api.CommittedOffset("t", 0, 7),)))

    assert "PARTITION_NOT_OWNED" in refused[0]
    assert [line for line in talk.wait(HALF_A_SESSION_MS) if "MemberRemoved" in line]


def test_a_commit_of_which_a_row_is_stored_is_a_sign_of_life() -> None:
    """A member that commits more often than it heartbeats, and once too much."""
    talk = silent_for_half_a_session()
    rows = (api.CommittedOffset("t", 0, 7), api.CommittedOffset("t", 2, 7))
    talk.send(commit("b", 2, B, offsets=rows))

    lines = talk.wait(HALF_A_SESSION_MS - 1_000)

    assert not [line for line in lines if "MemberRemoved" in line]
