"""A hundred brokers in one program, light: they share transports and one polling thread.

Each is the `BrokerAgent` that a store stands on, with its registration, heartbeats, fence, metadata
and callbacks; it stores nothing. A broker that is killed is one whose agent is cut off from its
transport and is polled no more: nothing of it comes to the log from then on.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from coordlib.client import BrokerAgent, Endpoint, Leadership
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Partitions
from coordlib.client.kit.transport import KafkaTransport, Transport
from coordlib.errors import CoordError
from tests.tools.bench.brokers_terms import Terms

#: Brokers read as many response partitions as there are, but no more than these.
TRANSPORTS_MAX: Final = 4
#: How often the polling thread looks who was woken; all are looked at every second.
SLICE_S: Final = 0.01
SLICES_OF_ALL: Final = 100
ACTIVE: Final = "Active"


def open_transports(config: Mapping[str, Any], prefix: str) -> list[Transport]:
    """One for each response partition that is used. Raises CannotReach."""
    opened: list[Transport] = [KafkaTransport(config, prefix, "bench-brokers-0", reply=0)]
    for number in range(1, min(TRANSPORTS_MAX, opened[0].place.reply_partitions)):
        opened.append(KafkaTransport(config, prefix, f"bench-brokers-{number}", reply=number))
    return opened


class _Agent(BrokerAgent):
    """Says when something came for it: only then a callback may be due at once."""

    def __init__(self, cluster: str, woken: Callable[[], None], **more: Any) -> None:
        self._woken = woken
        super().__init__(cluster, **more)

    def feed(self, event: Any) -> None:
        super().feed(event)
        if isinstance(event, sg.Received):
            self._woken()


class LightBrokers:
    """All brokers of a cluster, and the thread that polls them.

    Args:
        transports: shared among them, and closed with them.
        cluster: its name.
        terms: is told who leads what.
    """

    def __init__(self, transports: Sequence[Transport], cluster: str, terms: Terms) -> None:
        self._cluster, self._terms, self._transports = cluster, terms, transports
        self._lock = threading.Lock()
        #: Held while a broker is polled: nobody else polls it, or ends it, meanwhile.
        self._turn = threading.Lock()
        self._agents: dict[int, _Agent] = {}
        self._awake: set[int] = set()
        self._failure: CoordError | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="light-brokers", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._agents)

    # ---- one broker ---------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """One more broker, or a new process of one that has ended. Active as soon as it may."""
        agent = _Agent(
            self._cluster,
            woken=partial(self._woke, number),
            transport=self._transport_of(number),
            prefix=self._transports[0].place.prefix,
            client=f"bench-b{number}",
            broker=number,
            endpoints=[Endpoint("in", "localhost", 9_000 + number)],
            on_leader=partial(self._leader, number),
            on_resign=self._resigned,
            on_fenced=self._terms.was_fenced,
        )
        with self._lock:
            self._agents[number] = agent
        agent.ready()

    def is_active(self, number: int) -> bool:
        return self._agents[number].state == ACTIVE

    def kill(self, number: int) -> None:
        """Nothing comes from this broker any more."""
        agent = self._taken(number)
        self._transport_of(number).detach(agent)

    def stop(self, number: int) -> None:
        """Let it shut down in order; returns when it has left. Raises CoordError."""
        self._taken(number).close()

    def agent(self, number: int) -> BrokerAgent:
        """One that runs."""
        return self._agents[number]

    def check(self) -> None:
        """Raises CoordError: a broker has failed, or the transport."""
        if self._failure is not None:
            raise self._failure
        for each in self._transports:
            each.check()

    def close(self) -> None:
        """End all of them, without an order: the cluster goes with its stack."""
        self._is_over.set()
        self._thread.join()
        for number in list(self._agents):
            self.kill(number)
        for each in self._transports:
            each.close()

    # ---- callbacks ----------------------------------------------------------------------------

    def _leader(self, number: int, given: Leadership) -> None:
        self._terms.leads(number, (given.topic, given.partition), given.epoch)

    def _resigned(self, some: Partitions) -> None:
        self._terms.resigned((each.topic, each.partition) for each in some)

    # ---- the polling thread -------------------------------------------------------------------

    def _transport_of(self, number: int) -> Transport:
        return self._transports[number % len(self._transports)]

    def _taken(self, number: int) -> _Agent:
        """Not polled any more by the thread."""
        with self._turn, self._lock:
            return self._agents.pop(number)

    def _woke(self, number: int) -> None:
        with self._lock:
            self._awake.add(number)

    def _poll(self) -> None:
        turn = 0
        while not self._is_over.wait(SLICE_S):
            turn += 1
            with self._lock:
                awake, self._awake = self._awake, set()
                due = list(self._agents) if turn % SLICES_OF_ALL == 0 else sorted(awake)
            for number in due:
                self._poll_one(number)

    def _poll_one(self, number: int) -> None:
        with self._turn:
            agent = self._agents.get(number)
            try:
                if agent is not None:
                    agent.poll()
            except CoordError as problem:
                with self._lock:
                    self._agents.pop(number, None)
                self._failure = problem
