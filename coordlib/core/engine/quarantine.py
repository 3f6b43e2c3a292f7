"""An entity whose step broke an invariant is set aside, and an operator lets it go on.  # INV-42

Its state stays as it was before that step; nothing is due, nothing is judged, and every request is
answered COORDINATOR_NOT_AVAILABLE. All other entities of the shard go on.
"""

from typing import Any

import msgspec

from coordlib.core.engine import effect as fx
from coordlib.core.engine.kind import Kind
from coordlib.core.engine.row import Row, check_writable
from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.engine.transition import At, Key, answer, refusal, refuse
from coordlib.core.wire import codec, stored
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def unavailable(request: rq.Request, at: At) -> fx.Respond:
    """The answer of an entity that is set aside."""
    return refuse(request, at, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def recorded(key: Key, kind: str | None, generation: int, at: At, problem: Exception) -> fx.History:
    """The line of history that says what went wrong. `kind`: the entity's, if there is one."""
    space, name = key
    return fx.History(
        type=stored.EVENT_GROUP_QUARANTINED,
        space=space,
        group=name,
        kind=kind,
        generation=generation,
        cause=at.coordinate,
        reason=type(problem).__name__,
        detail={"exception": codec.printable(str(problem))},
    )


def refused_release(row: Row | None) -> dict[str, Any]:
    """Why the entity cannot be released, as fields of the answer; empty: it can."""
    if row is None or row.value is None:
        return refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    if not row.is_quarantined:
        return refusal(
            ErrorCode.INVALID_REQUEST,
            f"This {row.kind.SPACE} is not quarantined: there is nothing to release.",
        )
    try:
        row.kind.check(row.value)
        check_writable(row.kind, row.value, None)
    except BrokenInvariant as broken:
        why = f"Mend the job first, its state is unsound: {broken}."
        return refusal(ErrorCode.INVALID_REQUEST, why)
    return {}


def freed(kind: Kind, value: Any, published: int, clock_ms: int) -> Any:
    """The value as it goes on: everything that runs has its full time again.

    Ticks that came meanwhile do not come again: what they covered waits for none.
    """
    again = kind.restart(msgspec.structs.replace(value, is_quarantined=False), clock_ms)
    covered, _ = kind.cover(again, published, clock_ms)
    return covered


def effects_of_release(
    request: rq.ReleaseQuarantine, at: At, row: Row | None, refused: dict[str, Any]
) -> list[fx.Effect]:
    """The operator's answer, and the line of history."""
    answered = answer(request, at, **refused)
    if refused or row is None:
        return [answered]
    released = fx.History(
        type=stored.EVENT_GROUP_RELEASED,
        space=row.kind.SPACE,
        group=row.stored.name,
        kind=row.kind.NAME,
        generation=row.kind.generation(row.value),
        cause=at.coordinate,
        reason=f"released by {request.client}",
    )
    return [released, answered]
