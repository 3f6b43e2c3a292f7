"""Attempts and reclaims that are not decided yet, and when the next ones are written.

An attempt is won iff the reader has judged its acknowledged offset, the slot's epoch is that
offset, and less than one interval has passed since produce(). Source: design, section 6.
"""

from coordlib.client.claims import signals as sg
from coordlib.client.claims import wanting
from coordlib.client.claims.claim import Attempt, Why
from coordlib.client.claims.holding import Holding
from coordlib.client.claims.standing import PASS_PARTS, SILENCE_PARTS, Standing
from coordlib.client.kit.signals import TopicPartition


class Attempts:
    """The claim loop of one consumer."""

    def __init__(self, me: Standing, holding: Holding) -> None:
        self._me, self._holding = me, holding
        self._pass_ms = 0
        #: Topics whose earlier claims were looked for.
        self._reclaimed: set[str] = set()
        #: Topic -> when it last wrote into the silence of its coordination partition, with jitter.
        self._filled_ms: dict[str, int] = {}

    def due_ms(self) -> int | None:
        """When `go_on` has something to do at the latest."""
        me = self._me
        due = [each.sent_ms + me.interval_ms for each in me.attempts.values()]
        if not me.is_closing:
            due.append(self._pass_ms)
        return min(due, default=None)

    def wake(self) -> None:
        """Something was released that this consumer may want: look at once."""
        self._pass_ms = 0

    def go_on(self, now_ms: int) -> None:
        """Give up what is too old; reclaim, attempt and fill silence where that is due."""
        self._give_up(now_ms)
        if self._me.is_closing:
            return
        self._reclaim(now_ms)
        if now_ms >= self._pass_ms:
            self._pass_ms = now_ms + 1 + self._me.jitter(self._me.interval_ms // PASS_PARTS)
            self._pass(now_ms)

    # ---- outcomes -----------------------------------------------------------------------------

    def judged(self, event: sg.Judged) -> None:
        """A record of this process that may be an attempt."""
        attempt = self._me.attempts.get(event.place)
        if attempt is not None:
            attempt.verdicts[event.offset] = event
            self._decide(event.place, attempt, event.now_ms)
        elif self._may_be_late(event):
            self._release_unheld(event)

    def acknowledged(self, event: sg.Acknowledged) -> None:
        for place, attempt in self._me.attempts.items():
            if attempt.id == event.id:
                attempt.acknowledged(event)
                self._decide(place, attempt, event.now_ms)
                return

    def _decide(self, place: TopicPartition, attempt: Attempt, now_ms: int) -> None:
        verdict = attempt.verdict
        if verdict is None:
            return
        me = self._me
        del me.attempts[place]
        if not (verdict.is_accepted and self._is_still_ours(verdict)):
            return
        if now_ms - attempt.produced_ms >= me.interval_ms:
            self._release_unheld(verdict)
            return
        is_wanted = attempt.is_reclaim or wanting.is_wanted(me, place)
        claim = self._holding.won(place, attempt, now_ms)
        if me.closing is not None or not is_wanted:
            self._holding.release(claim, me.closing or Why.UNWANTED, now_ms)

    def _may_be_late(self, event: sg.Judged) -> bool:
        """Whether it is a win of an attempt that this consumer has given up. One that is closed
        does not ask: a consumer that the same program has opened since may have won."""
        me = self._me
        return event.is_accepted and event.place not in me.claims and not me.is_closing

    def _is_still_ours(self, won: sg.Judged) -> bool:
        slot = self._me.slot(won.place)
        is_same = slot is not None and slot.epoch == won.offset and not slot.is_released
        return is_same and slot is not None and self._me.is_self(slot)

    def _release_unheld(self, won: sg.Judged) -> None:
        """A win that came too late, or of an attempt that was given up: nobody else waits for it
        two intervals. Without a position it expires: a release would have to invent one."""
        if self._is_still_ours(won) and won.position is not None:
            where = won.place, won.offset
            id_ = self._me.write(sg.Kind.RELEASE, *where, won.position, won.topic_id)
            self._me.last_words.add(id_)

    def _give_up(self, now_ms: int) -> None:
        me = self._me
        old = [
            (place, each)
            for place, each in me.attempts.items()
            if now_ms - each.sent_ms >= me.interval_ms
        ]
        for place, attempt in old:
            del me.attempts[place]
            me.cool_down(place, now_ms)
            for verdict in attempt.verdicts.values():
                if verdict.is_accepted:
                    self._release_unheld(verdict)

    # ---- writing ------------------------------------------------------------------------------

    def _attempt(self, place: TopicPartition, now_ms: int) -> None:
        id_ = self._me.write(sg.Kind.ATTEMPT, place)
        self._me.attempts[place] = Attempt(id_, now_ms)

    def _reclaim(self, now_ms: int) -> None:
        """Once for each topic, as soon as its log is known."""
        me = self._me
        for topic in me.identity.topics:
            if topic in self._reclaimed or topic not in me.counts or not me.view_of(topic).may_act:
                continue
            self._reclaimed.add(topic)
            self.wake()
            for place in () if me.is_paused() else wanting.to_reclaim(me, topic):
                slot = me.slot(place)
                position = slot.position if slot is not None else None
                id_ = me.write(sg.Kind.SIGN, place, None, position or 0)
                me.attempts[place] = Attempt(id_, now_ms, is_reclaim=True)

    def _pass(self, now_ms: int) -> None:
        me = self._me
        if not me.is_paused():
            for place in wanting.to_attempt(me, now_ms):
                self._attempt(place, now_ms)
        for topic in sorted({each.topic for each in wanting.wanted(me)}):
            if me.reads(topic, now_ms) and now_ms >= self._silent_until_ms(topic):
                self._fill(topic, now_ms)

    def _silent_until_ms(self, topic: str) -> int:
        """When half a CAP has passed without a record there, and a jitter."""
        heard_ms = max(self._me.view_of(topic).heard_ms, self._filled_ms.get(topic, 0))
        return heard_ms + self._me.interval_ms // SILENCE_PARTS

    def _fill(self, topic: str, now_ms: int) -> None:
        """Write a record, so that time passes where this consumer waits for it to pass.

        An attempt, which wins if the slot is stale by then. Where that may not be, because too
        little of the log was read, a message that means nothing to any reader.
        """
        me = self._me
        places = [each for each in wanting.wanted(me) if each.topic == topic]
        if not places:
            return  # what it has just attempted in another topic is all that it may take
        self._filled_ms[topic] = now_ms + me.jitter(me.interval_ms // PASS_PARTS)
        ready = [each for each in places if now_ms >= me.cooling_ms.get(each, now_ms)]
        # While the group is paused an attempt would be refused here, and believed by Marshal's own.
        if ready and me.view_of(topic).may_act and not me.is_paused():
            self._attempt(me.luck.choice(ready), now_ms)
        else:
            me.write(sg.Kind.PROPOSAL, places[0])
