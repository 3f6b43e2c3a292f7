"""INV-11: after generation 2**31 - 1 comes 1, and the members of a server-assigned group go on."""

from collections.abc import Callable

import msgspec
import pytest

from coordlib.core.groups.assigned.group import State
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.group import is_older
from coordlib.core.groups.group import next_generation as after
from coordlib.core.wire import api
from coordlib.limits import INT32_MAX
from tests.tools.assigned_groups import (
    A,
    B,
    group_of,
    let_go,
    owned_in,
    stable,
    subscribe,
    topics,
)
from tests.tools.core import set_value
from tests.tools.driving import Conversation, commit


def row(partition: int) -> tuple[api.CommittedOffset, ...]:
    return (api.CommittedOffset("t", partition, 7),)


def at_the_last() -> Conversation:
    """a and b share t/0 to t/3, and the next division is the one after 2**31 - 1."""
    talk = stable()
    group = group_of(talk)
    members = {
        name: msgspec.structs.replace(
            member,
            subscribed_generation=INT32_MAX - 1,
            grants=tuple(
                msgspec.structs.replace(grant, generation=INT32_MAX - 1) for grant in member.grants
            ),
        )
        for name, member in group.members.items()
    }
    group = msgspec.structs.replace(group, generation=INT32_MAX, members=members)
    set_value(talk.shard, "g", group)
    talk.end_batch()
    return talk


def wrapped() -> Conversation:
    """The same, and t/4 has come: a's, by a division in generation 1."""
    talk = at_the_last()
    talk.send(topics({"t": 5}))
    assert group_of(talk).generation == 1
    assert owned_in(talk)["a"] == {"t": (0, 1, 4)}
    return talk


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (-1, 0),
        (0, 1),
        (-1, INT32_MAX),
        (1, 2),
        (INT32_MAX - 5, INT32_MAX),
        (INT32_MAX, 1),
        (INT32_MAX - 1, 7),
        (1, 2**30),
        (2**30, INT32_MAX),
    ],
)
def test_the_older_one_was_issued_before(older: int, newer: int) -> None:
    """RFC 1982: fewer steps lead from the older one to the newer one than back."""
    assert is_older(older, newer)
    assert not is_older(newer, older)
    assert not is_older(older, older)


def test_each_generation_is_older_than_the_one_after_it() -> None:
    """INV-11: also where the numbers begin anew."""
    generation = INT32_MAX - 3
    for _ in range(6):
        assert is_older(generation, after(generation))
        generation = after(generation)
    assert generation == 3


def test_what_a_member_kept_it_commits_under_either_generation() -> None:
    """b owes nothing, so it is told nothing, and goes on naming the generation that it knows."""
    talk = wrapped()

    for generation in (INT32_MAX - 1, INT32_MAX, 1):
        lines = talk.send(commit("b", generation, B, offsets=row(2)))
        assert lines[1] == "answer b#c OffsetCommit"


def test_a_commit_from_before_the_grant_is_refused() -> None:
    """A late duplicate: t/4 is a's since generation 1, and this commit was made before."""
    talk = wrapped()
    refused = "answer a#c OffsetCommit failed=[(topic=t partition=4 error=PARTITION_NOT_OWNED)]"

    assert talk.send(commit("a", INT32_MAX, A, offsets=row(4)))[0] == refused
    assert talk.send(commit("a", 1, A, offsets=row(4)))[1] == "answer a#c OffsetCommit"


@pytest.mark.parametrize(("made", "generation"), [(at_the_last, 1), (wrapped, 2), (wrapped, 2**29)])
def test_a_generation_that_there_never_was_is_refused(
    made: Callable[[], Conversation], generation: int
) -> None:
    """A defect of its sender, on both sides of the wrap."""
    assert made().send(commit("b", generation, B, offsets=row(2)))[0] == (
        "answer b#c OffsetCommit ILLEGAL_GENERATION design_error=IllegalGeneration"
    )


def test_a_new_wish_counts_and_its_late_duplicate_does_not() -> None:
    """Rule 12: the wish of before the wrap must not bring back what the member wanted then."""
    talk = wrapped()
    older = subscribe("b", "late", member=B, generation=INT32_MAX)
    talk.send(subscribe("b", "new", member=B, generation=1, topics=("t", "u")))
    assert group_of(talk).members[B].topics == ("t", "u")

    lines = talk.send(older)

    assert [line.split()[:3] for line in lines] == [["answer", "b#late", "Subscribe"]]
    assert group_of(talk).members[B].topics == ("t", "u")
    assert group_of(talk).generation == 2


def test_a_release_across_the_wrap_commits_and_hands_over() -> None:
    """a knows the last generation when it lets go; the demand is of the first."""
    talk = at_the_last()
    talk.send(subscribe("c"))
    assert group_of(talk).generation == 1
    (owing,) = [m for m in group_of(talk).members.values() if m.demands]
    (demand,) = owing.demands
    released = let_go(
        owing.client,
        INT32_MAX,
        owing.member,
        demand.timer.cause,
        offsets=row(*demand.partitions["t"]),
    )

    lines = talk.send(released)

    assert lines[0].startswith("commit t/")
    assert lines[1] == f"answer {owing.client}#r Release"
    assert group_of(talk).state is State.STABLE
    ASSIGNED.check(group_of(talk))
