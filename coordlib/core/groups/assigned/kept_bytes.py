"""How many bytes a server-assigned group has in a shard's blob, at most, beside its offsets.

By its value alone, as for classic groups (`classic/kept_bytes.py`). Here one bound serves both the
record of the group and the blob: `Group.size_bytes`, which counts each member's share by itself.
"""

from typing import Final

from coordlib.core.groups.assigned import wishes
from coordlib.core.groups.assigned.group import Group, Member, text_bytes

#: When a member was heard, beside its id.
HEARD_BYTES: Final = 16


def of_group(group: Group) -> int:
    """A whole group with its row, which repeats its name and wishes and has members' last times."""
    heard = sum(HEARD_BYTES + text_bytes(name) for name in group.members)
    return group.size_bytes() + text_bytes(group.group) + heard + wishes.size_bytes(group)


def new_group(name: str) -> int:
    """A group that has just been made."""
    return of_group(Group(group=name))


def of_newcomer(member: Member) -> int:
    """A member without partitions."""
    return member.own_bytes + HEARD_BYTES + text_bytes(member.member)
