"""One coordination partition as a client reads it: the fold that all readers run (INV-61), and how
far the reading is. Whoever calls it holds the transport's lock."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from coordlib.client.claims import signals as sg
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.claims.slot import NO_EPOCH, Judgement, Key, Slot, Verdict
from coordlib.core.claims.world import Record, World
from coordlib.core.wire import marshal

#: For so many intervals of its log a late reader gives up what somebody else says to have.
DOUBT_INTERVALS: Final = 8
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
        sender = marshal.sender_of(message, judgement.offset)
        is_own = sender is not None and (message.client, sender.process) == (client, instance)
        is_sign = isinstance(message, marshal.Heartbeat)
        is_bare = sender is not None and sender.epoch == marshal.BARE
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
            is_attempt=is_bare and (is_sign or isinstance(message, marshal.ClaimingPartition)),
            is_doubt=is_sign and not is_own and not is_bare and self._is_young,
        )

    @property
    def _is_young(self) -> bool:
        world = self.world
        return world.is_late and world.clock_ms < DOUBT_INTERVALS * world.interval_ms
