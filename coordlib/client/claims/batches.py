"""Delivery at most once: a batch is announced, judged and signed before any of it is handed out.

Seed 003, steps 1 to 9: read a batch, write ClaimingMessages with its end, read that back, write a
Heartbeat with the end, then process. The seed leaves out that the Heartbeat must be read back, too,
and judged a sign: a consumer that slept between the two would process what its successor has.
Whatever is handed out is behind the position for ever, so nothing is handed out twice.  # INV-63
"""

from coordlib.client.claims import signals as sg
from coordlib.client.claims.claim import Asked, Batch, Claim, Phase
from coordlib.client.claims.fence import Stop
from coordlib.client.claims.holding import Holding
from coordlib.client.claims.standing import RETRY_PARTS, Standing
from coordlib.client.claims.tracking import CommitTracker


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
        """Try again what Kafka did not take."""
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
        """Say it again: that it may stand in the log already does no harm."""
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
