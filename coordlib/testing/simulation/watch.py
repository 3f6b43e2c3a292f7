"""The driver's watch of the cluster's topics: the real planner, over simulated brokers.

Its clock is faster than the world's, so that everything is said again as often in two minutes as it
is in two hours: what an older driver has written late is overruled within SAY_AGAIN_MS.
"""

from random import Random
from typing import Final

from confluent_kafka import KafkaException

from coordlib.records import codec
from coordlib.records.requests import TopicMetadata
from coordlib.streaming import topic_watch
from coordlib.testing.simulation.cluster import Cluster
from coordlib.testing.simulation.scheduler import Channel, Process

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
        shards: int,
        channel: Channel,
        luck: Random,
    ) -> None:
        self._process, self._cluster, self._luck = process, cluster, luck
        self._prefix, self._shards, self._channel = prefix, shards, channel
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
            if topic.startswith(f"{self._prefix}.") or dice < errs / 2:
                continue
            seen[topic] = None if dice < errs else count
        return seen | self._cluster.elsewhere

    def _write(self, record: TopicMetadata) -> None:
        value = codec.encode(record)

        def arrive() -> None:
            if not self._cluster.is_up:
                self._is_lost = True
                return
            for shard in range(self._shards):
                self._cluster.append((f"{self._prefix}.requests", shard), None, value)

        self._channel.send(arrive)
