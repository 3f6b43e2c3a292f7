"""Programs with one member each in a server-assigned group, over the real core in memory."""

from collections.abc import Sequence
from typing import Any

from coordlib.client import AssignedMember
from coordlib.client.groups.member import Member
from coordlib.core.wire import api
from tests.client import world
from tests.client.world import t

__all__ = ["AssignedUser", "AssignedWorld", "t"]


class AssignedUser(world.User):
    """As in a classic group: works on what it is told, and commits when it is asked to go."""

    member: AssignedMember

    def _member(self, assignors: Any, common: dict[str, Any]) -> Member[Any]:
        return AssignedMember("orders", strategy=assignors, **common)


class AssignedWorld(world.World):
    """Some users, and time; `assignors` is the group's strategy, None: any."""

    USER = AssignedUser

    def __init__(self, topics: dict[str, int] | None = None, strategy: str | None = None) -> None:
        super().__init__(topics, (strategy,) if strategy else ())
        self.assignors = strategy  # type: ignore[assignment]  # one, and by name
        self.log.tell_topics()

    def enter(self, name: str, assignors: Any, topics: Sequence[str], **more: Any) -> world.User:
        return super().enter(name, assignors, topics, **more)

    def of(self, client: str, kind: type[Any]) -> list[Any]:
        """What one client wrote of a kind."""
        return [each for each in self.requests if each.client == client and isinstance(each, kind)]

    def releases(self, client: str) -> list[api.Release]:
        return self.of(client, api.Release)
