"""Cooperative groups whose members are processes of their own, over a real broker and Spark job."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from coordlib.history.sql import query_tables
from tests.stack.crew import Crew, Place
from tests.stack.flow import Flow
from tests.stack.truths import generations, holds, read_twice
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack


FIRST: Final = ("a", "b", "c")
CALLBACKS: Final = ("assigned", "revoking", "revoked", "lost")


def test_one_joins_and_one_dies_and_the_others_read_on(
    crew: Crew, flow: Flow, wire: Wire, group: str, archived: Callable[[], Path]
) -> None:
    """A deployment adds a process to three, and then one machine loses power. Whoever keeps its
    partitions must not notice: not in its callbacks, and not in what it reads meanwhile.
    """
    crew.start(*FIRST)
    flow.begin()
    crew.until_shared(flow.places, *FIRST)
    crew.until("all of them read", lambda: all(crew[name].readings for name in FIRST))
    before = len(generations(wire, group))

    keepers = _one_joins(crew, flow)
    assert len(generations(wire, group)) == before + 2, "one to ask for it, one to hand it on"
    assert not read_twice(crew)

    orphaned = _one_dies(crew, flow, keepers[0])
    (removed,) = wire.events(group, "MemberRemoved")
    assert (removed["member"], removed["reason"]) == (crew[keepers[0]].member, "session expired")

    holds(crew, flow, wire, group)
    assert {place for place, _ in read_twice(crew)} <= orphaned, "what was not committed yet"
    _delta_says_the_same(crew, group, archived())


def _one_joins(crew: Crew, flow: Flow) -> list[str]:
    """`d` gets one partition; returns those who kept all of theirs."""
    marks = {name: crew[name].mark() for name in FIRST}
    # Who must let go of something takes its time: the group waits for it, the others read on.
    for name in FIRST:
        crew[name].hold.touch()
    crew.start("d")
    (loser,) = crew.until(
        "one lets go", lambda: [n for n in FIRST if crew[n].since(marks[n], "revoking")]
    )
    asked_ns = crew[loser].told("revoking")[-1]["at_ns"]
    keepers = [name for name in FIRST if name != loser]
    crew.until(
        "the others read on", lambda: all(crew[n].readings[-1].at_ns > asked_ns for n in keepers)
    )
    assert not crew["d"].owned
    for name in FIRST:
        crew[name].hold.unlink()
    crew.until_shared(flow.places, *FIRST, "d")

    (let_go,) = crew[loser].since(marks[loser], "revoked")
    (given,) = [line for line in crew["d"].told("assigned") if line["partitions"]]
    assert len(let_go["partitions"]) == 1
    assert given["partitions"] == let_go["partitions"]
    for name in keepers:
        told = crew[name].since(marks[name], *CALLBACKS)
        assert {(each["what"], *each["partitions"]) for each in told} == {("assigned",)}
        assert any(asked_ns < each.at_ns < given["at_ns"] for each in crew[name].readings)
    return keepers


def _one_dies(crew: Crew, flow: Flow, victim: str) -> set[Place]:
    """Its partitions go to the others, beside what they have; returns its partitions."""
    left = [name for name in (*FIRST, "d") if name != victim]
    kept = {name: set(crew[name].owned) for name in left}
    marks = {name: crew[name].mark() for name in left}
    orphaned = set(crew[victim].owned)
    crew.kill(victim)
    crew.until_shared(flow.places, *left)

    for name in left:
        assert set(crew[name].owned) >= kept[name]
        assert {line["what"] for line in crew[name].since(marks[name], *CALLBACKS)} == {"assigned"}
    return orphaned


def _delta_says_the_same(crew: Crew, group: str, tables: Path) -> None:
    """Who owned what, and what is committed, asked in SQL."""
    sql = "SELECT member_id, fence, topic, partition FROM ownership WHERE group_id = ?"
    rows = query_tables(tables, sql, [group]).rows
    owned = {(member, fence, (topic, partition)) for member, fence, topic, partition in rows}
    assert {(each.member, each.fence, each.place) for each in crew.readings} <= owned
    sql = 'SELECT topic, partition, "offset" FROM current_offsets WHERE group_id = ?'
    rows = query_tables(tables, sql, [group]).rows
    ends = {each.place: each.offset + 1 for each in sorted(crew.readings, key=lambda r: r.offset)}
    assert {(topic, partition): offset for topic, partition, offset in rows} == ends
