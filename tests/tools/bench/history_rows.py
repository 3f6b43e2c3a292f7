"""Days of a history by arithmetic: what groups of three members, with four partitions each, leave.

The groups commit in turn, one partition at a time, at an even pace. Each starts on the first day
and rebalances every fortnight: one member is replaced by another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from coordlib.history.tables import COLUMNS, EVENTS, LAG, SNAPSHOTS

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
DAY_MS: Final = 86_400_000
PARTITIONS: Final = 4
REBALANCES_EVERY: Final = 14  # days
SHARDS: Final = 8
_DUCKDB: Final = {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ"}


@dataclass(frozen=True, slots=True)
class Shape:
    """How much there is."""

    days: int
    groups: int
    commits_per_day: int
    #: Of a day, as the archive leaves it: Delta packs 50 of them.
    files: int = 49

    def dates(self) -> Iterator[tuple[int, date]]:
        for day in range(self.days):
            yield day, (START + timedelta(days=day)).date()


def group_name(number: int) -> str:
    """Names share a long beginning, as real ones do."""
    return f"order-readers-of-the-shop-{number:05}"


def _typed(table: str, values: dict[str, str], source: str) -> str:
    """A query with exactly the table's columns; what is not given is null."""
    columns = ", ".join(
        f'CAST({values.get(name, "NULL")} AS {_DUCKDB.get(kind, kind)}) AS "{name}"'
        for name, kind in COLUMNS[table].items()
    )
    return f"SELECT {columns} FROM {source}"


def _at(ms: str) -> str:
    return f"make_timestamptz({int(START.timestamp() * 1000)} * 1000 + ({ms}) * 1000)"


def _commits(shape: Shape, day: int) -> str:
    """The day's commits: `ms` since the start, `g` the group's number, `p` its partition."""
    count = shape.commits_per_day
    return f"""(
        SELECT {day * DAY_MS} + (k % {count}) * {DAY_MS} // {count} AS ms,
               (k * 7919) % {shape.groups} AS g, (k // {shape.groups}) % {PARTITIONS} AS p,
               k // {shape.groups} * 10 AS o, {day // REBALANCES_EVERY + 1} AS generation
        FROM range({day * count}, {(day + 1) * count}) AS r(k))"""


_GROUP: Final = "'order-readers-of-the-shop-' || lpad(g::VARCHAR, 5, '0')"
_EVENT: Final = {
    "event_id": f"'YjVo5al4-r' || g % {SHARDS} || '-' || (ms * 10 + n) || '-' || n",
    "time": _at("ms"),
    "date": "day",
    "shard": f"g % {SHARDS}",
    "log_offset": "ms * 10 + n",
    "group_id": _GROUP,
    "protocol": "'classic'",
    "generation": "generation",
    "cause": f"'r' || g % {SHARDS} || '-' || (ms * 10 + n)",
    "kind": "'classic'",
}


def _member(number: str) -> str:
    return f"'member-' || ({number}) || '-YjVo5al4-' || g % {SHARDS} || '-' || (g * 100 + {number})"


def commits(shape: Shape, day: int) -> str:
    """A query for the events of the day's commits, in order of their time."""
    detail = (
        """'{"client":"reader","offsets":[{"topic":"orders","partition":' || p || ',"offset":' """
        """|| o || '}]}'"""
    )
    source = f"(SELECT *, 9 AS n, {_date(day)} AS day FROM {_commits(shape, day)})"
    more = {"type": "'OffsetsCommitted'", "reason": "''", "detail": detail}
    return _typed(EVENTS, {**_EVENT, **more, "member_id": _member("p % 3")}, source)


def turns(shape: Shape, day: int) -> str:
    """A query for all other events of the day."""
    lost, new = "generation - 1", "generation + 2"
    share = (
        """'{"fence":' || (ms-n)*10 || ',"sync":' || (ms-n)*10 || ',"partitions":{"orders":[' || """
        """CASE n WHEN 4 THEN '0,3' WHEN 5 THEN '1' ELSE '2' END || ']}}'"""
    )
    started = """'{"duration_ms":915,"members":["a","b","c"],"protocol":"range"}'"""
    source = f"""(
        SELECT g, n, {day * DAY_MS} + 3600000 + g * 1000 + n AS ms, {_date(day)} AS day,
               {day // REBALANCES_EVERY + 1} AS generation
        FROM range(0, {shape.groups}) AS a(g), range(0, 7) AS b(n)
        WHERE ({day} = 0 OR g % {REBALANCES_EVERY} = {day % REBALANCES_EVERY})
        AND NOT ({day} = 0 AND n = 0))"""
    kinds = (
        "CASE n WHEN 0 THEN 'MemberRemoved' WHEN 1 THEN 'MemberJoined' WHEN 2 THEN "
        "'RebalanceStarted' WHEN 3 THEN 'GenerationStarted' ELSE 'AssignmentIssued' END"
    )
    members = (
        f"CASE n WHEN 0 THEN {_member(lost)} WHEN 1 THEN {_member(new)} WHEN 4 THEN "
        f"{_member('generation')} WHEN 5 THEN {_member('generation + 1')} "
        f"WHEN 6 THEN {_member(new)} ELSE '' END"
    )
    details = (
        f"CASE WHEN n = 3 THEN {started} WHEN n > 3 THEN {share} "
        """ELSE '{"client":"reader"}' END"""
    )
    more = {"type": kinds, "member_id": members, "reason": "'session expired'", "detail": details}
    ids = {"log_offset": "ms * 10", "time": _at("ms")}
    return _typed(EVENTS, {**_EVENT, **more, **ids}, source)


def snapshots(shape: Shape, day: int, *, is_whole: bool) -> str:
    """A query for snapshots: one for each of the day's commits; whole: one for each group."""
    offset = (
        """'{"topic":"orders","partition":' || {p} || ',"offset":' || o || ',"metadata":"",'"""
        """ || '"commit_ms":' || ms || ',"generation":1,"member":"m","log_offset":' || ms || '}'"""
    )
    if is_whole:
        offsets = (
            "'[' || "
            + " || ',' || ".join(offset.replace("{p}", str(p)) for p in range(4))
            + " || ']'"
        )
        source = f"(SELECT g, {day * DAY_MS} AS ms, 0 AS o FROM range({shape.groups}) AS r(g))"
        state = {"state": "'Stable'", "generation": "1", "protocol": "'range'", "members": "'{}'"}
        places = {"places": "'orders'"}
    else:
        offsets, source = "'[' || " + offset.replace("{p}", "p") + " || ']'", _commits(shape, day)
        state, places = {}, {"places": "'orders-' || p"}
    return _typed(
        SNAPSHOTS,
        {"as_of_time": _at("ms"), "group_id": _GROUP, "offsets": offsets, **state, **places},
        source,
    )


def lag(shape: Shape, day: int) -> str:
    """A query for one sample of each committed offset."""
    source = f"""(SELECT {day * DAY_MS} + g AS ms, g, p FROM range({shape.groups}) AS a(g),
                         range({PARTITIONS}) AS b(p))"""
    values = {"time": _at("ms"), "date": _date(day), "group_id": _GROUP, "topic": "'orders'"}
    numbers = {"partition": "p", "committed": "ms", "log_start": "0", "log_end": "ms + 7"}
    rest = {"lag": "7", "lag_seconds": "0.5", "is_at_least": "false", "lost": "0"}
    return _typed(LAG, {**values, **numbers, **rest, "is_beyond_end": "false"}, source)


def _date(day: int) -> str:
    return f"DATE '{(START + timedelta(days=day)).date()}'"
