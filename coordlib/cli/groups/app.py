"""`coord groups`: how groups stand, read from Kafka alone, and their history from the tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from coordlib.cli.groups import admin
from coordlib.cli.kit.listing import (
    QUARANTINED,
    UNREADABLE,
    Column,
    Listing,
    as_of_fields,
    as_of_text,
    mark_of,
    of_rows,
    state_text,
)
from coordlib.cli.kit.options import Asking, Count, GroupName, Since, TopicName, ask, states_named
from coordlib.cli.kit.output import (
    counted,
    duration_text,
    jsonable,
    millis_text,
    now,
    print_head,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
    visible,
)
from coordlib.cli.kit.where import HERE, TABLES_HERE, Where, WhereTables, of_a_group, pointer
from coordlib.errors import ErrorCode, GroupError
from coordlib.history.tables import JUDGED, ORDINAL

if TYPE_CHECKING:
    from coordlib.cli.groups.view import GroupView, PartitionLine, SeenGroup
    from coordlib.core.wire.api import AwaitedMember
    from coordlib.kafka.lag import Lag

GROUP_STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Reconciling", "Empty")
GROUPS: Final[Listing["SeenGroup"]] = Listing(
    Column("GROUP", lambda group: group.group),
    Column("STATE", lambda group: _state(group)),
    Column("MEMBERS", lambda group: group.member_count),
    Column("GENERATION", lambda group: group.generation),
    Column("PROTOCOL", lambda group: group.protocol),
)
#: Shown where a client named its host, or its own time of a position, or offsets are pending.
OWN_COLUMNS: Final[tuple[Column["PartitionLine"], ...]] = (
    Column("HOST", lambda line: line.host),
    Column("COMMITTED-TIMESTAMP", lambda line: millis_text(line.timestamp_ms)),
    Column("PENDING", lambda line: line.pending),
)
AWAITED: Final[Listing["AwaitedMember"]] = Listing(
    Column("WAITS-FOR", lambda each: each.member),
    Column("CLIENT-ID", lambda each: each.client),
    Column("REASON", lambda each: each.reason),
)
#: Names in one line.
_MISSING_MAX: Final = 20


def list_groups(
    *,
    state: Annotated[list[str] | None, Parameter(negative="")] = None,
    topic: TopicName | None = None,
    where: Where = HERE,
) -> int:
    """List the groups with state, members and generation.

    States: Stable (every member has its partitions), PreparingRebalance (members join again),
    CompletingRebalance (members wait for the leader's assignment), Reconciling (in a
    server-assigned group a member has partitions still to release), Empty (no members).

    Parameters
    ----------
    state
        Only groups in one of these states, or Quarantined, or Unreadable (written by newer code);
        separate several by commas.
    topic
        Only groups with a member that subscribes to this topic, by name or by an expression; for
        groups that only keep offsets of it see the view current_offsets (coord sql).
    """
    from coordlib.cli.groups.view import read_groups, wants
    from coordlib.core.wire.topics import own_topics

    wanted = states_named(state or [], (*GROUP_STATES, QUARANTINED, UNREADABLE), "a group")
    found, as_of_time = where.read(read_groups)
    own = own_topics(where.topic_prefix())
    groups = [
        group
        for group in found
        if not wanted or wanted & {group.state, mark_of(group.is_quarantined, group.unreadable)}
        if topic is None or wants(group, topic, own)
    ]
    _say_unreadable(found)
    if where.format == "json":
        of_json = {"topic": topic} if topic else {}
        print_json("groups list", as_of_time, groups=GROUPS.objects(groups), **of_json)
        return 0
    GROUPS.print(groups)
    of_topic = f" of topic {visible(topic)}" if topic else ""
    say(f"{counted(len(groups), 'group')}{of_topic} as of {time_text(as_of_time)}")
    return 0


def _state(group: "SeenGroup") -> str | None:
    return state_text(group.state, group.is_quarantined, group.unreadable)


def _say_unreadable(groups: "Iterable[SeenGroup]") -> None:
    """Their members and subscriptions are unknown: a list by topic may lack them."""
    unreadable = [group for group in groups if group.unreadable is not None]
    if unreadable:
        first = f"{unreadable[0].group} is of {unreadable[0].unreadable}"
        say(
            f"{counted(len(unreadable), 'group')} cannot be read by this version of coord: "
            f"{visible(first)}. Install the version that the job has."
        )


def describe(group: GroupName, /, *, where: Where = HERE) -> int:
    """Show a group: kind, state, owners, committed offsets, lag, and members it waits for.

    The group is read from the topics, so this works while the job is down; AS-OF gives the last
    request that is included, as r0-42: shard 0 of the requests topic, offset 42. Log ends are read
    now. LAG-SECONDS: age of the group's position,
    estimated from samples. A leading ">" means at least. LOST: messages that retention removed
    before they were committed; LAG does not count them. PENDING, where there are any: the record of
    the oldest offset that waits for the end of a transaction, as r0-42.

    Parameters
    ----------
    group
        The group's id.
    """
    from coordlib.cli.groups.view import read_group

    with of_a_group(where, group):
        view, as_of_time = where.read(read_group, group)
    if where.format == "json":
        print_json("groups describe", as_of_time, **_as_json(view))
    else:
        _print(view, as_of_time)
    return 0


def _print(view: "GroupView", as_of_time: datetime) -> None:
    group, lines = view.group, view.lines
    print_head(
        {
            "GROUP": group.group,
            "KIND": group.kind,
            "STATE": _state(group),
            "GENERATION": group.generation,
            "PROTOCOL": group.protocol,
            "LEADER": group.leader,
            "MEMBERS": group.member_count,
            "TOTAL-LAG": _total_lag(lines),
            "SHARD": view.shard,
            "AS-OF": as_of_text(view.as_of, view.shard, as_of_time),
            **({"TOPICS-NOT-FOUND": _named(view.missing)} if view.missing else {}),
        }
    )
    print_line()
    offsets(group.group, lines).print(lines)
    _say_beyond(lines)
    for topic in view.replaced:
        say(
            f"{visible(topic)} has another id than its committed offsets: it was created "
            "again, or they are of another cluster. They are ignored, and have no lag."
        )
    if group.waits_for:
        print_line()
        AWAITED.print(group.waits_for)
    if group.unreadable is not None:
        _say_unreadable([group])
    elif not group.members:
        say(f"Group {group.group} has no members.")
    elif group.state == "Reconciling":
        say(f"Group {group.group} is reconciling: some partitions wait until they are let go of.")
    elif group.state != "Stable":
        say(f"Group {group.group} is rebalancing: owners are those of the last assignment.")
    elif group.failure is not None:
        why = visible(f"{group.failure.error} {group.failure.message}".strip())
        say(f"Group {group.group} has no assignment: its leader could not assign partitions: {why}")


def _named(topics: "Sequence[str]") -> str:
    rest = len(topics) - _MISSING_MAX
    return ", ".join((*topics[:_MISSING_MAX], *((f"{rest} more",) if rest > 0 else ())))


def offsets(group: str, shown: "Sequence[PartitionLine]" = ()) -> "Listing[PartitionLine]":
    """The partitions of a group, with those of OWN_COLUMNS that a line has a value for.

    Args:
        shown: the lines of the table.
    """
    return Listing(
        Column("GROUP", lambda _: group),
        Column("TOPIC", lambda line: line.topic),
        Column("PARTITION", lambda line: line.partition),
        Column("CURRENT-OFFSET", lambda line: line.committed),
        Column("LOG-END-OFFSET", lambda line: line.lag.log_end),
        Column("LAG", lambda line: line.lag.lag),
        Column("LAG-SECONDS", lambda line: line.lag, _seconds_text),
        Column("LOST", lambda line: line.lag.lost),
        Column("CONSUMER-ID", lambda line: line.member),
        Column("CLIENT-ID", lambda line: line.client),
        *(each for each in OWN_COLUMNS if any(each.value(line) for line in shown)),
        fields=_fields,
    )


def _fields(line: "PartitionLine") -> dict[str, object]:
    """What JSON has of a partition besides."""
    return {
        "lag-seconds": line.lag.lag_seconds,
        "is-at-least": line.lag.is_at_least,
        "log-start-offset": line.lag.log_start,
        "is-beyond-end": line.lag.is_beyond_end,
        "host": line.host,
        "committed-timestamp": millis_text(line.timestamp_ms),
        "pending": line.pending,
        "topic-id": line.topic_id,
    }


def _seconds_text(lag: "Lag") -> str | None:
    """`12.5`; `>12.5` for a lower bound."""
    if lag.lag_seconds is None:
        return None
    return f"{'>' if lag.is_at_least else ''}{lag.lag_seconds:.1f}"


def _say_beyond(lines: "Iterable[PartitionLine]") -> None:
    for line in lines:
        if line.lag.is_beyond_end:
            say(
                f"{visible(line.topic)}-{line.partition} ends at {line.lag.log_end}, and "
                f"{line.committed} was committed: it was truncated, or the topic was created again."
            )


def _total_lag(lines: "Iterable[PartitionLine]") -> int:
    return sum(line.lag.lag or 0 for line in lines)


def _as_json(view: "GroupView") -> dict[str, object]:
    from coordlib.cli.groups.view import host_of

    group, failure = view.group, view.group.failure
    return {
        "group": group.group,
        "kind": group.kind,
        "state": _state(group),
        "unreadable": group.unreadable,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "failure": failure and {"error": failure.error, "message": failure.message},
        "shard": view.shard,
        **as_of_fields(view.as_of),
        "total-lag": _total_lag(view.lines),
        "members": [
            {
                "consumer-id": name,
                "client-id": member.client,
                "instance": member.instance,
                "host": host_of(member),
            }
            for name, member in group.members.items()
        ],
        "missing-topics": list(view.missing),
        "replaced-topics": list(view.replaced),
        "waits-for": [
            {"consumer-id": each.member, "client-id": each.client, "reason": each.reason}
            for each in group.waits_for
        ],
        "offsets": offsets(group.group).objects(view.lines),
    }


#: A group's turning points. MEMBERS and DURATION are those of generations only. `removed`: pairs of
#: member and reason, since the generation before, or since the group was empty or deleted.
_TURNS: Final = f"""
    SELECT e.time, e.generation, e.type, e.reason, e.member_id, g.members, g.duration_ms,
           CASE WHEN e.type IN ('GenerationStarted', 'GroupEmptied') THEN e.removed END AS removed
    FROM (SELECT *, list([member_id, reason] ORDER BY log_offset, n)
                    FILTER (type = 'MemberRemoved') OVER (PARTITION BY begun) AS removed
          FROM (SELECT *, {JUDGED} AS judged, {ORDINAL} AS n,
                       COUNT(*) FILTER (type IN ('GenerationStarted', 'GroupEmptied',
                                                 'GroupDeleted'))
                       OVER (ORDER BY log_offset, {ORDINAL}
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS begun
                FROM group_turns WHERE group_id = ?
                AND type IN ('GenerationStarted', 'GroupEmptied', 'GroupDeleted',
                             'GroupQuarantined', 'GroupReleased', 'HandOverDelayed',
                             'AssignmentFailed', 'MemberRemoved'))) AS e
    LEFT JOIN generations AS g
    ON g.group_id = e.group_id AND g.started = e.time AND g.generation = e.generation
       AND e.type = 'GenerationStarted'
    WHERE e.type <> 'MemberRemoved'
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

REFUSED: Final = of_rows("NEWEST", "TIMES", "REQUEST", "ERROR", "CLIENT", "REASON")
LOST: Final = of_rows("FOUND", "TOPIC", "PARTITION", "FROM_OFFSET", "TO_OFFSET")
#: What JSON has of a turn; the table has the number of members, the removed ones behind the cause,
#: and of owners a text.
TURNS: Final = of_rows("TIME", "GENERATION", "CAUSE", "MEMBERS", "DURATION_MS", "REMOVED")
#: Removed members that are named; the others are counted.
REMOVED_MAX: Final = 3

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

    CAUSE names the members that were removed since the generation before, as "session expired: m2".
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
            ErrorCode.GROUP_ID_NOT_FOUND, f"group {group} in {tables}", _hint(group, tables)
        )
    owned = _owners(asked.answers[3].rows, turns) if owners else {}
    rows = [_turn_row(turn, owned) for turn in turns]
    if where.format == "json":
        generations = [
            turn | ({"owners": row[-1]} if owners else {})
            for turn, row in zip(TURNS.objects(rows), rows, strict=True)
        ]
        fields = {"refused": REFUSED.objects(refused), "lost": LOST.objects(lost)}
        at = {"newest_event": newest, "since": asked.first}
        print_json("groups history", now(), group=group, **at, generations=generations, **fields)
    else:
        _print_turns(rows, owners)
        if refused:
            print_line()
            REFUSED.print(refused)
        for found, topic, partition, first, end in lost:
            say(
                f"History is missing: Kafka deleted offsets {first} to {end - 1} of "
                f"{topic}-{partition} before they were archived (found {time_text(found)})."
            )
        asked.say_first()
        say(f"As of the newest event of this group: {time_text(newest)}")
    return 0


def _hint(group: str, tables: str) -> str:
    """What to do about a group that the tables do not have."""
    from coordlib.history.sql import query_tables

    ((newest,),) = query_tables(tables, _CLUSTER, [group]).rows
    if newest is not None:
        return pointer(group)
    return "Check its name (coord groups list); a new group appears after the archive's interval."


def _turn_row(turn: tuple[Any, ...], owned: dict[_Began, dict[str, Any]]) -> tuple[Any, ...]:
    time, generation, kind, reason, member, members, duration_ms, removed = turn
    cause, owners = reason, None
    if kind == "GenerationStarted":
        owners = owned.get((generation, time))
    else:
        cause = ": ".join(filter(None, (_CAUSES[kind].format(member=member), reason)))
    gone = [{"consumer-id": name, "reason": why} for name, why in removed or ()]
    return time, generation, cause, json.loads(members or "[]"), duration_ms, gone, jsonable(owners)


def _print_turns(rows: list[tuple[Any, ...]], with_owners: bool) -> None:
    headers = ["TIME", "GENERATION", "CAUSE", "MEMBERS", "DURATION"]
    shown = [
        [time, generation, _cause_text(cause, gone), len(members), duration_text(duration_ms)]
        for time, generation, cause, members, duration_ms, gone, _ in rows
    ]
    if with_owners:
        headers.append("OWNERS")
        for line, row in zip(shown, rows, strict=True):
            line.append(_owners_text(row[-1]))
    print_table(headers, shown)


def _cause_text(cause: str, removed: Sequence[Mapping[str, str]]) -> str:
    """`session expired: m2`; a member that was removed for another reason has it in brackets."""
    alike, others = [], []
    for each in removed:
        name, reason = each["consumer-id"], each["reason"]
        if cause.endswith(reason):  # "group emptied: session expired", "member left"
            alike.append(name)
        else:
            others.append(f"{name} ({reason})")
    parts = [": ".join(filter(None, (cause, _first_of(alike)))), _first_of(others)]
    return "; ".join(filter(None, parts))


def _first_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - REMOVED_MAX} more" if len(names) > REMOVED_MAX else ""
    return ", ".join(names[:REMOVED_MAX]) + more


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


def build() -> App:
    """`coord groups`."""
    app = App(name="groups", help="Inspect and administer consumer groups.")
    app.command(list_groups, name="list")
    app.command(describe, name="describe")
    app.command(history, name="history")
    app.command(admin.release, name="release")
    app.command(admin.delete, name="delete")
    app.command(
        admin.remove_members,
        name="remove-members",
        usage="Usage: coord groups remove-members (--member ID... | --instance ID... | --all) "
        "[OPTIONS] GROUP",
    )
    return app


def build_offsets() -> App:
    """`coord offsets`."""
    app = App(name="offsets", help="Delete committed offsets of groups.")
    app.command(admin.delete_offsets, name="delete")
    return app
