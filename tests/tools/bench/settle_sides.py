"""The two sides of the settle benchmark, and of which kind their members are.

From LIGHT_FROM members on ours are light (`settle_light`): so many whole consumers in one program
would measure their own crowding. Kafka's client has no such members, so there is no peer then.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import uuid4

from coordlib.errors import SetupError
from tests.tools.bench import settle_light, settle_members
from tests.tools.bench.settle_members import ASSIGNED, Member
from tests.tools.bench.settled import Ownership
from tests.tools.bench.stand import Stand

OURS: Final = "ours"
#: Members from which ours are light, unless it is said.
LIGHT_FROM: Final = 64
#: Of both clients (librdkafka's heartbeat.interval.ms, and ours).
HEARTBEAT_DEFAULT_MS: Final = 3_000


class Running(Protocol):
    """A member that runs in a thread of its own, or a light one."""

    #: Why it runs no more.
    failure: Exception | None

    def stop(self) -> None: ...

    def join(self) -> None: ...


#: Starts the member with this number, which tells there what it owns.
Start = Callable[[int, Ownership], Running]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every side does."""

    members: int
    partitions: int
    topic: str
    protocol: str
    peer_heartbeat_ms: int | None
    #: Whether our members share one transport and one polling thread.
    is_light: bool = False

    @contextmanager
    def side(self, name: str, stand: Stand) -> Iterator[Start]:
        """How members of a side are started, in a group of a new name."""
        group = f"settle-{uuid4().hex[:8]}"
        # Connections of closed clients end with the broker, not before.
        config: dict[str, Any] = {**stand.config, "log_level": 2}
        if name == OURS and self.is_light:
            with settle_light.crew(config, stand.prefix, group, self.topic) as crew:
                yield crew.start
            return
        config["group.id"] = group
        if name == OURS:
            config["coord.prefix"] = stand.prefix
            open_consumer = settle_members.ours(config, self.topic, self.protocol)
        else:
            if self.peer_heartbeat_ms is not None:
                config["heartbeat.interval.ms"] = self.peer_heartbeat_ms
            open_consumer = settle_members.kafkas(config, self.topic, self.protocol)
        yield lambda number, ownership: Member(number, ownership, open_consumer)

    def heartbeat_ms(self, name: str) -> int:
        """Heartbeat interval of a side's members."""
        if name == OURS or self.peer_heartbeat_ms is None:
            return HEARTBEAT_DEFAULT_MS
        return self.peer_heartbeat_ms


def chosen_light(light: bool | None, members: int, protocol: str, peers: Sequence[str]) -> bool:
    """Whether our members are light. Raises SetupError where they cannot be, or be compared."""
    is_light = members >= LIGHT_FROM if light is None else light
    if is_light and protocol != ASSIGNED:
        raise SetupError(
            "Only members of server-assigned groups can be light.",
            f"{members} members, protocol {protocol}",
            f"Name --protocol {ASSIGNED}, or --no-light.",
        )
    if is_light and set(peers) - {OURS}:
        raise SetupError(
            "Light members cannot be compared with Kafka's: those are whole consumers.",
            f"{members} members, light from {LIGHT_FROM} on",
            "Name --peer none; or --no-light, with as many members as the machine carries.",
        )
    return is_light
