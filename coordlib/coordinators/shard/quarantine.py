"""A group whose step broke an invariant is set aside, and an operator lets it go on.  # INV-42

Its state stays as it was before that step; nothing is due, nothing is judged, whoever asks is
told COORDINATOR_NOT_AVAILABLE. All other groups of the shard go on.
"""

from typing import Any

import msgspec

from coordlib.coordinators.groups.group import AnyGroup, BrokenInvariant
from coordlib.coordinators.shard.kind import Machine
from coordlib.coordinators.shard.row import check_writable
from coordlib.coordinators.shard.transition import At, envelope, refusal, reply_of
from coordlib.effects import effect as fx
from coordlib.errors import ErrorCode
from coordlib.records import codec, stored
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def unavailable(request: rq.Request, at: At) -> fx.Respond:
    """The answer of a group that is set aside."""
    answer = rs.answer_to(type(request))
    refused = refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return fx.Respond(reply_of(request, at), answer(**envelope(request, at), **refused))


def recorded(
    name: str, kind: str | None, group: AnyGroup | None, at: At, problem: Exception
) -> fx.History:
    """The line of history that says what went wrong. `kind`: the group's, if there is one."""
    return fx.History(
        type=stored.EVENT_GROUP_QUARANTINED,
        group=name,
        protocol=kind,
        generation=group.generation if group else -1,
        cause=at.coordinate,
        reason=type(problem).__name__,
        detail={"exception": codec.printable(str(problem))},
    )


def refused_release(machine: Machine | None, group: AnyGroup | None) -> dict[str, Any]:
    """Why the group cannot be released, as fields of the answer; empty: it can."""
    if machine is None or group is None:
        return refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_quarantined:
        return refusal(
            ErrorCode.INVALID_REQUEST, "This group is not quarantined: there is nothing to release."
        )
    try:
        machine.check(group)
        check_writable(machine, group, None)
    except BrokenInvariant as broken:
        why = f"Mend the job first, its state is unsound: {broken}."
        return refusal(ErrorCode.INVALID_REQUEST, why)
    return {}


def freed(machine: Machine, group: Any, published: int, clock_ms: int) -> Any:
    """The group as it goes on: everything that runs has its full time again.

    Ticks that came meanwhile do not come again: what they covered waits for none.
    """
    again = machine.restart(msgspec.structs.replace(group, is_quarantined=False), clock_ms)
    covered, _ = machine.cover(again, published, clock_ms)
    return covered


def effects_of_release(
    request: rq.ReleaseQuarantine,
    at: At,
    machine: Machine | None,
    group: AnyGroup | None,
    refused: dict[str, Any],
) -> list[fx.Effect]:
    """The operator's answer, and the line of history."""
    response = rs.ReleaseQuarantineResponse(**envelope(request, at), **refused)
    answer = fx.Respond(reply_of(request, at), response)
    if refused or group is None or machine is None:
        return [answer]
    released = fx.History(
        type=stored.EVENT_GROUP_RELEASED,
        group=request.group,
        protocol=machine.KIND,
        generation=group.generation,
        cause=at.coordinate,
        reason=f"released by {request.client}",
    )
    return [released, answer]
