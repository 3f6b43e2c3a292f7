"""A batch's outputs, and backpressure: it bounds what readers cannot see yet.  # INV-68

`Outbox` has what a batch says so far, in order, and what it says once when it ends.

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
bytes that are not counted, are bounded by how a batch is planned (`job/batch_size.py`).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import REFUSALS, At, Key, Output, Refusals, event_of, route
from coordlib.core.engine.protocol import Family
from coordlib.core.engine.rows import Row
from coordlib.core.engine.step import Step
from coordlib.core.wire import api as rq
from coordlib.core.wire import api as rs
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

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

#: How long the sender of such a request should wait. When a tick covers enough is not known here;
#: a batch and its visibility take less.
THROTTLE_MS: Final = 1_000
#: For whoever has to wait.
TOO_MUCH_UNREAD: Final = (
    "Try again: the coordinator has said so much of late that readers must first see some of it."
)

#: The newest record that they belong to, and how many bytes.
Counted = tuple[int, int]


class Asked(NamedTuple):
    """A request that a group judges."""

    request: rq.Request
    size_bytes: int


def put_off(request: rq.Request, step: Step[Any]) -> None:
    """The step of a request that has to wait."""
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    step.refuse(request, code, TOO_MUCH_UNREAD, throttle_time_ms=THROTTLE_MS)
    if isinstance(request, rq.OffsetCommit | rq.PendingCommit):
        step.record(
            stored.EVENT_COMMIT_REFUSED,
            member=request.member,
            reason=code.name,
            detail={
                "client": request.client,
                "request": type(request).__name__,
                "request_generation": request.generation,
            },
        )


def bytes_max(shards: int) -> int:
    """So many bytes of a shard's outputs may be unread before anybody has to wait.

    Nobody but who was asked to join or to fetch is let through at twice as many.
    """
    share = limits.ANSWERED_BYTES_OF_ALL // shards
    return min(limits.ANSWERED_BYTES_MAX, max(limits.ANSWERED_BYTES_MIN, share))


class Answered:
    """What is counted in one shard, by the records that caused it.

    Args:
        rows: from the shard's state, in order.
        most: of bytes, before anybody has to wait.
    """

    __slots__ = ("_most", "rows", "total_bytes")

    def __init__(self, rows: Iterable[Counted], most: int) -> None:
        #: For the shard's state.
        self.rows: tuple[Counted, ...] = tuple(rows)
        #: All that is not covered yet.
        self.total_bytes = sum(size for _, size in self.rows)
        self._most = most

    @property
    def is_full(self) -> bool:
        """Whether retention waits, and deadlines of groups with outputs among the counted."""
        return self.total_bytes >= self._most

    @property
    def is_overfull(self) -> bool:
        """Whether all deadlines wait, messages, and decisions."""
        return self.total_bytes >= 2 * self._most

    @property
    def owed(self) -> int:
        """The newest record that a tick is to cover; -1: so little is counted that nobody waits."""
        return self.rows[-1][0] if self.total_bytes * OWED_SHARE >= self._most else -1

    def count(self, offset: int, size_bytes: int) -> None:
        """Count the outputs of the step at this record."""
        self.total_bytes += size_bytes
        before = self.rows
        if before and (before[-1][0] == offset or before[-1][1] < ROW_BYTES):
            size_bytes += before[-1][1]
            before = before[:-1]
        self.rows = (*before, (offset, size_bytes))

    def cover(self, published: int) -> None:
        """Readers can see everything up to this record."""
        self.rows = tuple(row for row in self.rows if row[0] > published)
        self.total_bytes = sum(size for _, size in self.rows)

    def must_wait(self, asked: Asked, size_bytes: int, is_unread: bool) -> bool:
        """Whether a request is refused for now whose step writes so many bytes that count.

        `is_unread`: whether its group has counted outputs that are not covered yet.
        """
        waits, most = asked.request.WAITS, self._most
        if not size_bytes or waits is rq.Waits.NEVER:
            return False
        wanted_bytes = self.total_bytes + min(size_bytes, most // STEP_SHARE)
        if waits is rq.Waits.WITH_ITS_GROUP:
            return wanted_bytes > (most if is_unread else most + most // 2)
        is_limited = is_unread if waits is rq.Waits.AS_A_COMMIT else size_bytes > SMALL_BYTES
        return wanted_bytes > most - (most // 4 if is_limited else 0)


def counted_bytes(said_bytes: int, asked: Asked | None) -> int:
    """How many of a step's bytes count; `asked`: None where no request has caused it."""
    if said_bytes <= FREE_BYTES:
        return 0  # nearly all
    brought_bytes = asked.size_bytes if asked else 0
    return max(said_bytes - FREE_BYTES - FREE_SHARE * brought_bytes, 0)


class Outbox:
    """Effects as outputs. Owned by one shard during one batch."""

    def __init__(self, shard: int, refusals_of: Callable[[Key], Refusals]) -> None:
        self.outputs: list[Output] = []
        self._shard = shard
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

    def put(self, effects: Iterable[fx.Effect], at: At) -> None:
        """All of them, or none when one cannot be written: a step goes through whole."""
        self.outputs += self.ready(effects, at)

    def ready(self, effects: Iterable[fx.Effect], at: At) -> list[Output]:
        """Effects as outputs, to be said next, or to be undone. Raises EffectTooLarge."""
        if self._record != (at.topic, at.offset):
            self._record, self._ordinal = (at.topic, at.offset), 0
        self._ordinal_before = self._ordinal
        self._refusals_before.clear()
        try:
            lines = [self._complete(effect, at) for effect in effects]
            return [route(line, at.shard) for line in lines if line is not None]
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """What was made ready last is not said: as if it had never been."""
        self._ordinal = self._ordinal_before
        for refusals, before in reversed(self._refusals_before):
            refusals.window, refusals.count, refusals.unreported = msgspec.structs.astuple(before)

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect | None:
        """Give a history line its id and time; None: one of a flood, which is only counted."""
        if not isinstance(effect, fx.History):
            return effect
        line: fx.History | None = effect
        if effect.type in REFUSALS:
            refusals = self._refusals_of((effect.space, effect.group))
            self._refusals_before.append((refusals, msgspec.structs.replace(refusals)))
            line = refusals.line(effect, at.clock_ms)
        if line is None:
            return None
        self._ordinal += 1
        return event_of(line, at, self._ordinal - 1)

    # -- the end of a batch: what no record is the cause of --------------------------------

    def put_head(self, family: type[Family], name: str, row: Row | None) -> None:
        """A head that changed, whole; None: a tombstone, the entity is gone."""
        if row is None:
            saved = None
        elif row.changed and row.value is not None:
            row.encode_head()
            saved = row.kind.save(row.value)
        else:
            return
        self.put_saved(family, name, saved)

    def put_saved(self, family: type[Family], name: str, saved: bytes | None) -> None:
        """The record of a head; None: a tombstone."""
        effect = fx.Save(family.HEADS, family.head_key(name), saved)
        self.outputs.append(route(effect, self._shard))

    def put_progress(self, offset: int, time_ms: int, replies: Iterable[int]) -> None:
        """How far the shard has judged, for everybody who reads answers of its entities."""
        judged = rs.Progress(shard=self._shard, offset=offset, time_ms=time_ms)
        self.outputs += [route(fx.Notify(reply, judged), self._shard) for reply in sorted(replies)]


def size_of(outputs: Iterable[Output]) -> int:
    """How many bytes they have."""
    total = 0
    for output in outputs:  # no generator: this runs for every step
        value = output.value
        total += len(output.key) + (len(value) if value else 0)
    return total
