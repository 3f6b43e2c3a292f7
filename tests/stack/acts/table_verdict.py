"""Whether the promises of batches that a Delta table decides hold, from the data. Pure.

The table is read as any reader sees it, and its log says which commit has which rows, under which
token. The token is the log offset of the commit of offsets that waited for it; history has those
with how each was decided, and by whom.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordlib.client.kit.requests import offset_of
from coordlib.demo.verdict import Check
from tests.stack.acts.copy_witness import COMMITTED, Unit
from tests.stack.acts.transactions_verdict import IS_COMMITTED, IS_DROPPED, Copied, Decision


class Row(NamedTuple):
    """A row of the table: a record, and its place in the copy."""

    number: int
    partition: int
    offset: int


class Batch(NamedTuple):
    """A commit of the table that has rows."""

    version: int
    #: Its `txnVersion`; -1: it has none.
    token: int
    rows: tuple[Row, ...]

    @property
    def ends(self) -> dict[int, int]:
        """Partition of the copy -> the offset behind its last row."""
        found: dict[int, int] = {}
        for row in self.rows:
            found[row.partition] = max(row.offset + 1, found.get(row.partition, 0))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The input of the verdict."""

    #: Numbers 0 to `records` - 1 were to be written.
    records: int
    #: The copy, as a reader of committed records sees it.
    copies: Sequence[Copied]
    #: In the order of the table's versions.
    batches: Sequence[Batch]
    units: Sequence[Unit]
    #: The batch in which a writer was killed: the table had it, and nobody was told.
    killed: Unit
    #: In the order of the log.
    decisions: Sequence[Decision]
    #: Partition of the copy -> offset of the writers' group: from Kafka, from Delta.
    committed: Mapping[int, int]
    committed_in_history: Mapping[int, int]


def judge(facts: TableFacts) -> list[Check]:
    """All promises, in the order in which they are printed."""
    return [
        written_once(facts),
        batches_are_units(facts),
        killed_batch_counts(facts),
        committed_behind_the_copy(facts),
    ]


def written_once(facts: TableFacts) -> Check:
    """Each number once, and at the place where readers of the copy find it."""
    rows = [row for batch in facts.batches for row in batch.rows]
    count, wanted = Counter(row.number for row in rows), range(facts.records)
    offences = [f"record {n} is in the table {count[n]} times" for n in wanted if count[n] != 1]
    places = {(each.partition, each.offset): each.number for each in facts.copies}
    offences += [
        f"the table has record {row.number} from {row.partition}-{row.offset} of the copy, where "
        f"readers find {places.get((row.partition, row.offset), 'nothing')}"
        for row in rows
        if places.get((row.partition, row.offset)) != row.number
    ]
    numbers = f"{len(count):,} of {facts.records:,} records in {len(rows):,} rows"
    return Check("Every record is in the table exactly once", numbers, tuple(offences))


def batches_are_units(facts: TableFacts) -> Check:
    """The table has a batch if and only if its offsets were committed, and they end where it ends;
    and what a writer took for written is there as one batch.  # INV-100
    """
    by_token = {offset_of(each.transaction): each for each in facts.decisions}
    offences = [
        f"the commit {each.transaction} of {each.copier} was never decided"
        for each in facts.decisions
        if not each.outcome
    ]
    for batch in facts.batches:
        decision = by_token.pop(batch.token, None)
        if decision is None or decision.outcome != IS_COMMITTED:
            offences.append(f"{_text(batch)}, and its offsets are not committed")
        elif dict(decision.offsets) != batch.ends:
            offences.append(
                f"{_text(batch)} up to {batch.ends}, and {dict(decision.offsets)} is committed"
            )
    offences += [
        f"the commit {each.transaction} of {each.copier} became true, and its rows are missing"
        for each in by_token.values()
        if each.outcome == IS_COMMITTED
    ]
    contents = {_numbers(batch) for batch in facts.batches}
    offences += [
        f"batch {unit.number} of {unit.copier} was written, and the table has no such commit"
        for unit in facts.units
        if unit.outcome == COMMITTED and unit.records and frozenset(unit.records) not in contents
    ]
    counts = Counter(each.outcome for each in facts.decisions)
    numbers = f"{len(facts.batches)} batches; {counts[IS_DROPPED]} were shut out or given up"
    return Check("The table has a batch if and only if its offsets count", numbers, tuple(offences))


def killed_batch_counts(facts: TableFacts) -> Check:
    """The batch of the killed writer stays, another member has found it, and goes on behind it."""
    killed = facts.killed
    name = f"batch {killed.number} of {killed.copier}"
    if not killed.records or killed.accepted_ns < 0 or killed.outcome == COMMITTED:
        return _of_killed(killed, "", f"{name} had not come between the table and its word")
    batches = [each for each in facts.batches if _numbers(each) == frozenset(killed.records)]
    if len(batches) != 1:
        return _of_killed(killed, "", f"{name} is {len(batches)} commits of the table")
    (batch,) = batches
    decision = next(
        (each for each in facts.decisions if offset_of(each.transaction) == batch.token), None
    )
    if decision is None or decision.outcome != IS_COMMITTED or decision.decided is None:
        return _of_killed(killed, "", f"the offsets of {name} are not committed")
    offences = []
    if decision.copier != killed.copier:
        offences.append(f"the offsets of {name} are of {decision.copier}")
    if decision.by in ("", killed.copier):
        offences.append(f"nobody but {killed.copier} has decided about {name}")
    beyond = {
        row.partition
        for each in facts.batches
        if each.version > batch.version
        for row in each.rows
        if row.offset >= batch.ends.get(row.partition, row.offset + 1)
    }
    offences += [
        f"nobody goes on behind {name} in partition {partition}"
        for partition in sorted(batch.ends.keys() - beyond)
    ]
    waited_s = (decision.decided - decision.since).total_seconds()
    numbers = (
        f"{len(batch.rows)} rows; {decision.by or 'nobody'} found them, and their offsets of "
        f"{len(decision.offsets)} partitions waited for {waited_s:.1f} s"
    )
    return _of_killed(killed, numbers, *offences)


def committed_behind_the_copy(facts: TableFacts) -> Check:
    """Kafka and Delta agree, and what is committed is behind the last record that readers see.

    That is not the end of the log, which has what was aborted and the ends of transactions, too.
    """
    ends: dict[int, int] = {}
    for each in facts.copies:
        ends[each.partition] = max(each.offset + 1, ends.get(each.partition, 0))
    offences = tuple(
        f"partition {partition}: committed {facts.committed.get(partition, 0)}, in Delta "
        f"{facts.committed_in_history.get(partition, 0)}, end of the copy {end}"
        for partition, end in sorted(ends.items())
        if not facts.committed.get(partition, 0)
        == facts.committed_in_history.get(partition, 0)
        == end
    )
    numbers = f"{len(ends)} partitions; in Kafka and in Delta"
    return Check("The writers have committed the whole copy", numbers, offences)


def _of_killed(killed: Unit, numbers: str, *offences: str) -> Check:
    what = f"What {killed.copier} had written into the table when it was killed counts"
    return Check(what, numbers, offences)


def _numbers(batch: Batch) -> frozenset[int]:
    return frozenset(row.number for row in batch.rows)


def _text(batch: Batch) -> str:
    return f"version {batch.version} of the table has {len(batch.rows)} rows"
