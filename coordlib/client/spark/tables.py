"""The Delta tables that a group has written to, as the offsets of the group name them.

Each offset that is committed with rows names the table that has them: its URI, its id, and a
version that it had. So a member that begins finds with the offsets which table must be there.
# INV-120
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Final

from coordlib.client.machine import signals as sg
from coordlib.client.machine.signals import TopicPartition
from coordlib.client.transactions.in_doubt import Written, metadata_of, newest_of
from coordlib.errors import CannotReach
from coordlib.records import requests as rq

if TYPE_CHECKING:
    from coordlib.client.assigned.member import AssignedMember

_LOOK_EVERY_S: Final = 0.05


class Tables:
    """What one member knows of them. `of` and `saw` are for Spark's thread."""

    def __init__(self, member: "AssignedMember") -> None:
        self._member = member
        #: By URI, the one that was written to last at the end.
        self._seen: dict[str, Written] = {}

    def of(self, uri: str, may_work: Callable[[], bool]) -> Written | None:
        """The table that must be at this URI; None: the group has written to none there.

        The group is asked once for each URI: other members may have written there.

        Raises CannotReach: its committed offsets are not known, or the member may work no more.
        """
        if (seen := self._seen.get(uri)) is not None:
            return seen
        future = self._member.ask(
            lambda now_ms, ticket: sg.FetchOffsets(now_ms, ticket, None, is_stable=False)
        )
        answer = _answer(future, may_work)
        if answer is None or answer.error is not None:
            what = "It is not known which table the group has written to."
            raise CannotReach(what, uri) from (answer.error if answer is not None else None)
        return newest_of(uri, (row.metadata for row in answer.offsets))

    def saw(self, uri: str, written: Written) -> None:
        """This member writes to it."""
        self._seen.pop(uri, None)
        self._seen[uri] = written

    def metadata(self, uri: str) -> str:
        """Of offsets whose rows are in the table at this URI."""
        return metadata_of({uri: self._seen[uri]})

    def commit(self, offsets: Mapping[TopicPartition, int]) -> "Future[sg.Answer]":
        """Commit offsets without waiting, with all tables that this member has written to."""
        text = metadata_of(self._seen)
        return self._member.commit_async(
            [rq.CommittedOffset(*each, at, metadata=text) for each, at in offsets.items()]
        )


def _answer(future: "Future[sg.Answer]", may_work: Callable[[], bool]) -> sg.Answer | None:
    """None: the member may not work any more."""
    while True:
        try:
            return future.result(_LOOK_EVERY_S)
        except FutureTimeout:
            if not may_work():
                return None
