"""How a member lets go: one Release for each demand, which carries the callback's last commit.

A demand is met in this order: on_revoked for its partitions, a commit in there, the Release. The
last commit of the callback is kept back and becomes the Release's `offsets`, so that commit and
letting go are one record. Other commits are written at once: a commit whose caller waits for the
answer, one that also names other partitions, and one that another follows. A commit that was kept
for KEPT_MS is written, too, since the callback may wait for it after all.

Demanded partitions that the user never had, or has lost since, need no callback: the Release is
sent as soon as the user holds none of them (rule 11: a member that owes a reaction may not work).
"""

from collections.abc import Mapping

import msgspec

from coordlib import limits
from coordlib.client.groups.holding import AssignedStanding
from coordlib.client.kit import signals as sg
from coordlib.client.kit.asks import Asks, error_of, refusal_of
from coordlib.client.kit.errors import MemberFenced
from coordlib.client.kit.signals import Callback, Partitions, TopicPartition
from coordlib.client.kit.steps import ENDED
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import CoordError, ErrorCode

#: How long a commit waits for its callback to return.
KEPT_MS = 500
#: Of the bytes of a request that is not read if it is larger.
RIDES_BYTES_MAX = limits.REQUEST_BYTES_MAX // 2


class Releases:
    """The demands of one member, from the notice to the coordinator's answer."""

    def __init__(self, me: AssignedStanding, asks: Asks) -> None:
        self._me, self._asks = me, asks
        #: Releases without an answer yet: cause to the deadline (ms) that applied when the log took
        #: the Release; None until it has.
        self._unanswered: dict[int, int | None] = {}
        #: The commit that the Release carries when the callback has returned.
        self._kept: sg.CommitOffsets | None = None

    # ---- demanded -----------------------------------------------------------------------------

    def demanded(self, now_ms: int, demands: Mapping[int, Partitions]) -> None:
        """Take over all demands of a picture, which may be older than a Release under way."""
        held = self._me.held
        for cause, partitions in demands.items():
            if cause not in held.demands and cause not in self._unanswered:
                held.demands[cause] = partitions
                self._me.fence.demanded(now_ms, cause)

    def say(self) -> None:
        """Send a Release for each demand that the user has met."""
        me = self._me
        for cause in [each for each in me.held.demands if me.held.is_let_go(each)]:
            kept = self._riding_with(cause)
            ticket, offsets = (None, ()) if kept is None else (kept.ticket, kept.offsets)
            me.say_all(self._asks.repeat_commits())  # they stand before it
            request = me.wording.release(me.member, me.generation, cause, offsets)
            me.held.released(cause)
            self._unanswered[cause] = None
            me.say(self._asks.ask(ticket, request))

    def _riding_with(self, cause: int) -> sg.CommitOffsets | None:
        kept = self._kept
        if kept is None or not _named(kept) <= set(self._me.held.demands[cause]):
            return None
        self._kept = None
        return kept

    # ---- written and answered -----------------------------------------------------------------

    def written(self, event: sg.Acknowledged) -> None:
        """Rule 10: that ends the demand for the fence, unless a refusal was read before this."""
        if self._asks.is_put_off(event.id):
            return
        asked = self._asks.asked(event.id)
        if isinstance(asked, rq.Release) and asked.cause in self._unanswered:
            due_ms = self._me.fence.reacted(event.now_ms, asked.cause)
            if due_ms is not None:
                self._unanswered[asked.cause] = due_ms

    def answered(self, response: rs.Response, now_ms: int) -> None:
        """Called before the answer goes to the caller that waits for it."""
        asked = self._asks.asked(response.id)
        if not isinstance(asked, rq.Release) or asked.cause not in self._unanswered:
            return
        me, cause, code = self._me, asked.cause, error_of(response)
        if code is ErrorCode.NONE:
            # The answer may be here before the acknowledgement is.
            me.fence.reacted(now_ms, cause)
            del self._unanswered[cause]
        elif code.retriable:
            # Asked again in a while; the coordinator may wait no longer for that.
            if (due_ms := self._unanswered[cause]) is not None:
                me.fence.not_accepted(now_ms, cause, due_ms)
                self._unanswered[cause] = None
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            pass  # judged by the membership, which is over
        elif me.state not in ENDED:  # a member that leaves has nothing to fail any more
            me.fail(refusal_of(response, me.where))

    def end(self) -> None:
        """The membership is over: its demands are void."""
        self._unanswered.clear()
        over = CoordError("The membership ended before its Release was taken.", self._me.where)
        self._me.say_all(self._asks.ask_no_more(rq.Release, over))

    # ---- commits ------------------------------------------------------------------------------

    def commit(self, event: sg.CommitOffsets, rides: bool) -> None:
        """The user commits. `rides`: a Release that may carry the commit can follow."""
        self.write_kept(event.now_ms)
        if rides and self._may_ride(event):
            self._kept = event
        else:
            self._write(event)

    def due_ms(self) -> int | None:
        """When the kept commit no longer waits for its callback to return."""
        return None if self._kept is None else self._kept.now_ms + KEPT_MS

    def elapsed(self, now_ms: int) -> None:
        due_ms = self.due_ms()
        if due_ms is not None and now_ms >= due_ms:
            self.write_kept(now_ms)

    def write_kept(self, now_ms: int) -> None:
        """Write the kept commit by itself, or refuse it if the membership ended meanwhile."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        if self._me.keeps_alive:
            self._write(kept)
        else:
            fenced = MemberFenced(self._me.where, self._me.fence.stopped_by(now_ms))
            self._me.say(sg.Answer(kept.ticket, error=self._me.failure or fenced))

    def _write(self, event: sg.CommitOffsets) -> None:
        me = self._me
        request = me.wording.commit(me.member, me.generation, event.offsets)
        me.say(self._asks.ask(event.ticket, request, event.is_waited, event.first))

    def _may_ride(self, event: sg.CommitOffsets) -> bool:
        held, named = self._me.held, _named(event)
        return (
            not event.is_waited
            and held.calling is Callback.REVOKED
            and named <= set(held.leaving)
            and any(named <= set(some) for some in held.demands.values())
            and len(event.offsets) <= limits.OFFSETS_PER_REQUEST_MAX
            and len(msgspec.json.encode(event.offsets)) <= RIDES_BYTES_MAX
        )


def _named(event: sg.CommitOffsets) -> set[TopicPartition]:
    return {TopicPartition(row.topic, row.partition) for row in event.offsets}
