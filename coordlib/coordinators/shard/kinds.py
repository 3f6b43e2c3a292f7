"""One group, one kind: who asks for another is refused, and a group without members may change.

What all kinds have (offsets, heartbeats, leaving) goes to the kind that the group is of.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from coordlib.coordinators.groups.group import AnyGroup
from coordlib.coordinators.registry import MACHINE_OF, MACHINES
from coordlib.coordinators.shard.kind import Machine
from coordlib.coordinators.shard.transition import At, envelope, refusal, reply_of
from coordlib.effects import effect as fx
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records import stored


def machine_for(request: type[rq.Request], machine: Machine | None) -> Machine:
    """Who judges it; `machine`: of the group's present kind, None: there is no group."""
    if machine is not None and request in machine.HANDLERS:
        return machine
    return MACHINE_OF[request]


def only_kind(request: type[Any] | None) -> str | None:
    """The kind that alone has such requests; None: several have them, or none has."""
    having = [machine.KIND for machine in MACHINES.values() if request in machine.HANDLERS]
    return having[0] if len(having) == 1 else None


def named(effects: Iterable[fx.Effect], kind: str | None) -> list[fx.Effect]:
    """The effects of a step, with another kind in its history than the one that judged.

    A kind may judge for no group, or for an empty group of another kind, and change nothing.
    """
    return [
        replace(effect, protocol=kind) if isinstance(effect, fx.History) else effect
        for effect in effects
    ]


def refused(request: rq.Request, at: At, group: AnyGroup, kind: str) -> list[fx.Effect]:
    """The answer to a request of another kind than the group's, and the line of history."""
    wanted = MACHINE_OF[type(request)].KIND
    message = f"This group is {kind}, not {wanted}: use another name, or stop its members first."
    told = refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
    answer = rs.answer_to(type(request))
    recorded = fx.History(
        type=stored.EVENT_REQUEST_REJECTED,
        group=request.group,
        protocol=kind,
        generation=group.generation,
        cause=at.coordinate,
        reason=message,
        detail={
            "error": told["error"],
            "request": type(request).__name__,
            "client": request.client,
        },
    )
    return [fx.Respond(reply_of(request, at), answer(**envelope(request, at), **told)), recorded]


def changed(group: AnyGroup, at: At, before: str, after: str) -> fx.History:
    """The line of history that an empty group is of another kind from now on."""
    return fx.History(
        type=stored.EVENT_GROUP_KIND_CHANGED,
        group=group.group,
        protocol=after,
        generation=group.generation,
        cause=at.coordinate,
        reason=f"was {before} and empty",
    )
