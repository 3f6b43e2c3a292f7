"""The names of a client, given by the user or made."""

import os
from dataclasses import dataclass
from secrets import token_hex

from coordlib import limits
from coordlib.client.kit.host import own_host
from coordlib.client.kit.name_checks import require_name
from coordlib.client.kit.transport import Transport, identity_at
from coordlib.client.kit.wording import Identity
from coordlib.core.wire import consumer_protocol as cp


def default_client_id() -> str:
    """`<host>-<process>-<random>`: shows where a member runs, and never repeats."""
    return f"{(own_host() or 'host')[:80]}-{os.getpid()}-{token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The names given by the user, checked before any network call."""

    group: str
    client: str | None = None
    instance: str | None = None
    rack: str | None = None
    prefix: str = "coord"
    #: What the group shares: `consumer` is partitions of topics.
    protocol_type: str = cp.CONSUMER

    def __post_init__(self) -> None:
        require_name("The name of a group", self.group, limits.NAME_LENGTH_MAX)
        if self.client:
            require_name("A client id", self.client, limits.CLIENT_LENGTH_MAX)
        if self.instance is not None:
            require_name("An instance id", self.instance, limits.NAME_LENGTH_MAX)
        if self.rack:
            require_name("A rack", self.rack, limits.NAME_LENGTH_MAX)

    def identity(self, client: str, transport: Transport) -> Identity:
        """The same over one transport, with a token that no other member has."""
        return identity_at(
            transport,
            self.group,
            client,
            instance=self.instance,
            rack=self.rack,
            host=transport.host,
            protocol_type=self.protocol_type,
        )
