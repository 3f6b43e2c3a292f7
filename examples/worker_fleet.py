"""A fleet of workers with shards: each shard is led by one worker, and by another when it dies.

    python examples/worker_fleet.py localhost:9092 --worker 1 --folder worker-1
    python examples/worker_fleet.py localhost:9092 --worker 2 --folder worker-2
    python examples/worker_fleet.py localhost:9092 --worker 3 --folder worker-3

A worker is a broker of the cluster `fleet`. A shard is a partition of its topic `shards`, with a
replica on each worker. A leader works on its shards once a second. Kill one with `kill -9`, and the
others lead its shards when its session has expired; end one with Ctrl-C, and others lead first.
There are no data here, so whoever is alive is in sync. `examples/store/` keeps data.
"""

import argparse
import signal
import threading
from pathlib import Path

from coordlib.client import BrokerAgent, BrokerFenced, Endpoint, Leadership, TopicPartition
from coordlib.client.admin import Admin
from coordlib.core.wire.api import NewTopic

CLUSTER = "fleet"
TOPIC = "shards"
POLL_S = 1.0


class Worker:
    """One process of the fleet."""

    def __init__(self, servers: str, number: int, folder: Path) -> None:
        self._led: dict[TopicPartition, Leadership] = {}
        self.agent = BrokerAgent(
            CLUSTER,
            config={"bootstrap.servers": servers},
            broker=number,
            folder=folder,
            endpoints=[Endpoint("work", "127.0.0.1", 7000 + number)],  # nobody calls it here
            on_leader=self._lead,
            on_resign=self._resign,
            on_fenced=self._fenced,
            on_unfenced=lambda: print("takes part", flush=True),
        )

    def work(self) -> None:
        """One round over the shards that this worker leads."""
        for (topic, shard), led in self._led.items():
            # False as soon as another worker may have been elected, also while no callback comes.
            if self.agent.may_lead(topic, shard, led.epoch):
                # A system that refuses smaller fences refuses a worker that was replaced.
                print(f"works on shard {shard} with fence {led.fence}", flush=True)

    def admit(self) -> None:
        """Have all workers that are alive in sync: one of them leads when this one dies."""
        try:
            known = self.agent.metadata()
        except BrokerFenced:
            return
        alive = {
            number: broker.incarnation
            for number, broker in known.brokers.items()
            if broker.current_state == "Active"
        }
        for place, led in self._led.items():
            row = known.partitions.get(place)
            if row is None or not self.agent.may_lead(*place, led.epoch):
                continue
            wanted = {each: alive[each] for each in row.replicas if each in alive}
            if row.recovering or wanted.keys() != set(row.isr):
                self.agent.alter_isr(*place, {} if row.recovering else wanted, row.recovering)

    def _lead(self, leadership: Leadership) -> None:
        self._led[TopicPartition(leadership.topic, leadership.partition)] = leadership
        print(f"leads shard {leadership.partition} in epoch {leadership.epoch}", flush=True)

    def _resign(self, places: tuple[TopicPartition, ...]) -> None:
        for place in places:
            if self._led.pop(place, None) is not None:
                print(f"resigned from shard {place.partition}", flush=True)

    def _fenced(self, reason: str) -> None:
        """All leaderships are over; those that go on are told again."""
        self._led.clear()
        print(f"is fenced: {reason}", flush=True)


def make_shards(servers: str, count: int, workers: int) -> str:
    """Make the topic unless it is there; NONE, or the error."""
    with Admin({"bootstrap.servers": servers}) as admin:
        topic = NewTopic(topic=TOPIC, partitions=count, replication_factor=workers)
        (made,) = admin.create_topics(CLUSTER, [topic])
        return str(made.error)


def main() -> None:
    """Work until SIGTERM or Ctrl-C, then let others lead."""
    parser = argparse.ArgumentParser(description="A worker of a fleet.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of the coordinator")
    parser.add_argument("--worker", type=int, required=True, help="its number")
    parser.add_argument("--folder", type=Path, required=True, help="a folder of this worker")
    parser.add_argument("--workers", type=int, default=3, help="how many there are")
    parser.add_argument("--shards", type=int, default=6, help="how many there are")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    worker = Worker(given.bootstrap_servers, given.worker, given.folder)
    has_shards = False
    with worker.agent as agent:
        agent.ready()
        while not stop.is_set() and agent.poll(POLL_S):
            if not has_shards and given.worker == 1:  # one of them is enough
                error = make_shards(given.bootstrap_servers, given.shards, given.workers)
                has_shards = error in ("NONE", "TOPIC_ALREADY_EXISTS")
                print(f"shards: {error}", flush=True)  # refused while too few workers are alive
            worker.admit()
            worker.work()
    print("left the fleet", flush=True)


if __name__ == "__main__":
    main()
