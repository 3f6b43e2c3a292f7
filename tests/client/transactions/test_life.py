"""What a transactional id asks its coordinator, and when it asks again."""

from typing import Any

import pytest

from coordlib.client.kit.requests import Identity
from coordlib.client.transactions.life import ENDS_WITHIN_MS, Place, TransactionMachine
from coordlib.client.transactions.machine import TransactionError
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Txn
from coordlib.core.wire.transactions import ABORT, COMMIT, EndedTransaction, rows_of_places

OUT = Place("there", "out", 0)
ME = Identity(group="a", client="c", token="t0", shard=1, reply=0, incarnation="FakeLog0")


def answer(kind: type[Any], asked: api.Request, error: str = "NONE", **fields: Any) -> Any:
    return kind(id=asked.id, client="c", group="a", cause="r1-5", error=error, **fields)


def completed(epoch: int = 0, result: Any = COMMIT) -> api.TransactionCompleted:
    return api.TransactionCompleted(
        group="a", cause="r1-9", producer_id=7, epoch=epoch, result=result
    )


def only(life: TransactionMachine, now_ms: int) -> Any:
    (request,) = life.turn(now_ms)
    return request


def ready() -> TransactionMachine:
    life = TransactionMachine(ME, 10_000)
    life.init(0)
    asked = only(life, 0)
    life.heard(answer(api.InitProducerIdResponse, asked, producer_id=7, epoch=0), 0)
    life.begin()
    return life


def with_record() -> TransactionMachine:
    """A transaction with one record, in a partition that the coordinator has."""
    life = ready()
    life.stamp(OUT)
    life.heard(answer(api.AddPartitionsToTxnResponse, only(life, 0)), 0)
    assert life.is_added(OUT)
    return life


def test_silence_is_not_asked_again() -> None:
    """The request stands in the log; the job judges it when it is back."""
    life = TransactionMachine(ME, 10_000)
    life.init(0)
    assert only(life, 0).timeout_ms == 10_000
    life.init(5_000)

    assert life.turn(600_000) == []


def test_what_was_not_written_is_sent_again_under_its_id() -> None:
    life = TransactionMachine(ME, 10_000)
    life.init(0)
    asked = only(life, 0)
    life.not_written(asked.id, "no broker", False, 0)

    assert life.turn(199) == []
    assert only(life, 200) == asked


def test_what_cannot_be_written_ends_the_transaction() -> None:
    life = ready()
    life.stamp(OUT)
    life.not_written(only(life, 0).id, "too large", True, 0)

    assert life.problem is not None
    assert life.problem.txn_requires_abort()


@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "THROTTLING_QUOTA_EXCEEDED"])
def test_a_refusal_for_now_is_asked_again_with_back_off(error: str) -> None:
    life = ready()
    life.stamp(OUT)
    asked = only(life, 0)
    throttled = answer(api.AddPartitionsToTxnResponse, asked, error, throttle_time_ms=900)
    life.heard(throttled, 1_000)

    assert life.turn(1_899) == []
    assert only(life, 1_900) == asked


def test_a_successor_waits_for_the_end_and_marks_what_is_left() -> None:
    """It is told of the end, and asks at once; by itself it asks only after two seconds."""
    life = TransactionMachine(ME, 10_000)
    life.init(0)
    asked = only(life, 0)
    ended = EndedTransaction(producer_id=7, epoch=3, result=ABORT, reason="fenced")
    wait = {"unwritten": rows_of_places([OUT]), "ended": ended}
    concurrent = "CONCURRENT_TRANSACTIONS"
    life.heard(answer(api.InitProducerIdResponse, asked, concurrent, **wait), 0)
    assert life.unmarked is not None
    assert (life.unmarked.txn, life.unmarked.result) == (Txn("FakeLog0", "a", 7, 3), ABORT)
    life.marked([OUT], 100)
    written = only(life, 100)
    assert (written.producer_id, written.epoch, written.partitions) == (7, 3, wait["unwritten"])

    assert life.turn(ENDS_WITHIN_MS - 1) == []
    assert only(life, ENDS_WITHIN_MS) == asked
    life.heard(answer(api.InitProducerIdResponse, asked, concurrent, **wait), 2_100)
    assert life.unmarked is None, "it is being told"
    life.heard(completed(3, ABORT), 2_200)
    assert only(life, 2_200) == asked


def test_an_end_whose_answer_is_lost_is_decided_as_it_was_asked() -> None:
    """EndTxn comes again while the transaction ends: its markers are what the end waits for."""
    life = with_record()
    life.end(COMMIT, 0)
    asked = only(life, 0)
    life.heard(answer(api.EndTxnResponse, asked, "CONCURRENT_TRANSACTIONS"), 0)
    assert life.is_decided
    assert not life.is_over
    assert life.unmarked is not None
    assert dict(life.unmarked.places) == {OUT: 1}
    life.marked([OUT], 100)
    assert isinstance(only(life, 100), api.TxnMarkersWritten)
    life.heard(completed(), 300)
    assert only(life, 300) == asked
    life.heard(answer(api.EndTxnResponse, asked, producer_id=7, epoch=1), 400)

    assert life.is_over
    assert life.producer == (7, 1)


def behind_one_that_is_not_over() -> TransactionMachine:
    """The next transaction has begun; groups of the one before have not been told of its end."""
    life = with_record()
    life.end(COMMIT, 0)
    life.heard(answer(api.EndTxnResponse, only(life, 0), producer_id=7, epoch=1), 0)
    life.marked([OUT], 0)
    life.turn(0)
    life.begin()
    return life


def test_nothing_is_added_before_the_transaction_before_has_ended() -> None:
    life = behind_one_that_is_not_over()
    assert life.stamp(OUT).e == 1
    assert life.turn(ENDS_WITHIN_MS - 1) == []
    life.heard(completed(), 1_000)

    assert only(life, 1_000).epoch == 1


def test_markers_that_the_next_process_has_written_are_no_problem() -> None:
    """It was told of them, wrote them and goes on; this one's word comes late."""
    life = with_record()
    life.end(ABORT, 0)
    life.heard(answer(api.EndTxnResponse, only(life, 0), producer_id=7, epoch=1), 0)
    life.marked([OUT], 0)
    life.heard(answer(api.TxnMarkersWrittenResponse, only(life, 0), "PRODUCER_FENCED"), 0)

    assert life.problem is None
    assert life.unmarked is None


def test_an_abort_asks_nothing_of_what_was_asked_before() -> None:
    """A partition that was refused for now would else be added to the next transaction."""
    life = ready()
    life.stamp(OUT)
    asked = only(life, 0)
    life.heard(answer(api.AddPartitionsToTxnResponse, asked, "COORDINATOR_NOT_AVAILABLE"), 0)
    life.end(ABORT, 0)

    assert [type(each) for each in life.turn(60_000)] == [api.EndTxn]


@pytest.mark.parametrize(
    ("error", "is_fatal"),
    [("PRODUCER_FENCED", True), ("TRANSACTION_ABORTABLE", False), ("NEW_ERROR", False)],
)
def test_a_refusal_for_good_is_a_problem(error: str, is_fatal: bool) -> None:
    life = ready()
    life.stamp(OUT)
    life.heard(answer(api.AddPartitionsToTxnResponse, only(life, 0), error), 0)

    assert life.problem is not None
    assert life.problem.fatal() is is_fatal


def of_two() -> tuple[TransactionMachine, api.Request]:
    """A transaction of two partitions that is decided, and what says that one has its marker."""
    life, other = ready(), Place("there", "out", 1)
    life.stamp(OUT)
    life.stamp(other)
    life.heard(answer(api.AddPartitionsToTxnResponse, only(life, 0)), 0)
    life.end(COMMIT, 0)
    life.heard(answer(api.EndTxnResponse, only(life, 0), producer_id=7, epoch=1), 0)
    life.marked([OUT], 0)
    return life, only(life, 0)


def test_a_word_of_markers_that_cannot_be_written_is_no_problem() -> None:
    """The decision stands; the next process is told of the markers, and says it again."""
    life, written = of_two()
    life.not_written(written.id, "denied", True, 0)

    assert life.problem is None
    assert life.is_decided


def test_what_is_committed_is_not_aborted() -> None:
    """Such an abort would end the next epoch, and say that nothing counts of what does."""
    life, _ = of_two()
    with pytest.raises(TransactionError) as refused:
        life.end(ABORT, 0)

    assert refused.value.fatal()
    assert life.turn(0) == []


@pytest.mark.parametrize("result", [COMMIT, ABORT])
@pytest.mark.parametrize("is_answered", [False, True])
def test_behind_the_decision_nothing_asks_for_an_abort(result: Any, is_answered: bool) -> None:
    """EndTxn is asked again for the next epoch, and that fails for good."""
    life = with_record()
    life.end(result, 0)
    asked = only(life, 0)
    life.heard(answer(api.EndTxnResponse, asked, "CONCURRENT_TRANSACTIONS"), 0)
    if is_answered:
        life.heard(answer(api.EndTxnResponse, asked, "NEW_ERROR"), 0)
    else:
        life.not_written(asked.id, "denied", True, 0)

    assert life.problem is not None
    assert life.problem.fatal()


def test_an_id_that_expires_behind_the_decision_has_ended_as_it_was_decided() -> None:
    life = with_record()
    life.end(COMMIT, 0)
    asked = only(life, 0)
    life.heard(answer(api.EndTxnResponse, asked, "CONCURRENT_TRANSACTIONS"), 0)
    life.heard(answer(api.EndTxnResponse, asked, "INVALID_PRODUCER_ID_MAPPING"), 0)

    assert life.problem is None
    assert life.is_over
    assert life.producer is None, "asked anew before the next transaction"


def test_an_abort_behind_one_that_is_not_over_asks_nothing() -> None:
    """The work fails at once, while a shard that has a group is away. The coordinator has begun
    nothing, and would take an EndTxn for that of an older producer.
    """
    life = behind_one_that_is_not_over()
    life.stamp(OUT)
    life.end(ABORT, 0)

    assert life.is_over
    assert life.turn(60_000) == []
    assert life.producer == (7, 1)


def test_an_abort_waits_for_what_is_under_way_behind_one_that_is_not_over() -> None:
    """It was asked after two seconds, and nobody knows yet whether that has begun it."""
    life = behind_one_that_is_not_over()
    life.stamp(OUT)
    asked = only(life, ENDS_WITHIN_MS)
    life.end(ABORT, 2_100)
    assert not life.is_over
    assert life.turn(2_100) == []

    life.heard(answer(api.AddPartitionsToTxnResponse, asked, "CONCURRENT_TRANSACTIONS"), 2_200)
    assert life.is_over
    assert life.turn(60_000) == []


@pytest.mark.parametrize("how", ["begun", "perhaps written"])
def test_an_abort_ends_what_has_begun_behind_one_that_was_not_over(how: str) -> None:
    """The one before ended meanwhile, and nobody has told so yet."""
    life = behind_one_that_is_not_over()
    life.stamp(OUT)
    asked = only(life, ENDS_WITHIN_MS)
    life.end(ABORT, 2_100)
    if how == "begun":
        life.heard(answer(api.AddPartitionsToTxnResponse, asked), 2_200)
    else:
        life.not_written(asked.id, "no broker", False, 2_200)

    ended = only(life, 2_200)
    assert (ended.result, ended.epoch) == (ABORT, 1)
    life.heard(answer(api.EndTxnResponse, ended, producer_id=7, epoch=2), 2_300)
    assert life.is_over


def test_a_producer_that_is_not_known_any_more_says_which_it_was() -> None:
    """The id has expired; or another process has used up its epochs, and fences this one."""
    life = ready()
    life.stamp(OUT)
    life.heard(
        answer(api.AddPartitionsToTxnResponse, only(life, 0), "INVALID_PRODUCER_ID_MAPPING"), 0
    )
    life.end(ABORT, 0)
    life.init(0)

    asked = only(life, 0)
    assert (asked.producer_id, asked.epoch) == (7, 0)
    life.heard(answer(api.InitProducerIdResponse, asked, "PRODUCER_FENCED"), 0)
    assert life.problem is not None
    assert life.problem.fatal()
