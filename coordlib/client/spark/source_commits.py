"""Commits of one query of `format("coord")`: written at once, looked at when they are answered.

Each row is kept with the fence under which its partition was owned. What was refused for a moment
is written again, unless the partition was released meanwhile, or a later offset of it is on its
way. The caller holds a lock.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from coordlib.client.groups.member import AssignedMember
from coordlib.client.groups.reading import TopicIds
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.offsets import under_ids
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from coordlib.client.kit import events as sg

_log = structlog.get_logger()
#: Seconds after which a commit without an answer is written again.
ANSWER_S: Final = 60.0
#: Commits without an answer; with more than these, later offsets wait and go together.
OPEN_MAX: Final = 1_000


class _Row(NamedTuple):
    offset: api.CommittedOffset
    fence: int


class _Open(NamedTuple):
    answer: "Future[sg.Answer]"
    rows: dict[TopicPartition, _Row]
    sent_s: float


class SourceCommits:
    """See the module.

    Args:
        fence_of: the fence under which a partition is owned now; None: it is not.
    """

    def __init__(
        self,
        member: AssignedMember,
        ids: TopicIds,
        fence_of: Callable[[TopicPartition], int | None],
    ) -> None:
        self._member, self._ids, self._fence_of = member, ids, fence_of
        self._unsent: dict[TopicPartition, _Row] = {}
        self._open: list[_Open] = []

    @property
    def are_settled(self) -> bool:
        """Whether all that was to be committed is committed, or refused for good."""
        return not self._open and not self._unsent

    def add(self, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """To be committed with the next `write`; partitions that are not owned are left out."""
        rows = [
            api.CommittedOffset(*place, at, metadata=metadata)
            for place, at in sorted(offsets.items())
        ]
        for row in under_ids(rows, self._ids.begun):
            place = TopicPartition(row.topic, row.partition)
            if (fence := self._fence_of(place)) is not None:
                self._unsent[place] = _Row(row, fence)

    def write(self) -> None:
        """Take answers in, and write what is to be written."""
        self._take_answers()
        self._unsent = {p: each for p, each in self._unsent.items() if self._is_owned(p, each)}
        if self._unsent and self._member.may_work() and len(self._open) < OPEN_MAX:
            rows, self._unsent = self._unsent, {}
            future = self._member.commit_async([each.offset for each in rows.values()])
            self._open.append(_Open(future, rows, time.monotonic()))

    def take(self, partitions: tuple[TopicPartition, ...]) -> list[api.CommittedOffset]:
        """The unwritten rows of these, for their release."""
        found = {place: self._unsent.pop(place, None) for place in partitions}
        return [each.offset for p, each in found.items() if each and self._is_owned(p, each)]

    def _is_owned(self, place: TopicPartition, row: _Row) -> bool:
        return self._fence_of(place) == row.fence

    def _take_answers(self) -> None:
        until_s = time.monotonic() - ANSWER_S
        over: list[_Open] = []
        waiting: list[_Open] = []
        for each in self._open:
            is_over = each.answer.done() or each.sent_s < until_s
            (over if is_over else waiting).append(each)
        self._open = waiting
        for each in over:
            for place, is_final in _failed(each).items():
                is_newer = place in self._unsent or any(place in one.rows for one in self._open)
                if not is_final and not is_newer and self._is_owned(place, each.rows[place]):
                    self._unsent[place] = each.rows[place]


def _failed(commit: _Open) -> dict[TopicPartition, bool]:
    """The partitions of a commit that were not committed, and whether that is final."""
    if not commit.answer.done():
        return dict.fromkeys(commit.rows, False)
    answer = commit.answer.result()
    if answer.error is not None:
        _log.warning("not committed", error=str(answer.error))
        is_final = not (isinstance(answer.error, GroupError) and answer.error.code.retriable)
        return dict.fromkeys(commit.rows, is_final)
    if answer.failed:
        _log.warning(
            "not committed", error=", ".join(sorted({each.error for each in answer.failed}))
        )
    return {
        TopicPartition(row.topic, row.partition): not ErrorCode[row.error].retriable
        for row in answer.failed
    }
