"""Streams of mutated requests and garbage through a shard: no group may be set aside.

Clients of random logs talk to one shard. Before and instead of what they write come mutations of
it, so that hostile requests meet groups in every state. Whatever can be decoded is judged; a step
that breaks an invariant would quarantine its group, and that is counted. Batches end now and then,
so that every state is stored and read again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from coordlib.core.engine.effects import EVENTS, REQUESTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec, stored
from tests.tools import driving
from tests.tools.core import ShardSettings
from tests.tools.driving import Conversation
from tests.tools.fuzz import inputs
from tests.tools.fuzz.mutate import Mutator, crossed
from tests.tools.random_logs import draw_log

STREAM_LENGTH: Final = 400
_MUTATED_SHARE: Final = 0.25
_BATCH_ENDS: Final = 0.01
_SAID_KEPT: Final = 15
_decode_event = msgspec.json.Decoder(stored.Event).decode


@dataclass(slots=True)
class Folded:
    """What came of many streams."""

    records: int = 0
    quarantined: int = 0
    #: (seed, what happened): the first of each stream that failed.
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Folded") -> None:
        self.records += other.records
        self.quarantined += other.quarantined
        self.failures += other.failures


class HostileConversation(Conversation):
    """Somebody writes mutations of everything between the requests of others."""

    def __init__(self, settings: ShardSettings, rnd: Random) -> None:
        super().__init__(settings)
        self._rnd = rnd
        #: What clients wrote of late.
        self._said: list[bytes] = []
        self._mutate: Callable[[], bytes] = Mutator(rnd, inputs.requests(), is_json=True).draw

    def send(
        self, request: api.AnyRequest | bytes | None, after_ms: int = 0, topic: str = REQUESTS
    ) -> list[str]:
        rnd = self._rnd
        lines: list[str] = []
        while rnd.random() < _MUTATED_SHARE:
            lines += super().send(self._mutated(), rnd.randrange(500), self._some_topic())
        if rnd.random() < _BATCH_ENDS:
            self.end_batch()
        if isinstance(request, api.Request):
            self._said = [*self._said[-_SAID_KEPT:], codec.encode(request)]
        return lines + super().send(request, after_ms, topic)

    def _mutated(self) -> bytes | None:
        """Of anything, or of what was just written: that fits the group as it is."""
        rnd = self._rnd
        if rnd.random() < 0.01:
            return None
        if not self._said or rnd.random() < 0.2:
            return self._mutate()
        if rnd.random() < 0.1:
            return Mutator(rnd, self._said, is_json=True).draw()
        return crossed(rnd, rnd.choice(self._said), rnd.choice(self._said))

    def _some_topic(self) -> str:
        return COMMITS if self._rnd.random() < 0.05 else REQUESTS


def fold(seed: int, count: int) -> Folded:
    """Streams until `count` records are judged."""
    outcome = Folded()
    while outcome.records < count:
        outcome.add(_stream(seed))
        seed += 1
    return outcome


def _stream(seed: int) -> Folded:
    rnd = Random(seed)
    settings = driving.settings(
        initial_rebalance_delay_ms=rnd.choice((0, 3_000)),
        requires_member_id=rnd.random() < 0.3,
        max_size=rnd.choice((3, 1_000)),
        groups_per_shard_max=rnd.choice((3, 1_000)),
        offsets_retention_ms=rnd.choice((60_000, 7 * 24 * 3_600_000)),
        offsets_per_group_max=rnd.choice((4, 100_000)),
        offsets_bytes_per_group_max=rnd.choice((300, 16_777_216)),
        bytes_max=rnd.choice((9_000, 67_108_864)),
    )
    talk = HostileConversation(settings, rnd)
    return judged(
        seed, talk, lambda: draw_log(seed, STREAM_LENGTH, settings, positions=True, talk=talk)
    )


def judged(seed: int, talk: Conversation, run: Callable[[], object]) -> Folded:
    """Run a stream to the end of its last batch; what came of it."""
    outcome = Folded()
    try:
        run()
        talk.end_batch()
    except Exception as problem:  # noqa: BLE001  that is what is looked for
        outcome.failures.append((seed, repr(problem)[:300]))
    outcome.records = len(talk.log)
    quarantined = _quarantines(talk)
    outcome.quarantined = len(quarantined)
    outcome.failures += [(seed, each) for each in quarantined[:1]]
    return outcome


def _quarantines(talk: Conversation) -> list[str]:
    events = [_decode_event(o.value) for o in talk.outputs if o.topic == EVENTS and o.value]
    return [
        f"{event.group} at {event.cause}: {event.detail}"
        for event in events
        if event.type == stored.EVENT_GROUP_QUARANTINED
    ]
