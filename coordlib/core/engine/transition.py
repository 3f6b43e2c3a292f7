"""The record being judged, as every protocol sees it."""

from functools import cached_property
from typing import Any, Final

import msgspec

from coordlib.core.engine import effect as fx
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.core.wire.partitioner import reply_partition_of
from coordlib.errors import ErrorCode

#: Space and name of an entity.
Key = tuple[str, str]

#: Letter of the input that every shard has: `coord.requests`.
REQUESTS: Final = stored.REQUESTS


class At(msgspec.Struct, frozen=True, dict=True):
    """The record being judged: where it stands, and what time it is."""

    shard: int
    shards: int
    topic: str
    offset: int
    #: Log time of the record, epoch milliseconds: what people are shown.
    time_ms: int
    #: The shard's clock: what deadlines count on.
    clock_ms: int
    #: Names the topic's incarnation in member ids and event ids.
    incarnation: str
    reply_partitions: int

    @cached_property
    def coordinate(self) -> str:
        """Names the record: in answers, in history, and in ids that are made of it."""
        return coordinate(self.topic, self.shard, self.offset)


def coordinate(letter: str, shard: int, offset: int) -> str:
    """The name of a record; `letter`: of its input."""
    return f"{letter}{shard}-{offset}"


def reply_of(request: rq.Request, at: At) -> int:
    """The partition to answer in: the one named, or the client id's own."""
    if request.reply is not None:
        return request.reply
    return reply_partition_of(request.client, at.reply_partitions)


def answer(request: rq.Request, at: At, reply: int | None = None, **fields: Any) -> fx.Respond:
    """The answer to a request; `reply`: another partition than the one it asks for."""
    response = rs.answer_to(type(request))(
        id=request.id,
        client=request.client,
        group=request.group or "",  # an idempotent producer has no name
        cause=at.coordinate,
        **fields,
    )
    return fx.Respond(reply_of(request, at) if reply is None else reply, response)


def refuse(
    request: rq.Request, at: At, code: ErrorCode, message: str | None = None, **fields: Any
) -> fx.Respond:
    """The answer to a request that is refused."""
    return answer(request, at, **refusal(code, message), **fields)


def event_of(line: fx.History, at: At, ordinal: int) -> fx.Event:
    """A line of history with its id and time; `ordinal`: which one of this record's lines."""
    return fx.Event(
        stored.Event(
            event_id=f"{at.incarnation}-{at.coordinate}-{ordinal}",
            time_ms=at.time_ms,
            type=line.type,
            group=line.group,
            generation=line.generation,
            member=line.member,
            cause=line.cause,
            protocol=line.kind,
            reason=line.reason,
            detail=line.detail,
            kind=line.kind,
            space=None if line.space == stored.GROUP_SPACE else line.space,
        )
    )


def refusal(code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    """The fields `error` and `message` of an answer that refuses."""
    return {"error": code.name, "message": message or code.what_to_do}
