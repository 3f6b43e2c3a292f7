"""A key-value store whose partitions have replicas. A `BrokerAgent` says who leads, who is in sync.

    python -m examples.store.server localhost:9092 1 127.0.0.1:7001 folder-1

Start it three times (broker, address, folder), and make a topic: `coord cluster create-topic`. Each
process is a broker of the cluster `store`. `client.py` has a client, `leader.py` what makes reads
and writes linearizable.

Not for production: logs are never compacted, and a power failure takes the end of a log.
"""

import argparse
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from coordlib import limits
from coordlib.client import (
    BrokerAgent,
    BrokerFenced,
    Endpoint,
    Following,
    Leadership,
    MetadataRefused,
    TopicPartition,
)
from coordlib.client.kit.events import Partitions
from coordlib.client.kit.process import boottime_ns
from coordlib.errors import CoordError
from examples.store.leader import LOOK_S, Leader, address_of
from examples.store.replica import Replica
from examples.store.wire import Address, Refused, Server

CLUSTER: Final = "store"


class Store:
    """One process of the store: a broker with its replicas, and a server for clients and leaders.

    Args:
        address: where it can be reached; port 0: any that is free.
        folder: of its logs; the agent's lock and storage lie there too.
        make_agent: the class of the agent; tests have one that needs no log.
        tell: called with what happened, when (nanoseconds since the machine's boot), and fields.
        options: of the agent, at least a config or a transport.
    """

    def __init__(
        self,
        broker: int,
        address: Address,
        folder: Path,
        make_agent: Callable[..., BrokerAgent] = BrokerAgent,
        tell: Callable[..., None] = lambda *_, **__: None,
        **options: Any,
    ) -> None:
        self._folder, self._tell = folder, tell
        self._replicas: dict[TopicPartition, Replica] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._server = Server(address, self.answer)
        self.address: Address = (address[0], self._server.server_address[1])
        try:
            self.agent = make_agent(
                CLUSTER,
                broker=broker,
                endpoints=[Endpoint("store", *self.address)],
                folder=folder,
                on_leader=self._lead,
                on_follower=self._follow,
                on_resign=self._resign,
                on_stop=self._stop,
                on_fenced=self._fenced,
                on_unfenced=lambda: tell("unfenced", boottime_ns()),
                **options,
            )
        except BaseException:
            self._server.server_close()
            raise
        threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), daemon=True).start()

    def poll(self, timeout_s: float = LOOK_S) -> bool:
        """Run the agent's callbacks, and look after in-sync replicas; returns whether to go on."""
        goes_on = self.agent.poll(timeout_s)
        for leader in list(self._leaders.values()):
            leader.tend()
        return goes_on

    def close(self) -> None:
        """Take no requests any more. The agent is closed before."""
        for place in list(self._leaders):
            self._end(place)
        self._server.shutdown()
        self._server.server_close()

    # ---- the agent's callbacks, in the thread that polls ----------------------------------------

    def _lead(self, leadership: Leadership) -> None:
        place = TopicPartition(leadership.topic, leadership.partition)
        replica = self._replica(place, leadership.topic_id)
        leader = self._leaders[place] = Leader(self.agent, replica, leadership)
        replica.enter(leadership.epoch, leader)
        self._say("led", boottime_ns(), leadership)

    def _follow(self, told: Following) -> None:
        place = TopicPartition(told.topic, told.partition)
        self._end(place)
        self._replica(place, told.topic_id).enter(told.epoch)

    def _resign(self, partitions: Partitions) -> None:
        for place in partitions:
            self._end(place)

    def _fenced(self, reason: str) -> None:
        """All leaderships are over; of what goes on the agent tells anew."""
        for place in list(self._leaders):
            self._end(place)
        self._tell("fenced", boottime_ns(), reason=str(reason))

    def _stop(self, topic: str, partition: int, delete: bool) -> None:
        place = TopicPartition(topic, partition)
        self._end(place)
        self._replicas.pop(place, None)
        if delete:
            self._delete(place)

    def _end(self, place: TopicPartition) -> None:
        """Lead no more; what waits is not answered."""
        if (leader := self._leaders.pop(place, None)) is not None:
            self._replicas[place].enter(leader.told.epoch)
            self._say("resigned", boottime_ns(), leader.told)

    def _replica(self, place: TopicPartition, topic_id: int) -> Replica:
        if place not in self._replicas:
            path = self._folder / f"{place.topic}-{place.partition}@{topic_id}.jsonl"
            self._delete(place, but=path)  # of a topic that was deleted while this broker was away
            self._replicas[place] = Replica(path)
        return self._replicas[place]

    def _delete(self, place: TopicPartition, but: Path | None = None) -> None:
        """Delete the logs of a partition, of whatever topic of that name; no name has an @."""
        for path in self._folder.glob(f"{place.topic}-{place.partition}@*.jsonl"):
            if path != but:
                path.unlink()

    def _say(self, what: str, at_ns: int, told: Leadership, **fields: Any) -> None:
        where = {"topic": told.topic, "partition": told.partition}
        self._tell(what, at_ns, **where, epoch=told.epoch, fence=told.fence, **fields)

    # ---- requests, in the server's threads ------------------------------------------------------

    def answer(self, what: str, topic: str, **asked: Any) -> dict[str, Any]:
        """Answer one request. Raises Refused."""
        if self.agent.is_fenced:
            raise Refused("BROKER_NOT_AVAILABLE")
        if what == "leaders":
            return {"leaders": self._addresses(topic)}
        place = TopicPartition(topic, asked.pop("partition"))
        if (replica := self._replicas.get(place)) is None:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION")
        if what == "replicate":
            return replica.accept(**asked) | {"incarnation": self.agent.incarnation}
        if what not in ("get", "put"):
            raise Refused("UNSUPPORTED_VERSION")
        if (leader := self._leaders.get(place)) is None:
            raise Refused("NOT_LEADER_OR_FOLLOWER")
        with replica.changed:
            answer = leader.get(**asked) if what == "get" else leader.put(**asked)
            said = {"key": asked["key"], "value": answer.value, "offset": answer.offset}
            kind = "answered" if what == "get" else "acknowledged"
            self._say(kind, answer.at_ns, leader.told, **said)
            return {"value": answer.value, "offset": answer.offset}

    def _addresses(self, topic: str) -> dict[int, Address]:
        """Partition -> the address of its leader, of those that have one."""
        found = {}
        try:
            for row in self.agent.metadata().partitions.values():
                if row.topic == topic and row.leader >= 0:
                    found[row.partition] = address_of(self.agent, row.leader)
        except (BrokerFenced, MetadataRefused):
            raise Refused("BROKER_NOT_AVAILABLE") from None
        return found


def serve(store: Store, is_over: Callable[[], bool]) -> None:
    """Serve until it is over; then let others lead (controlled shutdown), and end."""
    try:
        with store.agent as agent:
            agent.ready()
            while store.poll() and not is_over():
                pass
    finally:
        store.close()


def show(what: str, _at_ns: int, **fields: Any) -> None:
    """Print what a store tells, a line each."""
    print(what, *(f"{name}={value}" for name, value in fields.items()), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description="One process of a store with replicas.")
    parser.add_argument("bootstrap_servers", help="host:port of the coordinator's cluster of Kafka")
    parser.add_argument("broker", type=int, help="its broker id")
    parser.add_argument("address", type=_address, help="host:port, where it serves")
    parser.add_argument("folder", type=Path, help="of its data")
    given = parser.parse_args(arguments)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    config = {"bootstrap.servers": given.bootstrap_servers}
    try:
        store = Store(given.broker, given.address, given.folder, tell=show, config=config)
    except (CoordError, OSError) as problem:  # its folder, its address, or Kafka
        parser.exit(1, f"{problem}\n")
    serve(store, over.is_set)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not 0 <= int(port) <= limits.PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port")
    return host, int(port)


if __name__ == "__main__":
    main()
