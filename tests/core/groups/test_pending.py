"""Offsets that wait for the end of somebody's transaction, and all that meets them meanwhile."""

import msgspec
import pytest

from coordlib.config import TransactionsConfig
from coordlib.core.engine.effects import BrokenInvariant
from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.tools import assigned_groups as assigned
from tests.tools.core import ShardSettings, assert_as_new, fold, offsets_of, restored
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SETTINGS,
    STATES,
    Conversation,
    commit,
    delete,
    delete_offsets,
    describe,
    empty,
    ended,
    fetch,
    join,
    leave,
    pending_commit,
    release,
    settings,
    settled,
)

MINUTE_MS = 60_000


def bounded(**bounds: int) -> ShardSettings:
    """Settings with other bounds of pending offsets."""
    groups = msgspec.structs.replace(
        SETTINGS.families["group"], transactions=TransactionsConfig(**bounds)
    )
    return msgspec.structs.replace(SETTINGS, families={**SETTINGS.families, "group": groups})


def rows(*named: tuple[str, int, int]) -> tuple[api.CommittedOffset, ...]:
    return tuple(api.CommittedOffset(*row) for row in named)


def keys(talk: Conversation, group: str = "g") -> list[str]:
    """The open entries of a group."""
    found = talk.shard.groups.get(group)
    return [key for key, _, _ in found.entries(PENDING)] if found else []


def committed(talk: Conversation, group: str = "g") -> dict[str, int]:
    """What a restart would begin from."""
    found = talk.shard.groups.get(group)
    return {f"{t}/{p}": kept.offset for t, p, kept in offsets_of(found)} if found else {}


# -- one commit ------------------------------------------------------------------------------


def test_offsets_wait_until_their_transaction_has_committed() -> None:
    """A copier: what it has read counts when what it wrote counts."""
    talk = settled()

    accepted = talk.send(pending_commit("a", 2, LEADER, 7))
    waiting = talk.send(fetch("b", require_stable=True))
    decided = talk.send(ended(committed=[9]))
    after = talk.send(fetch("b", require_stable=True))

    assert accepted == [
        "pending r0-9 decided_by=kafka client=a member=a-t-0-0 generation=2 "
        "offsets=[(topic=t offset=7 record=9)]",
        "event OffsetsPending generation=2 member=a-t-0-0 cause=r0-9 client=a transaction=r0-9 "
        "decided_by=kafka offsets=[(topic=t offset=7)]",
        "answer a#p PendingCommit pending=r0-9",
    ]
    assert waiting == [
        "answer b#f OffsetFetch offsets=[(topic=t offset=-1 error=UNSTABLE_OFFSET_COMMIT "
        "pending=(key=r0-9 decided_by=kafka))] parts=1"
    ]
    assert decided == [
        "pending r0-9 gone",
        "commit t/0 offset=7 generation=2 member=a-t-0-0",
        "event OffsetsCommitted generation=2 member=a-t-0-0 cause=r0-11 client=a transaction=r0-9 "
        "decided_by=kafka offsets=[(topic=t offset=7)]",
    ]
    assert after == ["answer b#f OffsetFetch offsets=[(topic=t offset=7 error=NONE)] parts=1"]


def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    """The copier died before it could commit: its successor reads the same again."""
    talk = settled()
    talk.send(commit("a", 2, LEADER, 3))
    talk.send(pending_commit("a", 2, LEADER, 7))

    assert talk.send(ended(aborted=[10])) == [
        "pending r0-10 gone",
        "event OffsetsDropped generation=2 member=a-t-0-0 cause=r0-11 client=a transaction=r0-10 "
        "decided_by=kafka offsets=[(topic=t offset=7)]",
    ]
    assert committed(talk) == {"t/0": 3}


@pytest.mark.parametrize("first", ["committed", "aborted"])
def test_a_decision_is_made_once(first: str) -> None:
    """INV-91: an older driver writes late, or a driver looks again after its restart."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))
    talk.send(ended(**{first: [9]}))
    after = committed(talk)

    assert talk.send(ended(committed=[9])) == []
    assert talk.send(ended(aborted=[9])) == []
    assert committed(talk) == after


def test_a_decision_about_other_records_touches_nothing() -> None:
    """Each record is named: what stands in the log and was not judged yet is not meant."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))

    assert talk.send(ended(committed=[8], aborted=[10, 11])) == []
    assert keys(talk) == ["r0-9"]


def test_a_record_that_is_committed_and_aborted_is_refused() -> None:
    """A defect of the driver, which must not be half obeyed."""
    (line,) = Conversation().send(ended([1], [1]))

    assert line.startswith(
        'event[] RequestRejected cause=r0-0 reason="1 is named as committed and as aborted."'
    )


# -- several commits -------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(9, 10), (10, 9)])
def test_of_two_transactions_the_later_commit_holds(order: tuple[int, int]) -> None:
    """Decisions come in any order; the winner is by the place in the log, as in Kafka."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))
    talk.send(pending_commit("a", 2, LEADER, 4))

    for offset in order:
        talk.send(ended(committed=[offset]))

    assert committed(talk) == {"t/0": 4}
    assert keys(talk) == []


def test_the_later_commit_is_dropped_and_the_earlier_one_holds() -> None:
    """The copier goes on after a commit, and its next transaction fails."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))
    talk.send(pending_commit("a", 2, LEADER, 9))

    talk.send(ended(committed=[9], aborted=[10]))

    assert committed(talk) == {"t/0": 7}


@pytest.mark.parametrize("topic", ["r", COMMITS])
def test_a_plain_commit_takes_its_partitions_out_of_what_is_pending(topic: str) -> None:
    """An operator resets a group: a transaction that ends later must not undo it."""
    talk = Conversation()
    talk.send(pending_commit("a", offsets=rows(("t", 0, 7), ("t", 1, 8))))

    reset = talk.send(commit("ops", offset=0), topic=topic)
    talk.send(ended(committed=[0]))

    assert reset[1] == (
        "pending r0-0 decided_by=kafka client=a offsets=[(topic=t partition=1 offset=8)]"
    )
    assert committed(talk) == {"t/0": 0, "t/1": 8}


def test_an_entry_that_has_lost_all_its_partitions_is_still_decided() -> None:
    """The transaction goes on, whatever an operator has reset meanwhile."""
    talk = Conversation()
    talk.send(pending_commit("a"))
    talk.send(commit("ops", offset=0))

    assert talk.shard.status().undecided == (0,)
    assert talk.send(ended(committed=[0])) == [
        "pending r0-0 gone",
        "event OffsetsCommitted cause=r0-2 client=a transaction=r0-0 decided_by=kafka",
    ]
    assert committed(talk) == {"t/0": 0}
    assert talk.shard.status().undecided == ()


def test_what_a_release_commits_takes_partitions_out_too() -> None:
    """Letting go with an offset of its own, while a transaction of the member is still open."""
    talk = assigned.reconciling()
    group = assigned.group_of(talk)
    member = next(each for each in group.members.values() if each.demands)
    demand = member.demands[0]
    topic, parts = next(iter(demand.partitions.items()))
    place = (topic, parts[0])
    named = rows((*place, 7))
    made = talk.send(pending_commit(member.client, group.generation, member.member, offsets=named))

    lines = talk.send(
        assigned.let_go(
            member.client,
            group.generation,
            member.member,
            demand.timer.cause,
            offsets=rows((*place, 9)),
        )
    )

    assert made[-1].startswith(f"answer {member.client}#p PendingCommit pending=")
    assert any(line.startswith("pending r0-") and "offsets=" not in line for line in lines)
    assert committed(talk) == {f"{place[0]}/{place[1]}": 9}


# -- who may ---------------------------------------------------------------------------------


def refused(lines: list[str]) -> list[str]:
    """The answer and the line of history, shortened to error and reason."""
    return [line.split("PendingCommit ")[-1].split(" ")[0] for line in lines[:1]] + [
        line.split(" ")[1] for line in lines[1:]
    ]


@pytest.mark.parametrize("state", sorted(set(STATES) - {"absent", "Empty"}))
def test_a_member_may_in_every_state_of_its_generation(state: str) -> None:
    """What was read before a rebalance is committed while others join: as Kafka allows."""
    talk = STATES[state]()

    assert talk.send(pending_commit("a", 2, LEADER))[-1].startswith("answer a#p PendingCommit pend")


@pytest.mark.parametrize("state", sorted(set(STATES) - {"absent", "Empty"}))
@pytest.mark.parametrize(
    ("generation", "member", "error"),
    [
        (1, LEADER, "ILLEGAL_GENERATION"),
        (-1, LEADER, "ILLEGAL_GENERATION"),
        (2, "nobody", "UNKNOWN_MEMBER_ID"),
        (-1, "", "UNKNOWN_MEMBER_ID"),
        (2, "", "UNKNOWN_MEMBER_ID"),
    ],
)
def test_who_is_no_member_of_this_generation_is_refused(
    state: str, generation: int, member: str, error: str
) -> None:
    """KIP-447: a zombie, and a client too old to say who it is."""
    talk = STATES[state]()
    before = committed(talk)

    lines = talk.send(pending_commit("z", generation, member))

    assert refused(lines) == [error, "CommitRefused"]
    assert (keys(talk), committed(talk)) == ([], before)


def test_a_group_that_is_not_there() -> None:
    """A generation means that there was one, and that it is gone; without one it is made."""
    talk = Conversation()

    assert refused(talk.send(pending_commit("a", 3, LEADER))) == [
        "ILLEGAL_GENERATION",
        "CommitRefused",
    ]
    assert talk.shard.rows == {}
    made = talk.send(pending_commit("a"))
    assert [line.split(" ")[1] for line in made if line.startswith("event")] == [
        "GroupCreated",
        "OffsetsPending",
    ]
    assert keys(talk) == ["r0-1"]


def test_it_belongs_into_the_requests() -> None:
    """There alone it has a place among joins and leaves, and a transaction that can be found."""
    lines = Conversation().send(pending_commit("a"), topic=COMMITS)

    assert lines[0].startswith("answer a#p Rejected INVALID_REQUEST")


def test_members_of_an_assigned_group_name_partitions_that_they_own() -> None:
    """One row of another member's partition refuses all: half of a commit is no unit."""
    talk = assigned.stable()
    group = assigned.group_of(talk)
    (one, other) = group.members.values()
    mine = next((t, p) for t, owned in one.owned.items() for p in owned)
    others = next((t, p) for t, owned in other.owned.items() for p in owned)
    send = pending_commit(one.client, group.generation, one.member, offsets=rows((*mine, 1)))
    both = rows((*mine, 1), (*others, 1))

    bad = talk.send(pending_commit(one.client, group.generation, one.member, offsets=both))
    good = talk.send(send)

    assert bad[0] == (
        f"answer {one.client}#p PendingCommit PARTITION_NOT_OWNED "
        f"failed=[(topic={others[0]}"
        + (f" partition={others[1]}" if others[1] else "")
        + " error=PARTITION_NOT_OWNED)]"
    )
    assert [line.split(" ")[1] for line in bad[1:]] == ["CommitRefused"]
    assert "PendingCommit pending=" in good[-1]


# -- room ------------------------------------------------------------------------------------


def test_a_row_with_too_long_metadata_refuses_all() -> None:
    """A program keeps its state there; half of its commit would lie."""
    talk = Conversation(settings(offset_metadata_length_max=2))
    offsets = (api.CommittedOffset("t", 0, 1), api.CommittedOffset("t", 1, 1, metadata="long"))

    lines = talk.send(pending_commit("a", offsets=offsets))

    assert lines == [
        "answer a#p PendingCommit OFFSET_METADATA_TOO_LARGE "
        "failed=[(topic=t partition=1 error=OFFSET_METADATA_TOO_LARGE)]",
        "event CommitRefused cause=r0-0 reason=OFFSET_METADATA_TOO_LARGE client=a "
        "request=PendingCommit offsets=[(topic=t partition=1 offset=1 "
        "error=OFFSET_METADATA_TOO_LARGE)]",
    ]
    assert talk.shard.rows == {}


ROOMS: dict[str, tuple[ShardSettings, str]] = {
    "entries": (bounded(pending_per_group_max=2), "CONCURRENT_TRANSACTIONS"),
    "their bytes": (bounded(pending_bytes_per_group_max=500), "INVALID_COMMIT_OFFSET_SIZE"),
    "offsets": (settings(offsets_per_group_max=2), "INVALID_COMMIT_OFFSET_SIZE"),
    "bytes of offsets": (settings(offsets_bytes_per_group_max=500), "INVALID_COMMIT_OFFSET_SIZE"),
    "the shard's": (settings(bytes_max=1_500), "INVALID_COMMIT_OFFSET_SIZE"),
}


@pytest.mark.parametrize("bound", ROOMS)
def test_there_is_room_for_so_many(bound: str) -> None:
    """INV-43: whatever was accepted can be carried out, in any order and beside plain commits."""
    how, error = ROOMS[bound]
    talk, accepted, told = Conversation(how), [], []
    for number in range(9):
        at = talk.next_offset
        lines = talk.send(pending_commit("a", offsets=rows(("t", number, 1))))
        if "pending=" in lines[-1]:
            accepted.append(at)
        else:
            told = refused(lines)
        talk.send(commit("tool", offsets=rows(("u", number, 1))))
    of_plain = len([place for place in committed(talk) if place.startswith("u")])
    assert told == [error, "CommitRefused"]
    assert 1 <= len(accepted) < 9

    talk.send(ended(committed=accepted))

    found = committed(talk)
    assert len(found) == len(accepted) + of_plain
    config = how.families["group"].config
    assert len(found) <= config.offsets_per_group_max
    assert offsets_of(talk.shard.groups["g"]).size_bytes <= config.offsets_bytes_per_group_max


def test_room_is_free_again_when_it_was_decided() -> None:
    """A copier that runs for months, one transaction after the other."""
    talk = Conversation(bounded(pending_per_group_max=1))
    for number in range(3):
        at = talk.next_offset
        assert "pending=" in talk.send(pending_commit("a"))[-1], number
        talk.send(ended(aborted=[at]))


# -- what meets pending offsets --------------------------------------------------------------


def test_a_fetch_that_does_not_ask_for_stable_offsets_gets_the_committed_one() -> None:
    """INV-93: a dashboard, which begins to read nothing."""
    talk = Conversation()
    talk.send(commit("tool", offset=3))
    talk.send(pending_commit("a", offsets=rows(("t", 0, 7), ("t", 1, 8))))

    assert talk.send(fetch("b")) == [
        "answer b#f OffsetFetch offsets=[(topic=t offset=3 error=NONE)] parts=1"
    ]


def test_all_offsets_name_those_that_are_only_pending() -> None:
    """INV-97: a partition without a committed offset would be read from its beginning."""
    talk = Conversation()
    talk.send(commit("tool", offsets=rows(("s", 0, 1), ("u", 0, 2))))
    talk.send(pending_commit("a"))

    waits = "error=UNSTABLE_OFFSET_COMMIT pending=(key=r0-1 decided_by=kafka)"
    assert talk.send(fetch("b", require_stable=True)) == [
        "answer b#f OffsetFetch offsets=[(topic=s offset=1 error=NONE), "
        f"(topic=t offset=-1 {waits}), (topic=u offset=2 error=NONE)] parts=1"
    ]
    named = (api.TopicPartitions("t", (0, 1)),)
    assert talk.send(fetch("b", topics=named, require_stable=True)) == [
        f"answer b#f OffsetFetch offsets=[(topic=t offset=-1 {waits}), "
        "(topic=t partition=1 offset=-1 error=NONE)] parts=1"
    ]


def test_of_several_the_oldest_is_named() -> None:
    """Transactions of one copier follow each other faster than they end."""
    talk = Conversation()
    for number in range(12):
        talk.send(pending_commit("a", offset=number))

    assert "key=r0-0 " in talk.send(fetch("b", require_stable=True))[0]


def test_offsets_are_not_deleted_while_others_are_pending_beside_them() -> None:
    """Kafka drops both: half of a transaction, by an operator's hand."""
    talk = Conversation()
    talk.send(commit("tool", offsets=rows(("t", 0, 1), ("t", 1, 1))))
    talk.send(pending_commit("a"))

    assert talk.send(delete_offsets("ops", ("t", 0), ("t", 1))) == [
        "commit t/1 gone",
        "event OffsetsDeleted cause=r0-2 reason=deleted client=ops offsets=[(topic=t partition=1)]",
        "answer ops#o OffsetDelete failed=[(topic=t error=UNSTABLE_OFFSET_COMMIT)]",
        "event RequestRejected cause=r0-2 error=UNSTABLE_OFFSET_COMMIT request=OffsetDelete "
        "client=ops partitions=(t=[0])",
    ]


def test_a_group_is_not_deleted_while_offsets_are_pending() -> None:
    """A script tidies up while a transaction is open."""
    talk = Conversation()
    talk.send(pending_commit("a"))

    lines = talk.send(delete("ops"))

    assert lines[0] == "answer ops#d DeleteGroup NON_EMPTY_GROUP"
    assert "r0-0" in lines[1]
    talk.send(ended(aborted=[0]))
    assert talk.send(delete("ops"))[-1] == "answer ops#d DeleteGroup"


def test_nothing_expires_that_a_decision_may_need() -> None:
    """A transaction that is never decided, as at a broker that is away for a week."""
    how = settings(offsets_retention_ms=10 * MINUTE_MS, check_interval_ms=MINUTE_MS)
    talk = Conversation(how)
    talk.send(commit("tool", offsets=rows(("t", 0, 3), ("u", 0, 1))))
    talk.send(pending_commit("a", group="g"))
    talk.send(pending_commit("a", group="h"))

    lines = talk.wait(30 * MINUTE_MS, step_ms=MINUTE_MS)

    assert [line for line in lines if line.startswith("commit")] == ["commit u/0 gone"]
    assert committed(talk) == {"t/0": 3}
    talk.send(ended(aborted=[1, 2]))
    later = talk.wait(2 * MINUTE_MS, step_ms=MINUTE_MS)
    assert "commit t/0 gone" in later
    assert talk.shard.groups == {}


def test_a_group_that_is_described_names_what_is_pending() -> None:
    """Who waits, for whom, and since when: an operator asks first."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, offsets=rows(("t", 0, 7), ("t", 1, 8))))

    line = talk.send(describe("ops"))[0]

    assert line.endswith(
        "pending=[(key=r0-9 decided_by=kafka client=a member=a-t-0-0 generation=2 "
        f"since_ms={talk.now_ms} partitions=2)]"
    )
    assert "pending" not in settled().send(describe("ops"))[0]


def test_members_come_and_go_and_the_offsets_wait() -> None:
    """The successor owns the partition before the decision: its fetch is what waits."""
    talk = settled()
    talk.send(pending_commit("a", 2, LEADER, 7))
    talk.send_all(leave("b", FOLLOWER), leave("a", LEADER), join("c", "j9"))

    assert "UNSTABLE" in talk.send(fetch("c", require_stable=True))[0]
    talk.send(ended(committed=[9]))
    assert committed(talk) == {"t/0": 7}


def test_the_group_may_change_its_kind() -> None:
    """A team moves its group while an old transaction is still open."""
    talk = empty()
    at = talk.next_offset
    talk.send(pending_commit("tool"))
    talk.send(assigned.subscribe("s", topics=("t",)))
    assert talk.shard.groups["g"].kind.NAME == "assigned"

    talk.send(ended(committed=[at]))

    assert committed(talk) == {"t/0": 5}


def test_an_accepted_commit_is_a_sign_of_life() -> None:
    """A member that works without a pause has little time for others."""
    talk = settled()
    talk.wait(9_000)
    talk.send(pending_commit("a", 2, LEADER))

    lines = talk.wait(2_000)

    assert any("MemberRemoved" in line and FOLLOWER in line for line in lines)
    assert LEADER in talk.group().members


# -- quarantine ------------------------------------------------------------------------------


def set_aside(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in judging LeaveGroup."""

    def broken(*_: object) -> None:
        raise BrokenInvariant("a defect of this test")

    with monkeypatch.context() as patch:
        kind = talk.shard.groups["g"].kind
        patch.setitem(kind.handlers, api.LeaveGroup, broken)  # type: ignore[arg-type]
        talk.send(leave("a", LEADER))
    assert talk.group().is_quarantined


@pytest.mark.parametrize(("decision", "offset"), [("committed", 7), ("aborted", 3)])
def test_a_decision_is_noted_while_the_group_is_set_aside(
    decision: str, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not come again, and nothing of the group may change."""
    talk = settled()
    talk.send(commit("a", 2, LEADER, 3))
    talk.send(pending_commit("a", 2, LEADER, 7))
    set_aside(talk, monkeypatch)

    assert talk.send(pending_commit("a", 2, LEADER)) == [
        "answer a#p PendingCommit COORDINATOR_NOT_AVAILABLE"
    ]
    noted = talk.send(ended(**{decision: [10]}))
    assert [line.split(" offsets=")[0] for line in noted] == [
        "pending r0-10 decided_by=kafka client=a member=a-t-0-0 generation=2"
    ]
    assert committed(talk) == {"t/0": 3}
    assert talk.shard.status().undecided == ()
    other = "aborted" if decision == "committed" else "committed"
    assert talk.send(ended(**{other: [10]})) == []

    released = talk.send(release("ops"))

    assert "pending r0-10 gone" in released
    assert committed(talk) == {"t/0": offset}
    assert keys(talk) == []


# -- what the driver is told, and what a rebuild finds ---------------------------------------


def test_the_driver_is_told_which_records_are_undecided() -> None:
    """It asks the brokers about these, and about nothing else."""
    talk = Conversation()
    assert talk.shard.status().undecided == ()
    for group in ("h", "g", "h"):
        talk.send(pending_commit("a", group=group))
    assert talk.shard.status().undecided == (0, 1, 2)

    talk.send(ended(committed=[1]))

    assert talk.shard.status().undecided == (0, 2)
    talk.end_batch()
    assert talk.shard.status().undecided == (0, 2)
    assert talk.shard.status().has_deadline is False, "no tick is written for it"


def test_a_rebuild_finds_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-38: the job's checkpoint is lost while transactions are open."""
    talk = empty()
    talk.send(pending_commit("a", offsets=rows(("t", 0, 7), ("t", 1, 8))))
    talk.send(pending_commit("a", offset=9))
    talk.send(commit("ops", offsets=rows(("t", 1, 0))))
    talk.send(pending_commit("a", group="only-pending"))
    set_aside_at = talk.next_offset
    talk.send(ended(committed=[set_aside_at - 3]))
    talk.shard.close()
    before = {name: list(row.entries(PENDING)) for name, row in talk.shard.groups.items()}
    undecided, outputs = talk.shard.status().undecided, talk.outputs + talk.shard.outputs

    talk.load(restored(outputs, talk.shard._position))

    assert {name: list(row.entries(PENDING)) for name, row in talk.shard.groups.items()} == before
    assert talk.shard.status().undecided == undecided
    assert committed(talk)["t/1"] == 0
    for row in talk.shard.groups.values():
        assert_as_new(row, talk.shard)


def test_groups_without_pending_offsets_are_kept_as_before() -> None:
    """Not a byte more in a blob: the state's version stays."""
    talk = settled()
    talk.send(commit("a", 2, LEADER, 3))
    plain = fold(None, talk.log, talk.settings)
    at = talk.next_offset
    talk.send(pending_commit("a", 2, LEADER, 7))
    talk.send(ended(aborted=[at]))
    talk.shard.close()

    assert b"kafka" not in talk.shard.encode()
    assert [list(row.stored.tables) for row in talk.shard.groups.values()] == [["committed"]]
    assert plain.blob == fold(None, talk.log[:at], talk.settings).blob
