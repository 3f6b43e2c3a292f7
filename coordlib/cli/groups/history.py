"""`coord groups history`: a group's generations, their causes, and refused requests."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from coordlib.cli.controller.cluster_names import pointer
from coordlib.cli.kit.names import GroupName
from coordlib.cli.kit.numbers import Count
from coordlib.cli.kit.output import (
    duration_text,
    jsonable,
    now,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
)
from coordlib.cli.kit.since import Asking, Since, ask
from coordlib.cli.kit.where import TABLES_HERE, WhereTables
from coordlib.errors import ErrorCode, GroupError
from coordlib.history.tables import JUDGED, ORDINAL

#: A group's turning points. MEMBERS and DURATION are those of generations only.
_TURNS: Final = f"""
    SELECT e.time, e.generation, e.type, e.reason, e.member_id, g.members, g.duration_ms
    FROM (SELECT *, {JUDGED} AS judged FROM group_turns
          WHERE group_id = ?
          AND type IN ('GenerationStarted', 'GroupEmptied', 'GroupDeleted', 'GroupQuarantined',
                       'GroupReleased', 'HandOverDelayed', 'AssignmentFailed')) AS e
    LEFT JOIN generations AS g
    ON g.group_id = e.group_id AND g.started = e.time AND g.generation = e.generation
       AND e.type = 'GenerationStarted'
    ORDER BY e.judged DESC, e.log_offset DESC, {ORDINAL} DESC LIMIT ?"""
#: A group that was deleted and is there again counts its generations anew: hence the times.
_OWNERS: Final = f"""
    SELECT generation, issued, member_id, topic, list_sort(list(DISTINCT partition)) AS partitions
    FROM ownership WHERE group_id = ? AND issued >= (SELECT MIN(time) FROM ({_TURNS}) AS turns)
    GROUP BY ALL ORDER BY ALL"""
#: One line per kind of refusal, however often a client tries: its newest case stands for all.
_REFUSED: Final = """
    SELECT MAX(time) AS newest, COUNT(*) AS times, request, error,
           arg_max(client, time) AS client, arg_max(reason, time) AS reason
    FROM rejected WHERE group_id = ? AND space = 'group' GROUP BY request, error
    ORDER BY newest DESC, request, error LIMIT ?"""
#: What is missing of the shard's history, the group's among it. Partitions of the events of claims
#: are no shards.
_LOST: Final = """
    SELECT time, topic, shard, from_offset, to_offset FROM lost_history
    WHERE topic LIKE '%.events' AND topic NOT LIKE '%.claims.events'
    AND shard IN (SELECT shard FROM group_turns WHERE group_id = ?)
    ORDER BY time DESC, from_offset DESC LIMIT ?"""
_KNOWN: Final = "SELECT MAX(time) FROM group_events WHERE group_id = ?"

_CLUSTER: Final = "SELECT MAX(time) FROM cluster_events WHERE group_id = ?"

#: A generation, and when it began.
_Began = tuple[int, datetime]

_REFUSED_KEYS: Final = ("newest", "times", "request", "error", "client", "reason")

_LOST_KEYS: Final = ("found", "topic", "partition", "from_offset", "to_offset")

#: What a turn that is no generation is called in the column CAUSE.
_CAUSES: Final = {
    "GroupEmptied": "group emptied",
    "GroupDeleted": "group deleted",
    "GroupQuarantined": "quarantined",
    "GroupReleased": "released from quarantine",
    "HandOverDelayed": "waits until {member} has stopped",
    "AssignmentFailed": "{member} could not assign",
}


def history(
    group: GroupName,
    /,
    *,
    owners: bool = False,
    limit: Count = 100,
    since: Since = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Show why a group rebalanced: its generations with their causes, oldest first.

    Then refused requests, counted by type; the view `rejected` has each of them. Last, records that
    Kafka deleted from the group's shard before they were archived. The history's tables follow
    within the archive's interval (30 s).

    Parameters
    ----------
    group
        The group's id.
    owners
        Also show the owner of each partition in each generation.
    limit
        Show the newest N generations.
    since
        From this date on, as 2026-03-01; by default the last 30 days of all history, or all of it
        where those have nothing to show.
    """
    tables, of_turns = where.tables_dir(), (group, limit)
    questions: list[Asking] = [(_TURNS, of_turns), (_REFUSED, of_turns), (_LOST, of_turns)]
    if owners:
        questions.append((_OWNERS, (group, *of_turns)))
    asked = ask(tables, since, (_KNOWN, (group,)), questions)
    turns, refused, lost = (list(reversed(answer.rows)) for answer in asked.answers[:3])
    newest = asked.newest
    if newest is None:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"group {group} in {tables}", _mend(group, tables)
        )
    owned = _owners(asked.answers[3].rows, turns) if owners else {}
    rows = [_row(turn, owned) for turn in turns]
    if where.format == "json":
        keys = ("time", "generation", "cause", "members", "duration_ms", "owners")
        told = [dict(zip(keys, row, strict=True)) for row in rows]
        if not owners:
            told = [{key: row[key] for key in keys[:-1]} for row in told]
        lines = [dict(zip(_REFUSED_KEYS, map(jsonable, row), strict=True)) for row in refused]
        holes = [dict(zip(_LOST_KEYS, map(jsonable, row), strict=True)) for row in lost]
        fields = {"generations": told, "refused": lines, "lost": holes}
        at = {"newest_event": newest, "since": asked.first}
        print_json("groups history", now(), group=group, **at, **fields)
    else:
        _print(rows, owners)
        _print_refused(refused)
        for found, topic, partition, first, end in lost:
            say(
                f"History is missing: Kafka deleted offsets {first} to {end - 1} of "
                f"{topic}-{partition} before they were archived (found {time_text(found)})."
            )
        asked.say_first()
        say(f"As of the newest event of this group: {time_text(newest)}")
    return 0


def _mend(group: str, tables: str) -> str:
    """What to do about a group that the tables do not have."""
    from coordlib.history.sql import query_tables

    ((newest,),) = query_tables(tables, _CLUSTER, [group]).rows
    if newest is not None:
        return pointer(group)
    return "Check its name (coord groups list); a new group appears after the archive's interval."


def _row(turn: tuple[Any, ...], owned: dict[_Began, dict[str, Any]]) -> tuple[Any, ...]:
    time, generation, kind, reason, member, members, duration_ms = turn
    cause, owners = reason, None
    if kind == "GenerationStarted":
        owners = owned.get((generation, time))
    else:
        cause = ": ".join(filter(None, (_CAUSES[kind].format(member=member), reason)))
    return time, generation, cause, json.loads(members or "[]"), duration_ms, jsonable(owners)


def _print(rows: list[tuple[Any, ...]], with_owners: bool) -> None:
    headers = ["TIME", "GENERATION", "CAUSE", "MEMBERS", "DURATION"]
    shown = [
        [time, generation, cause, len(members), duration_text(duration_ms)]
        for time, generation, cause, members, duration_ms, _ in rows
    ]
    if with_owners:
        headers.append("OWNERS")
        for line, row in zip(shown, rows, strict=True):
            line.append(_owners_text(row[5]))
    print_table(headers, shown)


def _print_refused(rows: list[tuple[Any, ...]]) -> None:
    if rows:
        print_line()
        print_table([key.upper() for key in _REFUSED_KEYS], rows)


def _owners_text(owners: dict[str, dict[str, list[int]]] | None) -> str | None:
    """`m1=orders:0,1;a.b:0 m2=orders:2`."""
    if not owners:
        return None
    return " ".join(f"{member}={_topics_text(topics)}" for member, topics in owners.items())


def _topics_text(topics: dict[str, list[int]]) -> str:
    return ";".join(f"{topic}:{','.join(map(str, found))}" for topic, found in topics.items())


def _owners(
    rows: Iterable[Sequence[Any]], turns: Iterable[Sequence[Any]]
) -> dict[_Began, dict[str, Any]]:
    """Generation and its beginning -> member -> topic -> partitions."""
    begun: dict[int, list[datetime]] = {}
    for time, generation, kind, *_ in turns:
        if kind == "GenerationStarted":
            begun.setdefault(generation, []).append(time)
    found: dict[_Began, dict[str, Any]] = {}
    for generation, issued, member, topic, partitions in rows:
        times = begun.get(generation)
        if times is None:
            continue
        # Its own beginning, or the first one, where the brokers' clock has gone back meanwhile.
        time = max((each for each in times if each <= issued), default=min(times))
        topics = found.setdefault((generation, time), {}).setdefault(member, {})
        topics[topic] = sorted({*topics.get(topic, ()), *partitions})
    return found
