"""`coord transactions list|describe|pending|find-hanging|history`: what stands, and what hangs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from coordlib import exit_codes
from coordlib.cli.kit.listing import QUARANTINED, UNREADABLE, mark_of, of_rows, say_unreadable
from coordlib.cli.kit.options import (
    Count,
    Duration,
    GroupName,
    Since,
    TopicName,
    TransactionalId,
    ask,
    states_named,
)
from coordlib.cli.kit.output import (
    counted,
    duration_text,
    now,
    print_head,
    print_json,
    print_line,
    say,
    time_text,
    visible,
)
from coordlib.cli.kit.where import HERE, TABLES_HERE, Where, WhereTables
from coordlib.cli.transactions import admin
from coordlib.cli.transactions import rows as shown
from coordlib.errors import ErrorCode, GroupError

if TYPE_CHECKING:
    from coordlib.cli.transactions.view import SeenPending

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

    States: Empty (nothing was begun), Ongoing, PrepareCommit and PrepareAbort (decided, and some
    groups or partitions lack the decision), CompleteCommit, CompleteAbort. UNWRITTEN: partitions
    that lack the marker of the transaction that ended. Transactions that Kafka itself decides are
    not here: `coord transactions pending` shows their offsets, `coord transactions find-hanging`
    those that do not end.

    Parameters
    ----------
    state
        Only ids in one of these states, or Quarantined, or Unreadable; separate several by commas.
    longer_than
        Only ids whose transaction has been open for longer, like 30s or 5m.
    """
    from coordlib.cli.transactions.view import read_all

    known = (*STATES, QUARANTINED, UNREADABLE)
    wanted = states_named(state or [], known, "a transactional id")
    found, as_of_time = where.read(read_all)
    now_ms = shown.millis(as_of_time)
    ids = [
        each
        for each in found.ids
        if not wanted or wanted & {str(each.state), mark_of(each.is_quarantined, each.unreadable)}
        if longer_than is None or (each.open_for_ms(now_ms) or 0) > longer_than
    ]
    for each in found.ids:
        say_unreadable(each.name, each.unreadable)
    lines = shown.ids(now_ms)
    if where.format == "json":
        print_json("transactions list", as_of_time, ids=lines.objects(ids))
        return 0
    lines.print(ids)
    say(f"{counted(len(ids), 'transactional id')} as of {time_text(as_of_time)}")
    if not found.ids:
        say(
            "Transactions that Kafka decides are not listed: coord transactions pending shows "
            "their offsets, coord transactions find-hanging those that do not end."
        )
    return 0


def describe(transactional_id: TransactionalId, /, *, where: Where = HERE) -> int:
    """Show a transactional id: its producer, its transaction, and which markers it lacks.

    PENDING: partitions of the group whose offsets wait for this transaction. MARKER: open, while
    the transaction is; missing, where its end is not written. Read from the topics, so this works
    while the job is down; AS-OF gives the last request that is included, as r0-42: shard 0 of the
    requests topic, offset 42.

    Parameters
    ----------
    transactional_id
        The transactional id.
    """
    from coordlib.cli.transactions.view import read_id

    view, as_of_time = where.read(read_id, transactional_id)
    if where.format == "json":
        print_json("transactions describe", as_of_time, **shown.described(view, as_of_time))
        return 0
    print_head(shown.head_of(view, as_of_time))
    for listing, rows in (
        (shown.GROUPS, shown.group_rows(view)),
        (shown.PARTITIONS, shown.partition_rows(view.seen.value)),
    ):
        if rows:
            print_line()
            listing.print(rows)
    say_unreadable(view.seen.name, view.seen.unreadable)
    return 0


def pending(group: GroupName | None = None, /, *, where: Where = HERE) -> int:
    """Show offsets that wait for a decision: of Kafka, of a Delta table, or of the coordinator.

    KEY: what they wait under; of offsets that Kafka decides the record that sent them, as r0-42:
    shard 0 of the requests topic, offset 42. WAITS-FOR: how long they have waited. DECISION: what
    was decided while the group was quarantined; it is carried out when the group is released. With
    a group its offsets are shown, too.

    Parameters
    ----------
    group
        Only offsets of this group.
    """
    from coordlib.cli.transactions.view import read_all, read_pending

    found: Sequence[SeenPending]
    if group is None:
        seen, as_of_time = where.read(read_all)
        found = seen.pending
    else:
        found, as_of_time = where.read(read_pending, group)
    lines = shown.pending(shown.millis(as_of_time))
    if where.format == "json":
        print_json("transactions pending", as_of_time, group=group, pending=lines.objects(found))
        return 0
    lines.print(found)
    if group is not None and found:
        print_line()
        shown.OFFSETS.print(row for each in found for row in shown.offset_rows(each))
    of_group = "" if group is None else f" of group {visible(group)}"
    waits = "waits" if len(found) == 1 else "wait"
    say(
        f"{counted(len(found), 'commit')}{of_group} {waits} for a decision as of "
        f"{time_text(as_of_time)}"
    )
    return 0


#: As long as the longest pause of a job that is started again.
LONGER_THAN_MS: Final = 60_000
#: Shown as it is given.
Longer = Annotated[Duration, Parameter(show_default=lambda _: "1m")]


def find_hanging(
    *, topic: TopicName | None = None, longer_than: Longer = LONGER_THAN_MS, where: Where = HERE
) -> int:
    """Find transactions that do not end, each with the command that fixes it.

    Of the coordinator: decided, and not told for a minute to all groups and partitions. Of Kafka:
    open transactions that hold up readers and decisions, and offsets whose record was deleted
    before the job could look. Of Delta: offsets whose member is gone. The job may be down. Exit
    code 3: there are any.

    Parameters
    ----------
    topic
        Look at this topic too for open transactions of Kafka, not at the requests alone.
    longer_than
        Only what has lasted for longer, like 30s or 5m.
    """
    from coordlib.cli.transactions.view import HANGING, all_hanging

    topics, as_of_time = where.reach(), now()
    now_ms = shown.millis(as_of_time)
    client, prefix = where.client(), where.topic_prefix()
    found = all_hanging(client, topics, prefix, now_ms, longer_than, topic)
    if where.format == "json":
        print_json("transactions find-hanging", as_of_time, hanging=HANGING.objects(found))
    elif found:
        HANGING.print(found)
    say(f"{counted(len(found), 'transaction')} hanging as of {time_text(as_of_time)}")
    return exit_codes.UNHEALTHY if found else exit_codes.OK


TRANSACTIONS: Final = of_rows(
    "STARTED",
    "ENDED",
    "PRODUCER-ID",
    "EPOCH",
    "RESULT",
    "REASON",
    "ENDED-BY",
    "COMMENT",
    "DURATION",
    "GROUPS",
    "PARTITIONS",
    "CLIENT-ID",
    DURATION=duration_text,
    GROUPS=lambda groups: ",".join(groups or ()),
)
FENCED: Final = of_rows("FENCED", "PRODUCER-ID", "EPOCH", "CLIENT-ID", "FENCED-BY")
REFUSED: Final = of_rows("NEWEST", "TIMES", "REQUEST", "ERROR", "CLIENT-ID", "REASON")
_TRANSACTIONS: Final = """
    SELECT started, ended, producer_id, epoch, result, reason, ended_by, comment, duration_ms,
           groups, partitions, client_id
    FROM transactions WHERE id = ?
    ORDER BY COALESCE(started, ended) DESC, producer_id DESC, epoch DESC LIMIT ?"""
_FENCED: Final = """
    SELECT fenced, producer_id, epoch, client_id, fenced_by FROM fenced_producers WHERE id = ?
    ORDER BY fenced DESC, producer_id DESC, epoch DESC LIMIT ?"""
_REFUSED: Final = """
    SELECT MAX(time) AS newest, COUNT(*) AS times, request, error,
           arg_max(client, time) AS client, arg_max(reason, time) AS reason
    FROM rejected WHERE group_id = ? AND space = 'transaction' GROUP BY request, error
    ORDER BY newest DESC, request, error LIMIT ?"""
_KNOWN: Final = "SELECT MAX(time) FROM events WHERE space = 'transaction' AND group_id = ?"


def history(
    transactional_id: TransactionalId,
    /,
    *,
    limit: Count = 100,
    since: Since = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Show the transactions of an id, how each ended and why; then who was fenced by whom.

    REASON: client (its producer), timeout, fenced (by a newer producer) or operator. Then refused
    requests, counted by type. Read from the history's tables, which follow within the archive's
    interval (30 s).

    Parameters
    ----------
    transactional_id
        The transactional id.
    limit
        Show the newest N lines of each.
    since
        From this date on, as 2026-03-01; by default the last 30 days of all history, or all of it
        where those have nothing to show.
    """
    tables = where.tables_dir()
    questions = [(sql, (transactional_id, limit)) for sql in (_TRANSACTIONS, _FENCED, _REFUSED)]
    asked = ask(tables, since, (_KNOWN, (transactional_id,)), questions)
    newest = asked.newest
    if newest is None:
        raise GroupError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"transactional id {transactional_id} in {tables}",
            "Check it (coord transactions list); a new one appears after the archive's interval.",
        )
    transactions, fenced, refused = (list(reversed(answer.rows)) for answer in asked.answers)
    if where.format == "json":
        fields = {
            "transactions": TRANSACTIONS.objects(transactions),
            "fenced": FENCED.objects(fenced),
            "refused": REFUSED.objects(refused),
        }
        name = {"transactional-id": transactional_id}
        as_of = {"newest_event": newest, "since": asked.first}
        print_json("transactions history", now(), **as_of, **name, **fields)
        return 0
    TRANSACTIONS.print(transactions)
    for listing, rows in ((FENCED, fenced), (REFUSED, refused)):
        if rows:
            print_line()
            listing.print(rows)
    asked.say_first()
    say(f"As of the newest event of this transactional id: {time_text(newest)}")
    return 0


def build() -> App:
    """`coord transactions`."""
    app = App(name="transactions", help="Inspect transactions, and end those that hang.")
    app.command(list_ids, name="list")
    app.command(describe, name="describe")
    app.command(pending, name="pending")
    app.command(history, name="history")
    app.command(find_hanging, name="find-hanging")
    app.command(admin.abort, name="abort")
    app.command(
        admin.decide,
        name="decide",
        usage="Usage: coord transactions decide (--commit | --abort) --reason STR [OPTIONS] "
        "GROUP KEY",
    )
    app.command(admin.finish, name="finish")
    app.command(admin.release, name="release")
    return app
