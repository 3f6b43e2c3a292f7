"""How many bytes a group's hard state and its members' soft state have in a shard's blob, at most.

What is counted depends on the group alone, not on when it was written or how: so the sum over a
shard is the same however the log is cut into batches, and after a rebuild. It is closer than
`Group.size_bytes`, which bounds one record's JSON, where every character may be escaped. `growth`
is the one place by which both follow the members.
"""

from typing import Final

from msgspec import UNSET

from coordlib import limits
from coordlib.core.groups.classic.group import Failure, Group, Guard, Member, OfferedProtocol

#: The rest of a row: its numbers, the fields of a group without members, and their names.
GROUP_BYTES: Final = 768
#: The fields of a member and their names, when it was heard, and a parked request.
MEMBER_BYTES: Final = 512
#: A member's field `host`, with its name.
HOST_BYTES: Final = 8
GUARD_BYTES: Final = 256
#: The fields of a failed assignment, and their names.
FAILURE_BYTES: Final = 32
#: An announced id: three names of any length, and a timer.
ANNOUNCED_BYTES: Final = 640
#: One offered protocol beside its name and metadata.
OFFERED_BYTES: Final = 24
#: More than any JoinGroup adds: its own bytes, the longest names, and a new group.
JOIN_BYTES_MAX: Final = limits.REQUEST_BYTES_MAX + 16 * limits.KIB


#: Where a group keeps the sum over its members; `carry` hands it on.
_OF_MEMBERS: Final = "kept_of_members"


def of_group(group: Group) -> int:
    """The whole group but its offsets."""
    return of_frame(group) + of_members(group)


def of_members(group: Group) -> int:
    """All members; counted once, because a rebalance changes a group as often as it has members."""
    known: int | None = group.__dict__.get(_OF_MEMBERS)
    if known is None:
        known = group.__dict__[_OF_MEMBERS] = sum(map(of_member, group.members.values()))
    return known


def carry(before: Group, group: Group, grown: int = 0) -> None:
    """Set the sum over a group's members: the sum before, plus its growth."""
    group.__dict__[_OF_MEMBERS] = of_members(before) + grown


def growth(before: Member | None, after: Member | None) -> tuple[int, int]:
    """By how many bytes a group grows as one member takes another's place; None: there is none.

    Returns the bytes of `Group.size_bytes`, and those in the blob.
    """
    if before is not None and after is not None and _has_the_size_of(before, after):
        return 0, 0  # most steps replace nothing of what is counted
    of_after = (after.size_bytes(), of_member(after)) if after is not None else (0, 0)
    of_before = (before.size_bytes(), of_member(before)) if before is not None else (0, 0)
    return of_after[0] - of_before[0], of_after[1] - of_before[1]


def _has_the_size_of(before: Member, after: Member) -> bool:
    return (
        after.protocols is before.protocols
        and after.assignment is before.assignment
        and after.rejoin_id is before.rejoin_id
        and (after.member, after.client) == (before.member, before.client)
        and (after.first_id, after.instance) == (before.first_id, before.instance)
        and after.host == before.host
    )


def new_group(name: str) -> int:
    """A group that has just been made."""
    return GROUP_BYTES + 2 * width(name)


def of_frame(group: Group) -> int:
    """A group without its members."""
    names = 2 * width(group.group) + width(group.protocol_type, group.protocol, group.leader)
    size = GROUP_BYTES + names + width(group.rebalance_reason)
    if group.failure is not None:
        size += of_failure(group.failure)
    if group.pending:
        size += len(group.pending) * ANNOUNCED_BYTES
    if group.guards:
        size += sum(map(of_guard, group.guards.values()))
    return size


def of_member(member: Member) -> int:
    """A member with its metadata and its assignment."""
    # Its id stands as key, in the member, beside when it was heard, and beside its instance.
    names = width(member.first_id, member.rejoin_id) + 2 * width(member.client)
    names += 4 * width(member.member) + 2 * width(member.instance)
    if member.host is not UNSET:
        names += HOST_BYTES + width(member.host)
    return MEMBER_BYTES + names + of_offered(member.protocols) + len(member.assignment)


def of_offered(protocols: tuple[OfferedProtocol, ...]) -> int:
    return sum(OFFERED_BYTES + width(p.name) + len(p.metadata) for p in protocols)


def of_guard(guard: Guard) -> int:
    """A former owner that others wait for."""
    names = 2 * width(guard.member) + width(guard.client, guard.first_id, guard.successor)
    return GUARD_BYTES + names


def of_failure(failure: Failure) -> int:
    """Why the generation has no assignment."""
    return FAILURE_BYTES + width(failure.error, failure.message)


def width(*names: str | None) -> int:
    """Bytes of names in UTF-8."""
    total = 0
    for name in names:  # no generator: this runs for every change of a group
        if name:
            total += len(name) if name.isascii() else len(name.encode())
    return total
