"""The one pure fold of claims: every client and the engine run it, and come to the same conclusion.

    world = World("__marshal", partition=3, partitions=50)
    for record in log:
        judgement = world.judge(record)

Nothing goes in but the log's records: offset, the broker's stamp, bytes. No reader's clock and no
setting reaches a judgement, so two readers that began alike agree at every offset.  # INV-45
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from coordlib.core.claims import (
    claiming_messages,
    claiming_partition,
    heartbeat,
    release_group,
    releasing_partition,
)
from coordlib.core.claims.slot import Judgement, Key, Slot, Verdict
from coordlib.core.claims.slots import UNTRUSTED_TIME_MS, Slots
from coordlib.core.claims.snapshot import read_into, written
from coordlib.core.wire import marshal
from coordlib.core.wire.marshal import Fault, Rejected, ReleaseGroup, sender_of

__all__ = ["UNTRUSTED_TIME_MS", "Judgement", "Key", "Record", "Slot", "Verdict", "World"]


class Record(Protocol):
    """As much of a record of the coordination partition as is judged."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int:
        """The broker's append time; UNTRUSTED_TIME_MS when a client has set the time."""

    @property
    def value(self) -> bytes | None: ...


#: Of messages about a slot. A look-up tells them from the others, too: this runs for every record.
_RULES: Final[dict[type[Any], Callable[..., Judgement]]] = {
    marshal.Heartbeat: heartbeat.judge,
    marshal.ClaimingPartition: claiming_partition.judge,
    marshal.ReleasingPartition: releasing_partition.judge,
    marshal.ClaimingMessages: claiming_messages.judge,
}


class World(Slots):
    """One coordination partition, as all of its readers see it. Arguments: see `Slots`."""

    def judge(self, record: Record) -> Judgement:
        """Apply the next record; one that was judged before does nothing."""
        if record.offset <= self.offset:
            return Judgement(record.offset, Verdict.REPEATED)
        self.advance(record.offset, record.timestamp_ms)
        return self.decide(record.value)

    def decide(self, value: bytes | None) -> Judgement:
        """Judge the value of the record that `advance` has moved to."""
        message: Any = marshal.read(value)
        rule = _RULES.get(type(message))
        if rule is None:
            return self._decide_other(message)
        key = (message.group, message.topic, message.partition)
        slot = self.slots.get(key)
        # A slot that is here belongs here: only for others the topic's hash is asked.
        if slot is None and not self.is_mine(message.topic):
            error = Fault.MISPLACED.value
            return Judgement(self.offset, Verdict.REJECTED, message, key, error=error)
        return rule(self, message, key, slot, sender_of(message, self.offset))

    def _decide_other(self, message: ReleaseGroup | Rejected) -> Judgement:
        """What is about no slot."""
        if isinstance(message, Rejected):
            return Judgement(self.offset, Verdict.REJECTED, error=message.error.value)
        return release_group.judge(self, message)

    def snapshot(self) -> bytes:
        """All that the log so far has led to, in one form: equal worlds give equal bytes."""
        return written(self)

    @classmethod
    def restore(cls, snapshot: bytes, topic: str, partition: int, partitions: int) -> "World":
        """The world again; the next record to judge follows its `offset`.  # INV-65

        Raises UnreadableSnapshot: other code wrote it, or it belongs to another partition.
        """
        world = cls(topic, partition, partitions)
        read_into(world, snapshot)
        return world
