"""What the sticky assignors put into a subscription's user data, byte for byte as Kafka's do.

sticky, version 0: an array of {string topic, array of int32 partitions}: what the member owned.
sticky, version 1: the same, then the int32 generation in which it owned them.
cooperative-sticky: an int32 generation alone; partitions stand in the subscription.
All big-endian, and nothing says which version it is: what is too short for 1 is 0. Source:
`StickyAssignor.java`, `CooperativeStickyAssignor.java`.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coordlib.core.groups.assignors.model import NO_GENERATION, Member
from coordlib.core.wire import consumer_protocol as cp


@dataclass(frozen=True, slots=True)
class Said:
    """What a member says that it owned, and in which generation; None: it does not say."""

    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation: int | None = None


def encode_sticky(
    owned: Mapping[str, Sequence[int]] | None, generation: int | None = NO_GENERATION
) -> bytes | None:
    """User data of a member of a sticky group.

    Args:
        owned: the last assignment; None before the first one, which needs no user data.
        generation: its generation (version 1), or None to write version 0.
    """
    if owned is None:
        return None
    body = cp.encode_topic_partitions({topic: owned[topic] for topic in sorted(owned)})
    return body if generation is None else body + struct.pack(">i", generation)


def decode_sticky(value: bytes | None) -> Said:
    """Read user data of a sticky member; what cannot be read counts as nothing owned."""
    if not value:
        return Said()
    reader = cp.Reader(value)
    try:
        owned = reader.topic_partitions()
    except cp.Unreadable:
        return Said(generation=NO_GENERATION)
    try:
        return Said(owned, reader.int32())
    except cp.Unreadable:
        return Said(owned)


def encode_cooperative(generation: int) -> bytes:
    """User data of a member of a cooperative-sticky group."""
    return struct.pack(">i", generation)


def decode_cooperative(value: bytes | None) -> int | None:
    """The generation in such user data; None if there is none, -1 if it cannot be read."""
    if value is None:
        return None
    return int(struct.unpack(">i", value[:4])[0]) if len(value) >= 4 else NO_GENERATION


def said_to_sticky(member: Member) -> Said:
    """Sticky reads user data alone: its members own nothing any more when they join."""
    return decode_sticky(member.user_data)


def said_to_cooperative(member: Member) -> Said:
    """Cooperative-sticky reads the subscription, and user data where that has no generation."""
    if member.generation >= 0:
        return Said(member.owned, member.generation)
    return Said(member.owned, decode_cooperative(member.user_data))
