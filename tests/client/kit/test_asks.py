"""A commit that the coordinator puts off, because it has too much to write: THROTTLING."""

import itertools

import pytest

from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import PendingRequests
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Asking:
    """Questions of one member, and what the coordinator says to them."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.asks = PendingRequests("group g", self.next_id)

    def next_id(self) -> str:
        return f"c-{next(self._ids)}"

    def commit(self, ticket: int, *partitions: int, is_waited: bool = False) -> str:
        rows = tuple(api.CommittedOffset("t", each, ticket) for each in partitions)
        id_ = self.next_id()
        request = api.OffsetCommit(
            v=1, id=id_, client="c", group="g", generation=3, member="m", offsets=rows
        )
        self.asks.ask(ticket, request, is_waited)
        return id_

    def throttle_request(self, id_: str, now_ms: int, wait_ms: int = 1_000) -> list[sg.Output]:
        answer = api.OffsetCommitResponse(
            id=id_, client="c", group="g", cause="r0-1", error=THROTTLED.name,
            throttle_time_ms=wait_ms,
        )  # fmt: skip
        return list(self.asks.answered(answer, now_ms))

    def accept(self, id_: str, now_ms: int, *failed: api.FailedPartition) -> list[sg.Output]:
        answer = api.OffsetCommitResponse(
            id=id_, client="c", group="g", cause="r0-2", failed=failed
        )
        return list(self.asks.answered(answer, now_ms))

    def refuse(self, id_: str, now_ms: int, code: ErrorCode) -> list[sg.Output]:
        answer = api.OffsetCommitResponse(
            id=id_, client="c", group="g", cause="r0-2", error=code.name
        )
        return list(self.asks.answered(answer, now_ms))

    def repeated(self, now_ms: int) -> dict[str, list[int]]:
        """The partitions of each commit that is sent again, by its new id."""
        sent = [each.request for each in self.asks.repeat(now_ms) if isinstance(each, sg.Send)]
        return {
            each.id: [row.partition for row in each.offsets]
            for each in sent
            if isinstance(each, api.OffsetCommit)
        }


def test_a_commit_without_a_waiting_caller_is_written_again_after_the_time_named() -> None:
    """Nobody else could: `commit()` has returned long ago, and the next one may never come."""
    talk = Asking()
    first = talk.commit(1, 0, 1)

    assert talk.throttle_request(first, now_ms=100) == []
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
    talk.throttle_request(first, now_ms=100)
    second = talk.commit(2, 1, 2)
    talk.accept(second, 200)

    assert list(talk.repeated(2_000).values()) == [[0]]


@pytest.mark.parametrize("is_asked_before_the_refusal", [True, False])
def test_one_that_later_commits_cover_ends_refused(is_asked_before_the_refusal: bool) -> None:
    """Its caller is told what became of this one; the later one has an answer of its own."""
    talk = Asking()
    first = talk.commit(1, 0, 1)
    if is_asked_before_the_refusal:
        second = talk.commit(2, 0, 1, is_waited=True)
        talk.throttle_request(first, now_ms=100)
    else:
        talk.throttle_request(first, now_ms=100)
        second = talk.commit(2, 0, 1)
    assert list(talk.asks.repeat(2_000)) == [], "nobody can tell yet which of them will stand"
    talk.accept(second, 2_010)

    (answer,) = list(talk.asks.repeat(2_200))

    assert isinstance(answer, sg.Answer)
    assert answer.ticket == 1
    assert isinstance(answer.error, GroupError)
    assert answer.error.code is THROTTLED
    assert "a later commit of the same partitions was written" in str(answer.error)


def test_it_goes_on_when_the_later_one_is_refused_for_good() -> None:
    """Else neither would stand, and the first one's caller would be told that the second does."""
    talk = Asking()
    first = talk.commit(1, 0, 1)
    talk.throttle_request(first, now_ms=100)
    second = talk.commit(2, 0, 1)
    assert talk.repeated(2_000) == {}
    talk.refuse(second, 2_050, ErrorCode.REBALANCE_IN_PROGRESS)

    assert talk.asks.due_ms() == 2_200
    assert list(talk.repeated(2_200).values()) == [[0, 1]]


def test_partitions_that_the_later_one_could_not_write_go_on() -> None:
    talk = Asking()
    first = talk.commit(1, 0, 1)
    talk.throttle_request(first, now_ms=100)
    second = talk.commit(2, 0, 1)
    talk.accept(second, 200, api.FailedPartition("t", 1, "OFFSET_METADATA_TOO_LARGE"))

    assert list(talk.repeated(2_000).values()) == [[1]]


def test_it_does_not_follow_a_later_one_that_may_be_in_the_log() -> None:
    talk = Asking()
    first = talk.commit(1, 0)
    talk.throttle_request(first, now_ms=100)
    second = talk.commit(2, 0)
    list(talk.asks.not_written(second, "timed out", 200))

    (answer,) = list(talk.asks.repeat(2_000))

    assert isinstance(answer, sg.Answer)
    assert "may be written" in str(answer.error)


def test_commits_that_are_put_off_are_repeated_in_their_order() -> None:
    talk = Asking()
    first, second = talk.commit(1, 0), talk.commit(2, 0)
    talk.throttle_request(second, now_ms=100)
    talk.throttle_request(first, now_ms=110)

    sent = [each.request for each in talk.asks.repeat_commits() if isinstance(each, sg.Send)]

    offsets = [each.offsets[0].offset for each in sent if isinstance(each, api.OffsetCommit)]
    assert offsets == [1, 2]


def test_a_release_with_offsets_is_a_later_commit_too() -> None:
    """The partition's next owner begins at the released offset, and may commit at once."""
    talk = Asking()
    first = talk.commit(1, 0, 1)
    talk.throttle_request(first, now_ms=100)
    release = api.Release(
        v=1, id=talk.next_id(), client="c", group="g", generation=3, member="m", cause=5,
        offsets=(api.CommittedOffset("t", 1, 9),),
    )  # fmt: skip
    talk.asks.ask(2, release)
    assert talk.repeated(2_000) == {}
    answer = api.ReleaseResponse(id=release.id, client="c", group="g", cause="r0-2", failed=())
    list(talk.asks.answered(answer, 2_050))

    assert list(talk.repeated(2_200).values()) == [[0]]


def test_a_commit_whose_caller_waits_is_the_callers_to_repeat() -> None:
    """Written twice, the second could follow a commit of the caller's after its time was up."""
    talk = Asking()
    id_ = talk.commit(1, 0, is_waited=True)

    (answer,) = talk.throttle_request(id_, now_ms=100)

    assert isinstance(answer, sg.Answer)
    assert isinstance(answer.error, GroupError)
    assert talk.asks.due_ms() is None


def test_other_refusals_of_such_a_commit_are_final() -> None:
    """A commit of a rebalance is its member's to judge: others may own the partitions by now."""
    talk = Asking()
    id_ = talk.commit(1, 0)
    answer = api.OffsetCommitResponse(
        id=id_, client="c", group="g", cause="r0-1", error=ErrorCode.REBALANCE_IN_PROGRESS.name
    )

    (told,) = list(talk.asks.answered(answer, 100))

    assert isinstance(told, sg.Answer)
    assert talk.asks.due_ms() is None
