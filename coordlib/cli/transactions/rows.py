"""Transactional ids and pending offsets as rows to be printed, and as objects of JSON: pure."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from coordlib.cli.kit.listing import (
    UNREADABLE,
    Column,
    Listing,
    as_of_fields,
    as_of_text,
    of_rows,
    state_text,
)
from coordlib.cli.kit.output import duration_text, millis_text

if TYPE_CHECKING:
    from coordlib.cli.transactions.view import IdView, SeenId, SeenPending
    from coordlib.core.transactions.transaction import Transaction
    from coordlib.core.wire.stored import PendingOffset

GROUPS: Final = of_rows("GROUP", "COMMITS", "PENDING")
PARTITIONS: Final = of_rows("CLUSTER", "TOPIC", "PARTITION", "MARKER")
#: A pending offset with the key that it waits under.
OFFSETS: Final[Listing[tuple[str, "PendingOffset"]]] = Listing(
    Column("KEY", lambda at: at[0]),
    Column("TOPIC", lambda at: at[1].topic),
    Column("PARTITION", lambda at: at[1].partition),
    Column("PENDING-OFFSET", lambda at: at[1].offset),
)
_OF_ONE_KEY: Final = Listing(*OFFSETS.columns[1:])
#: Of a partition of a transaction: it is open, or its end is not written yet.
NOT_YET: Final = "open"
UNWRITTEN: Final = "missing"


def millis(time: datetime) -> int:
    """Epoch milliseconds."""
    return int(time.timestamp() * 1000)


def state_of(seen: "SeenId") -> str | None:
    state = None if seen.state is None else seen.state.value
    return state_text(state, seen.is_quarantined, seen.unreadable) or UNREADABLE


def ids(now_ms: int) -> "Listing[SeenId]":
    """Transactional ids; OPEN-FOR counts to `now_ms`."""
    return Listing(
        Column("TRANSACTIONAL-ID", lambda seen: seen.name),
        Column("STATE", state_of),
        Column("PRODUCER-ID", lambda seen: seen.value and seen.value.producer_id),
        Column("EPOCH", lambda seen: seen.value and seen.value.epoch),
        Column("OPEN-FOR", lambda seen: seen.open_for_ms(now_ms), duration_text),
        Column("GROUPS", lambda seen: seen.value and len(seen.value.groups)),
        Column("PARTITIONS", lambda seen: seen.value and _count_of(seen.value.partitions)),
        Column("UNWRITTEN", lambda seen: seen.value and _count_of(seen.value.unwritten)),
        Column("CLIENT-ID", lambda seen: seen.value and seen.value.client),
        fields=lambda seen: {"started": started_text(seen.value)},
    )


def _count_of(places: Any) -> int:
    from coordlib.core.transactions.transaction import count_of

    return count_of(places)


def started_text(value: "Transaction | None") -> str | None:
    """When the open transaction began, by the log's time; None: none is open."""
    return None if value is None or value.started_ms < 0 else millis_text(value.started_ms)


def head_of(view: "IdView", as_of_time: datetime) -> dict[str, object]:
    """An id by itself: its line, its newest end, and as of when that is so."""
    seen, value = view.seen, view.seen.value
    return ids(millis(as_of_time)).head(seen) | {
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
    seen, value = view.seen, view.seen.value
    ended = None if value is None else value.ended
    return ids(millis(as_of_time)).fields(seen) | {
        "groups": GROUPS.objects(group_rows(view)),
        "partitions": PARTITIONS.objects(partition_rows(value)),
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
        **as_of_fields(view.as_of),
    }


def group_rows(view: "IdView") -> list[tuple[object, ...]]:
    """Rows of GROUPS: the groups of the transaction, with what waits in each."""
    groups = {} if view.seen.value is None else view.seen.value.groups
    return [(name, commits, view.pending.get(name, 0)) for name, commits in groups.items()]


def partition_rows(value: "Transaction | None") -> list[tuple[object, ...]]:
    """Rows of PARTITIONS: those of the open transaction, or without a marker."""
    if value is None:
        return []
    return [
        (cluster, topic, partition, mark)
        for places, mark in ((value.partitions, NOT_YET), (value.unwritten, UNWRITTEN))
        for cluster, topics in places.items()
        for topic, partitions in topics.items()
        for partition in partitions
    ]


def pending(now_ms: int) -> "Listing[SeenPending]":
    """Offsets that wait for a decision; WAITS-FOR counts to `now_ms`."""
    return Listing(
        Column("GROUP", lambda each: each.group),
        Column("KEY", lambda each: each.key),
        Column("DECIDED-BY", lambda each: each.entry.decided_by),
        Column("WAITS-FOR", lambda each: max(0, now_ms - each.entry.since_ms), duration_text),
        Column("PARTITIONS", lambda each: len(each.entry.offsets)),
        Column("CLIENT-ID", lambda each: each.entry.client),
        Column("MEMBER-ID", lambda each: each.entry.member),
        Column("GENERATION", lambda each: each.entry.generation),
        Column("DECISION", lambda each: each.entry.decision or None),
        fields=lambda each: {
            "since": millis_text(each.entry.since_ms),
            "table": each.entry.table or None,
            "offsets": _OF_ONE_KEY.objects(offset_rows(each)),
        },
    )


def offset_rows(each: "SeenPending") -> "list[tuple[str, PendingOffset]]":
    """Items of OFFSETS."""
    rows = sorted(each.entry.offsets, key=lambda row: (row.topic, row.partition))
    return [(each.key, row) for row in rows]
