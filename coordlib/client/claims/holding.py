"""What a consumer does with a claim: attempt it, begin, give signs, release, or lose it.

Source: design, sections 6 and 8; Marshal's claim.go.

An attempt is won iff the reader has judged its acknowledged offset, the slot's epoch is that
offset, and less than one interval has passed since produce().

Delivery at most once is seed 003, steps 1 to 9: read a batch, write ClaimingMessages with its end,
read that back, write a Heartbeat with the end, then process. The seed leaves out that the Heartbeat
must be read back, too, and judged a sign: a consumer that slept between the two would process what
its successor has. Whatever is handed out is behind the position for ever, so nothing is handed out
twice.  # INV-63
"""

from coordlib.client.claims import events as sg
from coordlib.client.claims import state
from coordlib.client.claims.claim import (
    WITHOUT_COOL_DOWN,
    Asked,
    Attempt,
    Batch,
    Claim,
    CommitTracker,
    Fence,
    Flushes,
    Health,
    Phase,
    Stop,
    Why,
)
from coordlib.client.claims.state import (
    BEAT_PARTS,
    PASS_PARTS,
    RETRY_PARTS,
    SILENCE_PARTS,
    Standing,
)
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import is_other_topic


class Holding:
    """The claims of one consumer, from the winning attempt to the end."""

    def __init__(self, me: Standing) -> None:
        self._me = me
        #: Signs under way: which claim each one is of.
        self.signs: dict[int, Claim] = {}
        #: Who waits for signs that carry positions.
        self.flushes = Flushes()

    # ---- the beginning ------------------------------------------------------------------------

    def won(self, place: TopicPartition, attempt: Attempt, now_ms: int) -> Claim:
        """The log gave the partition to this attempt. Its produce() is the first sign of life."""
        me, options = self._me, self._me.options
        assert attempt.offset is not None
        assert attempt.verdict is not None
        claim = Claim(
            place,
            attempt.offset,
            Fence(me.interval_ms, attempt.produced_ms),
            # As judged at the winning record: its former owner may have moved it until then (B9).
            # INV-49
            attempt.verdict.position,
            attempt.verdict.saved_position,
            attempt.verdict.topic_id,
            health=Health(options.release_claims_if_behind, options.claim_entire_topic),
            active_ms=now_ms,
        )
        me.claims[place] = claim
        me.hurry(claim.fence.closes_ms(me.view(place).read_ms))
        self.look_up([claim], now_ms)
        return claim

    def look_up(self, claims: list[Claim], now_ms: int) -> None:
        """Ask where these begin; again after a while without an answer."""
        for claim in claims:
            claim.looks_again_ms = now_ms + self._me.interval_ms // 6
            self._me.hurry(claim.looks_again_ms)
        sought = [sg.Sought(c.place, c.epoch, c.judged_position is None) for c in claims]
        self._me.say(sg.LookUpStarts(tuple(sought)))

    def found(self, found: sg.Found, now_ms: int) -> None:
        """Begin at the judged position, else at Kafka's committed one, else at that of an older
        snapshot, else as configured.

        What the job has saved before it went away is older than what consumers have committed
        since: at most once, they would be handed out what they were given before.  # INV-63
        """
        me = self._me
        claim = me.claims.get(found.place)
        if claim is None or claim.epoch != found.epoch or claim.phase is not Phase.STARTING:
            return
        if me.ids.is_old(found.place.topic, found.topic_id, now_ms):
            return  # of a broker that lags; another look follows  # INV-149
        other_id = found.topic_id if is_other_topic(claim.former_id, found.topic_id) else ""
        is_other = claim.is_confirmed(other_id)
        if other_id and not is_other:
            return
        known = [claim.judged_position, found.committed, claim.saved_position]
        if is_other:  # INV-146
            me.say(sg.Warned(f"{claim.where} is begun anew: its position is of {claim.former_id}."))
            known = [found.committed]  # Kafka deletes it with the topic
        position = next((each for each in known if each is not None), None)
        claim.topic_id = found.topic_id or claim.former_id
        me.ids.suppose(found.place.topic, claim.former_id, now_ms)
        me.ids.take(found.place.topic, claim.topic_id, now_ms)
        if position is None:
            position = found.log_end if me.identity.begins_at_end else found.log_start
        if position < found.log_start:
            me.fast_forwards += 1
            me.say(sg.Warned(_forwarded(claim, position, found.log_start)))
            position = found.log_start
        if is_other and me.options.is_at_most_once:  # in place of what was copied too late
            me.say(sg.CommitToKafka(claim.place, position, claim.epoch))
        claim.tracker, claim.is_started = CommitTracker(position), True
        claim.allowed_end = claim.next_offset = position
        claim.phase, claim.active_ms = Phase.HELD, now_ms
        if claim.why is not None:
            self._let_go_soon(claim, now_ms)
        elif position > found.log_end:
            self.release(claim, Why.BEYOND_END, now_ms)
        else:
            self.sign(claim, now_ms)

    # ---- signs of life ------------------------------------------------------------------------

    def sign(self, claim: Claim, now_ms: int) -> int:
        """Write a heartbeat with the position; the next one is due between HI/4 and 3·HI/4."""
        me, (parts, most) = self._me, BEAT_PARTS
        shortest_ms = me.interval_ms // parts
        claim.beat_ms = now_ms + shortest_ms + me.jitter((most - 1) * shortest_ms)
        me.hurry(claim.beat_ms)
        self._to_kafka(claim)
        id_ = me.write(sg.Kind.SIGN, claim.place, claim.epoch, claim.position, claim.topic_id)
        self.signs[id_] = claim
        self.flushes.signed(claim, id_)
        return id_

    def acknowledged(self, event: sg.Acknowledged) -> None:
        claim = self.signs.pop(event.id, None)
        if claim is not None:
            claim.fence.acknowledged(event.produced_ms)
            for ticket in self.flushes.acknowledged(event.id):
                self._me.say(sg.Answer(ticket))

    def not_written(self, event: sg.NotWritten) -> None:
        """A lost heartbeat is followed by another one, soon (B11)."""
        claim = self.signs.pop(event.id, None)
        if claim is not None:
            self.flushes.not_written(claim, event.id)
            claim.beat_ms = min(claim.beat_ms, event.now_ms + self._me.interval_ms // RETRY_PARTS)
            self._me.hurry(claim.beat_ms)

    def _to_kafka(self, claim: Claim) -> None:
        """Before the message, so that a rewind that follows cannot be overtaken (PR #84).

        Kafka's groups name no topic's id: nothing is copied where the topic may be another by now.
        """
        me = self._me
        if claim.is_doubted:  # INV-146
            return
        moved = claim.position != claim.signed_position
        claim.signed_position = claim.position
        if moved and me.options.commit_to_kafka and not me.options.is_at_most_once:
            me.say(sg.CommitToKafka(claim.place, claim.position, claim.epoch))

    # ---- the end ------------------------------------------------------------------------------

    def release(self, claim: Claim, why: Why, now_ms: int) -> None:
        """Let go: when the user was called back, or at once if he was never told of the claim.

        A release carries a position. Where none is known, it is looked up first.
        """
        if claim.why is None:
            claim.why, claim.let_go_ms = why, now_ms
            if claim.is_started or claim.judged_position is not None:
                self._let_go_soon(claim, now_ms)

    def _let_go_soon(self, claim: Claim, now_ms: int) -> None:
        claim.phase = Phase.LETTING_GO
        self._me.hurry(claim.let_go_ms + self._me.interval_ms)
        if not claim.is_reported:
            self.let_go(claim, now_ms)

    def let_go(self, claim: Claim, now_ms: int) -> None:
        """Release the slot: the user has let go."""
        me = self._me
        assert claim.why is not None
        del me.claims[claim.place]
        if claim.why not in WITHOUT_COOL_DOWN:
            me.cool_down(claim.place, now_ms)
        if claim.why not in (Why.CLOSED, Why.LEFT, Why.UNWANTED):
            me.say(sg.Warned(f"{claim.where} is released: {claim.why.value}."))
        if claim.why is not Why.LEFT:
            self._write_release(claim)
        elif claim.is_started:
            me.last_words.add(self.sign(claim, now_ms))
        self._end_topic(claim.place, now_ms)

    def lose(self, claim: Claim, stop: Stop, now_ms: int) -> None:
        """Give the claim up for good: it may not be worked on any more."""
        me = self._me
        del me.claims[claim.place]
        if claim.is_reported:
            me.lost[claim.place] = claim
        me.say(sg.Warned(f"{claim.where} is lost: {stop.value}."))
        me.cool_down(claim.place, now_ms)  # whatever kept it from the log may still do so
        knows_position = claim.is_started or claim.judged_position is not None
        if knows_position and me.owns_slot(claim):
            self._write_release(claim)
        self._end_topic(claim.place, now_ms)

    def _write_release(self, claim: Claim) -> None:
        position = _released_at(claim, self._me.options.is_at_most_once)
        if position != claim.signed_position and not self._me.options.is_at_most_once:
            self._to_kafka(claim)
        topic_id = claim.topic_id if claim.is_started else claim.former_id
        id_ = self._me.write(sg.Kind.RELEASE, claim.place, claim.epoch, position, topic_id)
        self._me.last_words.add(id_)

    def _end_topic(self, place: TopicPartition, now_ms: int) -> None:
        """Of a topic that is claimed whole the others follow. They are told in one callback."""
        me = self._me
        if not me.options.claim_entire_topic or me.is_closing:
            return
        for claim in [each for each in me.claims.values() if each.place.topic == place.topic]:
            self.release(claim, Why.OF_TOPIC, now_ms)


def _released_at(claim: Claim, is_at_most_once: bool) -> int:
    """Where the next owner goes on. At most once, that is behind all that was handed out, and
    before what was only announced: nobody gets it from this claim any more."""
    if not claim.is_started:
        assert claim.judged_position is not None
        return claim.judged_position
    return claim.next_offset if is_at_most_once else claim.position


def _forwarded(claim: Claim, position: int, start: int) -> str:
    return (
        f"{claim.where} begins at {start}, where its log begins: {start - position} records behind "
        f"its position {position} were deleted before they were read."
    )


class Batches:
    """The batches of all claims of one consumer, at most one of each claim at a time."""

    def __init__(self, me: Standing, holding: Holding) -> None:
        self._me, self._holding = me, holding
        self._asked: dict[int, Claim] = {}

    def buffered(self, event: sg.Buffered) -> None:
        """Steps 1 to 3: announce the end of what was read."""
        claim = self._me.claims.get(event.place)
        if claim is None or claim.epoch != event.epoch or claim.phase is not Phase.HELD:
            return
        if claim.batch is Batch.NONE and event.end > claim.allowed_end:
            claim.batch, claim.batch_end = Batch.PROPOSED, event.end
            self._propose(claim, event.now_ms)

    def committed(self, event: sg.Committed) -> None:
        """Kafka's group has the end: a reader that begins late goes on from there."""
        claim = self._me.claims.get(event.place)
        if claim is None or claim.batch is not Batch.COMMITTING:
            return
        if (claim.epoch, claim.batch_end) != (event.epoch, event.end):
            return
        if event.is_done:
            self._sign(claim, event.now_ms)
        else:
            claim.again_ms = event.now_ms + self._me.interval_ms // RETRY_PARTS

    def due_ms(self) -> int | None:
        """When `go_on` has something to do at the latest."""
        due = (claim.again_ms for claim in self._me.claims.values())
        return min((each for each in due if each is not None), default=None)

    def go_on(self, now_ms: int) -> None:
        """Repeat commits that Kafka did not take."""
        for claim in self._me.claims.values():
            if claim.again_ms is not None and now_ms >= claim.again_ms:
                self._commit(claim, now_ms)

    def judged(self, event: sg.Judged) -> None:
        """A record of this process about a claimed slot."""
        claim = self._me.claims.get(event.place)
        if claim is not None and claim.asked is not None and event.is_own:
            claim.asked.verdicts[event.offset] = event
            self._decide(claim, event.now_ms)

    def acknowledged(self, event: sg.Acknowledged) -> None:
        claim = self._asked.pop(event.id, None)
        if claim is not None and claim.asked is not None and claim.asked.id == event.id:
            claim.asked.acknowledged(event)
            self._decide(claim, event.now_ms)

    def not_written(self, event: sg.NotWritten) -> None:
        """Write it again; a duplicate in the log does no harm."""
        claim = self._asked.pop(event.id, None)
        if claim is None or claim.asked is None or self._me.claims.get(claim.place) is not claim:
            return
        if claim.batch is Batch.PROPOSED:
            self._propose(claim, event.now_ms)
        elif claim.batch is Batch.SIGNED:
            self._sign(claim, event.now_ms)

    def _propose(self, claim: Claim, now_ms: int) -> None:
        id_ = self._me.write(sg.Kind.PROPOSAL, claim.place, claim.epoch, claim.batch_end)
        self._await(claim, id_, now_ms)

    def _commit(self, claim: Claim, now_ms: int) -> None:
        claim.batch, claim.asked, claim.again_ms = Batch.COMMITTING, None, None
        if claim.is_doubted:  # it waits: Kafka's groups name no topic's id  # INV-146
            claim.again_ms = now_ms + self._me.interval_ms // RETRY_PARTS
            return
        self._me.say(sg.CommitToKafka(claim.place, claim.batch_end, claim.epoch, is_awaited=True))

    def _sign(self, claim: Claim, now_ms: int) -> None:
        """Step 5. Every later sign carries this end, too: a position never goes back."""
        claim.batch = Batch.SIGNED
        claim.tracker = CommitTracker(claim.batch_end)
        self._await(claim, self._holding.sign(claim, now_ms), now_ms)

    def _await(self, claim: Claim, id_: int, now_ms: int) -> None:
        claim.asked = Asked(id_, now_ms)
        self._asked[id_] = claim

    def _decide(self, claim: Claim, now_ms: int) -> None:
        verdict = claim.asked.verdict if claim.asked is not None else None
        if verdict is None or self._me.claims.get(claim.place) is not claim:
            return
        if not verdict.is_accepted:
            self._holding.lose(claim, Stop.TAKEN, now_ms)
        elif claim.batch is Batch.PROPOSED:
            self._commit(claim, now_ms)
        elif claim.batch is Batch.SIGNED:
            claim.batch, claim.asked = Batch.NONE, None
            claim.allowed_end = claim.batch_end


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
        """Run a claims pass at once: something was released."""
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
        is_wanted = attempt.is_reclaim or state.is_wanted(me, place)
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
            for place in () if me.is_paused() else state.to_reclaim(me, topic):
                slot = me.slot(place)
                position = slot.position if slot is not None else None
                id_ = me.write(sg.Kind.SIGN, place, None, position or 0)
                me.attempts[place] = Attempt(id_, now_ms, is_reclaim=True)

    def _pass(self, now_ms: int) -> None:
        me = self._me
        if not me.is_paused():
            for place in state.to_attempt(me, now_ms):
                self._attempt(place, now_ms)
        for topic in sorted({each.topic for each in state.wanted(me)}):
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
        places = [each for each in state.wanted(me) if each.topic == topic]
        if not places:
            return  # what it has just attempted in another topic is all that it may take
        self._filled_ms[topic] = now_ms + me.jitter(me.interval_ms // PASS_PARTS)
        ready = [each for each in places if now_ms >= me.cooling_ms.get(each, now_ms)]
        # While the group is paused an attempt would be refused here, and believed by Marshal's own.
        if ready and me.view_of(topic).may_act and not me.is_paused():
            self._attempt(me.rng.choice(ready), now_ms)
        else:
            me.write(sg.Kind.PROPOSAL, places[0])
