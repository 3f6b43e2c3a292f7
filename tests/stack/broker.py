"""One broker of a cluster in a process of its own: leads, follows, and writes down what happens.

    python -m tests.stack.broker --config '{…}' --cluster shop --broker 1 --witness FILE

Every line of the witness is a JSON object with `what` and `at_ns`, the time since the machine's
boot, the same for all processes. It is handed to the operating system before anything else is
done, so a SIGKILL takes nothing away:

    registered                                   the agent is there
    leader     topic partition epoch fence       told on_leader
    follower   topic partition epoch leader      told on_follower
    resign     partitions                        told on_resign
    stop       topic partition delete            told on_stop
    fenced     reason                            told on_fenced
    unfenced                                     told on_unfenced
    waiting    topic partition epoch             a put waits to be acknowledged (with --put)
    ack        topic partition epoch             acknowledged it; `at_ns` is before may_lead
    refused    topic partition epoch             did not: it leads no more
    replaced                                     a newer process has the id; ends with 1
    closed     took_s                            left in order; ends with 0

A thread acknowledges puts for all that is led, all the time; while the file of --put is there each
put waits first. Ends on SIGTERM, or when whoever started it is gone.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from functools import partial
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
from tests.stack.deaf import deaf_transport

ACK_EVERY_S = 0.02
TIMING = BrokerTiming(
    session_timeout_ms=6_000, release_timeout_ms=12_000, heartbeat_interval_ms=1_000
)
Place = tuple[str, int]


class Program:
    """Lead and follow until told to stop."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._witness = given.witness.open("a", buffering=1)  # by the line
        self._lock = threading.Lock()
        self._parent, self._over = os.getppid(), threading.Event()
        self._leads: dict[Place, int] = {}

    def run(self) -> int:
        opened = partial(deaf_transport, self._given.deaf) if self._given.deaf else KafkaTransport
        transport = opened(self._given.config, client=f"broker-{self._given.broker}")
        try:
            return self._live(transport)
        finally:
            transport.close()

    def _live(self, transport: KafkaTransport) -> int:
        given = self._given
        agent = BrokerAgent(
            given.cluster,
            broker=given.broker,
            endpoints=[Endpoint("in", "localhost", 9300 + given.broker)],
            folder=given.folder,
            transport=transport,
            timing=TIMING,
            on_leader=self._leader,
            on_follower=self._follower,
            on_resign=self._resign,
            on_stop=self._stop,
            on_fenced=self._fenced,
            on_unfenced=lambda: self._tell("unfenced"),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._over.set())
        acknowledging = threading.Thread(target=self._acknowledge, args=(agent,), daemon=True)
        acknowledging.start()
        try:
            with agent:
                agent.ready()
                self._tell("registered")
                while agent.poll(0.2) and not self._is_over:
                    pass
                begun_s = time.monotonic()
            self._tell("closed", took_s=time.monotonic() - begun_s)
        except BrokerReplaced:
            self._tell("replaced")
            return 1
        return 0

    @property
    def _is_over(self) -> bool:
        return self._over.is_set() or os.getppid() != self._parent

    def _acknowledge(self, agent: BrokerAgent) -> None:
        while True:
            time.sleep(ACK_EVERY_S)
            with self._lock:
                led = list(self._leads.items())
            for place, epoch in led:
                self._put(agent, place, epoch)

    def _put(self, agent: BrokerAgent, place: Place, epoch: int) -> None:
        named = {"topic": place[0], "partition": place[1], "epoch": epoch}
        put = self._given.put
        if put is not None and put.exists():
            self._tell("waiting", **named)
            while put.exists():
                time.sleep(ACK_EVERY_S)
        at_ns = boottime_ns()
        what = "ack" if agent.may_lead(*place, epoch) else "refused"
        self._tell(what, at_ns=at_ns, **named)

    # ---- told -----------------------------------------------------------------------------------

    def _leader(self, given: Leadership) -> None:
        place = {"topic": given.topic, "partition": given.partition}
        self._tell("leader", **place, epoch=given.epoch, fence=given.fence)
        with self._lock:
            self._leads[given.topic, given.partition] = given.epoch

    def _follower(self, told: Following) -> None:
        self._let_go([(told.topic, told.partition)])
        place = {"topic": told.topic, "partition": told.partition}
        self._tell("follower", **place, epoch=told.epoch, leader=told.leader)

    def _resign(self, some: Any) -> None:
        self._let_go([tuple(each) for each in some])
        self._tell("resign", partitions=[tuple(each) for each in some])

    def _stop(self, topic: str, partition: int, delete: bool) -> None:
        self._let_go([(topic, partition)])
        self._tell("stop", topic=topic, partition=partition, delete=delete)

    def _fenced(self, reason: str) -> None:
        with self._lock:
            self._leads.clear()
        self._tell("fenced", reason=reason)

    def _let_go(self, some: list[Any]) -> None:
        with self._lock:
            for place in some:
                self._leads.pop(place, None)

    def _tell(self, what: str, **fields: Any) -> None:
        line = {"what": what, "at_ns": boottime_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="of Kafka's clients")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--broker", type=int, required=True)
    parser.add_argument("--witness", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="of its data")
    parser.add_argument("--put", type=Path, help="each put waits while this file is there")
    parser.add_argument("--deaf", type=Path, help="hear no response while this file is there")
    return Program(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
