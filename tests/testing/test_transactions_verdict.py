"""The verdict on the act `transactions` finds what is wrong: runs that are right but for that."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coordlib.demo.history import read, record
from coordlib.demo.verdict import Check
from tests.stack.acts.copy_witness import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    CopyWitness,
    CopyWitnessFile,
    Unit,
)
from tests.stack.acts.transactions_verdict import (
    IS_COMMITTED,
    IS_DROPPED,
    Copied,
    CopyFacts,
    Decision,
    committed_to_the_end,
    copied_once,
    decided_once,
    judge,
    killed_unit_is_void,
    order_is_kept,
    units_are_whole,
)
from tests.tools.checking import checkers

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def copied(copier: str, unit: int, partition: int, first: int, *offsets: int) -> list[Copied]:
    """Copies of records of a partition, whose numbers are 10 * partition + offset."""
    return [
        Copied(partition, first + n, 10 * partition + each, each, copier, unit)
        for n, each in enumerate(offsets)
    ]


def unit(copier: str, number: int, outcome: str, *records: int, accepted: int = 5) -> Unit:
    ended = -1 if outcome == UNKNOWN else 9
    return Unit(copier, number, 1, records, 3, accepted, ended, outcome)


# a copies partition 0, b partition 1. a is killed in its unit 1; b has aborted its unit 1 while the
# job was away, and takes partition 0 over.
COPIES = [
    *copied("a", 0, 0, 0, 0, 1),
    *copied("b", 2, 0, 7, 2, 3),
    *copied("b", 0, 1, 0, 0, 1),
    *copied("b", 2, 1, 6, 2, 3),
]
VOID = copied("a", 1, 0, 3, 2, 3)
KILLED = unit("a", 1, UNKNOWN, 2, 3)
UNITS = [
    unit("a", 0, COMMITTED, 0, 1),
    KILLED,
    unit("b", 0, COMMITTED, 10, 11),
    unit("b", 1, ABORTED, 12, 13, accepted=-1),
    unit("b", 2, COMMITTED, 2, 3, 12, 13),
]
DECISIONS = [
    Decision("r0-1", "a", {0: 2}, at(1), IS_COMMITTED, at(2)),
    Decision("r0-2", "b", {1: 2}, at(1), IS_COMMITTED, at(2)),
    Decision("r0-5", "a", {0: 4}, at(3), IS_DROPPED, at(21)),
    Decision("r0-9", "b", {0: 4, 1: 4}, at(22), IS_COMMITTED, at(23)),
]


def facts_of(**different: Any) -> CopyFacts:
    facts = CopyFacts(
        records=8,
        placed={},
        copies=COPIES,
        written=sorted([*COPIES, *VOID]),
        units=UNITS,
        killed=KILLED,
        decisions=DECISIONS,
        committed={0: 4, 1: 4},
        committed_in_history={0: 4, 1: 4},
        log_ends={0: 4, 1: 4},
        down=(at(4), at(20)),
    )
    return replace(renumbered(facts), **different)


def renumbered(facts: CopyFacts) -> CopyFacts:
    """Numbers 0 to 7 in place of 0 to 3 and 10 to 13."""

    def of(number: int) -> int:
        return number if number < 10 else number - 6

    def these(some: Any) -> list[Copied]:
        return [each._replace(number=of(each.number)) for each in some]

    units = [replace(each, records=tuple(map(of, each.records))) for each in facts.units]
    return replace(
        facts,
        placed={of(10 * p + offset): (p, offset) for p in (0, 1) for offset in range(4)},
        copies=these(facts.copies),
        written=these(facts.written),
        units=units,
    )


GOOD = facts_of()


def test_a_good_run_has_no_offence() -> None:
    checks = judge(GOOD)

    assert [check.offences for check in checks] == [()] * 6
    assert checks[1].numbers == (
        "2 records in the log, 0 visible; its offsets of 1 partitions waited for 18.0 s"
    )
    assert "0 decided in that time" in checks[4].numbers


def without(copies: list[Copied], *indexes: int) -> list[Copied]:
    return [each for n, each in enumerate(copies) if n not in indexes]


COPIED = list(GOOD.copies)
SEEN = [each._replace(copier="a", unit=1) if each.number in (2, 3) else each for each in COPIED]


@pytest.mark.parametrize(
    ("check", "facts", "offence"),
    [
        (
            copied_once,
            facts_of(copies=without(COPIED, 1)),
            "record 1 is in the copy 0 times",
        ),
        (
            copied_once,
            facts_of(copies=[*COPIED, COPIED[0]._replace(offset=20)]),
            "record 0 is in the copy 2 times",
        ),
        (
            copied_once,
            facts_of(copies=[COPIED[0]._replace(source_offset=3), *COPIED[1:]]),
            "the copy at 0-0 is of record 0 at 0-3, where it was not written",
        ),
        (copied_once, facts_of(placed={}), "record 0 was not acknowledged"),
        (killed_unit_is_void, facts_of(copies=SEEN), "unit 1 of a: 2 of its records are visible"),
        (
            killed_unit_is_void,
            facts_of(written=COPIED),
            "unit 1 of a had not come between acceptance and commit",
        ),
        (
            killed_unit_is_void,
            facts_of(killed=replace(KILLED, accepted_ns=-1)),
            "unit 1 of a had not come between acceptance and commit",
        ),
        (
            killed_unit_is_void,
            facts_of(decisions=without(DECISIONS, 2)),  # type: ignore[arg-type]
            "the offsets of unit 1 of a were not dropped",
        ),
        (
            killed_unit_is_void,
            facts_of(copies=without(COPIED, 2)),
            "record 2 of unit 1 of a was copied by nobody else",
        ),
        (
            units_are_whole,
            facts_of(copies=without(COPIED, 2)),
            "unit 2 of b is committed: 3 records are visible, and it wrote 4",
        ),
        (
            units_are_whole,
            facts_of(copies=[*COPIED, COPIED[6]._replace(unit=1)]),
            "unit 1 of b is aborted: 1 records are visible, and it wrote 2",
        ),
        (
            units_are_whole,
            facts_of(copies=[*COPIED, *[e._replace(number=2) for e in VOID[:1]]]),
            "unit 1 of a is torn: 1 records are visible, and it wrote 2",
        ),
        (
            units_are_whole,
            facts_of(copies=[*COPIED, COPIED[0]._replace(unit=7)]),
            "unit 7 of a: nobody began it",
        ),
        (
            order_is_kept,
            facts_of(copies=[COPIED[1], COPIED[0]._replace(offset=1), *COPIED[2:]]),
            "0-1 copies offset 0 behind 1",
        ),
        (
            order_is_kept,
            facts_of(copies=[each for each in COPIED if each.partition == 1]),
            "no partition passed from one copier to the other",
        ),
        (
            decided_once,
            facts_of(decisions=[*DECISIONS[:3], DECISIONS[3]._replace(outcome="")]),
            "the commit r0-9 of b was never decided",
        ),
        (
            decided_once,
            facts_of(decisions=[*DECISIONS[:3], DECISIONS[3]._replace(outcome=IS_DROPPED)]),
            "2 commits became true, and 3 units are committed",
        ),
        (
            decided_once,
            facts_of(decisions=DECISIONS[:3]),
            "4 units were accepted: 3 commits",
        ),
        (
            committed_to_the_end,
            facts_of(committed={0: 4, 1: 3}),
            "partition 1: committed 3, in Delta 4, log end 4",
        ),
    ],
)
def test_what_is_wrong_is_told(
    check: Callable[[CopyFacts], Check], facts: CopyFacts, offence: str
) -> None:
    assert offence in check(facts).offences


def test_a_unit_that_was_killed_may_count_as_a_whole() -> None:
    """Kafka may have committed what nobody could write down."""
    committed = replace(GOOD, copies=SEEN)

    assert units_are_whole(replace(committed, units=[GOOD.units[0], GOOD.units[1]])).offences != ()
    assert not [
        offence for offence in units_are_whole(committed).offences if "unit 1 of a" in offence
    ]


def test_a_witness_tells_its_units_also_of_a_killed_copier(tmp_path: Path) -> None:
    """Each line is there before the step behind it; what follows the kill is missing."""
    file = CopyWitnessFile(tmp_path / "a.txt")
    for number, records in ((0, (4, 5)), (1, ())):
        file.unit(number, "began")
        for each in records:
            file.record(0, each, each)
        file.unit(number, "written")
        file.unit(number, COMMITTED)
    file.unit(2, "began")
    file.record(1, 0, 9)
    file.unit(2, "written")
    file.unit(2, "accepted")
    witness = CopyWitness("a", tmp_path / "a.txt")
    witness.read_on()

    assert [(each.records, each.outcome) for each in witness.units] == [
        ((4, 5), COMMITTED),
        ((), COMMITTED),
        ((9,), UNKNOWN),
    ]
    assert witness.waits_accepted
    file.unit(2, ABORTED)
    witness.read_on()
    assert (witness.waits_accepted, witness.units[2].outcome) == (False, ABORTED)


@pytest.mark.parametrize("is_told", [True, False])
def test_an_aborted_unit_explains_what_is_read_twice(tmp_path: Path, is_told: bool) -> None:
    """The consumer is set back to where the unit began; else a record was read twice."""
    file = CopyWitnessFile(tmp_path / "a.txt")
    file.assigned(1, [0], fence=7)
    for outcome in (ABORTED, COMMITTED):
        for offset in range(2):
            file.record(0, offset, offset)
        file.commit({0: 2})
        if outcome == COMMITTED:
            file.committed({0: 2})
        else:
            file.refused("no answer in time")
            if is_told:
                file.rewound({0: 0})
    witness = CopyWitness("a", tmp_path / "a.txt")
    witness.read_on()
    path = tmp_path / "history.jsonl"
    record(path, [witness], {}, "readings", "copiers")

    assert (not checkers.check(read(path))) is is_told
