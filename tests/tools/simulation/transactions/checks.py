"""What must be true of copiers: their history is whole, and so is what the log says of decisions.

The history is checked as any recorded one (`tests.tools check`). Here are the lines that only the
topics know, and a second reading of which offsets wait and what a fetch may be told.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from coordlib.core.groups.offsets.tables import PENDING_KEY
from coordlib.core.wire import api
from coordlib.core.wire.envelope import shard_of
from coordlib.demo.history import Happened
from tests.tools.simulation.cluster import Outcome
from tests.tools.simulation.evidence import Asked, Evidence
from tests.tools.simulation.signing import controls, effective
from tests.tools.simulation.transactions import tellers
from tests.tools.simulation.transactions.copier import DRAFT, FAIR
from tests.tools.simulation.transactions.copying import GROUP, READER, Copying
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import PREFIX, World

UNSTABLE: Final = "UNSTABLE_OFFSET_COMMIT"
Partition = tuple[str, int]


def check_copied(copying: Copying) -> None:
    """INV-96, INV-97: after the faults all is decided, copied and committed within the bound."""
    world = copying.world
    check_all_committed(world, GROUP, DRAFT)
    for number in range(copying.targets):
        partition = world.cluster.partitions[FAIR, number]
        if partition.last_stable != partition.end:
            raise Violation(f"INV-96: a transaction is open in {FAIR}-{number}")


def check_all_committed(world: World, group: str, topic: str) -> None:
    """INV-96, INV-97: nothing of a group waits, and it has committed all that there is."""
    shard = shard_of(group, world.plan.shards)
    waiting = list(_pending(world, shard, group))
    if waiting:
        raise Violation(f"INV-96: the offsets of {waiting[0]} still wait for a decision")
    known = committed(world, shard, group)
    for number in range(world.cluster.count(topic)):
        end = world.cluster.partitions[topic, number].end
        if known.get((topic, number), 0) != end:
            raise Violation(
                f"INV-97: {topic}-{number} ends at {end}, and the {group} have committed "
                f"{known.get((topic, number))}"
            )


def _pending(world: World, shard: int, group: str) -> Iterator[str]:
    for key in world.cluster.newest_by_key(f"{PREFIX}.transactions", shard):
        parts = msgspec.json.decode(key)
        if parts[0] == PENDING_KEY and parts[1] == group:
            yield parts[2]


def committed(world: World, shard: int, group: str) -> dict[Partition, int]:
    """What a group has committed, as the topics say it."""
    known = world.cluster.newest_by_key(f"{PREFIX}.committed", shard)
    rows = [(msgspec.json.decode(key), value) for key, value in known.items()]
    return {
        (topic, number): msgspec.json.decode(value)["offset"]
        for (name, topic, number), value in rows
        if name == group
    }


# ---- lines for the history ----------------------------------------------------------------------


def lines(world: World, evidence: Evidence) -> Iterator[Happened]:
    """What the group's members were told of its offsets, and what there is at the end."""
    copying = world.copying
    if copying is None:
        return
    yield from copying.tellers.lines()
    yield from fetches(world, evidence, GROUP, READER)


def fetches(world: World, evidence: Evidence, group: str, reader: str) -> Iterator[Happened]:
    """What a group's members were told of its offsets; at the end somebody else looks."""

    def fetched(member: str, began_ms: int, t_ms: int, offsets: dict[str, int]) -> Happened:
        fields: dict[str, Any] = {"group": group, "offsets": offsets, "began_ms": began_ms}
        return Happened(t_ms, "fetched", member=member, **fields)

    for each in evidence.asked:
        if isinstance(each.request, api.OffsetFetch) and each.request.group == group:
            for answer, record in evidence.answered(each.coordinate):
                rows = [row for row in answer.get("offsets") or () if row["error"] == "NONE"]
                if rows:
                    offsets = {f"{row['topic']}-{row['partition']}": row["offset"] for row in rows}
                    yield fetched(each.request.client, each.true_ms, record.true_ms, offsets)
    now_ms, shard = world.scheduler.now_ms, shard_of(group, world.plan.shards)
    known = committed(world, shard, group).items()
    yield fetched(
        reader, now_ms, now_ms, {f"{topic}-{number}": at for (topic, number), at in known}
    )


# ---- a second reading of decisions --------------------------------------------------------------


def check(copying: Copying, evidence: Evidence) -> None:
    """INV-91 to INV-93, record by record of the log of the copiers' shard."""
    world, shard = copying.world, copying.shard
    tellers.check(world, evidence)
    counting = effective(world, shard)
    decided: dict[int, api.TxnDecided] = {
        offset: each
        for offset, each in controls(world, shard).items()
        if isinstance(each, api.TxnDecided) and offset in counting
    }
    for offset, record in decided.items():
        _check_true(world, shard, offset, record)
    asked = {each.offset: each for each in evidence.asked if each.shard == shard}
    waiting = Waiting(shard)
    for offset in sorted({*decided, *asked}):
        if offset in decided:
            waiting.decide(decided[offset])
        elif asked[offset].request.group == GROUP:
            waiting.judge(asked[offset], evidence.answers.get(asked[offset].coordinate, []))


def _check_true(world: World, shard: int, offset: int, record: api.TxnDecided) -> None:
    """INV-92: what the driver tells a shard is how the transaction has ended."""
    log = world.cluster.partitions[f"{PREFIX}.requests", shard].records
    for told, outcome in ((record.committed, Outcome.COMMITTED), (record.aborted, Outcome.ABORTED)):
        for each in told:
            transaction = log[each].transaction
            ended = Outcome.COMMITTED if transaction is None else transaction.outcome
            if ended is not outcome:
                raise Violation(
                    f"INV-92: r{shard}-{offset} says that r{shard}-{each} was {outcome.value}, and "
                    f"its transaction is {ended.value}"
                )


class Waiting:
    """Which offsets of the copiers wait, and which are committed, up to a record of the log."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self.committed: dict[Partition, int] = {}
        #: Offset of the PendingCommit -> its rows.
        self.pending: dict[int, dict[Partition, int]] = {}

    def decide(self, record: api.TxnDecided) -> None:
        """Also what was decided while the group was set aside: nobody is told before."""
        for offset in sorted({*record.committed, *record.aborted}):
            rows = self.pending.pop(offset, {})
            if offset in record.committed:
                self._write(rows, offset)

    def judge(self, each: Asked, answers: list[dict[str, Any]]) -> None:
        """A request of the group, with its answers. Raises Violation."""
        request = each.request
        taken = bool(answers) and answers[0]["error"] == "NONE"
        if isinstance(request, api.PendingCommit) and taken:
            rows = {(row.topic, row.partition): row.offset for row in request.offsets}
            self.pending[each.offset] = rows
        elif isinstance(request, api.OffsetFetch):
            for answer in answers:
                for row in answer.get("offsets") or ():
                    self._check_told(each, row)

    def _write(self, rows: dict[Partition, int], offset: int) -> None:
        """Committed; older entries have nothing to say about these partitions any more."""
        self.committed |= rows
        for older in [older for older in self.pending if older < offset]:
            for place in rows:
                self.pending[older].pop(place, None)

    def _check_told(self, each: Asked, row: dict[str, Any]) -> None:
        """INV-93: nothing that waits is told, and nothing that was committed is kept back."""
        place = (row["topic"], row["partition"])
        asks_stable = isinstance(each.request, api.OffsetFetch) and each.request.require_stable
        waits = asks_stable and any(place in rows for rows in self.pending.values())
        if waits != (row["error"] == UNSTABLE):
            told = row["error"] if waits else "that it waits"
            raise Violation(f"INV-93: {each.coordinate} was told {told} of {place}")
        if not waits and row["error"] == "NONE" and row["offset"] != self.committed.get(place, -1):
            raise Violation(
                f"INV-93: {each.coordinate} was told offset {row['offset']} of {place}, committed "
                f"is {self.committed.get(place)}"
            )
