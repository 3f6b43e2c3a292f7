"""Loops over batches that are driven over the real core; Spark and its tables are played."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.events import TopicPartition
from coordlib.client.spark import batches, delta_writes, group_offsets
from coordlib.client.spark.batch import Batch
from coordlib.client.spark.batches import GroupLoop
from coordlib.client.spark.group_offsets import batch_options
from coordlib.kafka import bounds
from coordlib.kafka.logs import Bounds, Place
from tests.client.groups.assigned.world import AssignedWorld
from tests.client.spark.test_writes import Doing, Lake, committed_in, wait_for
from tests.client.spark.world import FakeRead

CONFIG: dict[str, Any] = {
    "bootstrap.servers": "nowhere:1",
    "session.timeout.ms": 8_000,
    "max.poll.interval.ms": 12_000,
    "heartbeat.interval.ms": 2_000,
}


class FakeSession:
    @property
    def read(self) -> FakeRead:
        return FakeRead()


class LoopWorld(AssignedWorld):
    """Members of one server-assigned group, loops among them; nobody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({"t": 4})
        self.lake = Lake()
        self.loops: list[GroupLoop] = []
        self.looks: list[Callable[[], None]] = []
        clock = SimpleNamespace(monotonic=lambda: self.log.now_ms / 1000)
        for module in (batches, group_offsets):
            monkeypatch.setattr(module, "time", clock)
        for module in (batches, delta_writes):
            monkeypatch.setattr(module, "SparkTable", self.lake.open)
        #: Where the logs of partitions begin and end; those that are not here are nowhere.
        self.bounds = {each: Bounds(0, 10) for each in range(4)}
        #: How many more looks at them get no answer.
        self.looks_to_fail = 0
        monkeypatch.setattr(group_offsets, "open_admin", lambda config: config)
        monkeypatch.setattr(bounds, "log_bounds", self._log_bounds)
        monkeypatch.setattr(batches, "_LEAVE_S", 0.0)  # the log moves only when it is pumped

    def _log_bounds(
        self, _admin: Any, places: list[Place], _timeout_s: float, **_: object
    ) -> dict[Place, Bounds | None]:
        if self.looks_to_fail > 0:
            self.looks_to_fail -= 1
            raise TimeoutError("nobody answers")
        return {each: self.bounds.get(each.partition) for each in places}

    def loop(
        self,
        client: str = "spark",
        *,
        max_records: int | None = None,
        transport: Any = None,
        kafka: dict[str, str] | None = None,
        **config: Any,
    ) -> GroupLoop:
        """A loop joins and is given its partitions."""
        given = {"auto.offset.reset": "earliest", **CONFIG, "client.id": client, **config}
        settings = read_settings(given | {"group.id": "orders", "group.protocol": "assigned"})
        source = batch_options(settings.common, kafka or {})
        spark: Any = FakeSession()
        made = GroupLoop(spark, settings, source, max_records, transport or self.log.transport())
        made.wait = self._wait  # type: ignore[method-assign]
        made.member.commit_checker.spawn = self.looks.append
        self.loops.append(made)
        made.join(["t"])
        self.run(3_000)
        return made

    def _wait(self, for_s: float = 0.1) -> None:
        """The member's thread waits for the program's."""
        self.log.now_ms += round(for_s * 1000)
        self.while_waiting()

    #: What the program does while the member's thread waits for its batch.
    while_waiting: Callable[[], None] = staticmethod(lambda: None)

    def poll_all(self) -> None:
        super().poll_all()
        for loop in self.loops:
            if not loop._stopping.is_set():
                loop.turn(0)
        looks = list(self.looks)
        self.looks.clear()
        for look in looks:
            look()

    def end(self, loop: GroupLoop) -> None:
        self.loops.remove(loop)
        loop.end()
        self.log.pump()

    def take(self, loop: GroupLoop) -> Batch:
        """The next batch, which must be there."""
        batch = loop.take()
        assert batch is not None
        return batch

    def write(self, batch: Batch, rows: Any, replaces: str = "") -> Exception | None:
        """`write_once` in the program's thread, while all others go on; what it raised."""
        doing = self.begin_write(batch, rows, replaces)
        wait_for(self.log, doing)
        return doing.problem

    def begin_write(self, batch: Batch, rows: Any, replaces: str = "") -> Doing:
        doing = Doing(lambda: batch.write_once(rows, "lake", replaces=replaces))
        doing.start()
        return doing

    @property
    def committed_now(self) -> dict[int, int]:
        """What the group has committed, partition -> offset."""
        return committed_in(self.log)

    def committed(self, client: str) -> list[dict[int, int]]:
        """Partition to offset, of each record of one client that commits."""
        rows = [getattr(each, "offsets", None) for each in self.requests if each.client == client]
        return [{row.partition: row.offset for row in some} for some in rows if some]


def begins(batch: Batch) -> dict[int, int]:
    """Partition -> the first offset, as Spark is to read it."""
    given: Any = batch.rows
    found = json.loads(given.given["startingOffsets"])["t"]
    assert {int(number) for number in found} == {each.partition for each in batch.ranges}
    return {int(number): offset for number, offset in found.items()}


def ends(batch: Batch) -> dict[int, int]:
    """Partition -> behind the last offset, as Spark is to read it."""
    given: Any = batch.rows
    found = json.loads(given.given["endingOffsets"])["t"]
    return {int(number): offset for number, offset in found.items()}


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)
