"""Which kind of member a consumer drives: `group.protocol`, in the words of KIP-848.

Both are used in the same way; what differs is who divides, and so what on_revoke names.
"""

from collections.abc import Mapping
from typing import Any

from coordlib.client.assigned.member import AssignedMember
from coordlib.client.classic.group_member import GroupMember
from coordlib.client.machine.signals import Callback
from coordlib.client.shell.member import OnPartitions
from coordlib.client.shell.settings import ASSIGNED, Settings
from coordlib.client.shell.transport import Transport

AnyMember = GroupMember | AssignedMember


def member_of(
    settings: Settings, transport: Transport | None, callbacks: Mapping[Callback, OnPartitions]
) -> AnyMember:
    """The member that these settings describe. Raises SetupError, CannotReach."""
    common: dict[str, Any] = {
        "transport": transport,
        "on_assigned": callbacks[Callback.ASSIGNED],
        "on_revoked": callbacks[Callback.REVOKED],
        "on_lost": callbacks[Callback.LOST],
        "client": settings.client,
        "instance": settings.instance,
        "prefix": settings.prefix,
        "timing": settings.timing,
    }
    if settings.protocol == ASSIGNED:
        return AssignedMember(
            settings.group,
            settings.common,
            strategy=settings.strategy,
            capacity=settings.capacity,
            **common,
        )
    return GroupMember(
        settings.group,
        settings.common,
        rack=settings.rack,
        assignors=settings.assignors,
        **common,
    )
