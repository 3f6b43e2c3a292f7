"""SyncGroup: the leader brings the assignment, everybody fetches their share."""

from typing import Final

from msgspec.structs import replace

from coordlib import limits
from coordlib.coordinators.groups.classic import guards, kept_bytes, rebalance
from coordlib.coordinators.groups.classic.draft import Draft
from coordlib.coordinators.groups.classic.group import SYNC, Failure, Member, Parked, State
from coordlib.coordinators.groups.classic.membership import find_in_generation
from coordlib.coordinators.groups.classic.sync_answer import issue, record_failure, send_assignment
from coordlib.coordinators.shard.transition import reply_of
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq

#: For a SyncGroup that names another protocol than the group chose.
_OTHER_PROTOCOL: Final = "Name the protocol type and protocol of your JoinGroup's answer, or none."
_TOO_LARGE: Final = "Join again, and let the leader assign in fewer bytes: the group is too large."


def sync_group(draft: Draft, request: rq.SyncGroup) -> None:
    """Judge one SyncGroup."""
    member = find_in_generation(draft, request.member, request.instance, request.generation)
    if isinstance(member, ErrorCode):
        draft.refuse(request, member)
    elif _names_another_protocol(draft, request):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        draft.refuse(request, code, _OTHER_PROTOCOL)
    elif draft.live.state is State.PREPARING_REBALANCE:
        draft.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
    elif draft.live.state is State.STABLE:
        draft.is_reaction = not member.has_synced
        _return_assignment(draft, request, member)
    else:
        draft.is_reaction = True
        _park(draft, request, member)
        if member.member == draft.live.leader:
            _assign(draft, request)


def _names_another_protocol(draft: Draft, request: rq.SyncGroup) -> bool:
    group = draft.live
    return (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol is not None and request.protocol != group.protocol
    )


def _return_assignment(draft: Draft, request: rq.SyncGroup, member: Member) -> None:
    if guards.is_waited_for(draft, member):
        _park(draft, request, member)
        return
    draft.put(replace(member, has_synced=True, has_let_go=False, awaits_cover=draft.at.offset))
    rebalance.stop_sync_timer_when_all_synced(draft)
    send_assignment(draft, member, _parked(draft, request))


def _park(draft: Draft, request: rq.SyncGroup, member: Member) -> None:
    member = rebalance.supersede(draft, member, SYNC, request)
    draft.put(
        replace(
            member,
            parked=_parked(draft, request),
            has_synced=True,
            has_let_go=False,
            awaits_cover=None,
        )
    )
    rebalance.stop_sync_timer_when_all_synced(draft)


def _parked(draft: Draft, request: rq.SyncGroup) -> Parked:
    return Parked(
        SYNC, request.id, request.client, draft.at.coordinate, reply_of(request, draft.at)
    )


def _assign(draft: Draft, request: rq.SyncGroup) -> None:
    """The leader has spoken: members that it forgot get an empty share, as in Kafka.

    If it says why it cannot divide, everybody gets an empty share and that error: nobody is put
    out, and nobody waits for it in vain (seed 002, assignment failure).
    """
    given = {row.member: row.assignment for row in request.assignments}
    before_bytes = _assigned_bytes(draft)
    draft.put(
        *(
            replace(member, assignment=given.get(member.member, b""), fence=draft.at.offset)
            for member in draft.live.members.values()
        )
    )
    grows_by = _assigned_bytes(draft) - before_bytes
    is_too_large = draft.live.size_bytes > limits.GROUP_BYTES_MAX
    if is_too_large or grows_by > max(draft.room_for(is_known=True), 0):
        _refuse_too_large(draft)
        return
    draft.enter(State.STABLE)
    failure = _failure_of(draft, request, grows_by)
    draft.change(fence=draft.at.offset, failure=failure)
    if failure is not None:
        record_failure(draft, request.client, failure)
    for member in draft.live.members.values():
        issue(draft, member)
    waiting = [member for member in draft.live.members.values() if member.is_syncing]
    for member in waiting:
        send_assignment(draft, member, member.parked)
    draft.put(*(replace(m, parked=None, awaits_cover=draft.at.offset) for m in waiting))


def _failure_of(draft: Draft, request: rq.SyncGroup, grows_by: int) -> Failure | None:
    """Why the leader could not divide. A full shard keeps the error and not the message."""
    if not request.has_failed:
        return None
    failure = Failure(str(request.error), request.message or "")
    has_room = grows_by + kept_bytes.of_failure(failure) <= draft.room_for(is_known=True)
    return failure if has_room else replace(failure, message="")


def _assigned_bytes(draft: Draft) -> int:
    return sum(len(member.assignment) for member in draft.live.members.values())


def _refuse_too_large(draft: Draft) -> None:
    """As when Kafka cannot append the record: everybody is told, and the group starts over."""
    draft.put(
        *(
            rebalance.answer_parked(draft, member, ErrorCode.UNKNOWN_SERVER_ERROR, _TOO_LARGE)
            for member in draft.live.members.values()
        )
    )
    rebalance.prepare(draft, "assignment too large")
