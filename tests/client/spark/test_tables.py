"""Which table a group has written to, as a member learns it."""

from concurrent.futures import Future
from typing import Any

import pytest

from coordlib.client.kit import events as sg
from coordlib.client.spark.delta_writes import Tables
from coordlib.errors import CannotReach, ErrorCode, GroupError


class Member:
    """Whoever asks gets this answer; None: none at all."""

    def __init__(self, answer: sg.Answer | None) -> None:
        self._answer = answer

    def ask(self, _: Any) -> "Future[sg.Answer]":
        future: Future[sg.Answer] = Future()
        if self._answer is not None:
            future.set_result(self._answer)
        return future


LOADING = GroupError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize("answer", [None, sg.Answer(1, error=LOADING)])
def test_a_table_that_is_not_known_is_told_of_with_what_to_do(answer: sg.Answer | None) -> None:
    member: Any = Member(answer)
    ids: Any = None

    with pytest.raises(CannotReach, match="not known which table") as failed:
        Tables(member, ids).of("file:/t", lambda: False)

    assert "coord status" in failed.value.hint
