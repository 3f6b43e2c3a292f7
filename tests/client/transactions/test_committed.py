"""What a reader of committed transactions delivers, whatever stands in a partition."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.client.transactions.committed import (
    ASK_AFTER_MS,
    GONE,
    OPEN,
    PartitionReader,
    TornTransaction,
    verdict_of,
)
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Stamp, Txn
from coordlib.core.wire.transactions import ABORT, COMMIT, EndedTransaction

I = "FakeLog0"  # noqa: E741  # as the header has it


def of(t: str, e: int, s: int, p: int = 7) -> Stamp:
    return Stamp(i=I, t=t, p=p, e=e, s=s)


def end(t: str, e: int, result: Any = COMMIT, n: int | None = None, p: int = 7) -> Marker:
    named = {} if n is None else {"n": n}
    return Marker(i=I, t=t, p=p, e=e, r=result, **named)


def txn(t: str, e: int, p: int = 7) -> Txn:
    return Txn(I, t, p, e)


class Log:
    """A partition, and who reads it."""

    def __init__(self, first: int = 0) -> None:
        self.reader: PartitionReader[str] = PartitionReader("t-0", first)
        self._next, self.now_ms = first, 0

    def write(self, *headers: Stamp | Marker | None) -> "Log":
        for header in headers:
            self.reader.add(self._next, header, f"r{self._next}", self.now_ms)
            self._next += 1
        return self

    def delivered(self) -> list[str]:
        found = []
        while (taken := self.reader.take()) is not None:
            found.append(taken[1])
        return found


def test_a_committed_transaction_is_delivered_when_its_marker_is_there() -> None:
    log = Log().write(None, of("a", 0, 0), None, of("a", 0, 1))
    assert log.delivered() == ["r0"]
    assert log.reader.last_stable == 1

    log.write(end("a", 0, n=2))

    assert log.delivered() == ["r1", "r2", "r3"]
    assert log.reader.last_stable == 5


def test_an_aborted_transaction_is_skipped() -> None:
    log = Log().write(of("a", 0, 0), None, of("a", 0, 1), end("a", 0, ABORT))

    assert log.delivered() == ["r1"]


def test_offset_order_holds_among_transactions() -> None:
    """The later one ends first: its records wait behind the undecided one."""
    log = Log().write(of("a", 0, 0), of("b", 0, 0, p=8), end("b", 0, n=1, p=8))
    assert log.delivered() == []
    log.write(end("a", 0, n=1))

    assert log.delivered() == ["r0", "r1"]


def test_a_record_that_comes_again_is_dropped() -> None:
    log = Log().write(of("a", 0, 0), of("a", 0, 1), of("a", 0, 0), of("a", 0, 1), end("a", 0, n=2))

    assert log.delivered() == ["r0", "r1"]
    assert log.reader.dropped == 2


def test_a_record_behind_its_marker_is_dropped() -> None:
    """A fenced process wakes up, and writes what it had begun; its successor goes on."""
    log = Log().write(
        of("a", 0, 0), end("a", 0, ABORT), of("a", 0, 1), of("a", 1, 0), of("a", 0, 2)
    )
    log.write(end("a", 1, n=1))

    assert log.delivered() == ["r3"]
    assert log.reader.dropped == 2


def test_a_record_behind_a_marker_before_it_has_written_anything_is_dropped() -> None:
    """Its partition was added and its transaction aborted; then its first record arrives."""
    log = Log().write(end("a", 3, ABORT), of("a", 3, 0), None)

    assert log.delivered() == ["r2"]
    assert log.reader.next_question(10_000) is None


def test_a_newer_producer_id_is_later_than_an_older_one() -> None:
    """The epochs of the older one are used up; the new one begins with 0."""
    log = Log().write(of("a", 32_766, 0, p=7), end("a", 32_766, p=7), of("a", 0, 0, p=30))
    log.write(of("a", 32_766, 1, p=7), end("a", 0, p=30, n=1))

    assert log.delivered() == ["r0", "r2"]


@pytest.mark.parametrize(
    "written",
    [
        [of("a", 0, 0), of("a", 0, 2), end("a", 0, n=3)],
        [of("a", 0, 0), end("a", 0, n=2)],
        [of("a", 0, 0), of("a", 0, 1), end("a", 0, n=1)],
        [of("a", 0, 1), end("a", 0, n=2)],
        [end("a", 0, n=2)],
    ],
    ids=["a gap", "the last one", "one too many", "the first one", "all"],
)
def test_a_committed_transaction_that_lacks_records_is_torn(written: list[Any]) -> None:
    """The other cluster has lost what it had acknowledged; Kafka's readers would not notice."""
    log = Log().write(None, *written, None)
    assert log.reader.take() == (0, "r0")

    for _ in range(2):
        with pytest.raises(TornTransaction) as torn:
            log.reader.take()
    log.reader.give_up(torn.value.transaction)

    assert torn.value.transaction == txn("a", 0)
    assert log.delivered() == [f"r{len(written) + 1}"]


def test_an_aborted_transaction_may_lack_records() -> None:
    log = Log().write(of("a", 0, 0), of("a", 0, 4), end("a", 0, ABORT), None)

    assert log.delivered() == ["r3"]


def test_what_is_missing_is_told_also_when_all_else_was_delivered() -> None:
    """The coordinator decided before the marker was there."""
    log = Log().write(of("a", 0, 0))
    log.reader.answered(txn("a", 0), COMMIT, 0)
    assert log.delivered() == ["r0"]
    log.write(end("a", 0, n=2))

    with pytest.raises(TornTransaction):
        log.delivered()


def test_a_marker_of_another_process_has_no_count() -> None:
    """The successor cannot tell how many records there are; gaps are found all the same."""
    assert Log().write(of("a", 0, 0), of("a", 0, 1), end("a", 0)).delivered() == ["r0", "r1"]
    with pytest.raises(TornTransaction):
        Log().write(of("a", 0, 0), of("a", 0, 2), end("a", 0)).delivered()


def test_a_reader_that_begins_in_the_middle_sees_the_rest() -> None:
    """It was delivered up to there before a restart: the position is exact."""
    log = Log(first=12).write(of("a", 0, 5), of("b", 0, 9, p=8), of("a", 0, 6))
    log.write(end("a", 0, n=7), end("b", 0, n=10, p=8), of("a", 1, 0), end("a", 1, n=1))

    assert log.delivered() == ["r12", "r13", "r14", "r17"]


def test_a_transaction_that_began_behind_a_reader_s_begin_is_checked() -> None:
    """Another transaction of its id has ended since, so all of it must be there."""
    log = Log(first=12).write(of("a", 0, 6), end("a", 0, n=7), of("a", 1, 1), end("a", 1))
    assert log.reader.take() == (12, "r12")

    with pytest.raises(TornTransaction):
        log.delivered()


def test_a_late_marker_at_a_reader_s_begin_does_not_tear_the_next_transaction() -> None:
    """A fenced process wakes up, and writes a marker that its successor has written already.

    That is in the middle of the successor's transaction. A reader that dies while it hands out the
    records before it begins anew at the late marker: the first records of that transaction are not
    missing, it has handed them out.
    """
    written = [of("a", 0, 0), end("a", 0, n=1), of("a", 1, 0), of("a", 1, 1), end("a", 0)]
    written += [of("a", 1, 2), end("a", 1, n=3), of("a", 2, 1), end("a", 2)]
    assert Log(first=4).write(*written[4:7]).delivered() == ["r5"]

    with pytest.raises(TornTransaction):
        Log(first=4).write(*written[4:]).delivered()  # the one behind it is held to all


# ---- the coordinator is asked --------------------------------------------------------------------


def test_without_a_marker_the_coordinator_is_asked_after_a_second() -> None:
    log = Log().write(of("a", 0, 0))
    assert log.reader.next_question(ASK_AFTER_MS - 1) is None
    assert log.reader.next_question(ASK_AFTER_MS) == txn("a", 0)
    assert log.reader.next_question(60_000) is None, "asked, and not answered yet"

    log.reader.answered(txn("a", 0), OPEN, 2_000)
    assert log.reader.next_question(2_999) is None
    assert log.reader.next_question(3_000) == txn("a", 0)
    log.reader.answered(txn("a", 0), None, 3_000)
    assert log.reader.next_question(4_999) is None
    assert log.reader.next_question(5_000) == txn("a", 0)
    log.reader.answered(txn("a", 0), COMMIT, 5_000)

    assert log.delivered() == ["r0"]
    assert log.write(of("a", 0, 1)).delivered() == ["r1"], "read after the answer"
    assert log.write(end("a", 0, n=2), of("a", 0, 2)).delivered() == []


def test_only_who_holds_up_others_is_asked_about() -> None:
    log = Log().write(of("a", 0, 0), of("b", 0, 0, p=8))

    assert log.reader.next_question(1_000) == txn("a", 0)
    log.reader.answered(txn("a", 0), ABORT, 1_400)
    assert log.delivered() == []
    assert log.reader.next_question(1_400) == txn("b", 0, p=8)


def test_a_transaction_that_is_over_has_its_marker_further_on() -> None:
    """The coordinator is at a later epoch already: the reader is far behind."""
    log = Log().write(of("a", 0, 0))
    log.reader.next_question(1_000)
    log.reader.answered(txn("a", 0), GONE, 1_400, end=4)
    assert log.reader.must_read_on
    assert log.write(None, end("a", 0, n=1)).delivered() == ["r0", "r1"]


def test_a_late_record_at_a_reader_s_begin_does_not_stop_it() -> None:
    """Its marker stands before that: up to the end there is none, and so it never counts."""
    log = Log(first=9).write(of("a", 0, 1), None)
    log.reader.next_question(1_000)
    log.reader.answered(txn("a", 0), GONE, 1_400, end=13)
    assert log.delivered() == []
    log.reader.reached(13)

    assert log.delivered() == ["r10"]
    assert log.reader.last_stable == 13


def test_a_forged_record_stops_nobody_and_spoils_no_transaction_of_later() -> None:
    """It names an epoch that was not begun; that one is begun afterwards."""
    log = Log().write(of("a", 5, 0), of("a", 5, 1))
    log.reader.next_question(1_000)
    log.reader.answered(txn("a", 5), GONE, 1_400, end=2)
    log.write(of("a", 5, 0), end("a", 5, n=1))

    assert log.delivered() == ["r2"]


def test_a_marker_that_contradicts_the_coordinator_does_nothing() -> None:
    log = Log().write(of("a", 0, 0), of("a", 0, 1))
    log.reader.answered(txn("a", 0), COMMIT, 0)
    log.write(end("a", 0, ABORT))

    assert log.delivered() == ["r0", "r1"]


def test_of_two_markers_the_first_one_counts() -> None:
    log = Log().write(of("a", 0, 0), end("a", 0, ABORT), end("a", 0, COMMIT, n=1), None)

    assert log.delivered() == ["r3"]


def answered(**fields: Any) -> api.DescribeTransactionResponse:
    made = {"id": "x-1", "client": "c", "group": "a", "cause": "r0-1", **fields}
    return api.DescribeTransactionResponse(**made)


def ended(e: int, result: Any) -> EndedTransaction:
    return EndedTransaction(producer_id=7, epoch=e, result=result, reason="client")


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"state": "Ongoing", "producer_id": 7, "epoch": 3}, OPEN),
        (
            {"state": "PrepareCommit", "producer_id": 7, "epoch": 4, "ended": ended(3, COMMIT)},
            COMMIT,
        ),
        ({"state": "CompleteAbort", "producer_id": 7, "epoch": 4, "ended": ended(3, ABORT)}, ABORT),
        ({"state": "Ongoing", "producer_id": 7, "epoch": 4, "ended": ended(3, ABORT)}, ABORT),
        ({"state": "Ongoing", "producer_id": 7, "epoch": 5, "ended": ended(4, ABORT)}, GONE),
        ({"state": "Empty", "producer_id": 7, "epoch": 3}, GONE),
        ({"state": "Ongoing", "producer_id": 7, "epoch": 2}, GONE),
        ({"state": "Ongoing", "producer_id": 30, "epoch": 0}, GONE),
        ({"error": "TRANSACTIONAL_ID_NOT_FOUND"}, GONE),
        ({"error": "COORDINATOR_NOT_AVAILABLE"}, None),
    ],
)
def test_what_the_coordinator_says_of_a_transaction(
    fields: dict[str, Any], verdict: str | None
) -> None:
    assert verdict_of(answered(**fields), txn("a", 3)) == verdict


# ---- producers without id ------------------------------------------------------------------------


def test_a_producer_without_id_may_send_again() -> None:
    def numbered(s: int, p: int = 9) -> Stamp:
        return Stamp(i=I, p=p, s=s)

    log = Log().write(numbered(0), numbered(1), numbered(0, p=10), numbered(0), numbered(1))
    log.write(numbered(2), numbered(5))

    assert log.delivered() == ["r0", "r1", "r2", "r5", "r6"]


# ---- any interleaving ----------------------------------------------------------------------------


@st.composite
def produced(draw: st.DrawFn, t: str, p: int, repeats: bool) -> list[Stamp | Marker]:
    """What one producer writes: transactions, with records that come again and come late."""
    lines: list[Stamp | Marker] = []
    late_marker: list[Stamp | Marker] = []
    for e in range(draw(st.integers(1, 4))):
        records = [of(t, e, s, p) for s in range(draw(st.integers(0, 4)))]
        at = draw(st.integers(0, len(records)))
        lines += [*records[:at], *late_marker]
        again = draw(st.integers(0, len(records))) if repeats else len(records)
        result = draw(st.sampled_from([COMMIT, ABORT]))
        count = len(records) if draw(st.booleans()) else None
        late = draw(st.integers(0, 2))
        marker = end(t, e, result, count, p)
        lines += [*records[at:], *records[again:], marker, *records[:late]]
        # Who begins behind the first marker takes these two for the transaction: the limits page.
        is_known = repeats or not records[:late]
        lines += [marker] if is_known and draw(st.booleans()) else []
        late_marker = [marker] if is_known and draw(st.booleans()) else []
    return lines


@st.composite
def partitions(draw: st.DrawFn, repeats: bool = True) -> list[Stamp | Marker | None]:
    """Two producers and one that has no transactions, in any order between them."""
    sources: list[list[Any]] = [
        draw(produced("a", 7, repeats)),
        draw(produced("b", 8, repeats)),
        [None] * draw(st.integers(0, 3)),
    ]
    mixed: list[Stamp | Marker | None] = []
    while any(sources):
        source = draw(st.sampled_from([each for each in sources if each]))
        mixed.append(source.pop(0))
    return mixed


def committed_in(log: Iterable[Stamp | Marker | None]) -> list[int]:
    """The rule in plain words: the offsets to be delivered, in order."""
    lines = list(log)
    results: dict[Txn, tuple[str, int]] = {}
    for offset, line in enumerate(lines):
        if isinstance(line, Marker):
            results.setdefault(line.txn, (line.r, offset))
    seen: set[tuple[Txn, int]] = set()
    found = []
    for offset, line in enumerate(lines):
        if line is None:
            found.append(offset)
        elif isinstance(line, Stamp) and line.txn is not None:
            result, marked_at = results[line.txn]
            is_new = (line.txn, line.s) not in seen
            seen.add((line.txn, line.s))
            if result == COMMIT and offset < marked_at and is_new:
                found.append(offset)
    return found


@given(partitions(), st.data())
def test_exactly_what_is_committed_is_delivered_in_order(
    log: list[Any], data: st.DataObject
) -> None:
    """INV-93, and each record once, wherever between two records the program takes some."""
    read = Log()
    taken: list[str] = []
    for line in log:
        read.write(line)
        if data.draw(st.booleans()):
            taken += read.delivered()
    taken += read.delivered()

    assert taken == [f"r{offset}" for offset in committed_in(log)]
    assert read.reader.last_stable == len(log)
    assert read.reader.kept == 0


@given(partitions(repeats=False), st.data())
def test_a_restart_at_any_position_sees_the_same(log: list[Any], data: st.DataObject) -> None:
    """A position is one number. The coordinator answers where markers stand before the begin."""
    before = Log().write(*log[: data.draw(st.integers(0, len(log)))])
    taken, position = [], 0
    while (one := before.reader.take()) is not None and data.draw(st.booleans()):
        taken.append(one[1])
        position = one[0] + 1

    after = Log(first=position).write(*log[position:])
    for _ in range(len(log)):
        taken += after.delivered()
        if (asked := after.reader.next_question(1_000_000)) is None:
            break
        after.reader.answered(asked, GONE, 1_000_000, end=len(log))
    taken += after.delivered()

    assert taken == [f"r{offset}" for offset in committed_in(log)]
