"""The standing of a member of a server-assigned group, and its partitions: pictures, demands.

Each picture is complete: the granted partitions, and the partitions of each demand. A demanded
partition is not granted any more, but stays the member's own until it is released. So the user
works on it until on_revoked, which is called for one demand at a time.
"""

from collections.abc import Mapping
from typing import ClassVar

from coordlib.client.groups.ownership import Ownership, without
from coordlib.client.groups.standing import Standing
from coordlib.client.kit.fence import Fence
from coordlib.client.kit.signals import Callback, Partitions, TopicPartition
from coordlib.client.kit.steps import State
from coordlib.client.kit.wording import Identity, Timing


class Holding(Ownership):
    """Decides which callback is next, and which demand is met."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(fence)
        #: The partitions of each demand without a Release yet, by the cause of the demand.
        self.demands: dict[int, Partitions] = {}
        #: Partition to the fence of the record that granted it; of all granted or demanded ones.
        self._fences: dict[TopicPartition, int] = {}

    def enter(self, now_ms: int, sign_ms: int) -> None:
        """The first Subscribe was answered; `sign_ms` is its first produce() (rule 8)."""
        # The answer was written after that call, and is read in order: all that could be read then
        # was read. The end was perhaps not asked for since, as there was nothing to guard.
        self.fence.read_to_end(now_ms, sign_ms)
        self.fence.start(now_ms, sign_ms)

    def replace(self, fences: Mapping[TopicPartition, int], fence_token: int | None) -> None:
        """A picture was read: all granted partitions. Its demands were taken over before."""
        asked = {each for some in self.demands.values() for each in some}
        kept = {each: fence for each, fence in self._fences.items() if each in asked}
        self._fences = {**kept, **fences}
        self.granted = tuple(sorted(fences))
        # A released partition had a fence too, perhaps the highest of all.
        known = [each for each in (self.fence_token, fence_token) if each is not None]
        self.fence_token = max(known, default=None)
        self._is_untold = bool(without(self.granted, self.told or ()))

    def fence_of(self, partition: TopicPartition) -> int | None:
        """The fence of a partition that the user owns; None for every other one."""
        return self._fences.get(partition) if partition in (self.told or ()) else None

    def is_let_go(self, cause: int) -> bool:
        """Whether the user owns no partition of one demand any more.

        While on_lost runs, the user may still be at work on all of them.
        """
        has_it = not set(self.demands[cause]).isdisjoint(self.told or ())
        return self.calling is not Callback.LOST and not has_it

    def released(self, cause: int) -> None:
        """A Release for this demand was sent."""
        del self.demands[cause]

    def withdraw(self) -> None:
        super().withdraw()
        self.demands.clear()
        self._fences.clear()

    def _gone(self) -> Partitions:
        """The partitions of the oldest demand; then those that went without a demand."""
        gone = super()._gone()
        for some in self.demands.values():
            if asked := tuple(each for each in gone if each in some):
                return asked
        return gone


_IN = frozenset({State.JOINING, State.STABLE})


class AssignedStanding(Standing):
    """The standing of a member of a server-assigned group: it has no leader, and no SyncGroup."""

    held: Holding

    VALID_PREVIOUS_STATES: ClassVar[Mapping[State, frozenset[State]]] = {
        State.IDLE: _IN,
        State.JOINING: frozenset({State.IDLE}),
        State.STABLE: frozenset({State.JOINING}),
        State.FAILED: _IN | {State.IDLE},
        State.LEAVING: _IN | {State.IDLE, State.FAILED},
        State.LEFT: frozenset({State.LEAVING}),
    }

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(identity, timing)
        self.held = Holding(self.fence)
