"""Transactional ids and pending offsets as rows to be printed, and as objects of JSON: pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from coordlib.cli.groups.app import QUARANTINED, UNREADABLE, as_of_text
from coordlib.cli.kit.output import as_objects, duration_text, millis_text, say, visible

if TYPE_CHECKING:
    from coordlib.cli.transactions.view import IdView, SeenId, SeenPending
    from coordlib.core.transactions.transaction import Transaction

ID_COLUMNS: Final = (
    "TRANSACTIONAL-ID",
    "STATE",
    "PRODUCER-ID",
    "EPOCH",
    "OPEN-FOR",
    "GROUPS",
    "PARTITIONS",
    "UNWRITTEN",
    "CLIENT-ID",
)
GROUP_COLUMNS: Final = ("GROUP", "COMMITS", "PENDING")
PARTITION_COLUMNS: Final = ("CLUSTER", "TOPIC", "PARTITION", "MARKER")
PENDING_COLUMNS: Final = (
    "GROUP",
    "KEY",
    "DECIDED-BY",
    "WAITS-FOR",
    "PARTITIONS",
    "CLIENT-ID",
    "MEMBER-ID",
    "GENERATION",
    "DECISION",
)
OFFSET_COLUMNS: Final = ("KEY", "TOPIC", "PARTITION", "PENDING-OFFSET")
#: Of a partition of a transaction: it is open, or its end is not written yet.
NOT_YET: Final = "open"
UNWRITTEN: Final = "missing"


def millis(time: datetime) -> int:
    """Epoch milliseconds."""
    return int(time.timestamp() * 1000)


def state_of(seen: "SeenId") -> str | None:
    """A mark before the state: what an operator must see first."""
    if seen.unreadable is not None or seen.state is None:
        return UNREADABLE
    return f"{QUARANTINED}({seen.state.value})" if seen.is_quarantined else seen.state.value


def say_unreadable(ids: "Iterable[SeenId]") -> None:
    """A sentence for each id that newer code wrote."""
    for each in ids:
        if each.unreadable is not None:
            say(
                f"{visible(each.name)} cannot be read by this version of coord: "
                f"{visible(each.unreadable)}. Install the version that the job has."
            )


def id_row(seen: "SeenId", now_ms: int) -> tuple[object, ...]:
    """A line of ID_COLUMNS; OPEN-FOR in milliseconds."""
    from coordlib.core.transactions.transaction import count_of

    value = seen.value
    if value is None:
        return (seen.name, state_of(seen), *[None] * (len(ID_COLUMNS) - 2))
    return (
        *(seen.name, state_of(seen), value.producer_id, value.epoch, seen.open_for_ms(now_ms)),
        *(len(value.groups), count_of(value.partitions), count_of(value.unwritten), value.client),
    )


def id_text_row(seen: "SeenId", now_ms: int) -> tuple[object, ...]:
    """The same for people."""
    return _with_duration(ID_COLUMNS, id_row(seen, now_ms), "OPEN-FOR")


def id_object(seen: "SeenId", now_ms: int) -> dict[str, object]:
    """The same as JSON has it."""
    (told,) = as_objects(ID_COLUMNS, [id_row(seen, now_ms)])
    return told | {"started": started_text(seen.value)}


def started_text(value: "Transaction | None") -> str | None:
    """When the open transaction began, by the log's time; None: none is open."""
    return None if value is None or value.started_ms < 0 else millis_text(value.started_ms)


def head_of(view: "IdView", as_of_time: datetime) -> dict[str, object]:
    """An id by itself: its line, its newest end, and as of when that is so."""
    seen, value = view.seen, view.seen.value
    told = dict(zip(ID_COLUMNS, id_text_row(seen, millis(as_of_time)), strict=True))
    return told | {
        "STARTED": started_text(value),
        "TIMEOUT": duration_text(None if value is None else value.timeout_ms),
        "ENDED": ended_text(value),
        "SHARD": seen.shard,
        "AS-OF": as_of_text(view.as_of, seen.shard, as_of_time),
    }


def ended_text(value: "Transaction | None") -> str | None:
    """How the newest transaction that was decided ended: `abort by timeout, epoch 4`."""
    if value is None or value.ended is None:
        return None
    return f"{value.ended.result} by {value.ended.reason}, epoch {value.ended.epoch}"


def described(view: "IdView", as_of_time: datetime) -> dict[str, object]:
    """All of it, as JSON has it."""
    seen, value, as_of = view.seen, view.seen.value, view.as_of
    ended = None if value is None else value.ended
    groups, places = group_rows(view), partition_rows(value)
    return id_object(seen, millis(as_of_time)) | {
        "groups": as_objects(GROUP_COLUMNS, groups),
        "partitions": as_objects(PARTITION_COLUMNS, places),
        "unreadable": seen.unreadable,
        "timeout": None if value is None else value.timeout_ms,
        "ended": ended
        and {
            "producer-id": ended.producer_id,
            "epoch": ended.epoch,
            "result": ended.result,
            "reason": ended.reason,
        },
        "shard": seen.shard,
        "as_of_offset": as_of.offset if as_of else None,
        "as_of_log_time": millis_text(as_of.clock_ms) if as_of else None,
        "waiting": as_of.waiting if as_of else None,
    }


def group_rows(view: "IdView") -> list[tuple[object, ...]]:
    """Lines of GROUP_COLUMNS: the groups of the transaction, with what waits in each."""
    groups = {} if view.seen.value is None else view.seen.value.groups
    return [(name, commits, view.pending.get(name, 0)) for name, commits in groups.items()]


def partition_rows(value: "Transaction | None") -> list[tuple[object, ...]]:
    """Lines of PARTITION_COLUMNS: those of the open transaction, or without a marker."""
    if value is None:
        return []
    return [
        (cluster, topic, partition, mark)
        for places, mark in ((value.partitions, NOT_YET), (value.unwritten, UNWRITTEN))
        for cluster, topics in places.items()
        for topic, partitions in topics.items()
        for partition in partitions
    ]


def pending_row(each: "SeenPending", now_ms: int) -> tuple[object, ...]:
    """A line of PENDING_COLUMNS; WAITS-FOR in milliseconds."""
    entry = each.entry
    return (
        *(each.group, each.key, entry.decided_by, max(0, now_ms - entry.since_ms)),
        *(len(entry.offsets), entry.client, entry.member, entry.generation),
        entry.decision or None,
    )


def pending_text_row(each: "SeenPending", now_ms: int) -> tuple[object, ...]:
    """The same for people."""
    return _with_duration(PENDING_COLUMNS, pending_row(each, now_ms), "WAITS-FOR")


def pending_object(each: "SeenPending", now_ms: int) -> dict[str, object]:
    """The same as JSON has it, with its offsets and, where a Delta table decides, that table."""
    (told,) = as_objects(PENDING_COLUMNS, [pending_row(each, now_ms)])
    rows = as_objects(OFFSET_COLUMNS[1:], [row[1:] for row in offset_rows(each)])
    since = millis_text(each.entry.since_ms)
    return told | {"since": since, "table": each.entry.table or None, "offsets": rows}


def offset_rows(each: "SeenPending") -> list[tuple[object, ...]]:
    """Lines of OFFSET_COLUMNS."""
    rows = sorted(each.entry.offsets, key=lambda row: (row.topic, row.partition))
    return [(each.key, row.topic, row.partition, row.offset) for row in rows]


def _with_duration(columns: tuple[str, ...], row: tuple[Any, ...], name: str) -> tuple[object, ...]:
    at = columns.index(name)
    return (*row[:at], duration_text(row[at]), *row[at + 1 :])
