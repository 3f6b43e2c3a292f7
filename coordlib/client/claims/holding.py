"""What a consumer does with a claim that it has won: begin, give signs, release, or lose it.

Source: design, sections 6 and 8; Marshal's claim.go.
"""

from coordlib.client.claims import signals as sg
from coordlib.client.claims.claim import WITHOUT_COOL_DOWN, Attempt, Claim, Phase, Why
from coordlib.client.claims.fence import Fence, Stop
from coordlib.client.claims.flushing import Flushes
from coordlib.client.claims.health import Health
from coordlib.client.claims.standing import BEAT_PARTS, RETRY_PARTS, Standing
from coordlib.client.claims.tracking import CommitTracker
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.claims.slot import is_other_topic


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
        if not claim.is_told:
            self.let_go(claim, now_ms)

    def let_go(self, claim: Claim, now_ms: int) -> None:
        """The user has let go: release the slot."""
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
        """The claim may not be worked on any more, and is given up for good."""
        me = self._me
        del me.claims[claim.place]
        if claim.is_told:
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
