"""Gather the facts that the verdict needs: from Delta by SQL, and from the broker."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from coordlib.core.wire.stored import CommittedValue
from coordlib.demo.verdict import Commit, Generation, Owner
from coordlib.errors import CannotReach
from coordlib.history.sql import query_tables
from coordlib.history.views.groups import OWNERSHIP, Tenure, tenures_of
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import newest_by_key

TIMEOUT_S = 10.0

_NAMES: Final = "SELECT member_id, client_id FROM member_history WHERE group_id = ?"
_GENERATIONS: Final = """
    SELECT e.generation, e.time, e.type, e.reason, g.duration_ms, g.members
    FROM group_events AS e
    LEFT JOIN generations AS g
    ON g.group_id = e.group_id AND g.generation = e.generation AND e.type = 'GenerationStarted'
    WHERE e.group_id = ? AND e.type IN ('GenerationStarted', 'GroupEmptied')
    ORDER BY e.generation"""
_OWNERS: Final = """
    SELECT generation, partition, member_id FROM ownership WHERE group_id = ? AND topic = ?
    ORDER BY ALL"""
_COMMITS: Final = """
    SELECT generation, partition, "offset", member_id FROM offset_history
    WHERE group_id = ? AND topic = ? ORDER BY ALL"""
_COMMITTED: Final = """
    SELECT partition, "offset" FROM current_offsets WHERE group_id = ? AND topic = ?"""
_EMPTIED: Final = "SELECT count(*) FROM group_events WHERE group_id = ? AND type = 'GroupEmptied'"
_EVENTS: Final = "SELECT count(*) FROM group_events WHERE group_id = ?"


class History:
    """One group's history in Delta. Members are named by their client ids."""

    def __init__(self, tables: Path, group: str, topic: str) -> None:
        self._tables, self._group, self._topic = tables, group, topic
        self._names: dict[str, str] = {}

    def events(self) -> int:
        """The number of the group's events; 0 before the first archive batch."""
        return self._count(_EVENTS)

    def is_complete(self, committed: Mapping[int, int]) -> bool:
        """Whether the group's last event is archived (they come in order), and these offsets too.

        Events and snapshots are two tables, each with commits of its own.
        """
        return self._count(_EMPTIED) > 0 and self.committed() == committed

    def generations(self) -> list[Generation]:
        rows = self._rows(_GENERATIONS, self._group)
        return [
            Generation(
                number,
                time,
                reason if kind == "GenerationStarted" else f"group emptied: {reason}",
                duration_ms,
                tuple(sorted(self._name(each) for each in json.loads(members or "[]"))),
            )
            for number, time, kind, reason, duration_ms, members in rows
        ]

    def owners(self) -> list[Owner]:
        rows = self._rows(_OWNERS, self._group, self._topic)
        return [Owner(generation, each, self._name(member)) for generation, each, member in rows]

    def tenures(self) -> list[Tenure]:
        """The tenures of a server-assigned group's partitions, of this topic."""
        found = tenures_of(self._rows(OWNERSHIP, self._group))
        return [
            replace(each, member=self._name(each.member))
            for each in found
            if each.topic == self._topic
        ]

    def commits(self) -> list[Commit]:
        rows = self._rows(_COMMITS, self._group, self._topic)
        return [
            Commit(generation, each, offset, self._name(member))
            for generation, each, offset, member in rows
        ]

    def committed(self) -> dict[int, int]:
        """Partition -> offset."""
        return dict(self._rows(_COMMITTED, self._group, self._topic))

    def _name(self, member: str) -> str:
        if not self._names:
            self._names = dict(self._rows(_NAMES, self._group))
        return self._names.get(member, member)

    def _count(self, sql: str) -> int:
        try:
            return int(self._rows(sql, self._group)[0][0])
        except CannotReach:
            return 0

    def _rows(self, sql: str, *parameters: object) -> list[Any]:
        return list(query_tables(self._tables, sql, parameters).rows)


def committed_in_kafka(
    client: Mapping[str, str], committed_topic: str, shard: int, group: str, topic: str
) -> dict[int, int]:
    """Partition -> committed offset, from the compacted topic."""
    found = {}
    for key, value in newest_by_key(client, committed_topic, shard).items():
        of_group, of_topic, partition = json.loads(key)
        if (of_group, of_topic) == (group, topic):
            found[int(partition)] = msgspec.json.decode(value, type=CommittedValue).offset
    return found


def log_ends(client: Mapping[str, str], topic: str, partitions: int) -> dict[int, int]:
    """Partition -> offset after its last record."""
    places = [Place(topic, each) for each in range(partitions)]
    with reaching("The log ends cannot be asked.", "Look into the broker's log."):
        found = log_bounds(open_admin(client), places, TIMEOUT_S)
    return {place.partition: log.end for place, log in found.items() if log is not None}
