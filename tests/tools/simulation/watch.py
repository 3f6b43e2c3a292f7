"""The driver's watch of the cluster's topics: the real planner, over simulated brokers.

Its clock is faster than the world's, so that everything is said again as often in two minutes as it
is in two hours: what an older driver has written late is overruled within SAY_AGAIN_MS.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from confluent_kafka import KafkaException

from coordlib.core.wire.api import TopicMetadata
from coordlib.core.wire.topics import is_users, own_topics
from coordlib.job.background import topic_watch
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.driver_io import SimulatedControl
from tests.tools.simulation.scheduler import Process

FIRST_LOOKS_MS: Final = 500
LOOKS_MS: Final = 1_500
SAY_AGAIN_MS: Final = 15_000
#: By when everything is said, whatever was lost or came late; two looks are needed for it.
KNOWN_MS: Final = SAY_AGAIN_MS + 3 * LOOKS_MS


class SimulatedWatch:
    """`TopicWatch` with its thread and its `KafkaCluster`."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        prefix: str,
        shards: Sequence[int],
        control: SimulatedControl,
        luck: Random,
    ) -> None:
        self._process, self._cluster, self._luck = process, cluster, luck
        self._prefix, self._shards, self._control = prefix, shards, control
        self._own = own_topics(prefix)
        self._planner = topic_watch.Planner()
        self._is_lost = False
        self._wait_ms = FIRST_LOOKS_MS

    def start(self) -> None:
        self._turn()

    def _turn(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._planner.unsaid()
        now_s = self._process.scheduler.now_ms / SAY_AGAIN_MS * topic_watch.SAY_AGAIN_S
        try:
            for record in self._planner.look(self._look(), now_s):
                self._write(record)
        except KafkaException:
            self._is_lost = True
        self._process.after(self._wait_ms, self._turn)
        self._wait_ms = LOOKS_MS

    def _look(self) -> dict[str, int | None]:
        seen: dict[str, int | None] = {}
        for topic, count in self._cluster.listing().items():
            dice = self._luck.random()
            errs = self._cluster.listing_errs
            if not is_users(topic, self._own) or dice < errs / 2:
                continue
            seen[topic] = None if dice < errs else count
        return seen | self._cluster.elsewhere

    def _write(self, record: TopicMetadata) -> None:
        for shard in self._shards:
            self._control.write(shard, record, self._note)

    def _note(self, is_taken: bool) -> None:
        self._is_lost = self._is_lost or not is_taken
