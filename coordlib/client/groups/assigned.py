"""The life of a member of a server-assigned group, as a state machine.

    IDLE -> JOINING -> STABLE -> IDLE -> ...      LEAVING -> LEFT

Only the first Subscribe is a state of its own. A change of the subscription is a step of a member
that works on meanwhile; it lets go of partitions only when they are demanded. Answers and notices
are pictures of all that the member holds. Each replaces the one before, in the order of reading,
which is the order in which they were judged. A picture with another member id is about an older
membership. Source: the published design of the consumer rewrite (seed 000); time-and-fencing.md,
rules 8 to 13.

A picture is complete: the granted partitions, and the partitions of each demand. A demanded
partition is not granted any more, but stays the member's own until it is released. So the user
works on it until on_revoked, which is called for one demand at a time.

A demand is met in this order: on_revoked for its partitions, a commit in there, the Release. The
last commit of the callback is kept back and becomes the Release's `offsets`, so that commit and
letting go are one record. Other commits are written at once: a commit whose caller waits for the
answer, one that also names other partitions, and one that another follows. A commit that was kept
for KEPT_MS is written, too, since the callback may wait for it after all.

Demanded partitions that the user never had, or has lost since, need no callback: the Release is
sent as soon as the user holds none of them (rule 11: a member that owes a reaction may not work).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from coordlib import limits
from coordlib.client.groups.machine import MemberMachine
from coordlib.client.groups.state import ENDED, MemberState, Ownership, State, without
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, Partitions, TopicPartition
from coordlib.client.kit.fence import Fence, MemberFenced
from coordlib.client.kit.requests import (
    Identity,
    PendingRequests,
    Step,
    Timing,
    error_of,
    known,
    refusal_of,
    throttle_ms,
)
from coordlib.core.wire import api
from coordlib.errors import CoordError, ErrorCode


class Holding(Ownership):
    """Decides which callback is next, and which demand is met."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(fence)
        #: The partitions of each demand without a Release yet, by the cause of the demand.
        self.demands: dict[int, Partitions] = {}
        #: Partition to the fence of the record that granted it; of all granted or demanded ones.
        self._fences: dict[TopicPartition, int] = {}

    def enter(self, now_ms: int, sign_ms: int) -> None:
        """The first Subscribe was answered; `sign_ms` is its first produce() (rule 8)."""
        # The answer was written after that call, and is read in order: all that could be read then
        # was read. The end was perhaps not asked for since, as there was nothing to guard.
        self.fence.read_to_end(now_ms, sign_ms)
        self.fence.start(now_ms, sign_ms)

    def replace(self, fences: Mapping[TopicPartition, int], fence_token: int | None) -> None:
        """A picture was read: all granted partitions. Its demands were taken over before."""
        asked = {each for some in self.demands.values() for each in some}
        kept = {each: fence for each, fence in self._fences.items() if each in asked}
        self._fences = {**kept, **fences}
        self.granted = tuple(sorted(fences))
        # A released partition had a fence too, perhaps the highest of all.
        known = [each for each in (self.fence_token, fence_token) if each is not None]
        self.fence_token = max(known, default=None)
        self._is_undelivered = bool(without(self.granted, self.delivered or ()))

    def fence_of(self, partition: TopicPartition) -> int | None:
        """The fence of a partition that the user owns; None for every other one."""
        return self._fences.get(partition) if partition in (self.delivered or ()) else None

    def is_let_go(self, cause: int) -> bool:
        """Whether the user owns no partition of one demand any more.

        While on_lost runs, the user may still be at work on all of them.
        """
        has_it = not set(self.demands[cause]).isdisjoint(self.delivered or ())
        return self.calling is not Callback.LOST and not has_it

    def released(self, cause: int) -> None:
        """A Release for this demand was sent."""
        del self.demands[cause]

    def withdraw(self) -> None:
        super().withdraw()
        self.demands.clear()
        self._fences.clear()

    def _gone(self) -> Partitions:
        """The partitions of the oldest demand; then those that went without a demand."""
        gone = super()._gone()
        for some in self.demands.values():
            if asked := tuple(each for each in gone if each in some):
                return asked
        return gone


_IN = frozenset({State.JOINING, State.STABLE})


class AssignedState(MemberState):
    """The state of a member of a server-assigned group: it has no leader, and no SyncGroup."""

    held: Holding

    VALID_PREVIOUS_STATES: ClassVar[Mapping[State, frozenset[State]]] = {
        State.IDLE: _IN,
        State.JOINING: frozenset({State.IDLE}),
        State.STABLE: frozenset({State.JOINING}),
        State.FAILED: _IN | {State.IDLE},
        State.LEAVING: _IN | {State.IDLE, State.FAILED},
        State.LEFT: frozenset({State.LEAVING}),
    }

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(identity, timing)
        self.held = Holding(self.fence)


#: How long a commit waits for its callback to return.
KEPT_MS = 500
#: Of the bytes of a request that is not read if it is larger.
RIDES_BYTES_MAX = limits.REQUEST_BYTES_MAX // 2


class Releases:
    """The demands of one member, from the notice to the coordinator's answer."""

    def __init__(self, me: AssignedState, pending: PendingRequests) -> None:
        self._me, self._pending = me, pending
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
            me.say_all(self._pending.repeat_commits())  # they stand before it
            request = me.requests.release(me.member, me.generation, cause, offsets)
            me.held.released(cause)
            self._unanswered[cause] = None
            me.say(self._pending.ask(ticket, request))

    def _riding_with(self, cause: int) -> sg.CommitOffsets | None:
        kept = self._kept
        if kept is None or not _named(kept) <= set(self._me.held.demands[cause]):
            return None
        self._kept = None
        return kept

    # ---- written and answered -----------------------------------------------------------------

    def written(self, event: sg.Acknowledged) -> None:
        """Rule 10: that ends the demand for the fence, unless a refusal was read before this."""
        if self._pending.is_put_off(event.id):
            return
        asked = self._pending.asked(event.id)
        if isinstance(asked, api.Release) and asked.cause in self._unanswered:
            due_ms = self._me.fence.reacted(event.now_ms, asked.cause)
            if due_ms is not None:
                self._unanswered[asked.cause] = due_ms

    def answered(self, response: api.Response, now_ms: int) -> None:
        """Called before the answer goes to the caller that waits for it."""
        asked = self._pending.asked(response.id)
        if not isinstance(asked, api.Release) or asked.cause not in self._unanswered:
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
        self._me.say_all(self._pending.ask_no_more(api.Release, over))

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
        request = me.requests.commit(me.member, me.generation, event.offsets)
        me.say(self._pending.ask(event.ticket, request, event.is_waited, event.first))

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


SUBSCRIPTION_CHANGED = "subscription changed"
#: The coordinator knows no such member, or not in such a generation: everything is lost.
OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class AssignedMachine(MemberMachine):
    """One member; `handle` is the only way in."""

    _me: AssignedState

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(AssignedState(identity, timing))
        self._releases = Releases(self._me, self._pending)
        #: The user's subscription; None: to be in no group.
        self._wanted: sg.Subscription | None = None
        #: The subscription of the newest Subscribe.
        self._requested: sg.Subscription | None = None
        #: The group's strategy, as the newest answer named it; empty before the first.
        self.strategy = ""

    def fence_of(self, partition: TopicPartition) -> int | None:
        """The fencing token of a partition that the user owns; None for every other one."""
        return self._me.held.fence_of(partition)

    # ---- this protocol's way --------------------------------------------------------------------

    def _dispatch_own(self, event: sg.ClassicInput | sg.AssignedInput) -> None:
        match event:
            case sg.WantSubscription():
                self._subscribe(event)
            case _:
                raise TypeError(f"{event} is no input of a member of a server-assigned group")

    def _go_on(self, now_ms: int) -> None:
        me, wanted = self._me, self._wanted
        if wanted is not None and me.state is State.IDLE and me.held.is_free(now_ms, keeps=False):
            me.held.let_go()
            me.become(State.JOINING)
            me.take(now_ms, self._subscribe_to(wanted))
        if me.state is State.STABLE:
            # One after the other: a Subscribe names the generation that the one before it made.
            if me.step is None and wanted not in (None, self._requested):
                me.take(now_ms, self._subscribe_to(wanted))
            self._releases.say()

    def _subscribe_to(self, wanted: sg.Subscription) -> sg.Send:
        me, self._requested = self._me, wanted
        reason = SUBSCRIPTION_CHANGED if me.member else None
        return sg.Send(me.requests.subscribe(me.member, me.generation, wanted, reason))

    def _finish(self, now_ms: int) -> None:
        if self._me.state in (State.IDLE, State.JOINING, State.FAILED):
            self._releases.end()
        if self._me.held.calling is None:
            self._releases.write_kept(now_ms)

    def _due_ms(self) -> int | None:
        return self._releases.due_ms()

    def _must_let_go(self) -> bool:
        return self._leaving.leave_pending

    def _written(self, event: sg.Acknowledged) -> None:
        self._releases.written(event)

    # ---- the user -------------------------------------------------------------------------------

    def _subscribe(self, event: sg.WantSubscription) -> None:
        self._seen(event.now_ms)
        self._wanted = event.subscription

    def _unsubscribe(self, event: sg.Unsubscribe) -> None:
        self._wanted = None
        super()._unsubscribe(event)

    def _called_back(self, event: sg.CalledBack) -> None:
        if not self._may_release():
            # No Release will follow, but a LeaveGroup: the commit stands before that.
            self._releases.write_kept(event.now_ms)
        super()._called_back(event)

    def _close(self, event: sg.Close) -> None:
        if event.inside is not None:
            self._releases.write_kept(event.now_ms)  # it stands before the LeaveGroup
        super()._close(event)

    def _commit(self, event: sg.CommitOffsets) -> None:
        if event.first:
            self._releases.write_kept(event.now_ms)  # it is later than what is repeated
        super()._commit(event)

    def _write_commit(self, event: sg.CommitOffsets) -> None:
        self._releases.commit(event, rides=self._may_release())

    def _may_release(self) -> bool:
        return not (self._leaving.is_closing or self._leaving.leave_pending)

    def _elapsed(self, event: sg.Elapsed) -> None:
        self._releases.elapsed(event.now_ms)
        super()._elapsed(event)

    # ---- answers and notices ------------------------------------------------------------------

    def _step_answered(self, asked: Step, response: api.Response, now_ms: int) -> None:
        me, code = self._me, error_of(response)
        if code is ErrorCode.NONE and isinstance(response, api.SubscribeResponse):
            self._subscribed(asked, response, now_ms)
        elif code in OUT and me.member:
            self._out()
        elif code.retriable and self._requested is not None:
            send = self._subscribe_to(self._wanted or self._requested)
            asked.replace_later(now_ms, send, throttle_ms(response))
        else:
            me.fail(refusal_of(response, me.where))

    def _subscribed(self, asked: Step, answer: api.SubscribeResponse, now_ms: int) -> None:
        me = self._me
        me.step = None
        if me.state is State.JOINING:
            # Rule 12: whatever id the acknowledgement suggested, the answer's id holds.
            me.member, me.first_id = answer.member, me.requests.next_id()
            me.become(State.STABLE)
            me.beats.begin(now_ms, asked.first_ms)
            me.held.enter(now_ms, asked.first_ms)
        self.strategy = known(answer.strategy, "")
        self._take_picture(answer, now_ms)

    def _noticed(self, message: api.AnyResponse, now_ms: int) -> None:
        me = self._me
        if not isinstance(message, api.AssignmentChanged) or me.state is not State.STABLE:
            return
        if (message.group, message.member) == (me.identity.group, me.member):
            self._take_picture(message, now_ms)

    def _take_picture(
        self, picture: api.SubscribeResponse | api.AssignmentChanged, now_ms: int
    ) -> None:
        me = self._me
        me.generation = known(picture.generation, me.generation)
        demands = known(picture.release, ())
        self._releases.demanded(now_ms, {row.cause: _all(row.partitions) for row in demands})
        granted = known(picture.partitions, ())
        fences = {each: row.fence for row in granted for each in _all((row,))}
        newest = known(picture.fence, -1)
        me.held.replace(fences, None if newest < 0 else newest)

    def _answered(self, response: api.Response, now_ms: int) -> None:
        self._releases.answered(response, now_ms)
        super()._answered(response, now_ms)

    def _judged(self, response: api.Response, now_ms: int) -> None:  # noqa: ARG002  # no dates here
        if error_of(response) in OUT:
            self._out()


def _all(rows: Iterable[api.GrantedPartitions | api.OwnedPartitions]) -> Partitions:
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)
