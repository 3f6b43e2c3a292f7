"""One broker of a cluster in a process of its own: leads, follows, and writes down what happens.

Its `config` is of Kafka's clients, `data` the folder of its data. It reads no response while its
switch `deaf` is on. Its witness (`tests.kit.program`) has these lines:

    registered                                   the agent is there
    leader     topic partition epoch fence       told on_leader
    follower   topic partition epoch leader      told on_follower
    resign     partitions                        told on_resign
    stop       topic partition delete            told on_stop
    fenced     reason                            told on_fenced
    unfenced                                     told on_unfenced
    waiting    topic partition epoch             a put waits to be acknowledged, while `put` is on
    ack        topic partition epoch             acknowledged it; `at_ns` is before may_lead
    refused    topic partition epoch             did not: it leads no more
    replaced                                     a newer process has the id; ends with 1
    closed     took_s                            left in order; ends with 0

A thread acknowledges puts for all that is led, all the time; while `put` is on each waits first.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Any

from coordlib.client import (
    BrokerAgent,
    BrokerReplaced,
    BrokerTiming,
    Endpoint,
    Following,
    KafkaTransport,
    Leadership,
)
from coordlib.client.kit.process import boottime_ns
from tests.kit.processes import Place
from tests.kit.program import Program
from tests.stack.deaf import deaf_transport

ACK_EVERY_S = 0.02
TIMING = BrokerTiming(
    session_timeout_ms=6_000, release_timeout_ms=12_000, heartbeat_interval_ms=1_000
)


class Broker(Program):
    """Leads and follows until it is asked to end."""

    def __init__(self, name: str, folder: Path, given: dict[str, Any]) -> None:
        super().__init__(name, folder, given)
        self._lock = threading.Lock()
        self._leads: dict[Place, int] = {}

    def run(self) -> int:
        transport = deaf_transport(
            self.switch("deaf"), self.given["config"], client=f"broker-{self.given['broker']}"
        )
        try:
            return self._live(transport)
        finally:
            transport.close()

    def _live(self, transport: KafkaTransport) -> int:
        number: int = self.given["broker"]
        agent = BrokerAgent(
            self.given["cluster"],
            broker=number,
            endpoints=[Endpoint("in", "localhost", 9300 + number)],
            folder=Path(self.given["data"]),
            transport=transport,
            timing=TIMING,
            on_leader=self._leader,
            on_follower=self._follower,
            on_resign=self._resign,
            on_stop=self._stop,
            on_fenced=self._fenced,
            on_unfenced=lambda: self.tell("unfenced"),
        )
        acknowledging = threading.Thread(target=self._acknowledge, args=(agent,), daemon=True)
        acknowledging.start()
        try:
            with agent:
                agent.ready()
                self.tell("registered")
                while agent.poll(0.2) and not self.is_over:
                    pass
                begun_s = time.monotonic()
            self.tell("closed", took_s=time.monotonic() - begun_s)
        except BrokerReplaced:
            self.tell("replaced")
            return 1
        return 0

    def _acknowledge(self, agent: BrokerAgent) -> None:
        while True:
            time.sleep(ACK_EVERY_S)
            with self._lock:
                led = list(self._leads.items())
            for place, epoch in led:
                self._put(agent, place, epoch)

    def _put(self, agent: BrokerAgent, place: Place, epoch: int) -> None:
        named = {"topic": place[0], "partition": place[1], "epoch": epoch}
        self.wait_while_on("put", "waiting", **named)
        at_ns = boottime_ns()
        what = "ack" if agent.may_lead(*place, epoch) else "refused"
        self.tell(what, at_ns=at_ns, **named)

    # ---- told -----------------------------------------------------------------------------------

    def _leader(self, given: Leadership) -> None:
        place = {"topic": given.topic, "partition": given.partition}
        self.tell("leader", **place, epoch=given.epoch, fence=given.fence)
        with self._lock:
            self._leads[given.topic, given.partition] = given.epoch

    def _follower(self, told: Following) -> None:
        self._let_go([(told.topic, told.partition)])
        place = {"topic": told.topic, "partition": told.partition}
        self.tell("follower", **place, epoch=told.epoch, leader=told.leader)

    def _resign(self, some: Any) -> None:
        self._let_go([tuple(each) for each in some])
        self.tell("resign", partitions=[tuple(each) for each in some])

    def _stop(self, topic: str, partition: int, delete: bool) -> None:
        self._let_go([(topic, partition)])
        self.tell("stop", topic=topic, partition=partition, delete=delete)

    def _fenced(self, reason: str) -> None:
        with self._lock:
            self._leads.clear()
        self.tell("fenced", reason=reason)

    def _let_go(self, some: list[Any]) -> None:
        with self._lock:
            for place in some:
                self._leads.pop(place, None)


if __name__ == "__main__":
    sys.exit(Broker.main())
