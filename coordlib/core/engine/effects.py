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

Backpressure (`UnreadOutputs`) bounds the bytes that readers cannot see yet.  # INV-68
A request of a few bytes may be answered with megabytes: an OffsetFetch of all offsets, the list of
members for a leader, a new division of a large group. A batch is collected and written as a whole,
and comes again as it is after every restart, so what one batch may write must be bounded by the log
alone. No tick in a batch covers the outputs of that batch. So the bytes that a step writes, but for
about as many as its request has, are counted until a tick's `published` covers them, and requests
are refused while there are too many. How many are too many depends on the number of shards, which
is in the layout: one batch has the outputs of all of them (`bytes_max`).

    who only asks        is refused, as soon as its answer would be one too many
    a commit             is refused likewise, whole: a row of 40 bytes writes 700, with the longest
                         names. The last quarter is kept for groups that have nothing unread: one
                         of them cannot take all. By clients or members no room is kept: anybody
                         may choose these names
    a member's request   of a group that has large outputs to be seen is refused likewise; of
                         another group from one and a half times as many on: whatever others do,
                         there is room for some large steps of groups that have no such outputs.
                         What it was asked for by a date (to join again, to fetch its share) is
                         never refused: the list for a leader has no more bytes than the
                         JoinGroups had
    a deadline           waits for as long, if its group has large outputs to be seen; of another
                         group from twice as many on
    messages, decisions  of shards, and of Kafka's transactions, wait from twice as many on: they
                         are not judged, and the driver writes them again
    retention            waits while there are too many
    topics               come from the driver and are not refused; what follows is counted

A refused request is answered THROTTLING_QUOTA_EXCEEDED and changes nothing. The driver owes a tick
while so much is counted that anybody may have to wait (rule 6), so nobody waits for ever. One step
may be larger than what is left: the bound is exceeded by one step of one group. Records of
`coord.offsets` count nothing: their place among the requests is not fixed. What they write, and the
bytes that are not counted, are bounded by how a batch is planned (`job/batch.py`).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from coordlib import limits
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire.api import Notification, Progress, Response
from coordlib.core.wire.envelope import Message


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


class BrokenInvariant(AssertionError):
    """A step would leave a state that must not exist; the entity is quarantined instead."""


#: Space and name of an entity.
Key = tuple[str, str]

#: Letter of the input that every shard has: `coord.requests`.
REQUESTS: Final = stored.REQUESTS


class At(msgspec.Struct, frozen=True):
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

    #: Names the record: in answers, in history, and in ids that are made of it.
    coordinate: str


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
        if (
            self.count > limits.REFUSALS_REPORTED_MAX
            and self.count % limits.REFUSALS_REPORTED_EVERY
        ):
            self.unreported += 1
            return None
        if not self.unreported:
            return record
        detail = {**record.detail, "untold": self.unreported}
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
#: Of the claims' pipeline, which also has ASSIGNMENTS, COMMITTED and EVENTS.
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


class Outbox:
    """The outputs of a batch so far, in order. Owned by one shard during one batch."""

    def __init__(self, refusals_of: Callable[[Key], Refusals]) -> None:
        self.outputs: list[Output] = []
        #: What was refused of late, by the entity's key.
        self._refusals_of = refusals_of
        #: The record that is being judged, and how many lines of history it has by now: their ids
        #: name the record, and which line of it.
        self._record = ("", -1)
        self._ordinal = 0
        #: What the effects that were made ready last have changed: the ordinal and the counts
        #: before.
        self._ordinal_before = 0
        self._refusals_before: list[tuple[Refusals, Refusals]] = []

    def put(self, effects: Iterable[Effect], at: At) -> None:
        """All of them, or none when one cannot be written: a step goes through whole."""
        self.outputs += self.ready(effects, at)[0]

    def ready(self, effects: Iterable[Effect], at: At) -> tuple[list[Output], int]:
        """Effects as outputs, to be said next, or to be undone; and their bytes.

        Raises EffectTooLarge.
        """
        if self._record != (at.topic, at.offset):
            self._record, self._ordinal = (at.topic, at.offset), 0
        self._ordinal_before = self._ordinal
        self._refusals_before.clear()
        outputs, size_bytes = [], 0
        try:
            for effect in effects:
                line = self._complete(effect, at) if isinstance(effect, History) else effect
                if line is not None:
                    output = route(line, at.shard)
                    size_bytes += len(output.key) + len(output.value or b"")
                    outputs.append(output)
        except BaseException:
            self.undo()
            raise
        return outputs, size_bytes

    def undo(self) -> None:
        """What was made ready last is not said: as if it had never been."""
        self._ordinal = self._ordinal_before
        for refusals, before in reversed(self._refusals_before):
            refusals.window, refusals.count, refusals.unreported = msgspec.structs.astuple(before)

    def _complete(self, effect: History, at: At) -> Event | None:
        """Give a history line its id and time; None: one of a flood, which is only counted."""
        line: History | None = effect
        if effect.type in REFUSALS:
            refusals = self._refusals_of((effect.space, effect.group))
            self._refusals_before.append((refusals, msgspec.structs.replace(refusals)))
            line = refusals.line(effect, at.clock_ms)
        if line is None:
            return None
        self._ordinal += 1
        return event_of(line, at, self._ordinal - 1)


#: What one step writes without being counted, beside this many times the bytes of its request.
FREE_BYTES: Final = 6 * limits.KIB
FREE_SHARE: Final = 2
#: Neighbours are counted as one until they have so many bytes: some hundred rows at most.
ROW_BYTES: Final = limits.MIB
#: Of the bound, what one step counts as at most when it asks for room: else the largest would have
#: to find it empty.
STEP_SHARE: Final = 4
#: A tick is owed from this share of the bound on: the largest step has room until then, whoever
#: makes it. Less is covered when a tick is written for another reason.
OWED_SHARE: Final = 8
#: Questions with small answers may use the last quarter, too: a few large ones do not stop them.
SMALL_BYTES: Final = 64 * limits.KIB

#: The newest record that they belong to, and how many bytes.
Counted = tuple[int, int]


class SizedRequest(NamedTuple):
    """A request that a group judges."""

    request: api.Request
    size_bytes: int


def bytes_max(shards: int) -> int:
    """So many bytes of a shard's outputs may be unread before anybody has to wait.

    Nobody but who was asked to join or to fetch is let through at twice as many.
    """
    share = limits.ANSWERED_BYTES_OF_ALL // shards
    return min(limits.ANSWERED_BYTES_MAX, max(limits.ANSWERED_BYTES_MIN, share))


class UnreadOutputs:
    """Backpressure: the bytes of a shard's outputs that readers cannot see yet.  # INV-68

    Bytes count until a tick's `published` covers them; see above.

    Args:
        rows: from the shard's state, in order.
        most: of bytes, before anybody has to wait.
    """

    __slots__ = ("_most", "owed", "rows", "total_bytes")

    def __init__(self, rows: Iterable[Counted], most: int) -> None:
        #: For the shard's state.
        self.rows: tuple[Counted, ...] = tuple(rows)
        #: All that is not covered yet.
        self.total_bytes = sum(size for _, size in self.rows)
        self._most = most
        #: The newest record that a tick is to cover; -1: so little is counted that nobody waits.
        self.owed = -1
        self._renew()

    def _renew(self) -> None:
        self.owed = self.rows[-1][0] if self.total_bytes * OWED_SHARE >= self._most else -1

    @property
    def is_full(self) -> bool:
        """Whether retention waits, and deadlines of groups with outputs among the counted."""
        return self.total_bytes >= self._most

    @property
    def is_overfull(self) -> bool:
        """Whether all deadlines wait, messages, and decisions."""
        return self.total_bytes >= 2 * self._most

    def count(self, offset: int, size_bytes: int) -> None:
        """Count the outputs of the step at this record."""
        self.total_bytes += size_bytes
        before = self.rows
        if before and (before[-1][0] == offset or before[-1][1] < ROW_BYTES):
            size_bytes += before[-1][1]
            before = before[:-1]
        self.rows = (*before, (offset, size_bytes))
        self._renew()

    def outputs_visible(self, published: int) -> None:
        """Readers can see everything up to this record."""
        self.rows = tuple(row for row in self.rows if row[0] > published)
        self.total_bytes = sum(size for _, size in self.rows)
        self._renew()

    def would_wait(self, asked: SizedRequest, is_unread: bool, output_bytes: int) -> bool:
        """As `must_wait`, before the step has written anything: it will write so many bytes."""
        return self.must_wait(asked, counted_bytes(output_bytes, asked), is_unread)

    def must_wait(self, asked: SizedRequest, size_bytes: int, is_unread: bool) -> bool:
        """Whether a request is refused for now whose step writes so many bytes that count.

        `is_unread`: whether its group has counted outputs that are not covered yet.
        """
        waits, most = asked.request.WAITS, self._most
        if not size_bytes or waits is api.Waits.NEVER:
            return False
        wanted_bytes = self.total_bytes + min(size_bytes, most // STEP_SHARE)
        if waits is api.Waits.WITH_ITS_GROUP:
            return wanted_bytes > (most if is_unread else most + most // 2)
        is_limited = is_unread if waits is api.Waits.AS_A_COMMIT else size_bytes > SMALL_BYTES
        return wanted_bytes > most - (most // 4 if is_limited else 0)


def counted_bytes(output_bytes: int, asked: SizedRequest | None) -> int:
    """How many of a step's bytes count; `asked`: None where no request has caused it."""
    if output_bytes <= FREE_BYTES:
        return 0  # nearly all
    brought_bytes = asked.size_bytes if asked else 0
    return max(output_bytes - FREE_BYTES - FREE_SHARE * brought_bytes, 0)
