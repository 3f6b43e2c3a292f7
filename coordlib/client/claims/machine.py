"""One consumer's life as a state machine without IO: `handle(input) -> outputs`.

It never blocks, reads no clock and calls no code of the user; the shell (`consumer.py`) does. What
the log says it asks of views, which somebody else keeps by the one fold that all readers run.
Source: design, sections 5, 6 and 8.
"""

from collections.abc import Callable, Mapping
from random import Random

from coordlib.client.claims import events as sg
from coordlib.client.claims import state
from coordlib.client.claims.claim import Claim, Phase, Stop, Verdict, Why
from coordlib.client.claims.holding import Attempts, Batches, Holding
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.claims.state import COUNT_PARTS, Identity, Standing
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import is_other_topic


class ClaimMachine:
    """One consumer; `handle` is the only way in."""

    def __init__(
        self,
        identity: Identity,
        options: ConsumerOptions,
        view_of: Callable[[str], sg.View],
        rng: Random,
    ) -> None:
        self._me = Standing(identity, options, view_of, rng)
        self._holding = Holding(self._me)
        self._attempts = Attempts(self._me, self._holding)
        self._batches = Batches(self._me, self._holding)
        self._count_ms = 0
        self._calling: sg.Call | None = None
        self._reported_topics: tuple[str, ...] = ()
        self._is_closed = False
        #: Whether `close` has returned: nobody runs callbacks any more.
        self._is_unattended = False

    @property
    def me(self) -> Standing:
        return self._me

    # ---- the way in ---------------------------------------------------------------------------

    def handle(self, event: sg.Input) -> list[sg.Output]:
        """Take one input; the outputs are to be done in order."""
        if self._is_closed:
            return []
        # First of all: what this input proves came too late for a claim whose fence has closed.
        self._close_fences(event.now_ms)
        self._dispatch(event)
        self._go_on(event.now_ms)
        return self._me.outputs()

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest."""
        if self._is_closed:
            return None
        due = [self._me.due_ms, self._attempts.due_ms(), self._batches.due_ms()]
        if not self._me.is_closing:
            due.append(self._count_ms)
        return min((each for each in due if each is not None), default=None)

    def forget_flush(self, ticket: int) -> None:
        """Drop a flush whose time is up."""
        self._holding.flushes.forget(ticket)

    def claim_of(self, place: TopicPartition, now_ms: int) -> Claim | None:
        """The claim if its partition may be worked on now; nothing changes by asking."""
        claim = self._me.claims.get(place)
        if claim is None or not claim.is_reported or self._is_closed:
            return None
        return claim if claim.fence.broken(now_ms, self._me.view(place).read_ms) is None else None

    def _dispatch(self, event: sg.Input) -> None:
        match event:
            case sg.Judged():
                self._judged(event)
            case sg.Acknowledged():
                self._acknowledged(event)
            case sg.NotWritten():
                self._not_written(event)
            case sg.Elapsed() | sg.ReadToEnd():
                pass  # what is due follows every input
            case sg.Polled() | sg.CalledBack() | sg.Flush() | sg.Close() | sg.Left():
                self._dispatch_of_user(event)
            case _:
                self._dispatch_of_data(event)

    def _dispatch_of_data(
        self, event: sg.Counted | sg.StartsFound | sg.EndsFound | sg.OutOfRange | sg.OfBatch
    ) -> None:
        match event:
            case sg.Counted():
                self._counted(event)
            case sg.StartsFound():
                for found in event.found:
                    self._holding.found(found, event.now_ms)
            case sg.EndsFound():
                self._look(event)
            case sg.OutOfRange():
                self._release(event.place, Why.OUT_OF_RANGE, event.now_ms)
            case sg.Buffered():
                self._batches.buffered(event)
            case sg.Committed():
                self._batches.committed(event)

    def _dispatch_of_user(
        self, event: sg.Polled | sg.CalledBack | sg.Flush | sg.Close | sg.Left
    ) -> None:
        match event:
            case sg.Polled():
                self._call_back(event.now_ms)
            case sg.CalledBack():
                self._called_back(event)
            case sg.Flush():
                self._flush(event)
            case sg.Close():
                self._close(event)
            case sg.Left():
                self._is_unattended = True

    # ---- the log ------------------------------------------------------------------------------

    def _judged(self, event: sg.Judged) -> None:
        if event.is_own and event.is_attempt:
            self._attempts.judged(event)
        elif event.is_own:
            self._batches.judged(event)
        claim = self._me.claims.get(event.place)
        if event.is_freed:
            self._attempts.wake()
        if claim is None or claim.epoch > event.offset:
            return
        if event.is_uncertain or not self._me.owns_slot(claim):
            slot = self._me.slot(event.place)
            is_freed = slot is not None and slot.is_released
            self._holding.lose(claim, Stop.FREED if is_freed else Stop.TAKEN, event.now_ms)

    def _acknowledged(self, event: sg.Acknowledged) -> None:
        self._holding.acknowledged(event)
        self._attempts.acknowledged(event)
        self._batches.acknowledged(event)
        self._me.last_words.discard(event.id)

    def _not_written(self, event: sg.NotWritten) -> None:
        self._holding.not_written(event)
        self._batches.not_written(event)
        self._me.last_words.discard(event.id)

    def _counted(self, event: sg.Counted) -> None:
        """Take new partition counts; partitions that are gone cannot be read any more."""
        me, now_ms = self._me, event.now_ms
        lagging = [t for t, id_ in event.ids.items() if me.ids.is_old(t, id_, now_ms)]  # INV-149
        counts = {**event.counts, **{t: me.counts[t] for t in lagging if t in me.counts}}
        if counts != me.counts:
            self._attempts.wake()
        me.counts = counts
        for place in [p for p in me.claims if p.partition >= counts.get(p.topic, 0)]:
            if place.topic in counts:
                self._release(place, Why.GONE, now_ms)
        self._release_of_before({t: i for t, i in event.ids.items() if t not in lagging}, now_ms)

    def _release_of_before(self, ids: Mapping[str, str], now_ms: int) -> None:
        """What is read of a topic of before is released, under that one's id; whoever claims it
        next begins anew.  # INV-146
        """
        me = self._me
        started = [(place, each) for place, each in me.claims.items() if each.is_started]
        for place, claim in started:
            topic_id = ids.get(place.topic)
            if topic_id is None:
                continue
            other_id = topic_id if is_other_topic(claim.topic_id, topic_id) else ""
            if claim.is_confirmed(other_id):
                me.ids.take(place.topic, other_id, now_ms)
                self._release(place, Why.MADE_ANEW, now_ms)

    def _release(self, place: TopicPartition, why: Why, now_ms: int) -> None:
        claim = self._me.claims.get(place)
        if claim is not None:
            self._holding.release(claim, why, now_ms)

    # ---- time ---------------------------------------------------------------------------------

    def _close_fences(self, now_ms: int) -> None:
        """Give up what may not be worked on; nothing opens a fence again."""
        if now_ms < self._me.due_ms:
            return
        for claim in list(self._me.claims.values()):
            if self._me.claims.get(claim.place) is not claim:
                continue  # of a whole topic the others go with the first
            stop = claim.fence.broken(now_ms, self._me.view(claim.place).read_ms)
            if stop is not None:
                self._holding.lose(claim, stop, now_ms)
            elif claim.phase is Phase.LETTING_GO and self._is_unheard(claim, now_ms):
                self._holding.lose(claim, Stop.UNHEARD, now_ms)

    def _is_unheard(self, claim: Claim, now_ms: int) -> bool:
        return now_ms - claim.let_go_ms >= self._me.interval_ms

    def _first_due(self) -> int:
        """The earliest moment at which a sign or a look is due, a fence closes, or a release is
        overdue. Signs and readings only ever move that to later."""
        me, far_ms = self._me, 1 << 62
        for claim in me.claims.values():
            next_ms = claim.beat_ms if claim.is_started else claim.looks_again_ms
            far_ms = min(far_ms, next_ms, claim.fence.closes_ms(me.view(claim.place).read_ms))
            if claim.phase is Phase.LETTING_GO:
                far_ms = min(far_ms, claim.let_go_ms + me.interval_ms)
        return far_ms

    def _go_on(self, now_ms: int) -> None:
        """Do all that is due after any input."""
        me = self._me
        if now_ms >= self._count_ms and not me.is_closing:
            self._count_ms = now_ms + me.interval_ms // COUNT_PARTS
            me.say(sg.CountPartitions())
        if me.claims and me.is_paused():
            for claim in list(me.claims.values()):
                self._holding.release(claim, Why.PAUSED, now_ms)
        self._attempts.go_on(now_ms)
        self._batches.go_on(now_ms)
        if now_ms >= me.due_ms:
            self._beat(now_ms)
            me.due_ms = self._first_due()
        self._end_if_closed()

    def _beat(self, now_ms: int) -> None:
        """Signs of life, and the looks at starts and ends that go with them."""
        late = [
            c for c in self._me.claims.values() if not c.is_started and now_ms >= c.looks_again_ms
        ]
        if late:
            self._holding.look_up(late, now_ms)
        due = [c for c in self._me.claims.values() if c.is_started and now_ms >= c.beat_ms]
        for claim in due:
            self._holding.sign(claim, now_ms)
        if due:
            self._me.say(sg.LookUpEnds(tuple(claim.place for claim in due)))

    def _look(self, event: sg.EndsFound) -> None:
        """One look at the health of each; what is behind for too long is released."""
        for place, end in event.ends.items():
            claim = self._me.claims.get(place)
            if claim is None or claim.phase is not Phase.HELD:
                continue
            is_silent = event.now_ms - claim.active_ms > self._me.interval_ms
            verdict = claim.health.look(claim.position, end, is_silent)
            if verdict is Verdict.RELEASE:
                self._holding.release(claim, Why.BEHIND, event.now_ms)
            elif verdict is Verdict.BEHIND:
                self._me.say(sg.Warned(_behind(claim, end)))

    # ---- the user -----------------------------------------------------------------------------

    def _call_back(self, now_ms: int) -> None:
        """The callbacks that are due, one call of each kind: losses first."""
        if self._calling is not None or self._is_unattended:
            return
        call = self._next_call(now_ms)
        if call is not None:
            self._calling = call
            self._me.say(call)

    def _next_call(self, now_ms: int) -> sg.Call | None:
        me = self._me
        if me.lost:
            places, me.lost = tuple(sorted(me.lost)), {}
            return sg.Call(sg.Callback.LOST, places)
        going = [p for p, claim in me.claims.items() if claim.phase is Phase.LETTING_GO]
        if going:
            return sg.Call(sg.Callback.RELEASED, tuple(sorted(going)))
        fresh = [c for c in me.claims.values() if c.phase is Phase.HELD and not c.is_reported]
        if fresh:
            for claim in fresh:
                claim.is_reported, claim.active_ms = True, now_ms
            starts = {claim.place: claim.position for claim in fresh}
            return sg.Call(sg.Callback.CLAIMED, tuple(sorted(starts)), starts)
        topics = state.topics_claimed(me)
        if topics != self._reported_topics:
            self._reported_topics = topics
            return sg.Call(sg.Callback.TOPICS, topics=topics)
        return None

    def _called_back(self, event: sg.CalledBack) -> None:
        self._calling = None
        if event.call.callback is sg.Callback.RELEASED:
            for place in event.call.places:
                claim = self._me.claims.get(place)
                if claim is not None and claim.phase is Phase.LETTING_GO:
                    self._holding.let_go(claim, event.now_ms)
        if self._me.is_closing:
            self._call_back(event.now_ms)

    def _flush(self, event: sg.Flush) -> None:
        moved = [
            claim
            for claim in self._me.claims.values()
            if claim.is_started and claim.position != claim.signed_position
        ]
        signs = {self._holding.sign(claim, event.now_ms) for claim in moved}
        # Signs that are under way carry the newest position of their claims already.
        signs |= set(self._holding.signs)
        if signs:
            self._holding.flushes.begin(event.ticket, signs)
        else:
            self._me.say(sg.Answer(event.ticket))

    def _close(self, event: sg.Close) -> None:
        me = self._me
        me.closing = Why.CLOSED if event.releases else Why.LEFT
        if event.inside is not None:
            self._called_back(sg.CalledBack(event.now_ms, event.inside))
        for claim in list(me.claims.values()):
            self._holding.release(claim, me.closing, event.now_ms)
        self._call_back(event.now_ms)

    def _end_if_closed(self) -> None:
        me = self._me
        is_open = me.claims or me.attempts or me.last_words
        is_called = not self._is_unattended and (me.lost or self._calling)
        if me.is_closing and not (is_open or is_called):
            self._is_closed = True
            me.say(sg.Closed())


def _behind(claim: Claim, end: int) -> str:
    return (
        f"{claim.where} falls behind: position {claim.position}, log end {end}, "
        f"{claim.health.cycles_behind} looks in a row."
    )
