"""The verdict on the table of the act `transactions` finds what is wrong: runs that are right but
for that; and its facts are those of a real table."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from coordlib.demo.verdict import Check
from tests.stack.acts.copy_witness import COMMITTED, UNKNOWN, Unit
from tests.stack.acts.table_facts import batches_in, rows_in
from tests.stack.acts.table_verdict import (
    Batch,
    Row,
    TableFacts,
    batches_are_units,
    committed_behind_the_copy,
    judge,
    killed_batch_counts,
    written_once,
)
from tests.stack.acts.transactions_verdict import IS_COMMITTED, IS_DROPPED, Copied, Decision
from tests.testing.test_transactions_verdict import at, unit

# w writes partition 0 and v partition 1 of the copy, whose records are numbered 10 * partition + n
# here, and lie at 2 * n: behind each is the end of a transaction. w is killed in its batch 1.
COPIES = [Copied(p, 2 * n, 10 * p + n, n, "a", 0) for p in (0, 1) for n in range(3)]


def rows(partition: int, *numbers: int) -> tuple[Row, ...]:
    return tuple(Row(10 * partition + n, partition, 2 * n) for n in numbers)


BATCHES = [
    Batch(1, 7, rows(0, 0)),
    Batch(2, 8, rows(1, 0, 1)),
    Batch(3, 11, rows(0, 1)),
    Batch(6, 29, rows(0, 2) + rows(1, 2)),
]
KILLED = unit("w", 1, UNKNOWN, 1)
UNITS = [
    unit("w", 0, COMMITTED, 0),
    KILLED,
    unit("v", 0, COMMITTED, 10, 11),
    unit("v", 1, UNKNOWN, accepted=-1),
    unit("v", 2, COMMITTED, 2, 12),
]
DECISIONS = [
    Decision("r1-7", "w", {0: 1}, at(1), IS_COMMITTED, at(2)),
    Decision("r1-8", "v", {1: 3}, at(1), IS_COMMITTED, at(2)),
    Decision("r1-11", "w", {0: 3}, at(3), IS_COMMITTED, at(15.5), "v"),
    Decision("r1-20", "v", {1: 5}, at(16), IS_DROPPED, at(17)),
    Decision("r1-29", "v", {0: 5, 1: 5}, at(18), IS_COMMITTED, at(19)),
]
#: The numbers of the records: 0 to 5 in place of those above.
WANTED = {0: 0, 1: 1, 2: 2, 10: 3, 11: 4, 12: 5}


def renumbered(unit: Unit) -> Unit:
    return replace(unit, records=tuple(WANTED[each] for each in unit.records))


GOOD = TableFacts(
    records=6,
    copies=[each._replace(number=WANTED[each.number]) for each in COPIES],
    batches=[
        each._replace(rows=tuple(row._replace(number=WANTED[row.number]) for row in each.rows))
        for each in BATCHES
    ],
    units=[renumbered(each) for each in UNITS],
    killed=renumbered(KILLED),
    decisions=DECISIONS,
    committed={0: 5, 1: 5},
    committed_in_history={0: 5, 1: 5},
)


def but(**different: Any) -> TableFacts:
    return replace(GOOD, **different)


def with_batch(index: int, **different: Any) -> list[Batch]:
    batches = list(GOOD.batches)
    batches[index] = batches[index]._replace(**different)
    return batches


def with_decision(index: int, **different: Any) -> list[Decision]:
    decisions = list(DECISIONS)
    decisions[index] = decisions[index]._replace(**different)
    return decisions


def without(index: int, some: Any) -> list[Any]:
    return [each for n, each in enumerate(some) if n != index]


def test_a_good_run_has_no_offence() -> None:
    checks = judge(GOOD)

    assert [check.offences for check in checks] == [()] * 4
    assert checks[0].numbers == "6 of 6 records in 6 rows"
    assert checks[1].numbers == "4 batches; 1 were shut out or given up"
    assert checks[2].numbers == (
        "1 rows; v found them, and their offsets of 1 partitions waited for 12.5 s"
    )


AGAIN = Batch(4, 12, GOOD.batches[2].rows)


@pytest.mark.parametrize(
    ("check", "facts", "offence"),
    [
        (
            written_once,
            but(batches=without(1, GOOD.batches)),
            "record 3 is in the table 0 times",
        ),
        (
            written_once,
            but(batches=[*GOOD.batches, AGAIN]),
            "record 1 is in the table 2 times",
        ),
        (
            written_once,
            but(records=7),
            "record 6 is in the table 0 times",
        ),
        (
            written_once,
            but(batches=with_batch(0, rows=(Row(0, 0, 1),))),
            "the table has record 0 from 0-1 of the copy, where readers find nothing",
        ),
        (
            written_once,
            but(batches=with_batch(0, rows=(Row(0, 0, 2),))),
            "the table has record 0 from 0-2 of the copy, where readers find 1",
        ),
        (
            batches_are_units,
            but(decisions=with_decision(4, outcome="")),
            "the commit r1-29 of v was never decided",
        ),
        (
            batches_are_units,
            but(decisions=with_decision(4, outcome="")),
            "version 6 of the table has 2 rows, and its offsets are not committed",
        ),
        (
            batches_are_units,
            but(decisions=with_decision(2, outcome=IS_DROPPED)),
            "version 3 of the table has 1 rows, and its offsets are not committed",
        ),
        (
            batches_are_units,
            but(batches=with_batch(0, token=-1)),
            "version 1 of the table has 1 rows, and its offsets are not committed",
        ),
        (
            batches_are_units,
            but(batches=[*GOOD.batches, AGAIN]),
            "version 4 of the table has 1 rows, and its offsets are not committed",
        ),
        (
            batches_are_units,
            but(decisions=with_decision(1, offsets={1: 5})),
            "version 2 of the table has 2 rows up to {1: 3}, and {1: 5} is committed",
        ),
        (
            batches_are_units,
            but(batches=without(1, GOOD.batches)),
            "the commit r1-8 of v became true, and its rows are missing",
        ),
        (
            batches_are_units,
            but(decisions=with_decision(3, outcome=IS_COMMITTED)),
            "the commit r1-20 of v became true, and its rows are missing",
        ),
        (
            batches_are_units,
            but(batches=with_batch(1, rows=GOOD.batches[1].rows[:1])),
            "batch 0 of v was written, and the table has no such commit",
        ),
        (
            killed_batch_counts,
            but(killed=replace(GOOD.killed, accepted_ns=-1)),
            "batch 1 of w had not come between the table and its word",
        ),
        (
            killed_batch_counts,
            but(killed=replace(GOOD.killed, records=())),
            "batch 1 of w had not come between the table and its word",
        ),
        (
            killed_batch_counts,
            but(killed=replace(GOOD.killed, outcome=COMMITTED)),
            "batch 1 of w had not come between the table and its word",
        ),
        (
            killed_batch_counts,
            but(batches=without(2, GOOD.batches)),
            "batch 1 of w is 0 commits of the table",
        ),
        (
            killed_batch_counts,
            but(batches=[*GOOD.batches, AGAIN]),
            "batch 1 of w is 2 commits of the table",
        ),
        (
            killed_batch_counts,
            but(decisions=without(2, DECISIONS)),
            "the offsets of batch 1 of w are not committed",
        ),
        (
            killed_batch_counts,
            but(decisions=with_decision(2, outcome=IS_DROPPED)),
            "the offsets of batch 1 of w are not committed",
        ),
        (
            killed_batch_counts,
            but(decisions=with_decision(2, copier="v")),
            "the offsets of batch 1 of w are of v",
        ),
        (
            killed_batch_counts,
            but(decisions=with_decision(2, by="")),
            "nobody but w has decided about batch 1 of w",
        ),
        (
            killed_batch_counts,
            but(batches=with_batch(3, rows=GOOD.batches[3].rows[1:])),
            "nobody goes on behind batch 1 of w in partition 0",
        ),
        (
            committed_behind_the_copy,
            but(committed={0: 5, 1: 3}),
            "partition 1: committed 3, in Delta 5, end of the copy 5",
        ),
        (
            committed_behind_the_copy,
            but(committed_in_history={0: 5}),
            "partition 1: committed 5, in Delta 0, end of the copy 5",
        ),
    ],
)
def test_what_is_wrong_is_told(
    check: Callable[[TableFacts], Check], facts: TableFacts, offence: str
) -> None:
    assert offence in check(facts).offences


def append(table: Path, token: int | None, *some: Row) -> None:
    columns = zip(*some, strict=True) if some else ([], [], [])
    data = pa.table(dict(zip(Row._fields, map(list, columns), strict=True)), SCHEMA)
    tokens = [] if token is None else [Transaction("coordlib/log/group/m", token)]
    properties = CommitProperties(app_transactions=tokens)
    write_deltalake(table, data, mode="append", commit_properties=properties)


SCHEMA = pa.schema([("number", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64())])


def test_batches_are_the_commits_with_rows(tmp_path: Path) -> None:
    """A claim has none; a commit of somebody else has no token."""
    table = tmp_path / "a table"
    assert (batches_in(table), rows_in(table)) == ([], 0)
    append(table, None)
    append(table, 7, Row(3, 0, 0), Row(4, 1, 2))
    append(table, 30)
    append(table, None, Row(5, 1, 4))

    assert [each._replace(rows=tuple(sorted(each.rows))) for each in batches_in(table)] == [
        Batch(1, 7, (Row(3, 0, 0), Row(4, 1, 2))),
        Batch(3, -1, (Row(5, 1, 4),)),
    ]
    assert rows_in(table) == 3


def test_rows_that_readers_see_and_no_commit_has_added_are_a_batch_of_nobody(
    tmp_path: Path,
) -> None:
    """The log's part that added them was removed: the verdict must not pass over them."""
    table = tmp_path / "table"
    append(table, 7, Row(3, 0, 0))
    append(table, 8, Row(4, 0, 2))
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{0:020}.json").unlink()

    assert batches_in(table) == [Batch(1, 8, (Row(4, 0, 2),)), Batch(-1, -1, (Row(3, 0, 0),))]
