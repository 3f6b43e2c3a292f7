"""What history says of a group that the coordinator divides: events of the real core, in Delta."""

from pathlib import Path
from typing import Any

import pytest

from coordlib.history.sql import query_tables
from coordlib.history.views.groups import OWNERSHIP, Tenure, tenures_of
from tests.history.assigned_life import (
    GROUP,
    SESSION_S,
    TOPIC,
    Life,
    a_life_of_an_assigned_group,
)
from tests.history.rows import at
from tests.tools.driving import delete, heartbeat, leave


def tenures(life: Life, tables: Path) -> list[Tenure]:
    return tenures_of(query_tables(life.write(tables), OWNERSHIP, [GROUP]).rows)


def owners(found: list[Tenure], partition: int) -> list[tuple[str, int]]:
    """Client and generation of each tenure of a partition."""
    its = [each for each in found if each.partition == partition]
    return [(each.member.split("-t-")[0], each.generation) for each in its]


def test_a_tenure_lasts_from_the_grant_to_the_release(tmp_path: Path) -> None:
    """Who keeps a partition while others come and go is told of it again and again: one tenure."""
    life = a_life_of_an_assigned_group()
    found = tenures(life, tmp_path)

    assert owners(found, 0) == [("query-1", 1)]
    assert owners(found, 3) == [("query-1", 1), ("query-2", 2), ("query-1", 4)]
    assert owners(found, 5) == [("query-1", 1), ("query-2", 2), ("member-5", 3), ("query-1", 5)]
    for partition in range(6):
        its = [each for each in found if each.partition == partition]
        assert [each.fence for each in its] == sorted({each.fence for each in its})
        ends = [each.until for each in its]
        assert ends[:-1] == [each.since for each in its[1:]], "never nobody, never two"
    left = next(e["time_ms"] for e in life.events if e["type"] == "GroupEmptied")
    last = {each.until for each in found if each.partition == 0}
    assert [end and end.timestamp() * 1000 for end in last] == [left]


def test_who_lets_go_twice_in_one_generation_still_has_the_rest(tmp_path: Path) -> None:
    """Two join at once: what the first owner keeps is told at each of its releases, under the
    same fence. The view must not end it at the second one."""
    life = Life()
    life.join("a")
    life.join("b", settles=False)
    life.join("c", settles=False)
    life.settle()
    found = tenures(life, tmp_path)

    now = [(each.member[0], each.partition) for each in found if each.until is None]
    assert sorted(number for _, number in now) == list(range(6))
    assert sorted(name for name, _ in now) == ["a", "a", "b", "b", "c", "c"]


def test_a_generation_takes_as_long_as_its_releases(tmp_path: Path) -> None:
    """From the Subscribe that began it to the last Release; none where nobody had to let go."""
    tables = a_life_of_an_assigned_group().write(tmp_path)
    sql = "SELECT generation, reason, duration_ms FROM generations ORDER BY generation"

    assert query_tables(tables, sql).rows == (
        (1, "member joined", None),
        (2, "member joined", 450),
        (3, "member joined", 900),
        (4, "session expired", None),
        (5, "member left", None),
    )


@pytest.mark.parametrize(
    ("second", "count"),
    [
        ((1, 9, 3, 6), 1),  # kept: told again, and its member's own token rose
        ((2, 9, 4, 6), 2),  # let go of, and got back later
    ],
)
def test_rows_that_follow_upon_each_other_are_one_tenure(second: Any, count: int) -> None:
    generation, fence, since, until = second
    rows = [
        (TOPIC, 0, "a", 1, 7, at(1), at(3)),
        (TOPIC, 0, "a", generation, fence, at(since), at(until)),
    ]
    found = tenures_of(reversed(rows))

    assert len(found) == count
    assert (found[0].fence, found[0].since, found[-1].until) == (7, at(1), at(6))


def test_the_token_gives_the_order_when_the_brokers_clock_goes_back() -> None:
    """Another broker led the shard, and its clock was behind: the owner had the partition twice at
    once, and the first time ended before it had begun."""
    first = ("t", 0, "a", 1, 7, at(10), at(9.5))
    second = ("t", 0, "a", 2, 9, at(9.5), at(30))

    assert tenures_of([second, first]) == [Tenure("t", 0, "a", 1, 7, at(10), at(30))]


def test_another_member_or_partition_is_another_tenure() -> None:
    rows = [
        (TOPIC, 0, "a", 1, 7, at(1), at(3)),
        (TOPIC, 1, "a", 1, 7, at(3), at(4)),
        (TOPIC, 0, "b", 2, 9, at(3), None),
    ]
    found = tenures_of(rows)

    assert [(each.partition, each.member, each.fence) for each in found] == [
        (0, "a", 7),
        (0, "b", 9),
        (1, "a", 7),
    ]
    assert found[1].until is None


def test_a_record_that_gives_and_takes_leaves_one_owner(tmp_path: Path) -> None:
    """A member dies unheard, and the next record is a Release: by the deadline before it the
    releasing member is given something, by its own word it lets go of something else."""
    life = Life(4)
    life.join("a")
    life.join("b")
    life.join("c", settles=False)
    (owing,) = [each for each in life.members.values() if each.demands]
    (demand,) = owing.demands
    life.talk.tick(after_ms=50)
    silent = next(n for n in ("a", "b") if n != owing.client)
    for _ in range(SESSION_S - 2):
        for client in life.members.keys() - {silent}:
            each = life.members[client]
            life.talk.send(heartbeat(client, 1, each.member, group=GROUP), 500)
    life.let_go(owing, demand.timer.cause, demand.partitions[TOPIC], after_ms=2_000)
    assert silent not in life.members

    found = tenures(life, tmp_path)
    last = {each: [t for t in found if t.partition == each][-1] for each in range(4)}
    owned = {p: m.client for m in life.members.values() for p in m.owned.get(TOPIC, ())}
    assert {p: t.member.split("-t-")[0] for p, t in last.items()} == owned
    sql = "SELECT partition FROM ownership WHERE group_id = ? AND until IS NULL ORDER BY partition"
    open_ones = query_tables(life.write(tmp_path / "again"), sql, [GROUP]).rows
    assert sorted({p for (p,) in open_ones}) == sorted(p for (p,) in open_ones) == list(range(4))


def test_durations_are_of_one_life_of_a_group(tmp_path: Path) -> None:
    """A group is deleted and made again, and its generations begin anew."""
    life = Life()
    for wait_ms in (100, 8_000):
        life.join("a", settles=False)
        life.join("b", settles=False)
        life.talk.tick(after_ms=50)
        (owing,) = [each for each in life.members.values() if each.demands]
        life.let_go(owing, owing.demands[0].timer.cause, (), after_ms=wait_ms)
        for each in list(life.members.values()):
            life.talk.send(leave(each.client, each.member, group=GROUP), 100)
        life.talk.send(delete("tool", group=GROUP), 100)
    sql = """SELECT duration_ms FROM generations
             WHERE group_id = ? AND generation = 2 ORDER BY started"""

    found = [each for (each,) in query_tables(life.write(tmp_path), sql, [GROUP]).rows]

    assert len(found) == 2
    assert found[0] < 1_000
    assert found[1] >= 8_000
