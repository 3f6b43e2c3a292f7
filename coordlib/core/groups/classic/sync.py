"""SyncGroup: the leader brings the assignment, every member fetches its share."""

from typing import Final

from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.step import reply_of
from coordlib.core.groups.classic import rebalance
from coordlib.core.groups.classic.group import SYNC, Failure, Member, Parked, State, Step
from coordlib.core.groups.classic.rebalance import issue, record_failure, send_assignment
from coordlib.core.wire import api
from coordlib.errors import ErrorCode

#: For a SyncGroup that names another protocol than the group chose.
_OTHER_PROTOCOL: Final = "Name the protocol type and protocol of your JoinGroup's answer, or none."
_TOO_LARGE: Final = "Join again, and let the leader assign in fewer bytes: the group is too large."


def sync_group(step: Step, request: api.SyncGroup) -> None:
    """Judge one SyncGroup."""
    member = step.find_in_generation(request.member, request.instance, request.generation)
    if isinstance(member, ErrorCode):
        step.refuse(request, member)
    elif _names_another_protocol(step, request):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        step.refuse(request, code, _OTHER_PROTOCOL)
    elif step.live.state is State.PREPARING_REBALANCE:
        step.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
    elif step.live.state is State.STABLE:
        step.is_reaction = not member.has_synced
        _return_assignment(step, request, member)
    else:
        # An error brings a reason of 1,000 bytes, which the answers of all members carry.
        step.is_reaction = not request.has_failed
        _park(step, request, member)
        if member.member == step.live.leader:
            _assign(step, request)


def _names_another_protocol(step: Step, request: api.SyncGroup) -> bool:
    group = step.live
    return (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol is not None and request.protocol != group.protocol
    )


def _return_assignment(step: Step, request: api.SyncGroup, member: Member) -> None:
    if step.live.awaits_former_owner(member.member):
        _park(step, request, member)
        return
    step.put(replace(member, has_synced=True, has_let_go=False, awaits_cover=step.at.offset))
    rebalance.stop_sync_timer_when_all_synced(step)
    send_assignment(step, member, _parked(step, request))


def _park(step: Step, request: api.SyncGroup, member: Member) -> None:
    member = rebalance.supersede(step, member, SYNC, request)
    step.put(
        replace(
            member,
            parked=_parked(step, request),
            has_synced=True,
            has_let_go=False,
            awaits_cover=None,
        )
    )
    rebalance.stop_sync_timer_when_all_synced(step)


def _parked(step: Step, request: api.SyncGroup) -> Parked:
    return Parked(SYNC, request.id, request.client, step.at.coordinate, reply_of(request, step.at))


def _assign(step: Step, request: api.SyncGroup) -> None:
    """Store the leader's assignment; members without a row get an empty share, as in Kafka.

    If the leader reports why it cannot assign, every member gets an empty share and that error. No
    member is removed, and none waits in vain (seed 002, assignment failure).
    """
    given = {row.member: row.assignment for row in request.assignments}
    before_bytes = _assigned_bytes(step)
    step.put(
        *(
            replace(member, assignment=given.get(member.member, b""), fence=step.at.offset)
            for member in step.live.members.values()
        )
    )
    grows_by = _assigned_bytes(step) - before_bytes
    is_too_large = step.live.size_bytes > limits.GROUP_BYTES_MAX
    if is_too_large or grows_by > max(step.members_room_bytes, 0):
        _refuse_too_large(step)
        return
    step.enter(State.STABLE)
    failure = _failure_of(step, request, grows_by)
    step.change(fence=step.at.offset, failure=failure)
    if failure is not None:
        record_failure(step, request.client, failure)
    for member in step.live.members.values():
        issue(step, member)
    waiting = [member for member in step.live.members.values() if member.is_syncing]
    for member in waiting:
        send_assignment(step, member, member.parked)
    step.put(*(replace(m, parked=None, awaits_cover=step.at.offset) for m in waiting))


def _failure_of(step: Step, request: api.SyncGroup, grows_by: int) -> Failure | None:
    """Why the leader could not assign. A full shard keeps the error and not the message."""
    if not request.has_failed:
        return None
    failure = Failure(str(request.error), request.message or "")
    has_room = grows_by + failure.kept_bytes <= step.members_room_bytes
    return failure if has_room else replace(failure, message="")


def _assigned_bytes(step: Step) -> int:
    return sum(len(member.assignment) for member in step.live.members.values())


def _refuse_too_large(step: Step) -> None:
    """As when Kafka cannot append the record: all get the error, and the group starts over."""
    step.put(
        *(
            rebalance.answer_parked(step, member, ErrorCode.UNKNOWN_SERVER_ERROR, _TOO_LARGE)
            for member in step.live.members.values()
        )
    )
    rebalance.prepare(step, "assignment too large")
