"""What a member holds, in the three senses that change at different moments.

`granted` is what the coordinator gave in this generation; `told` is what the user was told to own
and has not let go of; the fence says whether it may be acted upon right now. Callbacks follow from
these three alone, and only one is under way at a time.
"""

from coordlib.client.fence import Fence
from coordlib.client.signals import Call, Callback, Partitions


class Ownership:
    """Decides which callback is next; holds no partition that its user does not know of."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        #: None: nothing was given in this generation yet.
        self.granted: Partitions | None = None
        #: Log offset of what caused the grant: rises with every assignment of any group.
        self.fence_token: int | None = None
        #: None: the user was told nothing since he last let go.
        self.told: Partitions | None = None
        #: The callback that runs now.
        self.calling: Callback | None = None

    def usable(self, now_ms: int) -> Partitions:
        """What the user may act upon at this moment."""
        return self.told if self.told is not None and self.fence.may_work(now_ms) else ()

    def is_free(self) -> bool:
        """Whether a rejoin takes nothing out of the user's hands."""
        return not self.told and self.calling is None

    def grant(self, now_ms: int, given: Partitions, fence_token: int | None, sign_ms: int) -> None:
        """The SyncGroup was answered; `sign_ms` is the newest sign of life (rule 8)."""
        self.granted, self.fence_token = given, fence_token
        self.fence.start(now_ms, sign_ms)

    def withdraw(self) -> None:
        """Membership ended without the user: what he was told is lost as soon as he polls."""
        self.granted = self.fence_token = None
        self.fence.clear()

    def let_go(self) -> None:
        """Nothing is held any more, and the user knows it."""
        self.told = None
        self.withdraw()

    def next_call(self, now_ms: int, must_let_go: bool) -> Call | None:
        """The callback that is due; an empty assignment is told, an empty loss is not."""
        may_work = self.fence.may_work(now_ms)
        if self.told is not None and not may_work:
            return self._lose()
        if must_let_go:
            return self._call(Callback.REVOKED, self.told) if self.told else None
        if self.told is None and self.granted is not None and may_work:
            self.told = self.granted
            return self._call(Callback.ASSIGNED, self.told)
        return None

    def returned(self, callback: Callback) -> None:
        """The callback has returned."""
        self.calling = None
        if callback is Callback.REVOKED:
            self.told = None

    def _lose(self) -> Call | None:
        lost, self.told = self.told, None
        return self._call(Callback.LOST, lost) if lost else None

    def _call(self, callback: Callback, partitions: Partitions) -> Call:
        self.calling = callback
        return Call(callback, partitions)
