"""Offsets that a commit of a Delta table decides, and whose word about it is believed."""

from typing import Literal

import pytest

from coordlib.core.wire import api
from tests.core.groups.test_pending import committed, keys, rows, set_aside
from tests.tools import assigned_groups as assigned
from tests.tools import producers
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    Conversation,
    commit,
    decide,
    ended,
    fetch,
    leave,
    pending_commit,
    release,
    settled,
    with_writes,
)

Result = Literal["commit", "abort"]


def waiting() -> Conversation:
    """A member of a settled group has committed 7 beside a write into a table; 3 holds."""
    talk = settled()
    talk.send(commit("a", 2, LEADER, 3))
    talk.send(with_writes("a", 2, LEADER, 7))
    assert keys(talk) == ["r0-10"]
    return talk


# -- one commit ------------------------------------------------------------------------------


def test_a_successor_reads_which_table_decides_and_whose_commit_it_is() -> None:
    """It has to shut the writer out, under the writer's own application id."""
    talk = settled()

    accepted = talk.send(with_writes("a", 2, LEADER, 7))
    since_ms = talk.now_ms
    told = talk.send(fetch("b", require_stable=True))

    assert accepted == [
        "pending r0-9 decided_by=delta client=a member=a-t-0-0 generation=2 "
        "offsets=[(topic=t offset=7 record=9)] table=lake",
        "event OffsetsPending generation=2 member=a-t-0-0 cause=r0-9 client=a transaction=r0-9 "
        "decided_by=delta table=lake offsets=[(topic=t offset=7)]",
        "answer a#w PendingCommit pending=r0-9",
    ]
    assert told == [
        "answer b#f OffsetFetch offsets=[(topic=t offset=-1 error=UNSTABLE_OFFSET_COMMIT "
        "pending=(key=r0-9 decided_by=delta table=lake member=a-t-0-0 "
        f"since_ms={since_ms}))] parts=1"
    ]


@pytest.mark.parametrize(
    ("result", "event", "offset"),
    [("commit", "OffsetsCommitted", 7), ("abort", "OffsetsDropped", 3)],
)
def test_the_sender_says_how_it_ended(result: Result, event: str, offset: int) -> None:
    """INV-91: the rows are in the table, or its commit was skipped."""
    talk = waiting()

    lines = talk.send(decide("a", "r0-10", result, member=LEADER, generation=2))

    assert lines[0] == "pending r0-10 gone"
    assert lines[-2:] == [
        f"event {event} generation=2 member=a-t-0-0 cause=r0-11 client=a transaction=r0-10 "
        "decided_by=delta offsets=[(topic=t offset=7)]",
        "answer a#y DecidePending",
    ]
    assert committed(talk) == {"t/0": offset}


def test_the_sender_is_believed_when_it_is_a_member_no_more() -> None:
    """Its session ended while Delta wrote the commit: the rows are there all the same."""
    talk = waiting()
    talk.send(leave("a", LEADER))

    talk.send(decide("a", "r0-10", member=LEADER, generation=2))

    assert committed(talk) == {"t/0": 7}


def test_a_live_member_says_what_it_has_found() -> None:
    """The sender was killed between its commit and its word."""
    talk = waiting()

    lines = talk.send(decide("b", "r0-10", member=FOLLOWER, generation=2))

    assert lines[-2:] == [
        "event OffsetsCommitted generation=2 member=a-t-0-0 cause=r0-11 client=a "
        "transaction=r0-10 decided_by=delta offsets=[(topic=t offset=7)] "
        f"by=b by_member={FOLLOWER}",
        "answer b#y DecidePending",
    ]
    assert committed(talk) == {"t/0": 7}


def test_an_operator_decides_and_history_names_the_reason() -> None:
    """The table is gone, and with it what could be looked at."""
    talk = waiting()

    lines = talk.send(decide("ops", "r0-10", "abort", reason="the table was dropped"))

    assert lines[-2:] == [
        "event OffsetsDropped generation=2 member=a-t-0-0 cause=r0-11 "
        'reason="the table was dropped" client=a transaction=r0-10 decided_by=delta '
        "offsets=[(topic=t offset=7)] by=ops",
        "answer ops#y DecidePending",
    ]
    assert committed(talk) == {"t/0": 3}


@pytest.mark.parametrize("second", ["commit", "abort"])
def test_a_decision_is_made_once(second: Result) -> None:
    """INV-91: two members look at once, or an old word of the sender comes late."""
    talk = waiting()
    talk.send(decide("b", "r0-10", "abort", member=FOLLOWER, generation=2))

    late = talk.send(decide("a", "r0-10", second, member=LEADER, generation=2))

    assert late == ["answer a#y DecidePending INVALID_TXN_STATE"]
    assert committed(talk) == {"t/0": 3}


# -- who is not believed ---------------------------------------------------------------------

STRANGERS: dict[str, api.DecidePending] = {
    "nobody": decide("z", "r0-10"),
    "the sender's client without its member": decide("a", "r0-10"),
    "the sender's member from another client": decide("z", "r0-10", member=LEADER, generation=1),
    "a member of another generation": decide("b", "r0-10", member=FOLLOWER, generation=1),
    "a member without a generation": decide("b", "r0-10", member=FOLLOWER),
    "who was a member": decide("c", "r0-10", member="c-t-0-99", generation=2),
    "a stranger with a reason": decide("c", "r0-10", member="c-t-0-99", reason="I think so"),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_others_are_not_believed(who: str) -> None:
    """A word alone must not make half of somebody's unit true."""
    talk = waiting()

    lines = talk.send(STRANGERS[who])

    assert lines[0].endswith("DecidePending INVALID_REQUEST")
    assert [line.split(" ")[1] for line in lines[1:]] == ["RequestRejected"]
    assert (keys(talk), committed(talk)) == (["r0-10"], {"t/0": 3})


@pytest.mark.parametrize("key", ["r0-9", "r0-11", "r1-10", "10", "0-0", "ä"])
def test_there_is_no_such_entry(key: str) -> None:
    """Any text may come as a key."""
    talk = waiting()

    assert talk.send(decide("a", key, member=LEADER, generation=2)) == [
        "answer a#y DecidePending INVALID_TXN_STATE"
    ]
    assert keys(talk) == ["r0-10"]


def test_there_is_no_such_group() -> None:
    """It was deleted, and another one may be made under its name: none is made by this."""
    talk = Conversation()

    assert talk.send(decide("ops", "r0-10", reason="?")) == [
        "answer ops#y DecidePending INVALID_TXN_STATE"
    ]
    assert talk.shard.rows == {}


def test_what_kafka_decides_no_member_decides() -> None:
    """The driver asks Kafka itself."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))

    own = talk.send(decide("a", "r0-9", member=LEADER, generation=2))
    other = talk.send(decide("b", "r0-9", member=FOLLOWER, generation=2, reason="I know"))

    assert own[0] == "answer a#y DecidePending INVALID_REQUEST"
    assert other[0] == "answer b#y DecidePending INVALID_REQUEST"
    assert keys(talk) == ["r0-9"]


def test_an_operator_decides_for_kafka_when_the_record_is_gone() -> None:
    """Retention removed it before the driver looked: otherwise the partition stood still for ever.

    The driver does not ask any more, and what it might say late does nothing.
    """
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))
    assert talk.shard.status().undecided == (9,)

    talk.send(decide("ops", "r0-9", "commit", reason="the copies are there"))

    assert committed(talk) == {"t/0": 7}
    assert talk.shard.status().undecided == ()
    assert talk.send(ended(aborted=[9])) == []


def test_what_the_coordinator_decides_nobody_else_does() -> None:
    """Its marker comes, and would find nothing: half a transaction."""
    talk = producers.empty()
    talk.send(producers.offsets(0, 1))
    talk.settle()
    assert keys(talk) == ["0-1"]

    lines = talk.send(decide("ops", "0-1", reason="it takes so long"))

    assert lines[0] == "answer ops#y DecidePending INVALID_REQUEST"
    assert keys(talk) == ["0-1"]


# -- admission -------------------------------------------------------------------------------


def test_a_member_has_one_such_commit_open() -> None:
    """The token of a successor's claim lies below those of all later commits of a member."""
    talk = waiting()

    second = talk.send(with_writes("a", 2, LEADER, 9, id="w2"))
    other = talk.send(with_writes("b", 2, FOLLOWER, 8, id="w2"))
    talk.send(decide("a", "r0-10", member=LEADER, generation=2))
    third = talk.send(with_writes("a", 2, LEADER, 9, id="w3"))

    assert second[0] == "answer a#w2 PendingCommit CONCURRENT_TRANSACTIONS"
    assert other[-1] == "answer b#w2 PendingCommit pending=r0-12"
    assert third[-1] == "answer a#w3 PendingCommit pending=r0-14"


def test_the_same_request_again_is_the_same_entry() -> None:
    """The producer was not sure that it was written: the token is that of the first."""
    talk = waiting()

    assert talk.send(with_writes("a", 2, LEADER, 7)) == ["answer a#w PendingCommit pending=r0-10"]
    assert keys(talk) == ["r0-10"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"table": ""}, "table must have 1 to 1024 bytes"),
        ({"table": "x" * 1_025}, "table must have 1 to 1024 bytes"),
        ({"table": "a\nb"}, "table must have 1 to 1024 bytes"),
        ({"decided_by": "kafka"}, "table belongs to commits that delta decides."),
    ],
)
def test_a_table_is_named_where_one_decides(fields: dict[str, str], said: str) -> None:
    """Members that fetch next must be able to open it."""
    lines = Conversation().send(with_writes("a", **fields))  # type: ignore[arg-type]

    assert lines[0].startswith("answer a#w Rejected INVALID_REQUEST")
    assert said in "".join(lines)


def test_a_table_that_is_not_named() -> None:
    """Nobody could ever decide."""
    lines = Conversation().send(pending_commit("a", decided_by="delta"))

    assert lines[0].startswith("answer a#p Rejected INVALID_REQUEST")


def test_members_of_an_assigned_group_settle_for_each_other() -> None:
    """The kind of group of Spark's readers: any generation in which the member lives."""
    talk = assigned.stable()
    group = assigned.group_of(talk)
    one, other = group.members.values()
    place = next((t, p) for t, owned in one.owned.items() for p in owned)
    at = talk.next_offset
    talk.send(with_writes(one.client, group.generation, one.member, offsets=rows((*place, 4))))

    lines = talk.send(
        decide(other.client, f"r0-{at}", member=other.member, generation=group.generation)
    )

    assert lines[-1] == f"answer {other.client}#y DecidePending"
    assert committed(talk) == {f"{place[0]}/{place[1]}": 4}


# -- quarantine ------------------------------------------------------------------------------


def test_a_word_waits_for_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the group may change; the table keeps the decision until it is asked again."""
    talk = waiting()
    set_aside(talk, monkeypatch)
    word = decide("a", "r0-10", member=LEADER, generation=2)

    assert talk.send(word) == ["answer a#y DecidePending COORDINATOR_NOT_AVAILABLE"]
    talk.send(release("ops"))
    talk.send(word)

    assert committed(talk) == {"t/0": 7}
