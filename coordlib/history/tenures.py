"""The owners of each partition over time, from the rows of the view `ownership`. Pure.

In a server-assigned group each row has all partitions of a member from then on, so a partition that
stays with its owner has a row for each change of the others. A tenure is the whole time: from the
grant to the release, or to the member's removal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

#: Its columns are those of `tenures_of`. Parameter: the group.
OWNERSHIP: Final = """
    SELECT topic, partition, member_id, generation, COALESCE(fence, -1), issued, until
    FROM ownership WHERE group_id = ?"""


@dataclass(frozen=True, slots=True)
class Tenure:
    """One partition with one owner."""

    topic: str
    partition: int
    member: str
    #: In which it began.
    generation: int
    #: The token of the record that gave it.
    fence: int
    since: datetime
    #: None: until now.
    until: datetime | None


def tenures_of(rows: Iterable[Sequence[Any]]) -> list[Tenure]:
    """Rows of one owner and partition that follow upon each other are one tenure.

    A member's own token is the newest of all its grants, so it rises also for what it had before:
    the token of a tenure is that of its first row. A partition that a member releases and gets back
    by the same record is one tenure, too.

    Returns them by topic and partition, in the order of their fences.
    """
    found: list[Tenure] = []
    by_owner = [Tenure(*row) for row in _in_order(rows)]
    for each in by_owner:
        last = found[-1] if found else None
        if last is not None and _goes_on(last, each):
            found[-1] = replace(last, until=each.until)
        else:
            found.append(each)
    return sorted(found, key=lambda one: (one.topic, one.partition, one.fence))


def _in_order(rows: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    """By topic, partition and owner, then as they were written: tokens rise, and times may go back
    with the brokers' clock."""
    told = []
    for topic, partition, member, generation, fence, issued, until in rows:
        told.append((topic, partition, member, fence, issued, generation, until))
    ends = datetime.max
    told.sort(key=lambda row: (*row[:5], (row[6] or ends).replace(tzinfo=None)))
    for topic, partition, member, fence, issued, generation, until in told:
        yield topic, partition, member, generation, fence, issued, until


def _goes_on(last: Tenure, each: Tenure) -> bool:
    same = (last.topic, last.partition, last.member) == (each.topic, each.partition, each.member)
    return same and last.until == each.since
