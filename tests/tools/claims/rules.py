"""The rules of claims, read a second time: short, slow, and written apart from the World.

Of each slot only a dict; of time only the list of stamps. What the World says must follow from
this, too: a mistake would have to be made twice.
"""

import re
from typing import Any

from coordlib.core.claims.world import Slot, World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims

_OURS = re.compile(r"[0-9a-f]{8}(-(0|[1-9]\d{0,18})(?:\.([\w-]{22}))?)?", re.ASCII)
_DAY_MS = 86_400_000


class Rules:
    """One reader of one coordination partition.

    Args:
        interval_ms: HI.
        is_late: its first record is not the log's.
    """

    def __init__(
        self, interval_ms: int, partition: int, partitions: int, *, is_late: bool = False
    ) -> None:
        self.interval_ms, self.is_late = interval_ms, is_late
        self.partition, self.partitions = partition, partitions
        self.clock_ms = 0
        self.stamp_ms: int | None = None
        self.slots: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.pauses: dict[str, tuple[int, str]] = {}

    def read(self, record: InputRecord) -> None:
        """Judge a record."""
        if record.timestamp_ms != -1:
            if self.stamp_ms is not None:
                step_ms = max(0, record.timestamp_ms - self.stamp_ms)
                self.clock_ms += min(step_ms, self.interval_ms * 2 // 5)
            self.stamp_ms = record.timestamp_ms
        message: Any = claims.read(record.value)
        if isinstance(message, claims.Rejected):
            return
        if isinstance(message, claims.ReleaseGroup):
            self._pause(message)
            return
        if claims.partition_of(message.topic, self.partitions) != self.partition:
            return
        key = (message.group, message.topic, message.partition)
        found = _OURS.fullmatch(message.instance) if message.version == 2 else None
        epoch = int(found[2]) if found and found[2] else None
        if found and (epoch is None or epoch < record.offset):
            self._ours(type(message).__name__, message, key, epoch, record.offset)
        else:
            self._marshals(type(message).__name__, message, key, record.offset)

    def owner(self, key: tuple[str, str, int]) -> tuple[str, int] | None:
        """Client and epoch; None: nobody."""
        slot = self.slots.get(key)
        return (slot["client"], slot["epoch"]) if slot and self._lives(slot) else None

    def _lives(self, slot: dict[str, Any] | None) -> bool:
        if not slot or slot["released"]:
            return False
        return bool(self.clock_ms - slot["heard"] < 2 * self.interval_ms)

    def _pause(self, message: claims.ReleaseGroup) -> None:
        duration_ms = min(1_000 * (message.expire_s - message.time_s), 7 * _DAY_MS)
        if duration_ms > 0:
            self.pauses[message.group] = (self.clock_ms + duration_ms, message.client)
        elif self.pauses.get(message.group, (0, ""))[0] > self.clock_ms:
            del self.pauses[message.group]

    def _set(self, key: tuple[str, str, int], message: Any, epoch: int, **fields: Any) -> None:
        self.slots[key] = {
            "client": message.client,
            "instance": message.instance,
            "epoch": epoch,
            "heard": self.clock_ms,
            "released": False,
            "proposed": None,
            "tentative": False,
            "topic_id": "",
            **fields,
        }

    def _is_news(self, slot: dict[str, Any] | None) -> bool:
        """Of an unknown slot for 2 HI, of a tentative one for 4."""
        is_open = slot is not None and slot["tentative"] and self._lives(slot)
        intervals = 2 if slot is None else 4 if is_open else 0
        return self.is_late and self.clock_ms < intervals * self.interval_ms

    def _attempt(self, message: Any, key: tuple[str, str, int], offset: int) -> None:
        before = self.slots.get(key)
        position = before["position"] if before else None
        is_news = self._is_news(before)
        if is_news or not self._lives(before):
            topic_id = before["topic_id"] if before else ""
            fields = {"position": position, "tentative": is_news, "topic_id": topic_id}
            self._set(key, message, offset, **fields)

    def _marshals(self, what: str, message: Any, key: tuple[str, str, int], offset: int) -> None:
        slot = self.slots.get(key)
        lives = self._lives(slot)
        is_same = slot is not None and (slot["client"], slot["instance"]) == (
            message.client,
            message.instance,
        )
        if what == "ClaimingPartition":
            self._attempt(message, key, offset)
        elif what == "Heartbeat":
            epoch = slot["epoch"] if slot and is_same and lives else offset
            self._set(key, message, epoch, position=message.offset)
        elif what == "ReleasingPartition" and slot and is_same:
            self._set(key, message, slot["epoch"], position=message.offset, released=True)

    def _ours(
        self, what: str, message: Any, key: tuple[str, str, int], epoch: int | None, offset: int
    ) -> None:
        slot = self.slots.get(key)
        if what == "ClaimingPartition":
            until_ms, pauser = self.pauses.get(message.group, (0, message.client))
            is_paused = self.clock_ms < until_ms and pauser != message.client
            if not is_paused:
                self._attempt(message, key, offset)
        elif epoch is None:
            self._reclaim(what, message, key, offset)
        elif what == "ClaimingMessages":
            if slot and self._lives(slot) and self._is_owner(slot, message, epoch):
                self.slots[key] = {**slot, "proposed": message.offset}
        elif self._is_sign(slot, message, epoch):
            named = _OURS.fullmatch(message.instance)
            is_release, topic_id = what == "ReleasingPartition", named[3] or "" if named else ""
            fields = {"position": message.offset, "topic_id": topic_id}
            self._set(key, message, epoch, released=is_release, **fields)

    def _reclaim(self, what: str, message: Any, key: tuple[str, str, int], offset: int) -> None:
        slot = self.slots.get(key)
        if what != "Heartbeat":
            return
        kept = {"position": slot["position"] if slot else None}
        kept["topic_id"] = slot["topic_id"] if slot else ""
        if self._is_news(slot):
            self._set(key, message, offset, tentative=True, **kept)
        elif slot and self._lives(slot) and slot["client"] == message.client:
            self._set(key, message, offset, tentative=slot["tentative"], **kept)

    def _is_owner(self, slot: dict[str, Any], message: Any, epoch: int) -> bool:
        process = message.instance.split("-")[0]
        return bool(
            slot["epoch"] == epoch
            and slot["client"] == message.client
            and slot["instance"].startswith(process)
        )

    def _is_sign(self, slot: dict[str, Any] | None, message: Any, epoch: int) -> bool:
        if slot and not slot["released"] and self._is_owner(slot, message, epoch):
            return True
        if slot and slot["tentative"]:
            return True
        is_early = self.is_late and self.clock_ms < 4 * self.interval_ms
        return is_early and (slot is None or epoch > slot["epoch"])

    def difference(self, world: World) -> str | None:
        """How a world differs from this reading; None: it does not."""
        if (world.clock_ms, world.pauses) != (self.clock_ms, self.pauses):
            return f"INV-06: the clock is {world.clock_ms}, pauses {world.pauses}; not {vars(self)}"
        for key in sorted(world.slots.keys() | self.slots.keys()):
            slot, fields = world.slots.get(key), self.slots.get(key)
            if slot is None or fields is None or _fields(slot) != fields:
                return f"INV-45: {key} is {slot}, by the rules {fields}"
            owner = world.owner(key)
            if (owner and (owner.client, owner.epoch)) != self.owner(key):
                return f"INV-48: {key} is owned by {owner}, by the rules by {self.owner(key)}"
        return None


def _fields(slot: Slot) -> dict[str, Any]:
    return {
        "client": slot.client,
        "instance": slot.instance,
        "epoch": slot.epoch,
        "heard": slot.heard_ms,
        "released": slot.is_released,
        "proposed": slot.proposed,
        "tentative": slot.is_tentative,
        "position": slot.position,
        "topic_id": slot.topic_id,
    }
