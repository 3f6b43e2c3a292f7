"""What no entity judges: bad requests, requests to a quarantined entity, unsigned records.

A request may be unreadable, misdirected, or of a kind that is not built: one answer if its sender
can be found, one line of history always, and nothing changes.  # INV-41

An entity whose step broke an invariant is set aside, and an operator lets it go on. Its state stays
as it was before that step; nothing is due, nothing is judged, and every request is answered
COORDINATOR_NOT_AVAILABLE. All other entities of the shard go on.  # INV-42

Which control records a shard obeys: its own job's, each once, in order. Whoever may ask may write
to the log of requests, and what the driver tells shards stands there, too. A forged tick would
start deadlines of questions that nobody can hear, a forged listing would take all topics away.
time-and-fencing.md, rule 17.  # INV-69
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import At, BrokenInvariant, Key
from coordlib.core.engine.protocol import Input, Registry
from coordlib.core.engine.rows import Row, check_writable
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.engine.step import Kind, answer, refusal
from coordlib.core.wire import api, stored
from coordlib.core.wire.control import signed_bytes, without_signature
from coordlib.core.wire.envelope import Refusal, printable, reply_partition_of, shard_of
from coordlib.errors import ErrorCode


def misdirected(
    request: api.Request, settings: ShardSettings, registry: Registry, is_known: bool
) -> Refusal | None:
    """Why this shard must not judge the request; `is_known`: it has the entity already."""
    space, name = request.entity
    is_of_any_shard = isinstance(request, api.ApiVersions)
    if space not in registry.families and not is_of_any_shard:
        why = f"space must be one of {', '.join(sorted(registry.families))}."
        refused = reject(request, ErrorCode.INVALID_REQUEST, why)
        return replace(refused, space=printable(space))
    if not name and not is_of_any_shard:
        return reject(
            request, ErrorCode.INVALID_GROUP_ID, f"The name of the {space} is empty: give one."
        )
    if request.reply is not None and request.reply >= settings.reply_partitions:
        bound = f"reply must be below {settings.reply_partitions}."
        return reject(request, ErrorCode.INVALID_REQUEST, bound)
    if is_known or is_of_any_shard or isinstance(request, api.FindCoordinator):
        return None
    home = shard_of(name, settings.shards)
    if home != settings.shard:  # INV-05
        where = f"This {space} belongs into partition {home} of {settings.shards}."
        return reject(request, ErrorCode.WRONG_SHARD, where)
    return None


def without_time() -> Refusal:
    """A record that was written while the topic did not stamp the broker's time."""
    return Refusal(
        error=ErrorCode.INVALID_REQUEST,
        message="The record has no LogAppendTime: set message.timestamp.type, then send it again.",
    )


def unless_set_aside(request: Any, why: str | None) -> Any:
    """The request, or a refusal where it is set aside.  # INV-144

    A record of the job's driver is never set aside: a message between shards that is not judged
    would hold up all that its sender sends, and ticks carry the time.
    """
    if why is None or not isinstance(request, api.Request):
        return request
    return reject(request, ErrorCode.POLICY_VIOLATION, why)


def why_not_here(belongs: Input, request: api.Request | api.Control) -> str | None:
    """Why it must not stand in this input beside the requests; None: it may.

    No record of the job may, and no request but commits that may have to wait: what it said is
    counted by offsets of the requests alone (`UnreadOutputs`). Commits do not wait here.
    """
    try:
        why = belongs.fault(request)
    except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
        return f"It could not be judged: {type(problem).__name__}."
    if why is None and (
        isinstance(request, api.Control) or not request.WAITS.is_free_in_other_inputs
    ):
        return f"Write it to the requests: it does not belong into {belongs.topic}."
    return why


def reject(request: api.Request | api.Control, error: ErrorCode, message: str) -> Refusal:
    """A refusal of a request that could be read."""
    if not isinstance(request, api.Request):
        return Refusal(error=error, message=message)
    return Refusal(
        error=error,
        message=message,
        id=request.id,
        client=request.client,
        group=request.entity[1],
        space=request.entity[0],
        reply=request.reply,
    )


def inapplicable(
    request: api.Request, at: At, kind: Kind, value: Any, wanted: Kind | None
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
    return [answer(request, at, **refusal(code, message)), recorded]


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


def effects_of_refusal(
    at: At, refused: Refusal, kind: str | None, value: bytes | None
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
    rejected = api.Rejected(
        id=refused.id,
        client=refused.client,
        group=refused.group,
        cause=at.coordinate,
        error=refused.error.name,
        message=refused.message,
    )
    return [fx.Respond(reply, rejected), recorded]


def unavailable(request: api.Request, at: At) -> fx.Respond:
    """The answer of an entity that is set aside."""
    return answer(request, at, **refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def quarantined(
    key: Key, kind: str | None, generation: int, at: At, problem: Exception
) -> fx.History:
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
        detail={"exception": printable(str(problem))},
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
        why = f"Fix the job first, its state is unsound: {broken}."
        return refusal(ErrorCode.INVALID_REQUEST, why)
    return {}


def freed(kind: Kind, value: Any, published: int, clock_ms: int) -> Any:
    """The value as it goes on: everything that runs has its full time again.

    Ticks that came meanwhile do not come again: what they covered waits for none.
    """
    again = kind.restart(msgspec.structs.replace(value, is_quarantined=False), clock_ms)
    covered, _ = kind.outputs_visible(again, published, clock_ms)
    return covered


def effects_of_release(
    request: api.ReleaseQuarantine, at: At, row: Row | None, refused: dict[str, Any]
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


_Control = TypeVar("_Control", bound=api.Control)


class ControlRecords:
    """The control records of a shard, judged in the order of the log.

    Args:
        newest: number of the newest that counted, from the shard's state.
    """

    __slots__ = ("_settings", "newest")

    def __init__(self, newest: tuple[int, int], settings: ShardSettings) -> None:
        self.newest, self._settings = newest, settings

    def judge(self, request: _Control, record: InputRecord) -> _Control | Refusal | None:
        """The record if it counts; a refusal if somebody else wrote it; None: it does nothing.

        One whose number is not higher than the newest is the driver's own, and came late or was
        copied: it needs no line of history.
        """
        settings = self._settings
        keys = [key for key in settings.keys if key.counts_at(settings.shard, record.offset)]
        if not keys:
            return request
        if request.n is UNSET or request.key is UNSET or request.sig is UNSET:
            return _refused(request, "it is not signed")
        key = next((each for each in keys if each.key == request.key), None)
        if key is None:
            return _refused(request, "its key is none of the job's")
        if not self._is_signed(key, record.value or b"", request.sig):
            return _refused(request, "its signature is not that of this record in this shard")
        if request.n <= self.newest:
            return None
        self.newest = request.n
        return request

    def _is_signed(self, key: stored.ControlKey, value: bytes, signature: bytes) -> bool:
        settings, unsigned = self._settings, without_signature(value, signature)
        if unsigned is None or settings.verify is None:
            return False
        signed = signed_bytes(settings.incarnation, settings.shard, unsigned)
        return settings.verify(key.public, signed, signature)


def _refused(request: api.Control, why: str) -> Refusal:
    message = f"{type(request).__name__} is written by the job's driver alone: {why}."
    return reject(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
