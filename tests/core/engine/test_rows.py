"""What a shard keeps beside the heads: small numbers whose error shows late, and elsewhere."""

from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import REQUESTS, At, Outbox, Output, Refusals, UnreadOutputs
from coordlib.core.engine.tables import Entries, StoredTable
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.core.engine.test_table import value
from tests.tools.assigned_groups import subscribe, topics
from tests.tools.core import decode_blob, restored
from tests.tools.defects import Defect, in_force
from tests.tools.driving import (
    LEADER,
    Conversation,
    commit,
    delete,
    heartbeat,
    release,
    settings,
    settled,
)

AT = At(
    shard=0,
    shards=1,
    topic=REQUESTS,
    offset=7,
    time_ms=1,
    clock_ms=1,
    incarnation="t",
    reply_partitions=1,
    coordinate="r0-7",
)


# ---- bytes --------------------------------------------------------------------------------------


def test_a_table_that_was_emptied_has_no_bytes() -> None:
    """INV-15: a topic's name counts as long as it has offsets, or the shard fills with nothing."""
    table = Entries(OFFSETS)
    for place in (("t", 0), ("t", 200), ("u", 5)):
        table.apply(place, value(1))
    for place in (("t", 0), ("t", 200), ("u", 5)):
        table.apply(place, None)

    assert table.stored() == StoredTable()


def test_a_deleted_group_gives_its_bytes_back_in_its_batch() -> None:
    """INV-15: its offsets as well, or who asks next in the batch is refused for no reason."""
    talk = Conversation()
    rows = tuple(api.CommittedOffset("t", number, 1) for number in range(50))
    talk.send(commit("q", offsets=rows))
    talk.send(delete("ops"))

    assert talk.shard.rows == {}
    assert talk.shard._agenda.size_bytes == 0


# ---- what counts until it is covered ------------------------------------------------------------


def test_what_shares_a_row_is_covered_with_the_newest_of_it() -> None:
    """INV-68: a tick that covers the older of two has not shown the newer to anybody."""
    count = UnreadOutputs([], 64 * limits.MIB)
    count.count(3, 500)
    count.count(5, 600)

    count.outputs_visible(4)
    assert count.rows == ((5, 1_100),)
    count.outputs_visible(5)
    assert (count.rows, count.total_bytes) == ((), 0)


# ---- ids ----------------------------------------------------------------------------------------


def test_lines_that_were_not_said_leave_no_gap_in_the_ids() -> None:
    """INV-36: an id names which line of its record it is, whatever was tried before."""
    outbox = Outbox(lambda _: Refusals())
    line = fx.History(type="GroupCreated", space="group", group="g", cause="r0-7", kind="classic")
    outbox.put([line], AT)
    outbox.ready([line, line], AT)
    outbox.undo()
    outbox.put([line], AT)

    assert [ids(each) for each in outbox.outputs] == ["t-r0-7-0", "t-r0-7-1"]


def ids(output: Output) -> Any:
    return msgspec.json.decode(output.value or b"")["event_id"]


# ---- records ------------------------------------------------------------------------------------


def test_a_position_that_comes_again_does_nothing() -> None:
    """INV-04: also the newest one, when nothing came after it."""
    talk = Conversation()
    talk.send(commit("q", offsets=(api.CommittedOffset("t", 0, 1),)), topic=COMMITS)
    talk.end_batch()
    talk.shard.judge(talk.log[-1])

    assert talk.end_batch_raw() == []


def test_a_heartbeat_under_another_instance_is_not_taken_quietly() -> None:
    """INV-19: the member is right, and whoever names an instance must be the one it has."""
    talk = settled()
    assert talk.send(heartbeat("a", 2, LEADER)) == []

    (line,) = talk.send(heartbeat("a", 2, LEADER, instance="other"))
    assert "UNKNOWN_MEMBER_ID" in line or "FENCED_INSTANCE_ID" in line


# ---- looks --------------------------------------------------------------------------------------


def test_other_settings_of_retention_are_looked_at_at_once() -> None:
    """INV-26: bounds were found by the settings of before; a week is an hour now."""
    talk = Conversation()
    talk.send(commit("q", offsets=(api.CommittedOffset("t", 0, 1),)))
    talk.tick()
    talk.settings = settings(offsets_retention_ms=3_600_000)
    talk.end_batch()
    gone = [line for _ in range(8) for line in talk.tick(after_ms=600_000)]

    assert [line.split()[1] for line in gone if "Offsets" in line] == ["OffsetsExpired"]
    assert talk.shard.rows == {}


@pytest.mark.parametrize("is_living", [False, True])
def test_a_restored_row_has_the_facts_of_its_entries(is_living: bool) -> None:
    """INV-38: that it has any, and that its bound was found without the job's settings."""
    talk = Conversation()
    talk.send(commit("q", offsets=(api.CommittedOffset("elsewhere", 0, 1),)))
    if is_living:
        talk.send_all(topics({"t": 1}), subscribe("a", topics=("t",)))
    position = talk.shard.status().position
    talk.end_batch_raw()

    (row,) = decode_blob(restored(talk.outputs, position)).rows
    assert (row.tables[OFFSETS.name].count, row.facts.next_maintenance_ms) == (1, 0)


# ---- quarantine ---------------------------------------------------------------------------------


def test_a_released_entity_judges_what_its_family_has_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-42: what concerned it while it was set aside does not come again."""
    talk = settled()
    with in_force([Defect("g", "OffsetCommit", talk.next_offset)]):
        talk.send(commit("a", 2, LEADER))
    told: list[str] = []
    monkeypatch.setattr(type(CLASSIC), "released", lambda _, step: told.append(step.name))
    assert talk.group().is_quarantined

    talk.send(release("ops"))
    assert told == ["g"]
