"""What a consumer of claims takes from its queues, and hands out in the next moment.

A message counts as handed out when it is taken: its claim holds the position back for it, or, with
delivery at most once, has moved beyond it. It stays here until the line that returns it, which
calls nothing: what an interrupted call has taken is returned by the next one.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from coordlib.client.claims.claim import Claim, Phase
from coordlib.client.claims.data import Data
from coordlib.client.claims.member import ClaimingMember
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.kit.signals import TopicPartition


class Handing(NamedTuple):
    """Messages that are to be returned, and what stays."""

    messages: list[Any]
    rest: list[tuple[Claim | None, Any]]


class Taking:
    """Of one consumer. To be called whole."""

    def __init__(
        self,
        data: Data,
        member: ClaimingMember,
        options: ConsumerOptions,
        now_ms: Callable[[], int],
    ) -> None:
        self._data, self._member, self._options, self._now_ms = data, member, options, now_ms
        #: Taken, and not handed out yet; error events are of no claim.
        self.out: list[tuple[Claim | None, Any]] = []
        #: What the newest call is about to return; None: something has changed since.
        self.handing: Handing | None = None
        #: Partitions that have too many uncommitted messages, and were warned of.
        self.full: set[TopicPartition] = set()

    def take(self, count: int) -> Handing:
        """Take what may be handed out now. With the lock: after a loss nothing is handed out."""
        with self._member.changed:
            now_ms, life = self._now_ms(), self._member.life
            # Taken by a call that was interrupted: they go first, unless the claim is gone.
            self.out = [
                (claim, message)
                for claim, message in self.out
                if claim is None or life.claim_of(claim.place, now_ms) is claim
            ]
            while self._data.errors and len(self.out) < count:
                self.out.append((None, self._data.errors.popleft()))
            for place, queue in self._data.turns():
                claim = life.claim_of(place, now_ms)
                if claim is not None and claim.phase is Phase.HELD:
                    self._take_of(claim, queue, count)
        messages = [message for _, message in self.out[:count]]
        self.handing = Handing(messages, self.out[count:])
        return self.handing

    def forget(self) -> None:
        """Hand out nothing more."""
        self.handing, self.out = None, []

    def _take_of(self, claim: Claim, queue: deque[Any], count: int) -> None:
        while queue and len(self.out) < count:
            offset = queue[0].offset()
            if offset < claim.next_offset:
                queue.popleft()  # the fetcher began a little earlier
                continue
            if not self._may_hand_out(claim, offset):
                return
            if not self._options.is_at_most_once:
                claim.tracker.handed_out(offset)
            claim.next_offset, claim.active_ms = offset + 1, self._now_ms()
            self.out.append((claim, queue.popleft()))

    def _may_hand_out(self, claim: Claim, offset: int) -> bool:
        options, open_ = self._options, claim.tracker.outstanding
        if options.is_at_most_once:
            return offset < claim.allowed_end
        if options.strict_ordering and open_:
            return False
        if open_ < options.max_message_queue:
            self.full.discard(claim.place)
            return True
        if claim.place not in self.full:
            self.full.add(claim.place)
            self._member.warn(f"{claim.where}: {open_} messages are not committed; no more come.")
        return False
