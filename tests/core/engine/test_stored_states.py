"""What deployments have on disk: states of released versions are read, others refused."""

from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from coordlib.core.controller.states import (
    TO_BE_DELETED,
    BrokerState,
    PartitionState,
    partition_state,
)
from coordlib.core.groups.assigned.group import State as AssignedState
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.classic.group import State
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.groups.protocol import GroupsState
from coordlib.core.transactions.transaction import State as TransactionState
from coordlib.core.wire.offsets import COORDINATOR, DELTA, KAFKA
from coordlib.core.wire.stored import Marker
from coordlib.core.wire.transactions import TRANSACTION
from coordlib.errors import StartRefused
from coordlib.job import pipelines
from coordlib.job.rebuild import seed_blobs
from tests.tools import clusters, stored_state
from tests.tools.core import STATE_VERSION, Shard, UnknownStateVersion, decode_blob, fold
from tests.tools.stored_state import SETTINGS, Stored

FOLDER = Path(__file__).parent / "stored_states"
CURRENT = stored_state.read(stored_state.path_of(STATE_VERSION, FOLDER))
CLUSTERS = stored_state.read(stored_state.path_of(STATE_VERSION, FOLDER, stored_state.OF_CLUSTERS))
TRANSACTIONS = stored_state.read(
    stored_state.path_of(STATE_VERSION, FOLDER, stored_state.OF_TRANSACTIONS)
)
FIXTURES = sorted(FOLDER.glob("v*.json"))
#: The state version of coordlib 0.1.0.
FIRST_RELEASED = 2


def name_of(path: Path) -> str:
    return path.stem


def test_each_version_has_a_fixture() -> None:
    """INV-08: a version that was raised without one would be tested by nobody."""
    versions = {name_of(path).partition("-")[0] for path in FIXTURES}
    assert versions == {f"v{n}" for n in range(FIRST_RELEASED, STATE_VERSION + 1)}


def test_a_state_with_more_than_this_code_knows_is_not_cut_short() -> None:
    """INV-08: a job that went back to older code would forget it, and nobody would be told."""
    newer = msgspec.msgpack.encode([*msgspec.msgpack.decode(CURRENT.blob), "something new"])
    with pytest.raises(msgspec.ValidationError):
        fold(newer, [], SETTINGS)


def test_todays_code_stores_what_the_fixture_holds() -> None:
    """INV-08: if this fails, the layout changed, and checkpoints of the release cannot know it.

    Raise STATE_VERSION, decide whether older blobs are migrated or refused, then write the new
    version's fixture: python -m tests.tools.stored_state
    """
    for made, stored in (
        (stored_state.made(), CURRENT),
        (stored_state.made_clusters(), CLUSTERS),
        (stored_state.made_transactions(), TRANSACTIONS),
    ):
        assert made.blob == stored.blob
        assert (made.groups, made.committed) == (stored.groups, stored.committed)
        assert made.beside == stored.beside
        assert (made.position, made.log) == (stored.position, stored.log)


@pytest.mark.parametrize("path", FIXTURES, ids=name_of)
def test_a_stored_state_goes_on_as_it_would_have(path: Path) -> None:
    """INV-08: a job is upgraded between two batches; its groups must not notice.

    If the difference is meant: python -m tests.tools.stored_state --outputs
    """
    fixture = stored_state.read(path)
    assert fixture.go_on(fixture.blob) == fixture.outputs


@pytest.mark.parametrize("path", FIXTURES, ids=name_of)
def test_the_compacted_topics_of_any_version_can_be_rebuilt(path: Path) -> None:
    """INV-08: it is the way out that every refused checkpoint is told of."""
    fixture = stored_state.read(path)

    assert fixture.go_on(fixture.rebuilt()) == fixture.outputs_after_rebuild


def test_the_fixture_is_a_rich_shard() -> None:
    """A field that no stored group uses could change unseen."""
    cells = Shard(CURRENT.blob, SETTINGS).groups.values()
    groups = [cell.value for cell in cells if cell.stored.kind == "classic"]
    members = [member for group in groups if group for member in group.members.values()]

    assert {group.state for group in groups if group} == set(State) - {State.DEAD}
    assert any(member.instance for member in members)
    assert any(member.is_joining for member in members)
    assert any(member.is_syncing for member in members)
    assert any(member.has_let_go for member in members)
    assert any(member.awaits_cover is not None for member in members)
    assert {member.host for member in members} == {UNSET, "machine-b"}
    assert any(group and group.pending for group in groups)
    assert any(group and group.guards for group in groups)
    assert any(group and group.is_initial for group in groups)
    assert any(group and group.join_timer for group in groups)
    assert any(group and group.sync_timer for group in groups)
    assert any(group and group.failure for group in groups)
    assert len(CURRENT.committed) > 20
    assert {b"timestamp_ms" in value for _, value in CURRENT.committed} == {True, False}
    state = decode_blob(CURRENT.blob)
    assert CURRENT.position.answered == state.answered
    groups = msgspec.msgpack.decode(state.families["group"], type=GroupsState)
    assert all((state.answered, groups.free_us, groups.offsets_free_us))
    assert any(row.answered >= 0 for row in state.rows)
    assert CURRENT.position.offsets["o"] >= 0


def test_the_fixture_has_rich_server_assigned_groups() -> None:
    """Demands that run and that wait, guards, grants of several records, all wishes."""
    shard = Shard(CURRENT.blob, SETTINGS)
    groups = [cell.value for cell in shard.groups.values() if cell.stored.kind == "assigned"]
    members = [member for group in groups for member in group.members.values()]
    demands = [demand.timer.due_ms for member in members for demand in member.demands]

    assert {group.state for group in groups} == set(AssignedState) - {AssignedState.DEAD}
    assert None in demands
    assert any(due_ms is not None for due_ms in demands)
    guards = [guard for group in groups for guard in group.guards.values()]
    assert {guard.notice.due_ms is None for guard in guards} == {True, False}
    assert any(len(member.grants) > 1 for member in members)
    assert any(member.pattern and member.exclude and member.topics for member in members)
    assert any(member.capacity > 1 for member in members)
    assert {member.awaits_cover is None for member in members} == {True, False}
    assert {member.host for member in members} == {UNSET, "machine-a"}
    assert any(group.strategy_fault for group in groups)
    assert shard.topics


def test_the_fixture_has_a_rich_cluster() -> None:
    """Every field of a row away from its default, brokers in every state, both kinds of timer."""
    shard = Shard(CLUSTERS.blob, SETTINGS)
    head, rows = clusters.cluster_of(shard), clusters.partitions_of(shard).values()
    brokers = head.brokers.values()
    demands = [each.demand.timer.due_ms for each in brokers if each.demand]

    assert {each.state for each in brokers} == set(BrokerState)
    assert {each.has_session for each in brokers} == {True, False}
    assert {each.awaits_cover is None for each in brokers} == {True, False}
    assert any(each.is_legacy for each in brokers)
    assert any(each.superseded for each in brokers)
    assert any(each.rack for each in brokers)
    assert {due_ms is None for due_ms in demands} == {True, False}
    assert head.guards
    assert {partition_state(row) for row in rows} == set(PartitionState) - {
        PartitionState.NON_EXISTENT
    }
    for name in ("adding", "removing", "recovering", "move", "new", "deleting"):
        assert any(getattr(row, name) for row in rows), name
    assert any(row.asked >= 0 for row in rows)
    assert any(row.guard >= 0 for row in rows)
    assert {state for row in rows for state in row.deleting.values()} == TO_BE_DELETED
    topics = clusters.topics_of(shard).values()
    assert any(topic.is_deleting for topic in topics)
    assert any(topic.unclean and topic.min_isr > 1 for topic in topics)
    assert ("cluster", "other") in shard.rows


def test_the_fixture_has_rich_transactions() -> None:
    """Ids in every state, pending offsets of every decider, and messages that nobody has judged."""
    shard = Shard(TRANSACTIONS.blob, SETTINGS)
    ids = [row.value for (space, _), row in shard.rows.items() if space == TRANSACTION]
    entries = [entry for row in shard.groups.values() for _, _, entry in row.entries(PENDING)]

    assert {each.state for each in ids} == set(TransactionState) - {TransactionState.DEAD}
    assert any(each.is_quarantined for each in ids)
    for name in ("groups", "partitions", "unwritten", "waits", "waiting", "ended"):
        assert any(getattr(each, name) for each in ids), name
    for name in ("last_epoch", "previous_producer_id", "next_producer_id", "started_ms"):
        assert any(getattr(each, name) >= 0 for each in ids), name
    assert {each.ended.reason for each in ids if each.ended} >= {"client", "timeout"}
    assert {entry.decided_by for entry in entries} == {KAFKA, DELTA, COORDINATOR}
    assert {bool(entry.decision) for entry in entries} == {True, False}
    assert all(row.is_quarantined is (name == "h") for name, row in shard.groups.items())
    channels = decode_blob(TRANSACTIONS.blob).channels
    assert channels is not None
    ((sent, heard),) = channels.sent.values()
    assert 0 < heard < sent
    assert {topic for topic, _, _ in TRANSACTIONS.beside} == {"transactions", "outbox"}


@pytest.mark.parametrize("version", [FIRST_RELEASED - 1, STATE_VERSION + 1])
def test_a_blob_of_another_version_is_refused_with_the_remedy(version: int) -> None:
    """INV-08: code must not guess at what it reads; version 1 was never released."""
    raw = msgspec.msgpack.decode(CURRENT.blob)
    other = msgspec.msgpack.encode([version, *raw[1:], {"what": "nobody knows"}])

    with pytest.raises(UnknownStateVersion) as refused:
        decode_blob(other)

    assert str(refused.value) == (
        f"The state has version {version}, this code knows {STATE_VERSION}: start the "
        "code that wrote it, or rebuild into a new checkpoint with --rebuild."
    )


def rebuild(fixture: Stored, groups: dict[str, bytes]) -> dict[int, bytes]:
    marker = Marker(
        checkpoint="c",
        batch=1,
        ranges={},
        digest="",
        next_offsets={},
        shards={"0": fixture.position},
    )
    topics = {
        "coord.groups": {key.encode(): value for key, value in groups.items()},
        "coord.committed": dict(fixture.committed),
    }
    return seed_blobs(
        lambda topic, _: topics.get(topic, {}), {}, pipelines.groups("coord"), 1, marker
    )


def test_a_rebuild_reads_what_the_topics_hold() -> None:
    """The same way as a job that starts with --rebuild."""
    assert rebuild(CURRENT, CURRENT.groups) == {0: CURRENT.rebuilt()}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b'"v":1', b'"v":2', "was saved with version 2, this code knows 1"),
        (
            b'"kind":"classic"',
            b'"kind":"modern"',
            "An entity was saved as 'modern', which this code lacks",
        ),
    ],
)
def test_a_group_saved_by_newer_code_refuses_the_rebuild(
    before: bytes, after: bytes, words: str
) -> None:
    """Fields that are not known are not read: what newer code saved would be lost silently."""
    newer = {**CURRENT.groups, "tools": CURRENT.groups["tools"].replace(before, after)}

    with pytest.raises(StartRefused) as refused:
        rebuild(CURRENT, newer)

    assert words in str(refused.value)
    assert "Rebuild with the code that wrote it" in str(refused.value)


def test_the_version_of_saved_groups_is_the_one_that_is_written() -> None:
    """Who raises one must raise the other."""
    versions = {msgspec.json.decode(value)["v"] for value in CURRENT.groups.values()}

    assert versions == {CLASSIC.SAVED_VERSION, ASSIGNED.SAVED_VERSION}
