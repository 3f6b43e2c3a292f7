"""The answer to a SyncGroup: a member's assignment, and its records for other readers."""

from coordlib.core.engine import effect as fx
from coordlib.core.engine.transition import refusal
from coordlib.core.groups.classic.group import Failure, Member, Parked
from coordlib.core.groups.classic.step import Step
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode


def issue(step: Step, member: Member) -> None:
    """Write the share to `coord.assignments` and into history."""
    group, at = step.live, step.at
    value = stored.AssignmentValue(
        generation=group.generation,
        protocol=group.protocol,
        assignment=member.assignment,
        fence=member.fence,
        since_ms=at.time_ms,
    )
    step.assign(member.member, value)
    step.record(
        stored.EVENT_ASSIGNMENT_ISSUED,
        member=member.member,
        detail={
            "fence": member.fence,
            # The same for all shares of one assignment; a static successor's fence is newer.
            "sync": group.fence,
            **_readable(group.protocol_type, member.assignment),
        },
    )


def _readable(protocol_type: str | None, assignment: bytes) -> dict[str, object]:
    """Partitions for consumers, bytes for all others and for what no consumer could read."""
    if protocol_type == cp.CONSUMER:
        try:
            return {"partitions": cp.decode_assignment(assignment).partitions}
        except cp.Unreadable as problem:
            return {"bytes": assignment, "unreadable": str(problem)}
    return {"bytes": assignment}


def record_failure(step: Step, client: str, failure: Failure) -> None:
    """Record in history why this generation has no assignment."""
    step.record(
        stored.EVENT_ASSIGNMENT_FAILED,
        member=step.live.leader or "",
        reason=failure.reason,
        detail={"client": client, "error": failure.error},
    )


def send_assignment(step: Step, member: Member, parked: Parked | None) -> None:
    """Answer a SyncGroup with the member's share; it is empty where the leader gave an error."""
    if parked is None:
        return
    group, failure = step.live, step.live.failure
    failed = {} if failure is None else refusal(ErrorCode[failure.error], failure.reason)
    step.emit(
        fx.Respond(
            parked.reply,
            rs.SyncGroupResponse(
                **parked.envelope(group.group),
                **failed,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                assignment=member.assignment,
                fence=member.fence,
            ),
        )
    )
