"""Where a member of a server-assigned group stands."""

from collections.abc import Mapping
from typing import ClassVar

from coordlib.client.assigned.holding import Holding
from coordlib.client.machine.standing import Standing
from coordlib.client.machine.steps import State
from coordlib.client.machine.wording import Identity, Timing

_IN = frozenset({State.JOINING, State.STABLE})


class AssignedStanding(Standing):
    """The place of a member whose coordinator divides: no leader, so no SyncGroup."""

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
