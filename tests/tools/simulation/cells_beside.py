"""What drivers of cells have beside their batches, and copiers whose transactions cross cells.

The feeder and the reading of outboxes are the real ones, without their threads.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from coordlib.core.engine.effects import OUTBOX, Output
from coordlib.core.engine.state import Status
from coordlib.core.wire.envelope import shard_of
from coordlib.job.background.feeder import Feeder, Pair, tell, waiting_in
from tests.tools.simulation.driver_io import Beside

if TYPE_CHECKING:
    from tests.tools.simulation.cluster import Cluster
    from tests.tools.simulation.engine import Driver

TURN_MS: Final = 100
#: A copier that hears nothing for so long begins anew, under another epoch.
PATIENCE_MS: Final = 15_000


class CellsBeside(Beside):
    """One driver's feeder, and the outboxes of the shards of others."""

    def __init__(self, driver: "Driver", others: Iterable[int]) -> None:
        self._driver, self._owned = driver, driver.pipeline.shards(driver.engine.layout.shards)
        self._cluster, self._topic = driver.engine.cluster, f"{driver.engine.prefix}.{OUTBOX}"
        read = self._cluster.newest_by_key
        self.waiting = waiting_in({shard: read(self._topic, shard) for shard in self._owned})
        clock = driver.engine.scheduler
        self._feeder = Feeder(
            self._feed, lambda: None, self.waiting, self._owned, lambda: clock.now_ms / 1_000
        )
        self._read = dict.fromkeys(others, 0)

    def start(self) -> None:
        self._turn()

    def batch_committed(self, outputs: Sequence[Output], statuses: Iterable[Status]) -> None:
        self._feeder.batch_committed(outputs)

    def message(self, pair: Pair, number: int, body: bytes) -> None:
        self._feeder.add(pair, number, body)

    def heard(self, source: int, shard: int, number: int) -> None:
        assert self._driver.ticks is not None
        self._driver.ticks.learn_heard(source, shard, number)

    def _turn(self) -> None:
        for shard, position in self._read.items():
            records, self._read[shard] = self._cluster.partitions[self._topic, shard].read(position)
            for each in records:
                tell(shard, each.key or b"", each.value, self._owned, self)
        self._feeder.turn()
        self._driver.again(TURN_MS, self._turn)

    def _feed(self, shard: int, record: Any, told: Callable[[str], None]) -> None:
        answer: Callable[[bool], None] = lambda is_taken: told("" if is_taken else "not taken")  # noqa: E731
        self._driver.control.write(shard, record, answer)


class Copier:
    """A transactional producer that commits offsets of groups in any shards, by hand."""

    def __init__(self, cluster: "Cluster", prefix: str, name: str, groups: int, seed: int) -> None:
        self._cluster, self._prefix, self._name, self._groups = cluster, prefix, name, groups
        self._luck = Random(f"copier {name} {seed}")
        self._shards = cluster.count(f"{prefix}.requests")
        self._read = dict.fromkeys(range(cluster.count(f"{prefix}.responses")), 0)
        self._asked, self._asked_ms, self._what = "", 0, ""
        self._who: dict[str, int] = {}
        self._left: list[str] = []
        self._accepted = 0
        self.committed = 0

    def step(self, is_to_begin: bool) -> None:
        """What follows from the answer, if it has come."""
        told: dict[str, Any] | None = self._answer() if self._asked else {"error": "NONE"}
        if told is None:
            if self._cluster.scheduler.now_ms - self._asked_ms > PATIENCE_MS:
                self._begin()
            return
        if told["error"] != "NONE":
            self._begin()
            return
        self._who |= {key: told[key] for key in ("producer_id", "epoch") if key in told}
        self._accepted += self._what == "TxnOffsetCommit"
        self.committed += self._what == "EndTxn"
        if self._left:
            row = {"topic": "t", "partition": 0, "offset": self._luck.randrange(1_000)}
            named = {"group": self._left.pop(), "number": self._accepted, "offsets": [row]}
            self._ask("TxnOffsetCommit", **named)
        elif self._accepted:
            accepted, self._accepted = self._accepted, 0
            self._ask("EndTxn", result="commit", accepted=accepted)
        elif not self._who:
            self._begin()
        elif is_to_begin:
            count = self._luck.randint(1, 4)
            picked = self._luck.sample(range(self._groups), count)
            self._left, self._what = [f"copied-{number}" for number in picked], ""
            self._asked = ""
        else:
            self._asked = ""
            self._what = ""

    def _begin(self) -> None:
        self._who, self._left, self._accepted = {}, [], 0
        self._ask("InitProducerId", timeout_ms=60_000)

    def _ask(self, type_: str, **fields: Any) -> None:
        self._asked = UUID(int=self._luck.getrandbits(128)).hex
        self._asked_ms, self._what = self._cluster.scheduler.now_ms, type_
        request = {"v": 1, "type": type_, "id": self._asked, "client": "copier", **fields}
        request |= {"transactional_id": self._name, **self._who}
        place = f"{self._prefix}.requests", shard_of(self._name, self._shards)
        self._cluster.append(place, self._name.encode(), json.dumps(request).encode())

    def _answer(self) -> dict[str, Any] | None:
        found = None
        for number, position in self._read.items():
            log = self._cluster.partitions[f"{self._prefix}.responses", number]
            records, self._read[number] = log.read(position)
            for each in records:
                told = json.loads(each.value or b"{}")
                found = told if told.get("id") == self._asked else found
        return found
