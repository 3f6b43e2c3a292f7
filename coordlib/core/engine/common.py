"""Requests that every kind answers: where an entity lives, what it is, and its deletion."""

from typing import Any, Final

from coordlib.core.wire import requests as rq
from coordlib.core.wire import stored
from coordlib.core.wire.partitioner import shard_of
from coordlib.errors import ErrorCode


def find_coordinator(step: Any, request: rq.FindCoordinator) -> None:
    """FindCoordinator: the shard to which the name belongs, whether or not it is used.

    Any shard answers, as any Kafka broker does: otherwise the sender would have to know already.
    """
    step.answer(request, shard=shard_of(step.name, step.at.shards))


def describe(step: Any, request: rq.DescribeGroup) -> None:
    """DescribeGroup of a kind that has no members."""
    exists = step.value is not None
    state = getattr(step.value, "state", "Stable") if exists else "Dead"
    step.answer(
        request,
        kind=step.kind.NAME,
        state=str(state),
        generation=step.kind.generation(step.value) if exists else -1,
        protocol_type=None,
        protocol=None,
        leader=None,
        members=(),
        waits_for=(),
    )


def delete(step: Any, request: rq.DeleteGroup) -> None:
    """DeleteGroup: an empty entity goes, with the entries of its tables."""
    if step.value is None:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not step.kind.is_empty(step.value):
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP, step.kind.WHILE_NOT_EMPTY)
    else:
        remove(step, "deleted", {"client": request.client})
        step.answer(request)


def remove(step: Any, reason: str, detail: dict[str, str] | None = None) -> None:
    """Delete an entity without members, with its entries in all tables of the family.

    One of this name may be created again. The generations of a group begin anew then; a late
    request of an old generation names no member of the new group. Fencing tokens are offsets of the
    log and go on rising.
    # INV-27: so no late request brings back what was deleted. A position of a client that is no
    member may: it is judged after the requests of its batch, whenever it was written.
    """
    step.forget_entries()
    step.record(stored.EVENT_GROUP_DELETED, reason=reason, detail=detail or {})
    step.delete()


APIS: Final[dict[type[rq.Request], Any]] = {
    rq.FindCoordinator: find_coordinator,
    rq.DescribeGroup: describe,
    rq.DeleteGroup: delete,
}
