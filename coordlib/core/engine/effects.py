"""Effects: what should happen, as data; the record that causes them, and the records that they are.

The core returns effects; the driver's sink writes them. Each has all the data that is needed to
write it. `History` is a line of history without its id and time, which the shard adds, because only
it knows the record being judged. Topics are named without their prefix; the driver adds it. All
records of a group go to the partition of its shard, answers to the partition that the client reads.

Every refused request is answered. But a line of history for each would make a client in a crash
loop, or a hostile one, cost the job, the archive and the tables as much again as the answers do. So
of each group, and of all groups together that are not there, history keeps the first refusals in a
window of the shard's clock whole; of those beyond it keeps every so many, which says how many since
the line before have none. Windows and counts stand in the shard's state: where batches end changes
nothing. A rebuilt shard begins to count anew.
"""

from functools import cached_property
from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.core.wire import api as rq
from coordlib.core.wire import api as rs
from coordlib.core.wire import codec, stored
from coordlib.core.wire.api import Notification, Progress, Response
from coordlib.core.wire.envelope import Message, reply_partition_of
from coordlib.errors import ErrorCode


class Respond(msgspec.Struct, frozen=True):
    """Answer a request, in the partition that its sender reads."""

    reply: int
    response: Response


class Notify(msgspec.Struct, frozen=True):
    """Send a notification, which answers no request, to all readers of a reply partition."""

    reply: int
    notification: Notification | Progress


class Publish(msgspec.Struct, frozen=True):
    """A record of a compacted topic that the job itself does not read back; None: a tombstone."""

    #: Without the prefix.
    topic: str
    key: bytes
    value: msgspec.Struct | None


class Put(msgspec.Struct, frozen=True):
    """An entry of a table, stored with the step; None: it is deleted."""

    #: Of the entry's record, without the prefix.
    topic: str
    key: bytes
    #: The entity's name, the table's, and the key in it: a name, and a number beside it.
    entity: str
    table: str
    place: tuple[str, int]
    value: msgspec.Struct | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A line of history, to be given its id and time by the shard."""

    type: str
    #: Space and name of the entity.
    space: str = "group"
    group: str
    #: The entity's kind; None: there is no such entity, and requests like this have no kind.
    kind: str | None
    generation: int = -1
    member: str = ""
    cause: str
    reason: str = ""
    detail: dict[str, Any] = {}


class Event(msgspec.Struct, frozen=True):
    """A line of history with its id and time."""

    value: Any  # stored.Event; the name is taken here


class Save(msgspec.Struct, frozen=True):
    """An entity's head, or a channel, as it stands at the end of a batch; None: it is deleted."""

    #: Of the heads of its family, or of the channels, without the prefix.
    topic: str
    key: bytes
    value: bytes | None


class ToShard(msgspec.Struct, frozen=True):
    """A message to a shard, to be fed to it when the batch is committed; None: it was judged."""

    shard: int
    #: Its number among the messages to that shard.
    number: int
    message: Message | None


class Own(msgspec.Struct, frozen=True):
    """Who owns a partition by a claim; None: nobody does any more."""

    group: str
    topic: str
    partition: int
    owner: stored.OwnerValue | None


class SavePage(msgspec.Struct, frozen=True):
    """One page of a snapshot of claims; None: the snapshot has fewer pages than before."""

    page: int
    value: bytes | None


Effect = Respond | Notify | Publish | Put | History | Event | Save | ToShard | Own | SavePage


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


def answer(request: rq.Request, at: At, reply: int | None = None, **fields: Any) -> Respond:
    """The answer to a request; `reply`: another partition than the one it asks for."""
    response = rs.answer_to(type(request))(
        id=request.id,
        client=request.client,
        group=request.group or "",  # an idempotent producer has no name
        cause=at.coordinate,
        **fields,
    )
    return Respond(reply_of(request, at) if reply is None else reply, response)


def refuse(
    request: rq.Request, at: At, code: ErrorCode, message: str | None = None, **fields: Any
) -> Respond:
    """The answer to a request that is refused."""
    return answer(request, at, **refusal(code, message), **fields)


def event_of(line: History, at: At, ordinal: int) -> Event:
    """A line of history with its id and time; `ordinal`: which one of this record's lines."""
    return Event(
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


REFUSALS = frozenset({stored.EVENT_REQUEST_REJECTED, stored.EVENT_COMMIT_REFUSED})


class Refusals(msgspec.Struct, array_like=True, gc=False):
    """What was refused of late."""

    #: Number of the window, on the shard's clock, in which the newest refusal was; -1: none yet.
    window: int = -1
    #: Refusals in that window.
    count: int = 0
    #: Refusals since the newest line that have none.
    unreported: int = 0

    def line(self, record: History, clock_ms: int) -> History | None:
        """What history keeps of one of REFUSALS; None: nothing, it is only counted."""
        window = clock_ms // limits.REFUSALS_WINDOW_MS
        if window != self.window:
            self.window, self.count = window, 0
        self.count += 1
        if self.count > limits.REFUSALS_TOLD_MAX and self.count % limits.REFUSALS_TOLD_EVERY:
            self.unreported += 1
            return None
        if not self.unreported:
            return record
        detail = {**record.detail, "unreported": self.unreported}
        self.unreported = 0
        return msgspec.structs.replace(record, detail=detail)


RESPONSES = "responses"
ASSIGNMENTS = "assignments"
GROUPS = "groups"
COMMITTED = "committed"
CLUSTERS = "clusters"
METADATA = "metadata"
TRANSACTIONS = "transactions"
OUTBOX = "outbox"
EVENTS = "events"
#: Of the claims' plane, which also has ASSIGNMENTS, COMMITTED and EVENTS.
SNAPSHOTS = "snapshots"
OUTPUT_TOPICS = (
    RESPONSES,
    ASSIGNMENTS,
    GROUPS,
    COMMITTED,
    CLUSTERS,
    METADATA,
    TRANSACTIONS,
    OUTBOX,
    EVENTS,
)


class Output(msgspec.Struct, frozen=True, array_like=True):
    """One Kafka record to be written; `value` None is a tombstone."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


class EffectTooLarge(AssertionError):
    """The core let an effect through that no output record can hold: a defect of its bounds."""


def route(effect: Effect, shard: int) -> Output:
    """The record that carries out this effect. Raises EffectTooLarge (a broken invariant)."""
    output = _route(effect, shard)
    if output.value is not None and len(output.value) > limits.OUTPUT_BYTES_MAX - limits.KIB:
        raise EffectTooLarge(f"{output.topic} record of {len(output.value)} bytes")
    return output


def _route(effect: Effect, shard: int) -> Output:
    match effect:
        case Respond(reply, response):
            return Output(RESPONSES, reply, response.group.encode(), codec.encode(response))
        case Notify(reply, notification):
            key = b"" if isinstance(notification, Progress) else notification.group.encode()
            return Output(RESPONSES, reply, key, codec.encode(notification))
        case Event(value):
            return Output(EVENTS, shard, value.group.encode(), codec.encode(value))
        case Publish(topic, key, published):
            return Output(topic, shard, key, _optional(published))
        case Put(topic=topic, key=key, value=entry):
            return Output(topic, shard, key, _optional(entry))
        case Save(topic, key, saved):
            return Output(topic, shard, key, saved)
        case ToShard(to, number, message):
            return Output(OUTBOX, shard, codec.encode((shard, to, number)), _optional(message))
        case Own(group, topic, partition, owner):
            key = codec.encode((group, topic, partition))
            return Output(ASSIGNMENTS, shard, key, _optional(owner))
        case SavePage(page, saved):
            return Output(SNAPSHOTS, shard, str(page).encode(), saved)
        case _:
            raise AssertionError(f"{type(effect).__name__} has no route")


def _optional(value: msgspec.Struct | None) -> bytes | None:
    return None if value is None else codec.encode(value)
