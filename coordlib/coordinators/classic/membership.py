"""The checks that several requests share, in Kafka's order.  # INV-18"""

from typing import Final

from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import Member
from coordlib.errors import ErrorCode

#: For whoever would make one group more than a shard may hold.
SHARD_IS_FULL: Final = (
    "Delete groups that nobody needs, or raise groups_per_shard_max: this shard is full."
)
#: For whoever would make the shard's state larger than it may be.
SHARD_IS_TOO_LARGE: Final = (
    "Delete groups that nobody needs, or raise shard_bytes_max: this shard's state is full."
)


def find_member(draft: Draft, member_id: str, instance: str | None) -> Member | ErrorCode:
    """The member of this id, or why the request must not be judged for it."""
    if draft.group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance is not None:
        static = draft.group.static_member(instance)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static.member != member_id:
            return ErrorCode.FENCED_INSTANCE_ID  # INV-19
    elif (guard := draft.group.guards.get(member_id)) is not None and guard.was_replaced:
        return ErrorCode.FENCED_INSTANCE_ID
    return draft.group.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def find_in_generation(
    draft: Draft, member_id: str, instance: str | None, generation: int
) -> Member | ErrorCode:
    """As `find_member`, and the request must belong to the current generation."""
    member = find_member(draft, member_id, instance)
    if isinstance(member, Member) and draft.live.generation != generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member
