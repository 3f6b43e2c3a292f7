"""What is deleted stays deleted, whoever has not heard of it yet."""

import msgspec
import pytest

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from tests.tools.core import InputRecord, Shard, fold, offsets_of
from tests.tools.driving import (
    LEADER,
    SETTINGS,
    SHARES,
    commit,
    delete,
    delete_offsets,
    empty,
    fetch,
    heartbeat,
    join,
    sync,
)

PLACE = api.CommittedOffset("t", 0, 7)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_nothing_late_brings_a_group_or_its_offsets_back(is_made_anew: bool) -> None:
    """INV-27. A member slept through the end of its group, and its requests arrive behind it."""
    talk = empty()
    talk.send(commit("ops", offsets=(PLACE,)))
    talk.send(delete("ops"))
    if is_made_anew:
        talk.send(join("b"))

    for late in (
        heartbeat("a", 2, LEADER),
        commit("a", 2, LEADER, offsets=(PLACE,)),
        sync("a", 2, LEADER, assignments=SHARES),
        join("a", "j9", member=LEADER, generation=2),
    ):
        said = talk.send(late)
        # As in Kafka, a commit with a generation for no group at all is one of an old generation.
        assert said[0].split()[3] in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
        assert not [line for line in said if line.startswith("commit ")]

    assert talk.send(fetch("b")) == ["answer b#f OffsetFetch parts=1"]
    assert ("g" in talk.shard.groups) is is_made_anew


@pytest.mark.parametrize("checks", [True, False])
def test_a_position_has_no_order_against_a_deletion(checks: bool) -> None:
    """INV-27 says so, and so does the page about the wire: a Spark query's position was written ten
    seconds before its group was deleted. Whether the group is there afterwards depends on where the
    batch ends; to compare the timestamps of two partitions would be no better an order."""
    how = msgspec.structs.replace(SETTINGS, checks_invariants=checks)
    first = fold(
        None,
        [
            InputRecord(REQUESTS, 0, 1_000, codec.encode(api.Tick(v=1, published=-1))),
            InputRecord(COMMITS, 0, 1_000, codec.encode(commit("query", offset=1))),
        ],
        how,
    )
    position = InputRecord(COMMITS, 1, 2_000, codec.encode(commit("query", offset=2)))
    deletion = InputRecord(REQUESTS, 1, 12_000, codec.encode(delete("ops")))

    together = fold(first.blob, [position, deletion], how)
    apart = fold(fold(first.blob, [position], how).blob, [deletion], how)

    assert list(Shard(apart.blob, how).groups) == []
    (cell,) = Shard(together.blob, how).groups.values()
    assert [(topic, kept.offset) for topic, _, kept in offsets_of(cell)] == [("t", 2)]
    assert cell.value.generation == 0


def test_deleted_offsets_are_not_shown_again_after_a_replay() -> None:
    """INV-27. The job reads its newest batch once more: the commit stands before the deletion."""
    talk = empty()
    talk.send(commit("ops", offsets=(PLACE,)))
    talk.send(delete_offsets("ops", ("t", 0)))
    for record in list(talk.log):
        talk.shard.judge(record)

    assert talk.send(fetch("b")) == ["answer b#f OffsetFetch parts=1"]
