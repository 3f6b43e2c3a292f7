"""A cluster as a value: its brokers, what they are asked for, and what is guarded. Hard state.

Topics and partitions are rows beside it (`rows.py`).
"""

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from typing import Final

import msgspec

from coordlib import limits
from coordlib.core.controller.states import BrokerState
from coordlib.core.engine.clock import Timer
from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.wire.requests import Endpoint

#: A broker without its texts, with its row's share and the time when it was heard.
BROKER_BYTES: Final = 640
ENDPOINT_BYTES: Final = 48
SUPERSEDED_BYTES: Final = 16
GUARD_BYTES: Final = 288
HEAD_BYTES: Final = 1024


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Leaderships that a broker must let go of: the rows that were `asked` by this cause.

    Never taken back: the broker may be letting go already.
    """

    #: Runs for the release timeout from when it could be read; its cause names the demand.
    timer: Timer
    #: How many leaderships were asked for, for people.
    count: int


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """An incarnation that was not asked and may still lead (rule 14)."""

    broker: int
    incarnation: int
    client: str
    session_timeout_ms: int
    #: One session after it was last heard, on the shard's clock: its own fence has stopped it.
    due_ms: int
    #: Its release timeout, from when it could read that it is out.
    told: Timer


class Broker(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A registered broker, in its newest incarnation."""

    broker: int
    #: Offset of its registration: rises for ever.
    incarnation: int
    member: str
    client: str
    #: Partition of `coord.responses` that it reads.
    reply: int
    state: BrokerState = BrokerState.INACTIVE
    #: Offset and log time of the record that gave the state.
    since: int
    since_ms: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    storage: str
    session_timeout_ms: int
    release_timeout_ms: int
    #: Whether it sends no heartbeats and proves nothing (KIP-343: a legacy registration).
    is_legacy: bool = False
    #: Correlation id of its RegisterBroker: (client, this) tells a repeat from a new process.
    first_id: str
    #: (client, correlation id) of registrations that a newer one has superseded, newest last.
    superseded: tuple[tuple[str, str], ...] = ()
    #: Whether its silence ends something. An Inactive broker may be without.
    has_session: bool = True
    #: Offset whose outputs must be visible before its session runs; None: it runs.
    awaits_cover: int | None = None
    demand: Demand | None = None
    #: How many of the partitions that it leads are to be led by another (`Partition.move`).
    moving: int = 0
    #: Until when its registrations have booked the shard's clock, in microseconds of it.
    free_us: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether metadata name it."""
        return self.state is not BrokerState.INACTIVE

    @property
    def is_active(self) -> bool:
        """Whether it may be elected, and enter an ISR."""
        return self.state is BrokerState.ACTIVE

    @cached_property
    def size_bytes(self) -> int:
        """Upper bound of its share of the head; in JSON quotation marks in texts count twice."""
        texts = (self.member, self.member, self.client, self.rack or "", self.storage)
        names = (text for each in self.endpoints for text in (each.name, each.host))
        past = sum(SUPERSEDED_BYTES + 2 * len(text) for pair in self.superseded for text in pair)
        return (
            BROKER_BYTES
            + sum(len(text.encode()) for text in (*texts, self.first_id, *names))
            + ENDPOINT_BYTES * len(self.endpoints)
            + past
        )


class Cluster(
    msgspec.Struct, frozen=True, kw_only=True, dict=True, tag_field="kind", tag="brokers"
):
    """The head of a cluster. `dict` keeps what is derived: it is asked for each row of a step."""

    v: int = 1
    group: str
    is_quarantined: bool = False
    #: Rises with every change of a broker's state or incarnation.
    generation: int = 0
    #: By broker id, in order.
    brokers: dict[int, Broker] = {}
    #: By the member id of the incarnation.
    guards: dict[str, Guard] = {}
    topic_count: int = 0
    partition_count: int = 0

    def by_member(self, member: str) -> Broker | None:
        """The broker with this member id, in its registered incarnation."""
        for broker in self.brokers.values():
            if broker.member == member:
                return broker
        return None

    @cached_property
    def active(self) -> Set[int]:
        """The brokers that may be elected."""
        return {number for number, each in self.brokers.items() if each.is_active}

    @cached_property
    def stopping(self) -> Set[int]:
        """The brokers that stop."""
        state = BrokerState.STOPPING
        return {number for number, each in self.brokers.items() if each.state is state}

    @cached_property
    def replies(self) -> tuple[int, ...]:
        """The partitions of the answers that its brokers read."""
        return tuple(sorted({each.reply for each in self.brokers.values()}))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return not self.brokers and not self.topic_count

    def size_bytes(self) -> int:
        """Upper bound of the head and of its row; see `Broker.size_bytes`."""
        return self._size_bytes

    @cached_property
    def _size_bytes(self) -> int:
        guards = sum(
            GUARD_BYTES + len(name.encode()) + len(guard.client.encode())
            for name, guard in self.guards.items()
        )
        brokers = sum(each.size_bytes for each in self.brokers.values())
        return HEAD_BYTES + 2 * len(self.group.encode()) + guards + brokers


def next_generation(generation: int) -> int:
    """The one after this; after the last int32 comes 1."""
    return generation % limits.INT32_MAX + 1


def check_invariants(cluster: Cluster) -> None:
    """Raise BrokenInvariant when the head contradicts itself. On in every test."""
    for sentence, holds in _invariants(cluster):
        if not holds:
            raise BrokenInvariant(f"{cluster.group}: {sentence}")


def _invariants(cluster: Cluster) -> Iterator[tuple[str, bool]]:
    brokers: Mapping[int, Broker] = cluster.brokers
    # INV-15
    yield "brokers stand under their own id", all(n == b.broker for n, b in brokers.items())
    yield "brokers are in order", list(brokers) == sorted(brokers)
    members = {each.member for each in brokers.values()}
    yield "a member id is one broker's", len(members) == len(brokers)
    for each in brokers.values():
        # INV-74
        yield "who is Inactive is asked for nothing", each.is_ready or not each.demand
        yield "who is Inactive lets go of nothing", each.is_ready or not each.moving
        yield "who is ready has a session", each.is_legacy or each.has_session or not each.is_ready
        yield "a legacy broker has no session", not (each.is_legacy and each.has_session)
    yield "counts are not negative", cluster.topic_count >= 0 and cluster.partition_count >= 0
    # INV-43
    yield "it can be written", cluster.size_bytes() < limits.OUTPUT_BYTES_MAX
