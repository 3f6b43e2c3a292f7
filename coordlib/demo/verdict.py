"""Whether the promises hold, computed from the recorded files. Pure.

The members' witnesses have each reading with its time and generation; Delta has the owners of each
partition and the commits; the broker has the log ends.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

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
    #: Readings of Spark queries in batches that did not end.
    unfinished: Sequence[Consumed] = ()

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


def judge(facts: Facts) -> list[Check]:
    """All promises, in the order in which they are printed."""
    return [
        every_record_consumed(facts),
        duplicates_only_from_the_killed(facts),
        one_owner(facts),
        only_owners_read(facts),
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


def duplicates_only_from_the_killed(facts: Facts) -> Check:
    """Without the killed member's readings after its last commits, no reading is double."""
    last, generation = last_commits(facts), last_generation(facts)

    def is_forgiven(each: Consumed) -> bool:
        by_killed = (each.member, each.generation) == (facts.killed, generation)
        return by_killed and each.offset >= last.get(each.partition, each.offset + 1)

    what = f"Duplicates only above the last commit of {facts.killed}, on its partitions"
    return without_doubles(what, facts, is_forgiven, last)


def without_doubles(
    what: str,
    facts: Facts,
    is_forgiven: Callable[[Consumed], bool],
    last: Mapping[int, int],
    unfinished: Sequence[Consumed] = (),
) -> Check:
    """No record is read twice among the forgiven readings, nor among all others.

    Args:
        is_forgiven: whether the killed member had read this and not committed.
        last: partition of the killed member -> its last commit.
        unfinished: left out: these records must be read again in any case.
    """
    left_out = set(unfinished)
    forgiven = [each for each in facts.consumed if is_forgiven(each)]
    others = [each for each in facts.consumed if not is_forgiven(each) and each not in left_out]
    doubles = {
        place: readers
        for rows in (_readers(forgiven), _readers(others))
        for place, readers in rows.items()
        if len(readers) > 1
    }
    offences = tuple(
        f"{_place(place)} was read by {' and '.join(readers)}"
        f"{_commit_text(place, last, facts.killed)}"
        for place, readers in sorted(doubles.items())
    )
    places = {(each.partition, each.offset) for each in others}
    again = Counter(p for p, offset in _readers(forgiven) if (p, offset) in places)
    where = ", ".join(f"{count:,} on {partition}" for partition, count in sorted(again.items()))
    numbers = (
        f"{facts.killed} owned {', '.join(map(str, sorted(last))) or 'nothing'}; "
        f"{again.total():,} records that it had not committed were read again"
        f"{f': {where}' if where else ''}"
    )
    return Check(what, numbers, offences)


def one_owner(facts: Facts) -> Check:
    """A generation that ended before its leader had assigned partitions has no owners at all."""
    owners: dict[tuple[int, int], list[str]] = {}
    for owner in facts.owners:
        owners.setdefault((owner.generation, owner.partition), []).append(owner.member)
    divided = sorted({owner.generation for owner in facts.owners})
    offences = [
        f"generation {generation}, partition {partition}: "
        f"{' and '.join(found) if found else 'no owner'}"
        for generation in divided
        for partition in facts.partitions
        if len(found := owners.get((generation, partition), [])) != 1
    ]
    if not divided:
        offences.append("no generation has owners")
    undivided = {g.number for g in facts.generations if g.members} - set(divided)
    numbers = f"{len(divided)} generations of {len(facts.partitions)} partitions"
    if undivided:
        numbers += (
            f"; superseded before they were assigned: {', '.join(map(str, sorted(undivided)))}"
        )
    return Check("Exactly one owner per partition and generation", numbers, tuple(offences))


def only_owners_read(facts: Facts) -> Check:
    """Readings by another member than the owner, and readings after the successor's first one."""
    owned = {(owner.member, owner.generation, owner.partition) for owner in facts.owners}
    return readers_in_turn(
        *("Only owners read, and none after its successor began", facts, "in generation"),
        turn_of=lambda each: each.generation,
        is_its=lambda each: (each.member, each.generation, each.partition) in owned,
    )


def readers_in_turn(
    what: str,
    facts: Facts,
    by: str,
    turn_of: Callable[[Consumed], int],
    is_its: Callable[[Consumed], bool],
) -> Check:
    """Partitions pass from reader to reader under a rising number.

    Args:
        by: what the number is, in words.
        turn_of: the number under which a reading was made.
        is_its: whether the reader had the partition under that number, by Delta.
    """
    offences: list[str] = []
    newest: dict[int, Consumed] = {}
    for each in sorted(facts.consumed, key=lambda one: one.at_ns):
        reading = f"{each.member} {by} {turn_of(each)} read {_place_of(each)}"
        if not is_its(each):
            offences.append(f"{reading} without owning the partition")
        before = newest.get(each.partition, each)
        if turn_of(before) > turn_of(each):
            offences.append(f"{reading} after {before.member} had begun {by} {turn_of(before)}")
        else:
            newest[each.partition] = each
    return Check(what, f"{len(facts.consumed):,} readings", tuple(offences))


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


def _readers(consumed: Iterable[Consumed]) -> dict[tuple[int, int], list[str]]:
    """(partition, offset) -> its readers, one per reading."""
    found: dict[tuple[int, int], list[str]] = {}
    for each in consumed:
        reader = f"{each.member} (generation {each.generation})"
        found.setdefault((each.partition, each.offset), []).append(reader)
    return found


def _commit_text(place: tuple[int, int], last: Mapping[int, int], killed: str) -> str:
    partition, _ = place
    if partition not in last:
        return f"; {killed} did not own this partition"
    return f"; the last commit was {last[partition]}"


def _at(place: tuple[int, int] | None) -> str:
    return f" at {_place(place)}" if place is not None else ""


def _place(place: tuple[int, int]) -> str:
    return f"partition {place[0]} offset {place[1]}"


def _place_of(each: Consumed) -> str:
    return _place((each.partition, each.offset))


def _text(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)
