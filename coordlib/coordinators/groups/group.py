"""What the shard, retention and the requests about offsets ask of a group, whatever its kind."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from coordlib.coordinators.shard.clock import Timer


class AnyGroup(Protocol):
    """A group as a frozen value. Its kind knows the rest of it."""

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
        """Whether it is in the state Empty: nobody is in it, or waited for."""

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
        """Whether it has members, and what they want is not changing at this moment."""

    @property
    def tells_subscriptions(self) -> bool:
        """Whether what its members want can be read at all."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether somebody wants this topic, so that its offsets must be kept."""

    def reaction_timers(self) -> Iterator[Timer]:
        """What runs from when somebody can read what it must react to (rule 3)."""


def uncovered(group: AnyGroup) -> tuple[int, int] | None:
    """The lowest and highest record that somebody must react to and that no tick covers yet."""
    causes = [timer.cause for timer in group.reaction_timers() if timer.due_ms is None]
    causes += [m.awaits_cover for m in group.members.values() if m.awaits_cover is not None]
    return (min(causes), max(causes)) if causes else None
