"""Whether the promises hold, computed from the recorded files. Pure.

The members' witnesses have each reading with its time and fence, and are one history for the
checkers that simulated runs pass too; Delta has the owners of each partition and the commits; the
broker has the log ends.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordlib.demo import checkers
from coordlib.demo.history import Happened
from coordlib.demo.witness import Consumed
from coordlib.history.views.groups import Tenure

EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of the group, from Delta; without members: the group became empty."""

    number: int
    time: datetime
    cause: str
    duration_ms: int | None
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """A partition given to a member in a generation, from Delta."""

    generation: int
    partition: int
    member: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A partition's offset committed by a member, from Delta."""

    generation: int
    partition: int
    offset: int
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The input of the verdict. Members are named by their client id."""

    #: Records to be produced: numbers 0 to `records` - 1.
    records: int
    #: Number -> (partition, offset), as the broker acknowledged it.
    placed: Mapping[int, tuple[int, int]]
    consumed: Sequence[Consumed]
    generations: Sequence[Generation]
    owners: Sequence[Owner]
    commits: Sequence[Commit]
    #: Partition -> offset: from Kafka, from Delta, and where the log ends.
    committed: Mapping[int, int]
    committed_in_history: Mapping[int, int]
    log_ends: Mapping[int, int]
    #: The member that was killed.
    killed: str
    #: In a server-assigned group: the tenures of its partitions, from Delta.
    tenures: Sequence[Tenure] = ()
    #: What the members wrote down, in the order of time.
    history: Sequence[Happened] = ()

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self.log_ends))


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: the numbers that were looked at, and the contradictions."""

    what: str
    numbers: str
    offences: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.offences


def judge(facts: Facts, last: Mapping[int, int]) -> list[Check]:
    """All promises, in the order in which they are printed.

    Args:
        last: partition that the killed member had at its end -> its committed offset.
    """
    return [
        every_record_consumed(facts),
        one_owner_worked(facts),
        nothing_was_skipped(facts),
        read_again_for_a_reason(facts, last),
        committed_to_the_end(facts),
    ]


def every_record_consumed(facts: Facts) -> Check:
    """Numbers without gap, each where the broker put it."""
    wanted = range(facts.records)
    read = {each.number for each in facts.consumed}
    offences = [f"record {n} was not acknowledged" for n in wanted if n not in facts.placed]
    offences += [
        f"record {n} was never consumed{_at(facts.placed.get(n))}" for n in wanted if n not in read
    ]
    offences += [
        f"{each.member} read record {each.number}{_at((each.partition, each.offset))}, "
        f"where it was not written"
        for each in facts.consumed
        if facts.placed.get(each.number) != (each.partition, each.offset)
    ]
    numbers = f"{len(read):,} of {facts.records:,} records, read {len(facts.consumed):,} times"
    return Check("Every record was consumed at least once", numbers, tuple(offences))


def one_owner_worked(facts: Facts) -> Check:
    """INV-57, INV-20: by what the members wrote down, on one clock."""
    history = list(facts.history)
    offences = [
        *checkers.one_owner(history),
        *checkers.fence_rises(history),
        *checkers.generations_rise(history),
    ]
    acts = [each for each in history if each.what == "act"]
    if not acts:
        offences.append("nobody read anything")
    tenures = {(each.partitions, each.fence, each.member) for each in acts}
    what = "One owner at a time read each partition, each with a higher fence than the one before"
    return Check(what, f"{len(acts):,} readings in {len(tenures)} tenures", tuple(offences))


def nothing_was_skipped(facts: Facts) -> Check:
    """INV-58, INV-59, INV-25: who owns a partition reads on where the commit is, in order."""
    history = list(facts.history)
    offences = [
        *checkers.no_skip(history),
        *checkers.nothing_unseen(history),
        *checkers.commit_within_position(history),
    ]
    commits = sum(each.what == "committed" for each in history)
    what = "No owner skipped a record, or committed one that nobody had read"
    return Check(what, f"{len(history):,} lines of history, {commits} commits", tuple(offences))


def read_again_for_a_reason(facts: Facts, last: Mapping[int, int]) -> Check:
    """INV-60; and nobody reads again what the killed member had committed."""
    offences = list(checkers.duplicates_have_reasons(list(facts.history)))
    readings = Counter((each.partition, each.offset) for each in facts.consumed)
    again = sorted(place for place, count in readings.items() if count > 1)
    offences += [
        f"{_place((partition, offset))} was read again, and {facts.killed} had committed "
        f"{last[partition]}"
        for partition, offset in again
        if offset < last.get(partition, 0)
    ]
    where = Counter(partition for partition, _ in again)
    on = ", ".join(f"{count:,} on {partition}" for partition, count in sorted(where.items()))
    owned = ", ".join(map(str, sorted(last))) or "nothing"
    numbers = f"{facts.killed} owned {owned}; {len(again):,} records were read again"
    what = "Records were read again only where the first reader was killed or could not commit"
    return Check(what, f"{numbers}{f': {on}' if on else ''}", tuple(offences))


def last_commits(facts: Facts) -> dict[int, int]:
    """Partition that the killed member owned at the end -> next offset to read, as committed by
    the end of its generation."""
    generation = last_generation(facts)
    return {
        partition: committed_by(facts, partition, generation)
        for partition in sorted(
            o.partition
            for o in facts.owners
            if (o.member, o.generation) == (facts.killed, generation)
        )
    }


def last_generation(facts: Facts) -> int:
    """The last generation in which the killed member owned partitions; -1: none."""
    return max((o.generation for o in facts.owners if o.member == facts.killed), default=-1)


def committed_by(facts: Facts, partition: int, generation: int) -> int:
    """The newest commit by the end of a generation, 0 before the first."""
    found = (
        commit.offset
        for commit in facts.commits
        if commit.partition == partition and commit.generation <= generation
    )
    return max(found, default=0)


def last_commits_of_tenures(facts: Facts) -> dict[int, int]:
    """The same in a server-assigned group, where each partition moves on its own."""
    last = max((g.number for g in facts.generations if facts.killed in g.members), default=-1)
    return {each.partition: committed_by(facts, each.partition, last) for each in _at_end(facts)}


def _at_end(facts: Facts) -> list[Tenure]:
    """The killed member's partitions when it was removed."""
    its = [each for each in facts.tenures if each.member == facts.killed and each.until is not None]
    end = max((each.until for each in its if each.until is not None), default=None)
    return [each for each in its if each.until == end]


def committed_to_the_end(facts: Facts) -> Check:
    """Kafka, Delta and the log agree, and the log holds what was produced and nothing else."""
    offences = [
        f"partition {partition}: committed {_text(facts.committed.get(partition))}, in Delta "
        f"{_text(facts.committed_in_history.get(partition))}, log end {end}"
        for partition, end in sorted(facts.log_ends.items())
        if not facts.committed.get(partition, 0)
        == facts.committed_in_history.get(partition, 0)
        == end
    ]
    total = sum(facts.log_ends.values())
    if total != facts.records:
        offences.append(f"the logs hold {total:,} records, not {facts.records:,}")
    numbers = f"{len(facts.log_ends)} partitions, {total:,} records; in Kafka and in Delta"
    return Check("Committed offsets equal the log ends", numbers, tuple(offences))


def _at(place: tuple[int, int] | None) -> str:
    return f" at {_place(place)}" if place is not None else ""


def _place(place: tuple[int, int]) -> str:
    return f"partition {place[0]} offset {place[1]}"


def _text(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)
