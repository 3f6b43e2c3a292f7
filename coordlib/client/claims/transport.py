"""What consumers of claims need from outside, and what the outside needs of them.

A view is one coordination partition as a client reads it: the fold that all readers run (INV-61),
and how far the reading is. One lock guards the views and all handlers of a transport: a handler
asks its views while it takes an input, and the thread that reads feeds handlers while it holds the
views.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from coordlib.client.claims import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import NO_EPOCH, Judgement, Key, Slot, Verdict
from coordlib.core.claims.world import Record, World
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.kafka.logs import Bounds

#: For so many intervals of its log a late reader gives up what somebody else says to have.
UNCERTAIN_INTERVALS: Final = 8
_ACCEPTED: Final = frozenset(
    {
        Verdict.WON,
        Verdict.SIGN,
        Verdict.RECLAIMED,
        Verdict.TAKEN_OVER,
        Verdict.LEARNT,
        Verdict.RELEASED,
        Verdict.PROPOSED,
    }
)


class LogView:
    """The reading of one coordination partition."""

    def __init__(self, world: World, now_ms: int) -> None:
        self.world = world
        #: Next offset to read.
        self.position = world.offset + 1
        #: Group -> topic -> partition -> key of the slot: what consumers look up again and again.
        self._keys: dict[tuple[str, str], dict[int, Key]] = {}
        for key in world.slots:
            self._note(key)
        self._read_ms: int | None = None
        self._heard_ms = now_ms

    # ---- reading ------------------------------------------------------------------------------

    def judge(self, record: Record, now_ms: int) -> Judgement:
        """Take the next record."""
        judgement = self.world.judge(record)
        self.position = max(self.position, record.offset + 1)
        self._heard_ms = now_ms
        if judgement.after is not None and judgement.before is None and judgement.key is not None:
            self._note(judgement.key)
        if judgement.dropped is not None:
            self._forget(judgement.dropped)
        return judgement

    def read_to_end(self, asked_ms: int) -> None:
        """All was read that stood in the log when its end was asked for."""
        self._read_ms = asked_ms if self._read_ms is None else max(self._read_ms, asked_ms)

    def _note(self, key: Key) -> None:
        self._keys.setdefault(key[:2], {})[key[2]] = key

    def _forget(self, key: Key) -> None:
        keys = self._keys[key[:2]]
        del keys[key[2]]
        if not keys:  # names of groups come and go, as those of test runs
            del self._keys[key[:2]]

    # ---- what consumers ask -------------------------------------------------------------------

    @property
    def read_ms(self) -> int | None:
        return self._read_ms

    @property
    def heard_ms(self) -> int:
        return self._heard_ms

    @property
    def may_act(self) -> bool:
        return self._read_ms is not None and self.world.is_settled

    def slot(self, group: str, place: TopicPartition) -> sg.SlotSeen | None:
        slot = self.world.slots.get((group, *place))
        return None if slot is None else self._seen(slot)

    def slots(self, group: str, topic: str) -> Mapping[int, sg.SlotSeen]:
        nothing: Mapping[int, Key] = MappingProxyType({})
        keys = self._keys.get((group, topic), nothing)
        return {number: self._seen(self.world.slots[key]) for number, key in keys.items()}

    def paused_by(self, group: str) -> str | None:
        return self.world.paused_by(group)

    def _seen(self, slot: Slot) -> sg.SlotSeen:
        return sg.SlotSeen(
            client=slot.client,
            instance=slot.instance[:8],
            epoch=slot.epoch,
            position=slot.position,
            is_live=self.world.is_live(slot),
            is_released=slot.is_released,
            topic_id=slot.topic_id,
        )

    def signal(self, judgement: Judgement, client: str, instance: str, now_ms: int) -> sg.Judged:
        """A record about a slot, as the consumers of one process take it."""
        message, key = judgement.message, judgement.key
        assert message is not None
        assert key is not None
        sender = claims.sender_of(message, judgement.offset)
        is_own = sender is not None and (message.client, sender.process) == (client, instance)
        is_sign = isinstance(message, claims.Heartbeat)
        is_bare = sender is not None and sender.epoch == claims.BARE
        before, after = judgement.before, judgement.after
        position = after.position if after is not None else None
        is_saved = is_bare and before is not None and before.epoch == NO_EPOCH
        return sg.Judged(
            now_ms,
            TopicPartition(key[1], key[2]),
            judgement.offset,
            is_own=is_own,
            is_accepted=judgement.verdict in _ACCEPTED,
            is_freed=judgement.verdict is Verdict.RELEASED,
            position=None if is_saved else position,
            saved_position=position if is_saved else None,
            topic_id=after.topic_id if after is not None else "",
            is_attempt=is_bare and (is_sign or isinstance(message, claims.ClaimingPartition)),
            is_uncertain=is_sign and not is_own and not is_bare and self._is_young,
        )

    @property
    def _is_young(self) -> bool:
        world = self.world
        return world.is_late and world.clock_ms < UNCERTAIN_INTERVALS * world.interval_ms


@dataclass(frozen=True, slots=True)
class Coordination:
    """The coordination topic, as it was found at the start; it may not change (section 5)."""

    topic: str
    #: N.
    partitions: int
    #: Kafka's. Epochs compare within one topic id.
    topic_id: str
    #: HI, by the topic's name.
    interval_ms: int


class Described(NamedTuple):
    """A topic whose partitions are claimed, as brokers describe it."""

    partitions: int
    #: Kafka's; empty: these brokers give none.
    topic_id: str


class Handler(Protocol):
    """A consumer, or an admin's work, as the transport sees it. Called with the lock held."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics whose coordination partitions are read for it."""

    def feed(self, event: sg.Input) -> None:
        """Take what happened; quick, from any thread."""

    def judged(self, view: LogView, judgement: Judgement) -> None:
        """A record was judged; the view shows what follows."""

    def wake_ms(self) -> int | None:
        """When its next timer is due; None: it has none."""

    def fail(self, problem: Exception) -> None:
        """It raised in a thread of the transport, or the coordination topic has changed."""


class Transport(Protocol):
    """The services that consumers need. Times are of CLOCK_BOOTTIME, in ms."""

    @property
    def place(self) -> Coordination: ...

    @property
    def lock(self) -> threading.RLock:
        """Guards views and handlers."""

    def now_ms(self) -> int: ...

    def new_instance(self) -> str:
        """8 lower-case hexadecimal digits that no other process has."""

    def rng(self) -> Random:
        """For jitter: every consumer has its own."""

    def view_of(self, topic: str) -> LogView:
        """The coordination partition of a topic. Read since a handler with this topic came."""

    def attach(self, handler: Handler) -> None:
        """Read its topics' coordination partitions and deliver to it from now on. May block.

        Raises CannotReach, NotAllowed.
        """

    def keep(self, handler: Handler) -> None:
        """Go on with one that its program is done with, until it is detached.

        Others are no more delivered to once their programs have dropped them.
        """

    def detach(self, handler: Handler) -> None: ...

    def send(
        self, handler: Handler, id_: int, partition: int, made: Callable[[int], AnyMessage]
    ) -> None:
        """Write a message; its outcome is fed to the handler later. Never blocks or raises.

        Args:
            partition: of the coordination topic.
            made: makes the message from the time of day in seconds.
        """

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        """Do something for this handler that may block, without the lock."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was sent is acknowledged or given up; whether it is."""

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        """Those of the topics that exist. Raises CannotReach, NotAllowed."""

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Where the logs of these partitions begin and end; without those that do not answer.

        Raises CannotReach, NotAllowed. May block.
        """

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Kafka's committed offsets of a group, where there are any.

        Raises CannotReach, NotAllowed.
        """

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        """Commit to Kafka's group of this name.

        Awaited: raises CannotReach or NotAllowed unless Kafka has them. Else best effort, and never
        blocks.
        """

    def check(self) -> None:
        """Raises CannotReach when the transport itself has failed; NotAllowed."""

    def close(self) -> None: ...
