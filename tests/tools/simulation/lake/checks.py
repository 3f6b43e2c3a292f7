"""What must be true where a Delta table decides: its rows and the committed offsets are one.

INV-100 is read from the log and from the table alone: what was accepted, what was decided, and
which commits the table has.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from coordlib.client.kit.requests import offset_of
from coordlib.core.groups.offsets.tables import PENDING_KEY
from coordlib.core.wire import api
from coordlib.core.wire.transactions import COMMIT
from tests.tools.simulation.evidence import Asked, Evidence
from tests.tools.simulation.lake.member import GROUP, RAIN
from tests.tools.simulation.lake.members import Lake
from tests.tools.simulation.lake.table import Commit
from tests.tools.simulation.transactions.checks import Waiting
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import PREFIX

TAKEN: Final = "NONE"
#: Partition -> the next offset.
Ends = dict[int, int]


def check_written(lake: Lake) -> None:
    """INV-96, INV-97, INV-100, INV-120: after the faults all is decided, and stands in the table
    once, and no other table has a commit of it."""
    if astray := lake.store.astray:
        raise Violation(f"INV-120: {astray[0]} is in the log of another table")
    waiting = list(_pending(lake))
    if waiting:
        raise Violation(f"INV-96: the offsets of {waiting[0]} still wait for a decision")
    ends = {n: lake.world.cluster.partitions[RAIN, n].end for n in range(lake.partitions)}
    committed = committed_of(lake)
    for number, end in ends.items():
        if committed.get(number, 0) != end:
            raise Violation(
                f"INV-97: {RAIN}-{number} ends at {end}, and the members have committed "
                f"{committed.get(number)}"
            )
    check_once(lake.store.log.commits, ends)


def check_once(commits: list[Commit], ends: Ends) -> None:
    """INV-97: each record of the topic is a row of the table, and none is twice."""
    found = Counter(row for commit in commits for row in commit.rows)
    for number, end in ends.items():
        for offset in range(end):
            times = found.pop((RAIN, number, offset), 0)
            if times != 1:
                raise Violation(f"INV-97: {RAIN}-{number}@{offset} is in the table {times} times")
    if found:
        raise Violation(f"INV-97: the table has rows of no record: {next(iter(found))}")


def _pending(lake: Lake) -> Iterator[str]:
    known = lake.world.cluster.newest_by_key(f"{PREFIX}.transactions", lake.shard)
    for key in known:
        parts = msgspec.json.decode(key)
        if parts[0] == PENDING_KEY and parts[1] == GROUP:
            yield parts[2]


def committed_of(lake: Lake) -> Ends:
    """The group's committed offsets."""
    known = lake.world.cluster.newest_by_key(f"{PREFIX}.committed", lake.shard)
    rows = [(msgspec.json.decode(key), value) for key, value in known.items()]
    return {
        number: msgspec.json.decode(value)["offset"]
        for (group, _, number), value in rows
        if group == GROUP
    }


def check(lake: Lake, evidence: Evidence) -> None:
    """INV-93, INV-97, INV-100, record by record of the log of the members' shard."""
    decisions = Decisions(lake.shard, lake.store.log.commits)
    for each in evidence.asked:
        if each.shard == lake.shard and each.request.group == GROUP:
            decisions.judge(each, evidence.answers.get(each.coordinate, []))
    decisions.require_all_decided()


class Decisions:
    """What waits, what is committed, and whether the table agrees, up to a record of the log."""

    def __init__(self, shard: int, commits: list[Commit]) -> None:
        self._waiting = Waiting(shard)
        #: The table's commits that have rows; by application and token.
        self._written = {(each.app, each.token): each for each in commits if each.rows}
        #: Offset of a PendingCommit that is not decided -> it.
        self.open: dict[int, api.PendingCommit] = {}

    def judge(self, each: Asked, answers: list[dict[str, Any]]) -> None:
        """A request of the group, with its answers. Raises Violation."""
        request = each.request
        is_taken = bool(answers) and answers[0]["error"] == TAKEN
        if isinstance(request, api.PendingCommit):
            # One that comes again is answered as the entry that is open.
            if is_taken and offset_of(answers[0]["pending"]) == each.offset:
                self.open[each.offset] = request
                self._waiting.judge(each, answers)
        elif isinstance(request, api.DecidePending):
            if is_taken:
                self._decided(offset_of(request.pending), request.result)
        else:
            self._waiting.judge(each, answers)

    def require_all_decided(self) -> None:
        """INV-96."""
        if self.open:
            raise Violation(f"INV-96: nobody has decided about the offsets of {min(self.open)}")

    def _decided(self, token: int, result: str) -> None:
        """INV-100. A word that comes again finds nothing to decide."""
        request = self.open.pop(token, None)
        if request is None:
            return
        found = [each for (app, at), each in self._written.items() if at == token]
        if (result == COMMIT) != bool(found):
            said = "committed, and the table lacks them" if result == COMMIT else "dropped"
            raise Violation(f"INV-100: the offsets of record {token} are {said}: {found}")
        if found:
            self._check_rows(token, request, found[0])
        (committed, aborted) = ((token,), ()) if result == COMMIT else ((), (token,))
        self._waiting.decide(api.TxnDecided(v=1, committed=committed, aborted=aborted))

    def _check_rows(self, token: int, request: api.PendingCommit, written: Commit) -> None:
        """The table has what the offsets say, and nobody else's token."""
        if not written.app.endswith(f"/{GROUP}/{request.member}"):
            raise Violation(f"INV-100: {written.app} has written under token {token} of another")
        ends: dict[tuple[str, int], int] = {}
        for topic, number, offset in written.rows:
            ends[topic, number] = max(offset + 1, ends.get((topic, number), 0))
        said = {(row.topic, row.partition): row.offset for row in request.offsets}
        if said != ends:
            raise Violation(f"INV-100: record {token} commits {said}, and the table has {ends}")
