"""The head of a transactional id, its states, and one id during one step.

The head has the id's producer, its transaction, and how the newest one ended. A literal table says
which states may follow which. Source: TransactionState of Apache Kafka. Kafka's PrepareEpochFence,
and its pending state, do not exist here: a step goes through as a whole.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.config import TransactionsConfig
from coordlib.core.engine.effects import BrokenInvariant
from coordlib.core.engine.step import Step
from coordlib.core.wire import stored
from coordlib.core.wire.transactions import EndedTransaction, TopicsOfCluster


class State(StrEnum):
    """The state of a transactional id."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and has begun nothing.
    action: Add*, InitProducerId
    transition: Add* -> ONGOING; EndTxn(abort) -> COMPLETE_ABORT; expires -> DEAD
    """
    ONGOING = "Ongoing"
    """A transaction is open.
    action: Add*; its timeout runs
    transition: EndTxn -> PREPARE_COMMIT, PREPARE_ABORT; InitProducerId, timeout, AbortTransaction
        -> PREPARE_ABORT
    """
    PREPARE_COMMIT = "PrepareCommit"
    """Committed, for ever; groups and partitions get the marker.
    action: TxnMarkersWritten
    transition: the last group and the last partition have it -> COMPLETE_COMMIT
    """
    PREPARE_ABORT = "PrepareAbort"
    """Aborted, for ever; groups and partitions get the marker.
    action: TxnMarkersWritten
    transition: the last group and the last partition have it -> COMPLETE_ABORT
    """
    COMPLETE_COMMIT = "CompleteCommit"
    """All parts of the newest transaction are committed.
    action: Add*, InitProducerId
    transition: Add* -> ONGOING; InitProducerId -> EMPTY; EndTxn(abort) -> COMPLETE_ABORT; expires
        -> DEAD
    """
    COMPLETE_ABORT = "CompleteAbort"
    """All parts of the newest transaction are dropped.
    action: Add*, InitProducerId
    transition: Add* -> ONGOING; InitProducerId -> EMPTY; EndTxn(abort) -> COMPLETE_ABORT; expires
        -> DEAD
    """
    DEAD = "Dead"
    """There is no such id any more.
    action: none
    transition: none
    """


#: Nothing is open, and no marker is under way.
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
#: A decision stands, and its markers are under way.
DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})

#: None: there was no such id. Each change of a state is held against it.  # INV-92
VALID_PREVIOUS_STATES: Final[Mapping[State, frozenset[State | None]]] = {
    State.EMPTY: frozenset({None, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.ONGOING: frozenset(
        {State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset({State.ONGOING}),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset(
        {State.EMPTY, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.DEAD: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
}


def check_transition(before: State | None, after: State) -> None:
    """Raises BrokenInvariant when an id must not go from the one state to the other."""
    if before not in VALID_PREVIOUS_STATES[after]:
        raise BrokenInvariant(f"transactional id: {before} to {after}")


#: Cluster -> topic -> partitions in order, each once.
Places = dict[str, dict[str, tuple[int, ...]]]

#: Who ended a transaction.
CLIENT: Final = "client"
TIMEOUT: Final = "timeout"
FENCED: Final = "fenced"
OPERATOR: Final = "operator"

#: Upper bounds in the blob of a head without its names, and of an entry in it.
HEAD_BYTES: Final = 640
NAME_BYTES: Final = 16
PARTITION_BYTES: Final = 9


class Transaction(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="producer"):
    """What is kept of a transactional id."""

    v: int = 1
    group: str = msgspec.field(name="transactional_id")
    is_quarantined: bool = False
    state: State = State.EMPTY
    #: A request with another id or epoch is of an older producer, or of another id's.
    producer_id: int
    #: Of the producer; while markers are under way, and after that, the transaction that ended had
    #: the one before. No producer has 32,767: it fences.
    epoch: int = 0
    #: The epoch before, if the process that had it may have this one (KIP-360); -1: none may.
    last_epoch: int = -1
    #: Of the producer id that this one replaced, since its epochs were used up; -1: none.
    previous_producer_id: int = -1
    #: The producer id that the next transaction has, since this one's epochs are used up; -1: this.
    next_producer_id: int = -1
    timeout_ms: int
    #: When the open transaction began: the shard's clock, and log time; -1: none is open.
    started_clock_ms: int = -1
    started_ms: int = -1
    #: The shard's clock at the newest change of the state.
    updated_clock_ms: int
    #: Groups whose offsets are part of the transaction -> how many of its commits were sent on.
    #: Kept until all have the marker.
    groups: dict[str, int] = {}
    #: Partitions of the open transaction.
    partitions: Places = {}
    #: Those that lack the marker of the one that ended.
    unwritten: Places = {}
    #: Shard -> number of the newest message to it that must be judged first.
    waits: dict[int, int] = {}
    #: The newest transaction that was decided.
    ended: EndedTransaction | None = None
    #: Of the newest InitProducerId that was answered with the producer: client, id, and partition
    #: of the answers.
    client: str
    init_id: str
    reply: int
    #: Partitions of the answers of others who wait for the end, in order.
    waiting: tuple[int, ...] = ()

    @property
    def commits(self) -> int:
        """How many commits of offsets the transaction has; the number of the next one."""
        return sum(self.groups.values())

    @property
    def last_producer_id(self) -> int:
        """The producer id that `last_epoch` is of."""
        return self.previous_producer_id if self.epoch == 0 else self.producer_id

    @property
    def next_producer(self) -> tuple[int, int]:
        """Producer id and epoch of the next transaction."""
        if self.next_producer_id >= 0:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch

    def knows(self, producer_id: int, epoch: int) -> bool:
        """Whether such a producer id is this one's."""
        return producer_id == self.producer_id or (producer_id, epoch) == self.next_producer

    def size_bytes(self) -> int:
        """Upper bound of the head and of its row; see `Facts.size_bytes`."""
        texts = (self.group, self.group, self.client, self.init_id)
        names = sum(NAME_BYTES + len(name.encode()) for name in (*texts, *self.groups))
        places = places_bytes(self.partitions) + places_bytes(self.unwritten)
        return HEAD_BYTES + names + places + NAME_BYTES * (len(self.waits) + len(self.waiting))


# -- partitions --------------------------------------------------------------------------------


def count_of(places: Places) -> int:
    """How many partitions there are."""
    return sum(len(some) for topics in places.values() for some in topics.values())


def places_bytes(places: Places) -> int:
    """Upper bound of their encoded size."""
    names = [name for cluster, topics in places.items() for name in (cluster, *topics)]
    named = sum(NAME_BYTES + len(name.encode()) for name in names)
    return named + PARTITION_BYTES * count_of(places)


def with_rows(places: Places, rows: tuple[TopicsOfCluster, ...]) -> Places:
    """These partitions, too."""
    found = _as_sets(places)
    for row in rows:
        found.setdefault(row.cluster, {}).setdefault(row.topic, set()).update(row.partitions)
    return _in_order(found)


def without_rows(places: Places, rows: tuple[TopicsOfCluster, ...]) -> Places:
    """All but these partitions; those that are not among them change nothing."""
    found = _as_sets(places)
    for row in rows:
        found.get(row.cluster, {}).get(row.topic, set()).difference_update(row.partitions)
    return _in_order(found)


def as_rows(places: Places) -> tuple[TopicsOfCluster, ...]:
    """Partitions as answers have them."""
    return tuple(
        TopicsOfCluster(cluster=cluster, topic=topic, partitions=some)
        for cluster, topics in places.items()
        for topic, some in topics.items()
    )


def _as_sets(places: Places) -> dict[str, dict[str, set[int]]]:
    return {
        cluster: {topic: set(some) for topic, some in topics.items()}
        for cluster, topics in places.items()
    }


def _in_order(places: Mapping[str, Mapping[str, set[int]]]) -> Places:
    """Equal partitions give equal bytes.  # INV-03"""
    found = {
        cluster: {topic: tuple(sorted(some)) for topic, some in sorted(topics.items()) if some}
        for cluster, topics in sorted(places.items())
    }
    return {cluster: topics for cluster, topics in found.items() if topics}


# -- soundness ---------------------------------------------------------------------------------


def invariants(value: Transaction) -> Iterator[tuple[str, bool]]:
    """What always holds of a head."""
    is_open, is_ending = value.state is State.ONGOING, value.state in DECIDED
    # INV-98
    yield "an epoch fits int16", 0 <= value.epoch <= limits.EPOCH_MAX + 1
    yield "the epoch before is lower", value.last_epoch < value.epoch or value.epoch == 0
    yield "no id follows itself", value.next_producer_id != value.producer_id
    yield "the next id waits for the end", is_ending or value.next_producer_id < 0
    yield "an open transaction has a begin", is_open == (value.started_clock_ms >= 0) or is_ending
    yield "partitions are of an open transaction", is_open or not value.partitions
    yield "groups are of a transaction", is_open or is_ending or not value.groups
    # INV-91, INV-92
    yield "what is told is decided", is_ending or not (value.waits or value.unwritten)
    yield "a decision is kept", not is_ending or value.ended is not None
    is_left = bool(value.waits or value.unwritten)
    yield "what all have is complete", not is_ending or is_left
    yield "nobody waits for nothing", is_ending or not value.waiting
    if value.ended is not None and value.state not in (State.EMPTY, State.ONGOING):
        wanted = "Commit" if value.ended.result == "commit" else "Abort"
        yield "the state is that of the decision", value.state.endswith(wanted)
    # INV-43
    yield "it can be written", value.size_bytes() < limits.OUTPUT_BYTES_MAX
    yield "who rests holds nothing", value.state not in AT_REST or not value.groups


class AroundTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a step may read beside its id."""

    config: TransactionsConfig
    #: How long until one more id may be made; 0: now.
    throttle_ms: int


class TransactionStep(Step[Transaction]):
    """A transactional id, or none, while it judges something."""

    family: AroundTransaction

    @property
    def own_producer_id(self) -> int:
        """The producer id that this record may give: no other record gives it, ever.  # INV-98"""
        return self.at.offset * self.at.shards + self.at.shard

    def make(self, value: Transaction, reason: str) -> None:
        """An id that was not there."""
        check_transition(None, value.state)
        self.hold(value)
        self.record(
            stored.EVENT_TRANSACTIONAL_ID_CREATED,
            reason=reason,
            detail={"producer_id": value.producer_id, "client": value.client},
        )

    def alter(self, state: State, **fields: Any) -> None:
        """Go to a state that may follow. Raises BrokenInvariant.  # INV-92"""
        check_transition(self.live.state, state)
        self.change(state=state, updated_clock_ms=self.at.clock_ms, **fields)
