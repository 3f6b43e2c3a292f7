"""The partitions of a member, in three senses that change at different moments.

`granted` has the partitions that the coordinator gave; `told` those that the user got by callback
and has not given up; the fence decides whether the user may act on them now. Callbacks follow from
these three alone, and only one is under way at a time:

    told, but the fence has fallen   -> LOST, all of it
    told, but not granted            -> REVOKED, just that; all of it before an eager rejoin
    granted, but not told            -> ASSIGNED, just that; told for every assignment, also empty
"""

from collections.abc import Iterable

from coordlib.client.kit.fence import Fence
from coordlib.client.kit.signals import Call, Callback, Partitions, TopicPartition


class Ownership:
    """Decides which callback is next."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        #: The partitions that callbacks may give the user; a cooperative member has them until the
        #: next assignment. None: none was given since it last let go of all.
        self.granted: Partitions | None = None
        #: Log offset of what caused the grant: rises with every assignment of any group.
        self.fence_token: int | None = None
        #: None: no callback gave the user anything since everything was given up.
        self.told: Partitions | None = None
        #: Whether an assignment came for which no callback has run.
        self._is_untold = False
        #: The callback that runs now, and what it lets go of.
        self.calling: Callback | None = None
        self.leaving: Partitions = ()

    def usable(self, now_ms: int) -> Partitions:
        """The partitions that the user may act on at this moment."""
        return self.told if self.told is not None and self.fence.may_work(now_ms) else ()

    def is_free(self, now_ms: int, keeps: bool) -> bool:
        """Whether the user holds nothing that a rejoin would take away.

        Args:
            keeps: whether the member goes on working on what is granted while it joins.
        """
        if keeps and self.fence.may_work(now_ms):
            return self.calling in (None, Callback.ASSIGNED) and not self._gone()
        return not self.told and self.calling is None

    def begin_join(self, now_ms: int, keeps: bool) -> Partitions:
        """A JoinGroup goes out: what it names as owned. Only when `is_free`."""
        if keeps and self.granted and self.fence.may_work(now_ms):
            self.fence.joining(now_ms)
            return self.granted
        self.let_go()
        return ()

    def narrow(self, topics: Iterable[str]) -> None:
        """Other topics are not wanted any more: they are let go of before the rejoin."""
        if self.granted is not None:
            self.granted = tuple(each for each in self.granted if each.topic in set(topics))

    def grant(self, now_ms: int, given: Partitions, fence_token: int | None, sign_ms: int) -> None:
        """The SyncGroup was answered; `sign_ms` is the newest sign of life (rule 8)."""
        self.granted, self.fence_token, self._is_untold = given, fence_token, True
        self.fence.start(now_ms, sign_ms)

    def withdraw(self) -> None:
        """Membership ended without the user, whose partitions are lost at the next poll."""
        self.granted = self.fence_token = None
        self._is_untold = False
        self.fence.clear()

    def let_go(self) -> None:
        """Nothing is held any more, and the callback for it has run."""
        self.told = None
        self.withdraw()

    def next_call(self, now_ms: int, must_let_go: bool) -> Call | None:
        """The callback that is due; an empty assignment has one, an empty loss has none."""
        may_work = self.fence.may_work(now_ms)
        if self.told is not None and not may_work:
            return self._lose()
        leaving = self.told if must_let_go else self._gone()
        if leaving:
            self.leaving = leaving
            return self._call(Callback.REVOKED, leaving)
        if must_let_go or self.granted is None or not may_work:
            return None
        if self.told is None or self._is_untold:
            added = without(self.granted, self.told or ())
            self.told, self._is_untold = self.granted, False
            return self._call(Callback.ASSIGNED, added)
        return None

    def returned(self, callback: Callback) -> None:
        """The callback has returned."""
        self.calling = None
        if callback is Callback.REVOKED and self.told is not None:
            self.told, self.leaving = without(self.told, self.leaving), ()

    def _gone(self) -> Partitions:
        """Partitions that the user still has and the newest assignment lacks."""
        if self.told is None or self.granted is None:
            return ()
        return without(self.told, self.granted)

    def _lose(self) -> Call | None:
        lost, self.told = self.told, None
        return self._call(Callback.LOST, lost) if lost else None

    def _call(self, callback: Callback, partitions: Partitions) -> Call:
        self.calling = callback
        return Call(callback, partitions)


def without(some: Partitions, others: Iterable[TopicPartition]) -> Partitions:
    """The first without the second, in its order."""
    dropped = set(others)
    return tuple(each for each in some if each not in dropped)
