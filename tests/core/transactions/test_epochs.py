"""Epochs are used up: by ends, by fences, by timeouts; and who may have the next one.  # INV-98"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from coordlib.core.transactions.transaction import State
from coordlib.core.wire.transactions import TRANSACTION
from tests.core.transactions.test_differences import asked, error, producer
from tests.tools import producers as p

LAST = 32_766


def at_the_last_epoch(make: Callable[[], p.Talk] = p.ongoing) -> p.Talk:
    """As an id is after some ten thousand transactions."""
    talk = make()
    row = talk.shard.row(p.ID, TRANSACTION)
    talk.shard._settle(row, replace(row.value, epoch=LAST), [])
    return talk


def over(talk: p.Talk, producer_id: int, epoch: int) -> None:
    talk.send(p.written(producer_id, epoch))
    talk.settle()


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_the_end_of_the_last_epoch_gives_another_producer_id(result: str) -> None:
    """The producer goes on without asking; the same EndTxn is answered alike ever after."""
    talk = at_the_last_epoch()
    place = talk.next_offset
    told = asked(talk, p.end(0, LAST, result))

    assert (told["error"], producer(told)) == ("NONE", (place, 0))
    assert error(talk, p.add(place, 0)) == "CONCURRENT_TRANSACTIONS"
    assert error(talk, p.init(place, 0)) == "CONCURRENT_TRANSACTIONS"
    over(talk, 0, LAST)
    assert producer(asked(talk, p.end(0, LAST, result))) == (place, 0)
    assert error(talk, p.add(place, 0)) == "NONE"
    assert error(talk, p.add(0, LAST)) == "PRODUCER_FENCED"
    assert error(talk, p.add(0, 5)) == "INVALID_PRODUCER_ID_MAPPING"


def test_an_abort_of_nothing_in_the_last_epoch_gives_another_producer_id() -> None:
    """A program that aborts after every error, also where it has begun nothing."""
    talk = at_the_last_epoch(p.empty)
    place = talk.next_offset

    assert producer(asked(talk, p.end(0, LAST, "abort"))) == (place, 0)
    assert producer(asked(talk, p.end(0, LAST, "abort"))) == (place, 0)


@pytest.mark.parametrize(
    ("named", "again"), [((), ()), ((0, LAST), (0, LAST))], ids=["new process", "same process"]
)
def test_init_in_the_last_epoch_gives_another_producer_id(named: Any, again: Any) -> None:
    """KAFKA-18660 and KIP-360: the answer is lost, and the process asks once more."""
    talk = at_the_last_epoch(p.empty)
    place = talk.next_offset
    assert producer(asked(talk, p.init(*named, id="n"))) == (place, 0)

    assert producer(asked(talk, p.init(*again, id="n"))) == (place, 0)
    if named:
        assert producer(asked(talk, p.init(*again, id="later"))) == (place, 0)
        assert error(talk, p.init(0, LAST - 1, id="older")) == "PRODUCER_FENCED"


@pytest.mark.parametrize("is_same", [False, True], ids=["new process", "same process"])
def test_a_fence_of_the_last_epoch_gives_another_producer_id(is_same: bool) -> None:
    """The epoch that fences is nobody's: who asks again gets a producer id of its own."""
    talk = at_the_last_epoch()
    named = (0, LAST) if is_same else ()
    assert error(talk, p.init(*named, id="n")) == "CONCURRENT_TRANSACTIONS"
    assert talk.producer().epoch == LAST + 1
    over(talk, 0, LAST)
    place = talk.next_offset

    assert producer(asked(talk, p.init(*named, id="n"))) == (place, 0)
    assert producer(asked(talk, p.init(*named, id="n"))) == (place, 0)


@pytest.mark.parametrize("is_over", [False, True], ids=["PrepareAbort", "CompleteAbort"])
def test_a_timeout_of_the_last_epoch_gives_another_producer_id(is_over: bool) -> None:
    """No record of its own ended it, so the producer's own abort gives the id."""
    talk = at_the_last_epoch()
    talk.wait(2 * p.TIMEOUT_MS)
    assert talk.producer().state is State.PREPARE_ABORT
    if is_over:
        over(talk, 0, LAST)
    place = talk.next_offset
    told = asked(talk, p.end(0, LAST, "abort"))

    assert (told["error"], producer(told)) == ("NONE", (place, 0))
    assert producer(asked(talk, p.end(0, LAST, "abort"))) == (place, 0)
    if not is_over:
        over(talk, 0, LAST)
    assert producer(asked(talk, p.end(0, LAST, "abort"))) == (place, 0)
    assert error(talk, p.add(place, 0)) == "NONE"


def test_who_asks_after_a_timeout_of_the_last_epoch_gets_another_producer_id() -> None:
    """The same, where the process does not abort but asks for its producer again."""
    talk = at_the_last_epoch()
    talk.wait(2 * p.TIMEOUT_MS)
    over(talk, 0, LAST)
    place = talk.next_offset

    assert producer(asked(talk, p.init(0, LAST, id="n"))) == (place, 0)
    assert producer(asked(talk, p.init(0, LAST, id="m"))) == (place, 0)
