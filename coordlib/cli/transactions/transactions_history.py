"""`coord transactions history`: the producers and transactions of an id, from the tables."""

from typing import Final

from coordlib.cli.kit.names import TransactionalId
from coordlib.cli.kit.numbers import Count
from coordlib.cli.kit.output import (
    as_objects,
    duration_text,
    now,
    print_json,
    print_line,
    print_table,
    say,
    time_text,
)
from coordlib.cli.kit.since import Since, ask
from coordlib.cli.kit.where import TABLES_HERE, WhereTables
from coordlib.errors import ErrorCode, GroupError

COLUMNS: Final = (
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
)
FENCED_COLUMNS: Final = ("FENCED", "PRODUCER-ID", "EPOCH", "CLIENT-ID", "FENCED-BY")
REFUSED_COLUMNS: Final = ("NEWEST", "TIMES", "REQUEST", "ERROR", "CLIENT-ID", "REASON")
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
            "transactions": as_objects(COLUMNS, transactions),
            "fenced": as_objects(FENCED_COLUMNS, fenced),
            "refused": as_objects(REFUSED_COLUMNS, refused),
        }
        name = {"transactional-id": transactional_id}
        told = {"newest_event": newest, "since": asked.first}
        print_json("transactions history", now(), **told, **name, **fields)
        return 0
    at = COLUMNS.index("DURATION")
    print_table(
        COLUMNS,
        [
            (*row[:at], duration_text(row[at]), ",".join(row[at + 1] or ()), *row[at + 2 :])
            for row in transactions
        ],
    )
    for columns, rows in ((FENCED_COLUMNS, fenced), (REFUSED_COLUMNS, refused)):
        if rows:
            print_line()
            print_table(columns, rows)
    asked.say_first()
    say(f"As of the newest event of this transactional id: {time_text(newest)}")
    return 0
