"""Cooperative groups whose members are processes of their own, over a real broker and Spark job."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coordlib.history.sql import query_tables
from tests.stack.crew import Crew, Flow
from tests.stack.truths import generations, holds, read_twice
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack


def test_one_joins_and_one_dies_and_the_others_read_on(
    crew: Crew,
    flow: Flow,
    wire: Wire,
    group: str,
    archived: Callable[[], Path],
) -> None:
    """A deployment adds a process to three, and then one machine loses power. Whoever keeps its
    partitions must not notice: not in its callbacks, and not in what it reads meanwhile.
    """
    first = ("a", "b", "c")
    crew.start(*first)
    flow.begin()
    crew.until_shared(flow.places, *first)
    crew.until("all of them read", lambda: all(crew[name].readings for name in first))
    before = len(generations(wire, group))
    marks = {name: crew[name].mark() for name in first}

    # Whoever must let go of something takes its time; the group waits for it, others read on.
    for name in first:
        crew[name].hold.touch()
    crew.start("d")
    loser = crew.until(
        "one lets go", lambda: next((n for n in first if _revokes(crew, n, marks)), 0)
    )
    keepers = [name for name in first if name != loser]
    asked_ns = crew[loser].told("revoking")[-1]["at_ns"]
    seen = {name: len(crew[name].readings) for name in keepers}
    crew.until("the others read on", lambda: all(len(crew[n].readings) > seen[n] for n in keepers))
    assert not crew["d"].owned
    for name in first:
        crew[name].hold.unlink()
    crew.until_shared(flow.places, *first, "d")

    let_go = [each for n in first for each in crew[n].since(marks[n], "revoked")]
    assert [len(each["partitions"]) for each in let_go] == [1], "one partition had to move"
    moved = let_go[0]["partitions"]
    (given,) = [line for line in crew["d"].told("assigned") if line["partitions"]]
    assert given["partitions"] == moved
    for name in keepers:
        told = crew[name].since(marks[name], "assigned", "revoking", "revoked", "lost")
        assert [(each["what"], each["partitions"]) for each in told] == [("assigned", [])] * 2
        during = [r for r in crew[name].readings if asked_ns < r.at_ns < given["at_ns"]]
        assert during, f"{name} read nothing while the rebalance waited"
    assert len(generations(wire, group)) == before + 2, "one to ask for it, one to hand it on"
    assert not read_twice(crew)

    victim = keepers[0]
    left = [name for name in (*first, "d") if name != victim]
    kept = {name: set(crew[name].owned) for name in left}
    marks = {name: crew[name].mark() for name in left}
    orphaned = set(crew[victim].owned)
    crew.kill(victim)
    crew.until_shared(flow.places, *left)

    for name in left:
        assert set(crew[name].owned) >= kept[name]
        assert not crew[name].since(marks[name], "revoking", "revoked", "lost")
    assert (
        set().union(*(crew[name].owned for name in left)) - set().union(*kept.values()) == orphaned
    )
    (removed,) = [e for e in wire.events(group, "MemberRemoved") if e["member"].startswith(victim)]
    assert removed["reason"] == "session expired"

    holds(crew, flow, wire, group)
    assert {place for place, _ in read_twice(crew)} <= orphaned, (
        "only what a dead one had not committed"
    )
    _delta_says_the_same(crew, group, archived())


def _revokes(crew: Crew, name: str, marks: dict[str, int]) -> bool:
    return bool(crew[name].since(marks[name], "revoking"))


def _delta_says_the_same(crew: Crew, group: str, tables: Path) -> None:
    """Who owned what, asked in SQL, is what the processes were told."""
    sql = "SELECT member_id, fence, topic, partition FROM ownership WHERE group_id = ?"
    rows = query_tables(tables, sql, [group]).rows
    owned = {(member, fence, (topic, partition)) for member, fence, topic, partition in rows}
    read = {(each.member, each.fence, each.place) for each in crew.readings}
    assert read <= owned
    sql = 'SELECT topic, partition, "offset" FROM current_offsets WHERE group_id = ?'
    rows = query_tables(tables, sql, [group]).rows
    ends = {each.place: each.offset + 1 for each in sorted(crew.readings, key=lambda r: r.offset)}
    assert {(topic, partition): offset for topic, partition, offset in rows} == ends
