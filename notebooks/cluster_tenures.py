"""Who led each partition of a cluster over time, from the rows of its views. Pure.

They are tenures as those of a group's owners, so the same pictures draw them: a partition without
a leader is `NOBODY`'s, and a broker's state is its owner meanwhile.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from coordlib.history.views.groups import Tenure

#: Its columns are those of `led_of`. Parameters: the cluster, twice.
LED: Final = """
    SELECT topic, partition, leader, leader_epoch, fence, since, until, election, reason
    FROM leaders WHERE group_id = ?
    UNION ALL
    SELECT topic, partition, -1, leader_epoch, -1, since, until, NULL, reason
    FROM leaderless WHERE group_id = ?"""
#: Its columns are those of `states_of`. Parameter: the cluster.
STATES: Final = """
    SELECT broker, incarnation, state, since, until FROM broker_history WHERE group_id = ?"""
#: The cluster that changed last.
NEWEST: Final = """
    SELECT group_id FROM cluster_events GROUP BY group_id ORDER BY MAX(time) DESC, 1 LIMIT 1"""
NOBODY: Final = "nobody"


@dataclass(frozen=True, slots=True)
class Change:
    """What one moment changed for one reason: leaders of some partitions."""

    #: In the order of time, from 1.
    number: int
    when: datetime
    reason: str
    #: By which elections; none where nobody leads, or a reassignment ended.
    elections: tuple[str, ...]
    #: As they are called in a picture: `orders-3: broker 1 to nobody`.
    moved: tuple[str, ...]


def led_of(rows: Iterable[Sequence[Any]]) -> list[Tenure]:
    """A tenure for each leader epoch, by topic and partition, in the order of the epochs."""
    return sorted(
        (_tenure(row) for row in rows), key=lambda one: (one.topic, one.partition, one.generation)
    )


def _tenure(row: Sequence[Any]) -> Tenure:
    topic, partition, leader, epoch, fence, since, until = row[:7]
    return Tenure(topic, partition, name_of(leader), epoch, fence, since, until)


def name_of(leader: int) -> str:
    """What a leader is called in a picture; below 0: none."""
    return NOBODY if leader < 0 else f"broker {leader}"


def states_of(rows: Iterable[Sequence[Any]]) -> list[Tenure]:
    """A tenure for each state of a broker, by broker, in the order of time."""
    found = [
        Tenure("broker", broker, state, incarnation, incarnation, since, until)
        for broker, incarnation, state, since, until in rows
    ]
    return sorted(found, key=lambda one: (one.partition, one.since, one.fence))


def changes_of(rows: Iterable[Sequence[Any]]) -> list[Change]:
    """Why leaders changed, moment by moment. The first leader of a partition is a change, too."""
    in_order = sorted(rows, key=lambda row: (row[0], row[1], row[5], row[3]))
    told: list[_Told] = []
    for place, tenures in groupby(in_order, key=lambda row: (row[0], row[1])):
        before: str | None = None
        for row in tenures:
            after = name_of(row[2])
            moved = after if before is None else f"{before} to {after}"
            text = f"{place[0]}-{place[1]}: {moved}"
            told.append(_Told(row[5], row[3], place, row[8], row[7], text))
            before = after
    moments: dict[tuple[datetime, str], list[_Told]] = {}
    for each in sorted(told, key=lambda each: each[:3]):
        moments.setdefault((each.when, each.reason), []).append(each)
    return [
        Change(
            number,
            when,
            reason,
            tuple(sorted({each.election for each in some if each.election is not None})),
            tuple(each.text for each in sorted(some, key=lambda each: each.place)),
        )
        for number, ((when, reason), some) in enumerate(moments.items(), 1)
    ]


class _Told(NamedTuple):
    """That another leads one partition."""

    when: datetime
    epoch: int
    place: tuple[str, int]
    reason: str
    election: str | None
    text: str
