"""`coord transactions list|describe|pending`: transactional ids and offsets that wait for a
decision, read from Kafka alone, job up or down."""

from typing import Annotated, Final

from cyclopts import Parameter

from coordlib.cli.groups.groups import QUARANTINED, UNREADABLE
from coordlib.cli.kit.names import GroupName, TransactionalId, states_named
from coordlib.cli.kit.numbers import Duration
from coordlib.cli.kit.output import (
    counted,
    now,
    print_head,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
    visible,
)
from coordlib.cli.kit.where import HERE, Where
from coordlib.cli.transactions import transaction_rows as shown

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)


def list_ids(
    *,
    state: Annotated[list[str] | None, Parameter(negative="")] = None,
    longer_than: Duration | None = None,
    where: Where = HERE,
) -> int:
    """List the transactional ids of the coordinator with producer, state and open transaction.

    States: Empty (nothing was begun), Ongoing, PrepareCommit and PrepareAbort (decided, and groups
    or partitions have to be told yet), CompleteCommit, CompleteAbort. UNWRITTEN: partitions that
    lack the marker of the transaction that ended. Transactions that Kafka itself decides are not
    here; their offsets are in `coord transactions pending`.

    Parameters
    ----------
    state
        Only ids in one of these states, or Quarantined, or Unreadable; separate several by commas.
    longer_than
        Only ids whose transaction has been open for longer, like 30s or 5m.
    """
    from coordlib.cli.transactions.transaction_view import read_all

    known = (*STATES, QUARANTINED, UNREADABLE)
    wanted = states_named(state or [], known, "a transactional id")
    topics = where.reach()
    as_of_time = now()
    now_ms = shown.millis(as_of_time)
    found = read_all(where.client(), topics, where.topic_prefix()).ids
    ids = [
        each
        for each in found
        if not wanted or wanted & {str(each.state), *_marks(each.is_quarantined, each.unreadable)}
        if longer_than is None or (each.open_for_ms(now_ms) or 0) > longer_than
    ]
    shown.say_unreadable(found)
    if where.format == "json":
        told = [shown.id_object(each, now_ms) for each in ids]
        print_json("transactions list", as_of_time, ids=told)
        return 0
    print_table(shown.ID_COLUMNS, [shown.id_text_row(each, now_ms) for each in ids])
    say(f"{counted(len(ids), 'transactional id')} as of {time_text(as_of_time)}")
    return 0


def _marks(is_quarantined: bool, unreadable: str | None) -> set[str]:
    marks = {QUARANTINED: is_quarantined, UNREADABLE: unreadable is not None}
    return {mark for mark, holds in marks.items() if holds}


def describe(transactional_id: TransactionalId, /, *, where: Where = HERE) -> int:
    """Show a transactional id: its producer, its transaction, and what is not told of its end.

    PENDING: partitions of the group whose offsets wait for this transaction. MARKER: open, while
    the transaction is; missing, where its end is not written. Read from the topics, so this works
    while the job is down; AS-OF gives the last request that is included.

    Parameters
    ----------
    transactional_id
        The transactional id.
    """
    from coordlib.cli.transactions.transaction_view import read_id

    topics, as_of_time = where.reach(), now()
    view = read_id(where.client(), topics, where.topic_prefix(), transactional_id)
    if where.format == "json":
        print_json("transactions describe", as_of_time, **shown.described(view, as_of_time))
        return 0
    print_head(shown.head_of(view, as_of_time))
    tables = {
        shown.GROUP_COLUMNS: shown.group_rows(view),
        shown.PARTITION_COLUMNS: shown.partition_rows(view.seen.value),
    }
    for columns, rows in tables.items():
        if rows:
            print_line()
            print_table(columns, rows)
    shown.say_unreadable([view.seen])
    return 0


def pending(group: GroupName | None = None, /, *, where: Where = HERE) -> int:
    """Show offsets that wait for a decision: of Kafka, of a Delta table, or of the coordinator.

    WAITS-FOR: how long they have waited. DECISION: what was decided while the group was
    quarantined; it is carried out when the group is released. With a group its offsets are shown,
    too.

    Parameters
    ----------
    group
        Only offsets of this group.
    """
    from coordlib.cli.transactions.transaction_view import read_all, read_pending

    topics, as_of_time, prefix = where.reach(), now(), where.topic_prefix()
    now_ms = shown.millis(as_of_time)
    if group is None:
        found = read_all(where.client(), topics, prefix).pending
    else:
        found = read_pending(where.client(), topics, prefix, group)
    if where.format == "json":
        told = [shown.pending_object(each, now_ms) for each in found]
        print_json("transactions pending", as_of_time, group=group, pending=told)
        return 0
    print_table(shown.PENDING_COLUMNS, [shown.pending_text_row(each, now_ms) for each in found])
    if group is not None and found:
        print_line()
        print_table(
            shown.OFFSET_COLUMNS, [row for each in found for row in shown.offset_rows(each)]
        )
    of_group = "" if group is None else f" of group {visible(group)}"
    waits = "waits" if len(found) == 1 else "wait"
    say(
        f"{counted(len(found), 'commit')}{of_group} {waits} for a decision as of "
        f"{time_text(as_of_time)}"
    )
    return 0
