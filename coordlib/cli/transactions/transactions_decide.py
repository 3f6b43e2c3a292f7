"""`coord transactions decide`: an operator decides offsets about which nobody else can find out."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Group, Parameter

from coordlib.cli.kit.choices import exactly_one
from coordlib.cli.kit.cluster_asking import asking
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import GroupName, PendingKey
from coordlib.cli.kit.output import counted, duration_text, now, say, visible
from coordlib.cli.kit.where import HERE, Where
from coordlib.cli.transactions import transaction_rows as shown
from coordlib.cli.transactions.transactions_admin import told
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.cli.transactions.transaction_view import SeenPending

#: Partitions that are shown before the question; the others are counted.
SHOWN_MAX: Final = 10
RESULT: Final = Group("Decision", validator=exactly_one("--commit", "--abort"))


def decide(
    group: GroupName,
    key: PendingKey,
    /,
    *,
    commit: Annotated[bool, Parameter(group=RESULT, negative="")] = False,
    abort: Annotated[bool, Parameter(group=RESULT, negative="")] = False,
    reason: str,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Decide offsets that wait, where nobody else can: look first what the sender has written.

    Of a Delta table: if its member is gone and none comes that could look. Of Kafka: only if the
    record was deleted before the job could look; else Kafka knows, and the job finds out. To
    commit what was not written loses records; to abort what was written repeats them.

    Parameters
    ----------
    group
        The group's id.
    key
        The key of the offsets, as `coord transactions pending` shows it.
    commit
        The offsets count from now on.
    abort
        The offsets are dropped, and what they stood for is read again.
    reason
        The reason, for the history of the group.
    yes
        Decide without asking.
    """
    from coordlib.cli.transactions.transaction_view import find_pending

    if not reason.strip():
        raise SetupError("A reason is needed.", "--reason", "Say why, for the history.")
    topics = where.reach()
    found = find_pending(where.client(), topics, where.topic_prefix(), group, key)
    _require_undecidable(where, found)
    result: Literal["commit", "abort"] = "commit" if commit and not abort else "abort"
    _show(found, result)
    confirm(f"Deciding {result}", f"group {group}, key {key}", yes)
    with asking(where) as admin:
        admin.decide_pending(group, key, result, reason)
    said = f"{visible(key)} of {visible(group)} is decided: {result}"
    return told(where, "decide", said, group=group, key=key, result=result)


def _require_undecidable(where: Where, found: "SeenPending") -> None:
    """Raises GroupError: somebody else decides it, or has."""
    from coordlib.cli.transactions.hanging import is_record_gone
    from coordlib.cli.transactions.transactions_hanging import log_starts
    from coordlib.core.wire.transactions import COORDINATOR, KAFKA

    entry, at = found.entry, f"group {found.group}, key {found.key}"
    if entry.decision:
        mend = f"It is decided ({entry.decision}): coord groups release {found.group}"
        raise GroupError(ErrorCode.INVALID_TXN_STATE, at, mend)
    if entry.decided_by == COORDINATOR:
        mend = "The coordinator decides it: coord transactions list, then abort its id."
        raise GroupError(ErrorCode.INVALID_REQUEST, at, mend)
    if entry.decided_by == KAFKA:
        starts = log_starts(where.client(), where.topic_prefix(), {found.shard})
        if not is_record_gone(found, starts):
            mend = (
                "Kafka decides it, and the job finds out: coord transactions find-hanging names "
                "what holds it up."
            )
            raise GroupError(ErrorCode.INVALID_REQUEST, at, mend)


def _show(found: "SeenPending", result: str) -> None:
    """What the decision is going to change."""
    entry, rows = found.entry, shown.offset_rows(found)
    waited = duration_text(max(0, shown.millis(now()) - entry.since_ms))
    table = f" {entry.table}" if entry.table else ""
    say(
        visible(
            f"{counted(len(rows), 'offset')} of group {found.group}, sent by client {entry.client} "
            f"as {entry.member or 'no member'}; decided by {entry.decided_by}{table}; waits for "
            f"{waited}:"
        )
    )
    will = "is committed" if result == "commit" else "is dropped"
    for _, topic, partition, offset in rows[:SHOWN_MAX]:
        say(visible(f"  {topic}-{partition}: {offset} {will}"))
    if len(rows) > SHOWN_MAX:
        say(f"  … and {len(rows) - SHOWN_MAX} more")
