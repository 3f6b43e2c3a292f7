"""How long rows of a table are kept, and which of the older ones stay for ever. Pure.

The event of a commit, a sample of lag and a snapshot are superseded by the next one of the same
committed offset, so they may be dropped after a time. The newest of what is older stays: what
holds now may have been written at any time, and `current_*` and positions as of a kept time read
it. All other events stay: every other view is made of them.

Offsets that wait for a decision stay, however old they are, and go together with the decision: an
entry without it would look as if it were open. What decides them is the only event of an entry that
is always written, also where later commits have taken all offsets out of it.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from coordlib.errors import SetupError
from coordlib.history.tables import EVENTS, LAG, SNAPSHOTS, is_frequent

#: What `--keep` names: the commits of members and clients, samples of lag, snapshots of groups.
COMMITS_KEPT: Final = "commits"
DAYS_MAX: Final = 100_000
_KEPT: Final = (COMMITS_KEPT, LAG, "snapshots")
_TIME: Final = re.compile(r"([a-z_]+)=([0-9]{1,6})d")

#: Table to what `--keep` calls its rows that may go.
CALLED: Final[Mapping[str, str]] = {EVENTS: COMMITS_KEPT, SNAPSHOTS: "snapshots", LAG: LAG}
#: Table to the time of a row, in `old`.
TIME_OF: Final[Mapping[str, str]] = {EVENTS: "time", SNAPSHOTS: "as_of_time", LAG: "time"}

#: Table to a query for the rows of `old` that stay, by `row_id`; `old` has what is older than kept.
#: One row of several offsets stays as long as it is the newest for one of them. Rows that say that
#: something is gone stay, too: without them what they ended would be the newest.
STAYING: Final[Mapping[str, str]] = {
    EVENTS: f"""
        WITH newest AS (
            SELECT arg_max(x.row_id, {{'time': x.time, 'log_offset': x.log_offset}}) AS row_id
            FROM (SELECT row_id, time, log_offset, group_id, unnest(offsets_in(detail)) AS item
                  FROM old WHERE type = 'OffsetsCommitted') AS x
            GROUP BY x.group_id, x.item.topic, x.item.partition),
        gone AS (
            SELECT d.group_id, get_json_object(d.detail, '$.transaction') AS transaction
            FROM old AS d ANTI JOIN newest AS n ON n.row_id = d.row_id
            WHERE d.type IN ('OffsetsCommitted', 'OffsetsDropped'))
        SELECT row_id FROM old WHERE NOT {is_frequent("type")}
        UNION SELECT row_id FROM newest
        UNION SELECT p.row_id FROM old AS p ANTI JOIN gone AS g
              ON g.group_id = p.group_id
                 AND g.transaction = get_json_object(p.detail, '$.transaction')
              WHERE p.type = 'OffsetsPending'""",
    LAG: """
        SELECT arg_max(row_id, time) AS row_id FROM old
        GROUP BY COALESCE(space, 'group'), group_id, topic, partition""",
    SNAPSHOTS: """
        SELECT arg_max(row_id, {'time': as_of_time, 'generation': generation}) AS row_id
        FROM old WHERE state IS NOT NULL GROUP BY group_id
        UNION SELECT arg_max(x.row_id, {'time': x.as_of_time, 'log_offset': x.item.log_offset})
              FROM (SELECT row_id, as_of_time, group_id, unnest(committed_in(offsets)) AS item
                    FROM old WHERE offsets IS NOT NULL) AS x
              GROUP BY x.group_id, x.item.topic, x.item.partition""",
}


def kept(given: Sequence[str]) -> dict[str, timedelta]:
    """`commits=30d` and the like.

    Raises:
        SetupError: one of them is none, or is given twice.
    """
    found: dict[str, timedelta] = {}
    for each in given:
        match = _TIME.fullmatch(each)
        name, days = (match[1], int(match[2])) if match else (each.partition("=")[0], 0)
        where = f"--keep {each[:200]!r}"
        if name == EVENTS:
            raise SetupError(
                "Events are kept for ever: the views are made of them.",
                where,
                "Name what may go: commits, lag or snapshots.",
            )
        if match is None or name not in _KEPT or not 1 <= days <= DAYS_MAX or name in found:
            raise SetupError(
                "This does not say how long something is kept.",
                where,
                f"Write one of {', '.join(_KEPT)} once, with a number of days: commits=30d",
            )
        found[name] = timedelta(days=days)
    return found
