"""The checks that several requests share, in Kafka's order.  # INV-18"""

from coordlib.core.groups.classic.group import Member
from coordlib.core.groups.classic.step import Step
from coordlib.errors import ErrorCode


def find_member(step: Step, member_id: str, instance: str | None) -> Member | ErrorCode:
    """The member of this id, or why the request must not be judged for it."""
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance is not None:
        static = step.value.static_member(instance)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static.member != member_id:
            return ErrorCode.FENCED_INSTANCE_ID  # INV-19
    elif (guard := step.value.guards.get(member_id)) is not None and guard.was_replaced:
        return ErrorCode.FENCED_INSTANCE_ID
    return step.value.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def find_in_generation(
    step: Step, member_id: str, instance: str | None, generation: int
) -> Member | ErrorCode:
    """As `find_member`, and the request must belong to the current generation."""
    member = find_member(step, member_id, instance)
    if isinstance(member, Member) and step.live.generation != generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member
