"""The course of the act `brokers`: a leader is killed, another suspended, a third one shut down."""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordlib.client.admin import Admin
from coordlib.client.kit.process import boottime_ms
from coordlib.core.wire import api
from coordlib.core.wire.envelope import shard_of
from coordlib.demo.history import Happened
from coordlib.demo.members import Members
from coordlib.demo.show import Live
from coordlib.demo.watch import Looking
from coordlib.errors import CannotReach, CoordError, ErrorCode, NotReady
from coordlib.local.processes import LOOPBACK, free_ports
from coordlib.local.progress import phase
from coordlib.local.stack import Stack
from examples.store.server import CLUSTER
from examples.store.wire import Address
from tests.stack.acts.brokers_facts import Row, partitions_in_kafka
from tests.stack.acts.store_traffic import Traffic
from tests.stack.acts.store_witness import StoreWitness

#: The program of a store.
STORE: Final = "tests.stack.acts.store_member"
BROKERS: Final = (1, 2, 3)
KILLED, SUSPENDED, STOPPED = BROKERS
SESSION_MS: Final = 6_000
TIMING: Final = {
    "session_timeout_ms": SESSION_MS,
    "release_timeout_ms": 2 * SESSION_MS,
    "heartbeat_interval_ms": 1_000,
}
#: Preferred leaders first: the one that is killed leads most.
ASSIGNMENT: Final[tuple[tuple[int, ...], ...]] = (
    (1, 2, 3),
    (1, 3, 2),
    (1, 2, 3),
    (1, 3, 2),
    (2, 1, 3),
    (3, 1, 2),
)
MIN_ISR: Final = 2
#: Acknowledged puts of each partition before something happens, and after it.
PUTS: Final = 5
#: How long a put gets to reach its leader's log, while a follower does not answer. Below the time
#: after which that follower would leave the ISR.
REACH_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Hit:
    """What was done to a store, and what it led then: partition -> leader epoch."""

    broker: int
    at_ms: int
    led: Mapping[int, int]
    #: When it went on, or had ended; by the clock of the witnesses, as all of these.
    until_ms: int = -1
    #: Key of the put that waited at it.
    key: str = ""


def store_of(broker: int) -> str:
    """The name of a broker's process."""
    return f"store-{broker}"


def partition_of(happened: Happened) -> int:
    """The partition that a line is about."""
    return int(happened.partitions[0].rpartition("-")[2])


#: Where nobody can be asked whether a process stands still.
STANDS_STILL_S: Final = 0.2


class Stores(Members[StoreWitness]):
    """The processes of stores, which can stand still."""

    def suspend(self, name: str) -> None:
        """SIGSTOP: it does nothing, and does not know. Returns when it stands still.

        For a moment its threads work on: in it a store could acknowledge a put.
        """
        running = self._running[name]
        running.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):  # not in macOS before Python 3.13
            os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        else:
            time.sleep(STANDS_STILL_S)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._running[name].send_signal(signal.SIGCONT)


class Course(Looking[StoreWitness]):
    """Stores, clients, and what is done to them."""

    members: Stores

    def __init__(self, stack: Stack, members: Stores, live: Live, topic: str) -> None:
        super().__init__(stack, members, live)
        self._topic = topic
        ports = free_ports(len(BROKERS))
        self.addresses: dict[int, Address] = {
            broker: (LOOPBACK, port) for broker, port in zip(BROKERS, ports, strict=True)
        }
        clients: Path = stack.home / "witnesses" / "clients.jsonl"
        clients.parent.mkdir(exist_ok=True)
        places = list(self.addresses.values())
        self.traffic = Traffic(clients, topic, len(ASSIGNMENT), places)
        self.killed = self.suspended = self.stopped = Hit(-1, -1, {})

    def play(self) -> None:
        """From no store to none; every key is read before the last ones end."""
        self.begin()
        self.kill()
        self.suspend()
        self.shut_down()
        with phase(self.live, "Stopping the clients, and reading every key once more"):
            self.traffic.stop()
            self.traffic.read_everything()
        with phase(self.live, "Stopping the other stores, one after the other"):
            for name in self.members.running:
                self.members.stop(name)

    def partitions(self) -> dict[int, Row]:
        """As `coord.metadata` has them."""
        shard = shard_of(CLUSTER, self.stack.shards)
        of = f"{self.stack.prefix}.metadata", shard, CLUSTER, self._topic
        return partitions_in_kafka(self.stack.client(), *of)

    # ---- the course -----------------------------------------------------------------------------

    def begin(self, **config: Any) -> None:
        """Three brokers, a topic, and clients at work.

        Args:
            config: of the stores, beside what all have.
        """
        names = [store_of(broker) for broker in BROKERS]
        with phase(self.live, f"Starting {', '.join(names)}: three brokers of one cluster"):
            for broker in BROKERS:
                self.start(broker, **config)
            self.until("They are Active", lambda: not any(map(self._is_fenced, BROKERS)))
        what = f"Creating the topic {self._topic}: {len(ASSIGNMENT)} partitions, each on all three"
        with phase(self.live, what):
            self._create_topic()
            self.until("All partitions have leaders", lambda: len(self.led(*BROKERS)) == 6)
        self.traffic.start()
        self.until_put("Clients put and get")
        self.live(f"A writer and a reader for each partition; {self._leaders_text()}")

    def start(self, broker: int, module: str = STORE, **config: Any) -> None:
        """Start a broker's process, and return at once."""
        host, port = self.addresses[broker]
        folder = self.stack.home / "stores" / str(broker)
        self.members.start(
            store_of(broker),
            module,
            broker=broker,
            host=host,
            port=port,
            folder=str(folder),
            timing=TIMING,
            **config,
        )

    def _create_topic(self) -> None:
        assignment = {str(number): each for number, each in enumerate(ASSIGNMENT)}
        topic = api.NewTopic(topic=self._topic, assignment=assignment, min_isr=MIN_ISR)
        try:
            with Admin(self.stack.client(), prefix=self.stack.prefix) as admin:
                (made,) = admin.create_topics(CLUSTER, [topic])
        except CannotReach as problem:
            raise NotReady(problem.what, problem.where, str(self.stack.home)) from problem
        if made.error != ErrorCode.NONE.name:
            raise CoordError(
                f"The topic was not made: {made.error}", self._topic, str(made.message)
            )

    def kill(self) -> None:
        """SIGKILL to the leader of most; later it starts again, on the same data."""
        name, led = store_of(KILLED), self.led(KILLED)
        self.members.kill(name)
        at_ms = self.members.killed_ns[name] // 1_000_000
        self.live(f"Killed {name} (SIGKILL), which led {_numbers(led)}")
        self.until_put("Others lead what it led")
        self.live(f"{len(led)} partitions have other leaders; {self._leaders_text()}")
        self.killed = Hit(KILLED, at_ms, led, boottime_ms())
        self.start(KILLED)
        self.until_in_sync(f"{name} is back, and in sync everywhere")

    def suspend(self) -> None:
        """SIGSTOP beyond the session, with a put that has all but a follower's word."""
        name, led = store_of(SUSPENDED), self.led(SUSPENDED)
        partition = min(led)
        follower = store_of(STOPPED)
        self.members.suspend(follower)
        key = self.traffic.wait_at(self.addresses[SUSPENDED], partition)
        time.sleep(REACH_S)
        self.members.suspend(name)
        at_ms = boottime_ms()
        self.members.resume(follower)
        self.live(f"Suspended {name} (SIGSTOP), which led {_numbers(led)}; a put waits at it")
        self.until_put("Others lead what it led")
        self.suspended = Hit(SUSPENDED, at_ms, led, boottime_ms(), key)
        self.members.resume(name)
        self.live(f"Others lead; {name} goes on (SIGCONT)")
        self.until_in_sync(f"{name} has found out, and is in sync everywhere")

    def shut_down(self) -> None:
        """SIGTERM: others lead first."""
        name, led = store_of(STOPPED), self.led(STOPPED)
        at_ms = boottime_ms()
        with phase(self.live, f"Shutting {name} down in order, which leads {_numbers(led)}"):
            self.members.stop(name)
            is_closed = any(e.what == "closed" for e in self.members.witnesses[name].deeds)
            until_ms = boottime_ms() if is_closed else -1
            self.stopped = Hit(STOPPED, at_ms, led, until_ms)
            self.until_put("Others lead what it led")

    def happened(self) -> list[Happened]:
        """What clients and stores wrote down."""
        found = [each for store in self.members.witnesses.values() for each in store.happened]
        return [*found, *self.traffic.happened]

    # ---- waiting --------------------------------------------------------------------------------

    def until_put(self, what: str) -> None:
        """Wait until each partition has further acknowledged puts."""
        before = dict(self.traffic.acknowledged)
        self.until(
            what,
            lambda: all(
                count >= before[partition] + PUTS
                for partition, count in self.traffic.acknowledged.items()
            ),
        )

    def until_in_sync(self, what: str) -> None:
        """Wait until all brokers are in sync in all partitions."""
        looked_at = 0.0

        def is_so() -> bool:
            nonlocal looked_at
            if time.monotonic() - looked_at < REACH_S:
                return False
            looked_at = time.monotonic()
            rows = self.partitions().values()
            return all(len(row.isr) == len(BROKERS) for row in rows)

        self.until(what, is_so)
        self.live(what)

    def _is_fenced(self, broker: int) -> bool:
        return self.members.witnesses[store_of(broker)].is_fenced

    def led(self, *brokers: int) -> dict[int, int]:
        """Partition -> leader epoch, of all that these lead by what they wrote."""
        self.members.read_on()
        found: dict[int, int] = {}
        for broker in brokers:
            found |= self.members.witnesses[store_of(broker)].led
        return found

    def _check(self) -> None:
        self.traffic.check()

    def _text(self) -> str:
        counts = self.traffic.acknowledged
        puts = sum(counts.values())
        return f"puts acknowledged {puts:,}, by partition {list(counts.values())}"

    def _leaders_text(self) -> str:
        parts = []
        for name in self.members.running:
            led = self.members.witnesses[name].led
            parts.append(f"{name} leads {_numbers(led)}")
        return ", ".join(parts)


def _numbers(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "nothing"
