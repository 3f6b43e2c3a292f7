"""Requests that no group judges: unreadable, misdirected, or of a kind that is not built.

One answer if anybody can be told, one line of history always, and nothing changes.  # INV-41
"""

from typing import Any

from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine import effect as fx
from coordlib.core.engine import transition
from coordlib.core.engine.blob import ShardSettings
from coordlib.core.engine.family import Registry
from coordlib.core.engine.kind import Kind
from coordlib.core.engine.row import Row
from coordlib.core.engine.transition import At
from coordlib.core.wire import codec, stored
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire.partitioner import reply_partition_of, shard_of
from coordlib.errors import ErrorCode


def misdirected(
    request: rq.Request, settings: ShardSettings, registry: Registry, is_known: bool
) -> codec.Refusal | None:
    """Why this shard must not judge the request; `is_known`: it has the entity already."""
    space, name = request.entity
    is_of_any_shard = isinstance(request, rq.ApiVersions)
    if space not in registry.families and not is_of_any_shard:
        why = f"space must be one of {', '.join(sorted(registry.families))}."
        refused = refuse(request, ErrorCode.INVALID_REQUEST, why)
        return replace(refused, space=codec.printable(space))
    if not name and not is_of_any_shard:
        return refuse(
            request, ErrorCode.INVALID_GROUP_ID, f"The name of the {space} is empty: give one."
        )
    if request.reply is not None and request.reply >= settings.reply_partitions:
        bound = f"reply must be below {settings.reply_partitions}."
        return refuse(request, ErrorCode.INVALID_REQUEST, bound)
    if is_known or is_of_any_shard or isinstance(request, rq.FindCoordinator):
        return None
    home = shard_of(name, settings.shards)
    if home != settings.shard:  # INV-05
        where = f"This {space} belongs into partition {home} of {settings.shards}."
        return refuse(request, ErrorCode.WRONG_SHARD, where)
    return None


def without_time() -> codec.Refusal:
    """A record that was written while the topic did not stamp the broker's time."""
    return codec.Refusal(
        error=ErrorCode.INVALID_REQUEST,
        message="The record has no LogAppendTime: set message.timestamp.type, then send it again.",
    )


def unless_set_aside(request: Any, why: str | None) -> Any:
    """The request, or a refusal where it is set aside.  # INV-144

    A record of the job's driver is never set aside: a message between shards that is not judged
    would hold up all that its sender sends, and ticks carry the time.
    """
    if why is None or not isinstance(request, rq.Request):
        return request
    return refuse(request, ErrorCode.POLICY_VIOLATION, why)


def refuse(request: rq.Request | rq.Control, error: ErrorCode, message: str) -> codec.Refusal:
    """A refusal of a request that could be read."""
    if not isinstance(request, rq.Request):
        return codec.Refusal(error=error, message=message)
    return codec.Refusal(
        error=error,
        message=message,
        id=request.id,
        client=request.client,
        group=request.entity[1],
        space=request.entity[0],
        reply=request.reply,
    )


def inapplicable(
    request: rq.Request, at: At, kind: Kind, value: Any, wanted: Kind | None
) -> list[fx.Effect]:
    """The answer to a request of another kind than the entity's, and the line of history.

    `wanted`: the kind of the same space that judges such requests; None: no kind there does.
    """
    what = type(request).__name__
    message = (
        f"This {kind.SPACE} is {kind.NAME}, not {wanted.NAME}: use another name, or stop its "
        "members first."
        if wanted
        else f"{what} does not apply to {kind.NAME}."
    )
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if wanted else ErrorCode.INVALID_REQUEST
    recorded = fx.History(
        type=stored.EVENT_REQUEST_REJECTED,
        space=kind.SPACE,
        group=request.entity[1],
        kind=kind.NAME,
        generation=kind.generation(value),
        cause=at.coordinate,
        reason=message,
        detail={"error": code.name, "request": what, "client": request.client},
    )
    return [transition.refuse(request, at, code, message), recorded]


def kind_changed(row: Row, at: At, after: Kind) -> fx.History:
    """The line of history that an empty entity is of another kind from now on."""
    return fx.History(
        type=stored.EVENT_GROUP_KIND_CHANGED,
        space=after.SPACE,
        group=row.stored.name,
        kind=after.NAME,
        generation=row.kind.generation(row.value),
        cause=at.coordinate,
        reason=f"was {row.kind.NAME} and empty",
    )


def effects_of(
    at: At, refused: codec.Refusal, kind: str | None, value: bytes | None
) -> list[fx.Effect]:
    """The answer, if its sender was legible, and the line of history.

    `kind`: of the group that is named, or the only one that has such requests.
    """
    recorded = fx.History(
        type=stored.EVENT_REQUEST_REJECTED,
        space=refused.space,
        group=refused.group,
        kind=kind,
        cause=at.coordinate,
        reason=refused.message,
        detail={
            "error": refused.error.name,
            "client": refused.client,
            "bytes": (value or b"")[: limits.REJECTED_BYTES_KEPT],
        },
    )
    if refused.id is None:
        return [recorded]
    reply = refused.reply
    if reply is None or reply >= at.reply_partitions:
        reply = reply_partition_of(refused.client, at.reply_partitions)
    answer = rs.Rejected(
        id=refused.id,
        client=refused.client,
        group=refused.group,
        cause=at.coordinate,
        error=refused.error.name,
        message=refused.message,
    )
    return [fx.Respond(reply, answer), recorded]
