"""Whether the promises of a group of claims hold. Pure.

No coordinator says who owns what; the log does. So Delta's claims are compared with what a reader
of the coordination topic folds, and each owner's readings with the position where its claim began.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise

from coordlib.demo.verdict import Check, Facts, committed_to_the_end, every_record_consumed
from coordlib.demo.witness import Consumed
from coordlib.history.views.groups import Tenure


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim from its begin to its end, from Delta."""

    partition: int
    client: str
    #: The offset of the record that won it: the fencing token.
    epoch: int
    since: datetime
    #: None: until now.
    until: datetime | None
    #: claimed, reclaimed or resumed.
    began: str
    #: released, expired, lost or reclaimed; None: not yet.
    ended: str | None
    #: Next offset to read; None: no message had told one.
    first: int | None
    last: int | None


#: (partition, epoch, client): who has won what, by the log.
Won = tuple[int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsFacts(Facts):
    """Facts of the act `claims`; `tenures` are those of `claims`."""

    claims: Sequence[Claimed]
    #: Folded from the coordination topic.
    won: frozenset[Won]
    #: The client of which a second process was started, and how many claims the first one had.
    twin: str
    twin_claims: int
    #: Who set positions back, and to where.
    operator: str
    set_back: Mapping[int, int]
    #: From when to when no job ran.
    down: tuple[datetime, datetime]


def judge(facts: ClaimsFacts) -> list[Check]:
    """All promises, in the order in which they are printed."""
    return [
        every_record_consumed(facts),
        one_owner_at_a_time(facts),
        none_after_its_successor(facts),
        read_on_from_the_log(facts),
        newer_twin_goes_on(facts),
        set_back_by_the_operator(facts),
        history_is_complete(facts),
        committed_to_the_end(facts),
    ]


def one_owner_at_a_time(facts: Facts) -> Check:
    """Tenures of a partition do not overlap, and each has a higher fence than the one before."""
    offences: list[str] = []
    count = 0
    for partition, tenures in _tenures_by_partition(facts):
        count += len(tenures)
        for before, after in pairwise(tenures):
            if before.until is None or after.since < before.until:
                until = "the end" if before.until is None else before.until.isoformat()
                offences.append(
                    f"partition {partition}: {after.member} from {after.since.isoformat()}, "
                    f"{before.member} until {until}"
                )
            if after.fence <= before.fence:
                offences.append(
                    f"partition {partition}: {after.member} with fence {after.fence} after "
                    f"{before.member} with {before.fence}"
                )
    owned = {each.partition for each in facts.tenures}
    offences += [f"partition {each}: no owner" for each in facts.partitions if each not in owned]
    what = "One owner at a time for each partition, each with a higher fence than the one before"
    return Check(what, f"{count} tenures of {len(owned)} partitions", tuple(offences))


def none_after_its_successor(facts: Facts) -> Check:
    """Each reading has a fencing token of its reader's, by Delta; none comes after a higher one."""
    given = {(each.member, each.fence, each.partition) for each in facts.tenures}
    return readers_in_turn(
        *("No member read a partition after its successor began", facts, "with fence"),
        turn_of=lambda each: each.fence,
        is_its=lambda each: (each.member, each.fence, each.partition) in given,
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
        where = f"partition {each.partition} offset {each.offset}"
        reading = f"{each.member} {by} {turn_of(each)} read {where}"
        if not is_its(each):
            offences.append(f"{reading} without owning the partition")
        before = newest.get(each.partition, each)
        if turn_of(before) > turn_of(each):
            offences.append(f"{reading} after {before.member} had begun {by} {turn_of(before)}")
        else:
            newest[each.partition] = each
    return Check(what, f"{len(facts.consumed):,} readings", tuple(offences))


def _tenures_by_partition(facts: Facts) -> Iterator[tuple[int, list[Tenure]]]:
    """Tenures by partition, in the order of time."""
    found = sorted(facts.tenures, key=lambda each: (each.partition, each.since, each.fence))
    for partition, some in groupby(found, key=lambda each: each.partition):
        yield partition, list(some)


def last_positions(facts: ClaimsFacts) -> dict[int, int]:
    """Partition that the killed consumer had -> its position by its last sign."""
    return {each.partition: each.last or 0 for each in _of_the_killed(facts)}


def read_on_from_the_log(facts: ClaimsFacts) -> Check:
    """A claim begins at the position where the one before has ended; its owner reads from there
    without a gap, and signs nothing that it has not read. So only what was not signed is read
    twice."""
    offences: list[str] = []
    read: dict[tuple[int, int], list[int]] = {}
    for one in sorted(facts.consumed, key=lambda one: one.at_ns):
        read.setdefault((one.partition, one.fence), []).append(one.offset)
    for _, claims in _by_partition(facts):
        offences += [
            f"{_text(after)} began at {after.first}, and {_text(before)} had ended at {before.last}"
            for before, after in pairwise(claims)
            if (before.last or 0) != (after.first or 0)
        ]
        for each in claims:
            offences += _misread(each, read.get((each.partition, each.epoch), []), facts)
    again = len(facts.consumed) - len({(one.partition, one.offset) for one in facts.consumed})
    what = "Each owner read on from the position in the log, without a gap"
    return Check(what, f"{len(facts.claims)} claims; {again:,} readings twice", tuple(offences))


def newer_twin_goes_on(facts: ClaimsFacts) -> Check:
    """Of two processes with one client id the newer one has taken back all that the older had."""
    back = [each for each in facts.claims if each.began == "reclaimed"]
    offences = [
        f"{_text(each)} was taken back, and it is not {facts.twin}'s"
        for each in back
        if each.client != facts.twin
    ]
    if len(back) != facts.twin_claims or not back:
        offences.append(f"{len(back)} claims were taken back, not {facts.twin_claims}")
    what = f"A second process of {facts.twin} took its claims back, and the first one stopped"
    return Check(what, f"{len(back)} claims", tuple(offences))


def set_back_by_the_operator(facts: ClaimsFacts) -> Check:
    """One claim of the operator in each partition, between two of consumers that was released and
    that began at the new position."""
    offences: list[str] = []
    for partition, target in sorted(facts.set_back.items()):
        claims = [each for each in facts.claims if each.partition == partition]
        at = [n for n, each in enumerate(claims) if each.client == facts.operator]
        if len(at) != 1 or not 0 < at[0] < len(claims) - 1:
            offences.append(f"partition {partition}: {len(at)} claims of {facts.operator}")
            continue
        before, its, after = claims[at[0] - 1 : at[0] + 2]
        if before.ended != "released":
            offences.append(f"{_text(before)} was {before.ended}, not released")
        if (its.last, after.first) != (target, target):
            offences.append(f"{_text(after)} began at {after.first}, and {target} was set")
    if not facts.set_back:
        offences.append("nothing was set back")
    what = "The paused group released everything, and went on where it was set back to"
    return Check(what, f"{len(facts.set_back)} partitions", tuple(offences))


def history_is_complete(facts: ClaimsFacts) -> Check:
    """Delta has each claim of the log and no other one, those too that were won without a job."""
    told = {(each.partition, each.epoch, each.client) for each in facts.claims}
    offences = [f"Delta lacks {_text_of_won(each)}" for each in sorted(facts.won - told)]
    offences += [f"the log lacks {_text_of_won(each)}" for each in sorted(told - facts.won)]
    if len(told) != len(facts.claims):
        offences.append("Delta has a claim twice")
    offences += [f"{_text(each)} has not ended" for each in facts.claims if each.until is None]
    lost, moved = _of_the_killed(facts), _moved_without_a_job(facts)
    if moved != len(lost) or not lost:
        offences.append(f"{moved} of {len(lost)} claims of {facts.killed} moved while no job ran")
    begin, end = facts.down
    unseen = sum(begin <= each.since <= end for each in facts.claims)
    numbers = (
        f"{len(facts.claims)} claims, {unseen} of them won while the job was down, {moved} of "
        f"those after {facts.killed}"
    )
    what = "History has every claim, also those of the time without a job"
    return Check(what, numbers, tuple(offences))


def _moved_without_a_job(facts: ClaimsFacts) -> int:
    """How many claims of the killed consumer expired, and were followed by another one, then."""
    begin, end = facts.down
    return sum(
        before.client == facts.killed
        and before.ended == "expired"
        and before.until is not None
        and begin <= before.until <= after.since <= end
        for _, claims in _by_partition(facts)
        for before, after in pairwise(claims)
    )


def _misread(claim: Claimed, offsets: Sequence[int], facts: ClaimsFacts) -> Iterator[str]:
    first = claim.first or 0
    if list(offsets) != list(range(first, first + len(offsets))):
        yield f"{_text(claim)} did not read from {first} without a gap"
    is_unseen = claim.last is not None and claim.last > first + len(offsets)
    if is_unseen and claim.client != facts.operator:
        yield f"{_text(claim)} signed {claim.last} after {len(offsets)} records from {first}"


def _of_the_killed(facts: ClaimsFacts) -> list[Claimed]:
    its = [each for each in facts.claims if each.client == facts.killed]
    return [each for each in its if each.ended == "expired"]


def _by_partition(facts: ClaimsFacts) -> Iterator[tuple[int, list[Claimed]]]:
    """Claims by partition, in the order of the log."""
    found = sorted(facts.claims, key=lambda each: (each.partition, each.epoch))
    for partition, some in groupby(found, key=lambda each: each.partition):
        yield partition, list(some)


def _text(claim: Claimed) -> str:
    return _text_of_won((claim.partition, claim.epoch, claim.client))


def _text_of_won(won: Won) -> str:
    partition, epoch, client = won
    return f"the claim of {client} on partition {partition} with epoch {epoch}"
