"""Whether the promises of transactions hold, from the data. Pure.

The copy is read twice: as a consumer that reads committed sees it, and with the records of aborted
transactions. The copiers' files say which unit of work wrote what; Delta has the commits that
waited for a decision, and how each was decided.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from coordlib.demo.verdict import Check
from tests.stack.acts.copy_witness import ABORTED, COMMITTED, Unit


class Copied(NamedTuple):
    """A record of the copy."""

    partition: int
    offset: int
    #: Of the record that it copies, whose partition is the same one.
    number: int
    source_offset: int
    copier: str
    unit: int


class Decision(NamedTuple):
    """A commit of offsets that waited for the end of its transaction, from Delta."""

    transaction: str
    #: The client that sent it.
    copier: str
    #: Partition -> offset.
    offsets: Mapping[int, int]
    since: datetime
    #: The type of the event that decided it; empty: none has.
    outcome: str = ""
    decided: datetime | None = None
    #: The client that found out, where that was not the sender.
    by: str = ""


IS_COMMITTED, IS_DROPPED = "OffsetsCommitted", "OffsetsDropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """The input of the verdict."""

    #: Numbers 0 to `records` - 1 were to be copied.
    records: int
    #: Number -> (partition, offset) in the source, as the broker acknowledged it.
    placed: Mapping[int, tuple[int, int]]
    #: By partition and offset: read committed, and with what was aborted.
    copies: Sequence[Copied]
    written: Sequence[Copied]
    units: Sequence[Unit]
    #: The unit in which a copier was killed, between acceptance and commit.
    killed: Unit
    #: In the order of the log.
    decisions: Sequence[Decision]
    #: Partition -> offset of the group: from Kafka, from Delta; and where the source's log ends.
    committed: Mapping[int, int]
    committed_in_history: Mapping[int, int]
    log_ends: Mapping[int, int]
    #: From when to when no job ran.
    down: tuple[datetime, datetime]


def judge(facts: CopyFacts) -> list[Check]:
    """All promises, in the order in which they are printed."""
    return [
        copied_once(facts),
        killed_unit_is_void(facts),
        units_are_whole(facts),
        order_is_kept(facts),
        decided_once(facts),
        committed_to_the_end(facts),
    ]


def copied_once(facts: CopyFacts) -> Check:
    """Each number once, and as the copy of the record that has it."""
    count = Counter(each.number for each in facts.copies)
    wanted = range(facts.records)
    offences = [f"record {n} was not acknowledged" for n in wanted if n not in facts.placed]
    offences += [f"record {n} is in the copy {count[n]} times" for n in wanted if count[n] != 1]
    offences += [
        f"the copy at {_place(each)} is of record {each.number} at "
        f"{each.partition}-{each.source_offset}, where it was not written"
        for each in facts.copies
        if facts.placed.get(each.number) != (each.partition, each.source_offset)
    ]
    numbers = f"{len(count):,} of {facts.records:,} records in {len(facts.copies):,} copies"
    return Check("Every record is in the copy exactly once", numbers, tuple(offences))


def killed_unit_is_void(facts: CopyFacts) -> Check:
    """What the killed copier had written is in the log, and nobody who reads committed sees it. Its
    offsets, which the group had accepted, were dropped; somebody else has copied its records."""
    killed = facts.killed
    written = _of_unit(facts.written, killed)
    offences = []
    if not written or killed.accepted_ns < 0:
        offences.append(f"{_text(killed)} had not come between acceptance and commit")
    if visible := _of_unit(facts.copies, killed):
        offences.append(f"{_text(killed)}: {len(visible)} of its records are visible")
    last = [each for each in facts.decisions if each.copier == killed.copier][-1:]
    if [each.outcome for each in last] != [IS_DROPPED]:
        offences.append(f"the offsets of {_text(killed)} were not dropped")
    others = {each.number for each in facts.copies if each.copier != killed.copier}
    offences += [
        f"record {each} of {_text(killed)} was copied by nobody else"
        for each in sorted(set(killed.records) - others)
    ]
    numbers = f"{len(written)} records in the log, 0 visible"
    if last and last[0].decided is not None:
        waited_s = (last[0].decided - last[0].since).total_seconds()
        numbers += f"; its offsets of {len(last[0].offsets)} partitions waited for {waited_s:.1f} s"
    what = f"What {killed.copier} had written when it was killed does not count"
    return Check(what, numbers, tuple(offences))


def units_are_whole(facts: CopyFacts) -> Check:
    """All records of a unit are visible, or none; of one with a known outcome, as that says."""
    by_unit: dict[tuple[str, int], list[int]] = {}
    for each in facts.copies:
        by_unit.setdefault((each.copier, each.unit), []).append(each.number)
    offences = []
    for unit in facts.units:
        visible = sorted(by_unit.pop((unit.copier, unit.number), []))
        if unit.outcome == COMMITTED and visible != sorted(unit.records):
            offences.append(f"{_text(unit)} is committed: {_share(visible, unit)}")
        elif unit.outcome == ABORTED and visible:
            offences.append(f"{_text(unit)} is aborted: {_share(visible, unit)}")
        elif visible and visible != sorted(unit.records):
            offences.append(f"{_text(unit)} is torn: {_share(visible, unit)}")
    offences += [f"unit {number} of {copier}: nobody began it" for copier, number in by_unit]
    outcomes = Counter(each.outcome for each in facts.units if each.records)
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return Check("Each unit is visible as a whole or not at all", numbers, tuple(offences))


def order_is_kept(facts: CopyFacts) -> Check:
    """In each partition the copy has the order of the source, also where copiers took turns."""
    offences = [
        f"{_place(after)} copies offset {after.source_offset} behind {before.source_offset}"
        for before, after in pairwise(facts.copies)
        if before.partition == after.partition and after.source_offset <= before.source_offset
    ]
    copiers: dict[int, list[str]] = {}
    for each in facts.copies:
        some = copiers.setdefault(each.partition, [])
        if not some or some[-1] != each.copier:
            some.append(each.copier)
    turns = sum(len(some) > 1 for some in copiers.values())
    if not turns:
        offences.append("no partition passed from one copier to the other")
    numbers = f"{len(copiers)} partitions, {turns} of them by both copiers"
    return Check("The copy has the order of the source", numbers, tuple(offences))


def decided_once(facts: CopyFacts) -> Check:
    """Delta has a decision about each commit that waited, and as many of each kind as units that
    were accepted and ended so."""
    offences = [
        f"the commit {each.transaction} of {each.copier} was never decided"
        for each in facts.decisions
        if not each.outcome
    ]
    counts = Counter(each.outcome for each in facts.decisions)
    accepted = [each for each in facts.units if each.accepted_ns >= 0]
    wanted = sum(each.outcome == COMMITTED for each in accepted)
    # One whose outcome its copier did not learn may be either.
    unsure = sum(each.outcome not in (COMMITTED, ABORTED) for each in accepted)
    if not wanted <= counts[IS_COMMITTED] <= wanted + unsure:
        offences.append(
            f"{counts[IS_COMMITTED]} commits became true, and {wanted} units are committed"
        )
    if len(facts.decisions) < len(accepted):
        offences.append(f"{len(accepted)} units were accepted: {len(facts.decisions)} commits")
    begin, end = facts.down
    early = [each for each in facts.decisions if each.decided and begin < each.decided < end]
    numbers = (
        f"{counts[IS_COMMITTED]} committed, {counts[IS_DROPPED]} dropped; "
        f"{(end - begin).total_seconds():.0f} s without a job, {len(early)} decided in that time"
    )
    return Check("Each commit that waited was decided once", numbers, tuple(offences))


def committed_to_the_end(facts: CopyFacts) -> Check:
    """Kafka, Delta and the source's log agree."""
    offences = tuple(
        f"partition {partition}: committed {facts.committed.get(partition, 0)}, in Delta "
        f"{facts.committed_in_history.get(partition, 0)}, log end {end}"
        for partition, end in sorted(facts.log_ends.items())
        if not facts.committed.get(partition, 0)
        == facts.committed_in_history.get(partition, 0)
        == end
    )
    numbers = f"{len(facts.log_ends)} partitions; in Kafka and in Delta"
    return Check("Committed offsets equal the log ends", numbers, offences)


def _of_unit(some: Sequence[Copied], unit: Unit) -> list[Copied]:
    return [each for each in some if (each.copier, each.unit) == (unit.copier, unit.number)]


def _share(visible: Sequence[int], unit: Unit) -> str:
    return f"{len(visible)} records are visible, and it wrote {len(unit.records)}"


def _text(unit: Unit) -> str:
    return f"unit {unit.number} of {unit.copier}"


def _place(copy: Copied) -> str:
    return f"{copy.partition}-{copy.offset}"
