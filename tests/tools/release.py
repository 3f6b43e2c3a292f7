"""A stack as this version leaves it, and the bytes of its clients, kept for tests of upgrades.

    python -m tests.tools.release     write tests/stack/stacks/release-VERSION{,-clients}.*

A release is written once and never again. Its stack has groups of both kinds, at rest and in the
middle of a rebalance with requests that are parked, positions of a tool, claims, a fleet of workers
with a topic, a transaction that is not decided, and the tables of all that. The clients are
coordlib's own; only the group `syncing` is made by hand. Sessions are long: a shard's clock takes
one CAP of the time in which the job was away (time-and-fencing.md, rule 1), however long that was.
"""

import base64
import json
import lzma
import os
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client import (
    AssignedMember,
    BrokerAgent,
    BrokerTiming,
    ClassicMember,
    CoordinatedConsumer,
    CoordinatedProducer,
    Endpoint,
    Timing,
)
from coordlib.client.admin import Admin
from coordlib.client.claims import Marshaler
from coordlib.core.wire import api
from coordlib.history.sql import query_tables
from coordlib.local.stack import Stack
from tests.stack.wire import RawMember, Wire, close

FOLDER: Final = Path("tests/stack/stacks")
PREFIX: Final = "coord"
#: Claims are signed every 6 s, so that a snapshot is soon there.
COORDINATION: Final = "__marshal.6s"
#: What clients write: requests, positions, claims.
WRITTEN: Final = (f"{PREFIX}.requests", f"{PREFIX}.offsets", COORDINATION)
DATA, COPIES, PARTITIONS, RECORDS = "orders", "copies", 2, 20
LONG_MS: Final = 1_200_000
TIMING: Final = Timing(session_timeout_ms=LONG_MS, rebalance_timeout_ms=LONG_MS)
FLEET_TIMING: Final = BrokerTiming(session_timeout_ms=LONG_MS, release_timeout_ms=LONG_MS)
PATIENCE_S: Final = 120.0
#: Files that tell nothing: logs, and what a start makes anew.
_LEFT_OUT: Final = ("logs", "job.json", "driver.pid", "exit-code", "lock", "clients")


def version() -> str:
    found: str = tomllib.loads(Path("pyproject.toml").read_text())["project"]["version"]
    return found


def stack_of(name: str, folder: Path = FOLDER) -> Path:
    return folder / f"release-{name}.tar.xz"


def clients_of(name: str, folder: Path = FOLDER) -> Path:
    return folder / f"release-{name}-clients.jsonl.xz"


class Clients:
    """Programs that use the stack. None is closed: their members are there when it stops."""

    def __init__(self, stack: Stack) -> None:
        self._config: dict[str, Any] = {**stack.client()}
        self._kept: list[Any] = []
        self._polled: list[Callable[[], Any]] = []

    def begin(self) -> None:
        self._write(DATA)
        self._write(COPIES)
        billing = self._consumer()
        self._rebalancing(ClassicMember, "rebalancing")
        self._rebalancing(AssignedMember, "reconciling")
        self._fleet()
        self._claims()
        self._transaction(billing)

    def _write(self, topic: str) -> None:
        admin = AdminClient(self._config)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
        producer = Producer(self._config)
        for number in range(RECORDS):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        close(producer)

    def until(self, what: str, is_true: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
            for poll in self._polled:
                poll()
            time.sleep(0.1)

    def _state_is(self, group: str, state: str) -> Callable[[], bool]:
        admin = Admin(self._config)
        self._kept.append(admin)
        return lambda: admin.describe_group(group).state == state

    def _consumer(self) -> CoordinatedConsumer:
        """A static member of a classic group at rest, with committed offsets."""
        own = {"group.id": "billing", "group.instance.id": "till", "client.id": "till-1"}
        longest = {"session.timeout.ms": LONG_MS, "max.poll.interval.ms": LONG_MS}
        usual = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = CoordinatedConsumer({**self._config, **own, **longest, **usual})
        consumer.subscribe([DATA])
        seen: list[Any] = []

        def poll() -> None:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(message)

        self._polled.append(poll)
        self.until("billing has read all", lambda: len(seen) == RECORDS)
        consumer.commit(asynchronous=False)
        self._kept.append(consumer)
        return consumer

    def _rebalancing(self, kind: type[ClassicMember] | type[AssignedMember], group: str) -> None:
        """One member owns everything, and is not polled any more when another one joins."""
        members = [
            kind(group, self._config, client=f"{group}-{number}", timing=TIMING)
            for number in (1, 2)
        ]
        self._kept += members
        members[0].subscribe([DATA])
        self._polled.append(members[0].poll)
        self.until(f"{group} has an owner", lambda: len(members[0].assignment) == PARTITIONS)
        self._polled.remove(members[0].poll)
        members[1].subscribe([DATA])
        members[1].poll()
        state = "PreparingRebalance" if kind is ClassicMember else "Reconciling"
        self.until(f"{group} is in the middle", self._state_is(group, state))

    def _fleet(self) -> None:
        """Two workers with a topic, each leader of one partition."""
        leads: dict[int, Any] = {}
        for number in (1, 2):
            agent = BrokerAgent(
                "shop",
                self._config,
                broker=number,
                endpoints=[Endpoint("in", "localhost", 9_300 + number)],
                client=f"worker-{number}",
                timing=FLEET_TIMING,
                on_leader=lambda given, number=number: leads.update({number: given}),  # type: ignore[misc]
            )
            agent.ready()
            self._kept.append(agent)
            self._polled.append(lambda agent=agent: agent.poll(0.05))  # type: ignore[misc]
            self.until("the worker is Active", lambda agent=agent: agent.state == "Active")  # type: ignore[misc]
        admin = Admin(self._config)
        self._kept.append(admin)
        (made,) = admin.create_topics(
            "shop", [api.NewTopic(topic="items", partitions=PARTITIONS, replication_factor=2)]
        )
        assert made.error == "NONE", made
        self.until("each worker leads", lambda: len(leads) == PARTITIONS)

    def _claims(self) -> None:
        """A consumer of claims, with a committed position."""
        config = {**self._config, "group.id": "shipping", "client.id": "shipper-1"}
        marshaler = Marshaler(config, coordination_topic=COORDINATION)
        consumer = marshaler.consumer([DATA])
        self._kept += [marshaler, consumer]
        read: list[Any] = []

        def poll() -> None:  # who does not poll for an interval loses what it has claimed
            while True:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    consumer.commit(message)
                    read.append(message)

        threading.Thread(target=poll, daemon=True).start()
        self.until("all is claimed and read", lambda: len(read) == RECORDS)
        assert len(marshaler.claims()) == PARTITIONS

    def _transaction(self, billing: CoordinatedConsumer) -> None:
        """The coordinator decides; records and offsets are sent, and nothing is decided."""
        own = {"transactional.id": "copier", "coord.decided.by": "coordinator"}
        longest = {"transaction.timeout.ms": 600_000}
        producer = CoordinatedProducer({**self._config, **own, **longest})
        self._kept.append(producer)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(COPIES, "a copy", partition=0)
        position = [TopicPartition(DATA, 0, 3)]
        producer.send_offsets_to_transaction(position, billing.consumer_group_metadata())


def by_hand(wire: Wire) -> None:
    """A tool's position; and a group whose leader has not assigned, with a SyncGroup parked."""
    offsets = [{"topic": DATA, "partition": 0, "offset": 5}]
    wire.answer(wire.commit_position("tools", offsets=offsets))
    longest = {"session_timeout_ms": LONG_MS, "rebalance_timeout_ms": LONG_MS}
    leader, follower = (RawMember(wire, "syncing", name, **longest) for name in ("a", "b"))
    leader.joined(leader.ask_join())
    asked = follower.ask_join()
    wire.judged(asked)
    leader.joined(leader.ask_join())
    follower.joined(asked)
    wire.judged(follower.ask_sync())


def written(stack: Stack) -> Iterator[dict[str, Any]]:
    """Every record that a client has written, in the order of its partition."""
    consumer = Consumer({**stack.client(), "group.id": "release", "enable.partition.eof": True})
    known = consumer.list_topics(timeout=PATIENCE_S).topics
    places = [TopicPartition(t, p, OFFSET_BEGINNING) for t in WRITTEN for p in known[t].partitions]
    consumer.assign(places)
    left = len(places)
    while left:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            left -= 1
            continue
        key, value = message.key(), message.value()
        yield {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "time_ms": message.timestamp()[1],
            "key": None if key is None else base64.b64encode(key).decode(),
            "value": None if value is None else base64.b64encode(value).decode(),
        }
    consumer.close()


def pack(stack: Stack, target: Path) -> None:
    """The stack's folder, without what tells nothing."""

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return None if info.name.partition("/")[2].partition("/")[0] in _LEFT_OUT else info

    with tarfile.open(target, "w:xz", preset=9) as packed:
        packed.add(stack.home, "stack", filter=kept)


def make(name: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        stack = Stack(Path(home) / "stack", claims=COORDINATION)
        often = ("--set", "engine.archive_interval_ms=1000")
        stack.up(job_args=("--set", "group.initial_rebalance_delay_ms=0", *often))
        try:
            clients = Clients(stack)
            clients.begin()
            with Wire(stack.bootstrap_servers) as wire:
                by_hand(wire)
            clients.until("history is there", lambda: _events(stack) > RECORDS)
            time.sleep(10)  # claims are signed once more, and a snapshot has them
            lines = [json.dumps(each) for each in written(stack)]
        finally:
            stack.down()
        clients_of(name, folder).write_bytes(lzma.compress("\n".join(lines).encode()))
        pack(stack, stack_of(name, folder))


def _events(stack: Stack) -> int:
    try:
        ((count,),) = query_tables(stack.tables, "SELECT count(*) FROM events", []).rows
    except Exception:  # noqa: BLE001  # no table yet
        return 0
    return int(count)


def main() -> int:
    name = version()
    if stack_of(name).exists():
        print(f"{stack_of(name)} is written: a release is kept as it was", file=sys.stderr)
        return 1
    make(name, FOLDER)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # its clients are not closed: no broker is there any more
