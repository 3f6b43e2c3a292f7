"""The properties of a group that retention and requests about offsets use, for any kind."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from coordlib.core.engine.clock import Timer


class AnyGroup(Protocol):
    """A group as a frozen value. Its kind defines all other fields."""

    @property
    def group(self) -> str:
        """Its name."""

    @property
    def generation(self) -> int:
        """Rises for as long as the group exists, also when it changes its kind."""

    @property
    def members(self) -> Mapping[str, Any]:
        """By member id."""

    @property
    def is_empty(self) -> bool:
        """Whether it is in the state Empty: it has no members, and waits for none."""

    @property
    def is_quarantined(self) -> bool:
        """Set when a step of this group broke an invariant; an operator releases it."""

    @property
    def state_since_ms(self) -> int:
        """Log time of the newest change of state."""

    @property
    def state_since_clock_ms(self) -> int:
        """The same on the shard's clock: what retention counts on."""

    @property
    def is_settled(self) -> bool:
        """Whether it has members, and no change of their subscriptions is under way."""

    @property
    def tells_subscriptions(self) -> bool:
        """Whether its members' subscriptions can be read at all."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member wants this topic, so that its offsets must be kept."""

    def reaction_timers(self) -> Iterator[Timer]:
        """The deadlines that start when a member can read what it must react to (rule 3)."""


def uncovered(group: AnyGroup) -> tuple[int, int] | None:
    """The lowest and highest record that a member must react to and that no tick covers yet."""
    causes = [timer.cause for timer in group.reaction_timers() if timer.due_ms is None]
    causes += [m.awaits_cover for m in group.members.values() if m.awaits_cover is not None]
    return (min(causes), max(causes)) if causes else None
