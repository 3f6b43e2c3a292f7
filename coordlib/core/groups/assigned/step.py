"""A step of a server-assigned group: what only this kind of group has."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.groups.assigned import kept_bytes
from coordlib.core.groups.assigned.group import VALID_PREVIOUS_STATES, Group, Member, State
from coordlib.core.groups.assignors.chosen import StrategyBook
from coordlib.core.groups.step import GroupStep
from coordlib.errors import ErrorCode

#: Names of seed 000, which Kafka calls otherwise today.
DESIGN_ERRORS: Final[dict[ErrorCode, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "InconsistentPartitioningStrategy",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "UnknownPartitioningStrategy",
    ErrorCode.UNKNOWN_MEMBER_ID: "UnknownConsumer",
    ErrorCode.ILLEGAL_GENERATION: "IllegalGeneration",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorStartupNotComplete",
}
SESSION_TIMEOUT_TOO_HIGH: Final = "SessionTimeoutTooHigh"


class Step(GroupStep[Group]):
    """One server-assigned group during one step.

    Its state changes by `enter` only, its members by `put` and `drop`.
    """

    __slots__ = ()
    DEAD = State.DEAD
    DESIGN_ERRORS = DESIGN_ERRORS

    @property
    def new_group_bytes(self) -> int:
        return kept_bytes.new_group(self.name)

    @property
    def strategies(self) -> StrategyBook:
        """The strategies that a group may choose."""
        return StrategyBook(self.family.strategies)

    @property
    def topics(self) -> Mapping[str, int]:
        """The cluster's topics as listed in the log, by partition count."""
        return self.family.topics

    def enter(self, state: State) -> None:
        """Change the state, along the table only; the same one is no change.  # INV-12"""
        if self.live.state is state:
            return
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        self.change(state=state, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms)

    def put(self, *members: Member) -> None:
        """Add members or replace them under their ids."""
        self.change(members=self.live.members | {each.member: each for each in members})

    def drop(self, member: Member) -> None:
        """Take a member out."""
        name = member.member
        self.change(members={n: each for n, each in self.live.members.items() if n != name})

    def update(self, member: Member, **fields: Any) -> Member:
        """Replace fields of one member."""
        changed = replace(member, **fields)
        self.put(changed)
        return changed
