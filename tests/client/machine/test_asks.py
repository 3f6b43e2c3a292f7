"""A commit that the coordinator puts off, because it has too much to write: THROTTLING."""

import itertools

import pytest

from coordlib.client.machine import signals as sg
from coordlib.client.machine.asks import Asks
from coordlib.errors import ErrorCode, GroupError
from coordlib.records import requests as rq
from coordlib.records import responses as rs

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Asking:
    """Questions of one member, and what the coordinator says to them."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.asks = Asks("group g", self.next_id)

    def next_id(self) -> str:
        return f"c-{next(self._ids)}"

    def commit(self, ticket: int, *partitions: int, is_waited: bool = False) -> str:
        rows = tuple(rq.CommittedOffset("t", each, ticket) for each in partitions)
        id_ = self.next_id()
        request = rq.OffsetCommit(
            v=1, id=id_, client="c", group="g", generation=3, member="m", offsets=rows
        )
        self.asks.ask(ticket, request, is_waited)
        return id_

    def put_off(self, id_: str, now_ms: int, wait_ms: int = 1_000) -> list[sg.Output]:
        answer = rs.OffsetCommitResponse(
            id=id_, client="c", group="g", cause="r0-1", error=THROTTLED.name,
            throttle_time_ms=wait_ms,
        )  # fmt: skip
        return list(self.asks.answered(answer, now_ms))

    def accept(self, id_: str, now_ms: int) -> list[sg.Output]:
        answer = rs.OffsetCommitResponse(id=id_, client="c", group="g", cause="r0-2", failed=())
        return list(self.asks.answered(answer, now_ms))

    def repeated(self, now_ms: int) -> dict[str, list[int]]:
        """The partitions of each commit that is sent again, by its new id."""
        sent = [each.request for each in self.asks.repeat(now_ms) if isinstance(each, sg.Send)]
        return {
            each.id: [row.partition for row in each.offsets]
            for each in sent
            if isinstance(each, rq.OffsetCommit)
        }


def test_a_commit_without_a_waiting_caller_is_written_again_after_the_time_named() -> None:
    """Nobody else could: `commit()` has returned long ago, and the next one may never come."""
    talk = Asking()
    first = talk.commit(1, 0, 1)

    assert talk.put_off(first, now_ms=100) == []
    assert talk.asks.due_ms() == 1_100
    assert talk.repeated(1_099) == {}
    again = talk.repeated(1_100)
    assert list(again.values()) == [[0, 1]]
    (id_,) = again
    assert talk.accept(id_, 1_200) == [sg.Answer(1)]
    assert not talk.asks.are_open()


def test_it_never_overtakes_a_later_commit() -> None:
    """Offsets are stored as given: an older one behind a newer one would bring records back."""
    talk = Asking()
    first = talk.commit(1, 0, 1)
    talk.put_off(first, now_ms=100)
    second = talk.commit(2, 1, 2)
    talk.accept(second, 200)

    assert list(talk.repeated(2_000).values()) == [[0]]


@pytest.mark.parametrize("is_asked_before_the_refusal", [True, False])
def test_one_that_later_commits_cover_ends_refused(is_asked_before_the_refusal: bool) -> None:
    """Its caller is told what became of this one; the later one has an answer of its own."""
    talk = Asking()
    first = talk.commit(1, 0, 1)
    if is_asked_before_the_refusal:
        talk.commit(2, 0, 1, is_waited=True)
        talk.put_off(first, now_ms=100)
    else:
        talk.put_off(first, now_ms=100)
        talk.commit(2, 0, 1)

    (answer,) = list(talk.asks.repeat(2_000))

    assert isinstance(answer, sg.Answer)
    assert answer.ticket == 1
    assert isinstance(answer.error, GroupError)
    assert answer.error.code is THROTTLED


def test_a_release_with_offsets_is_a_later_commit_too() -> None:
    """The partition's next owner begins at the released offset, and may commit at once."""
    talk = Asking()
    first = talk.commit(1, 0, 1)
    talk.put_off(first, now_ms=100)
    release = rq.Release(
        v=1, id=talk.next_id(), client="c", group="g", generation=3, member="m", cause=5,
        offsets=(rq.CommittedOffset("t", 1, 9),),
    )  # fmt: skip
    talk.asks.ask(None, release)

    assert list(talk.repeated(2_000).values()) == [[0]]


def test_a_commit_whose_caller_waits_is_the_callers_to_repeat() -> None:
    """Written twice, the second could follow a commit of the caller's after its time was up."""
    talk = Asking()
    id_ = talk.commit(1, 0, is_waited=True)

    (answer,) = talk.put_off(id_, now_ms=100)

    assert isinstance(answer, sg.Answer)
    assert isinstance(answer.error, GroupError)
    assert talk.asks.due_ms() is None


def test_other_refusals_of_such_a_commit_are_final() -> None:
    """A commit of a rebalance is its member's to judge: others may own the partitions by now."""
    talk = Asking()
    id_ = talk.commit(1, 0)
    answer = rs.OffsetCommitResponse(
        id=id_, client="c", group="g", cause="r0-1", error=ErrorCode.REBALANCE_IN_PROGRESS.name
    )

    (told,) = list(talk.asks.answered(answer, 100))

    assert isinstance(told, sg.Answer)
    assert talk.asks.due_ms() is None
