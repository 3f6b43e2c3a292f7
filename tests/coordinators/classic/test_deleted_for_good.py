"""What is deleted stays deleted, whoever has not heard of it yet."""

import pytest

from coordlib.records import requests as rq
from coordlib.testing.driving import (
    LEADER,
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

PLACE = rq.CommittedOffset("t", 0, 7)


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
    assert ("g" in talk.shard.cells) is is_made_anew


def test_deleted_offsets_are_not_shown_again_after_a_replay() -> None:
    """INV-27. The job reads its newest batch once more: the commit stands before the deletion."""
    talk = empty()
    talk.send(commit("ops", offsets=(PLACE,)))
    talk.send(delete_offsets("ops", ("t", 0)))
    for record in list(talk.log):
        talk.shard.judge(record)

    assert talk.send(fetch("b")) == ["answer b#f OffsetFetch parts=1"]
