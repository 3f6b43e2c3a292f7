"""One cluster during one step: its brokers, the rows that the step changes, and what it publishes.

Handlers change rows by `alter`, `make` and `drop`, as often as they need; `write` lets all of it
happen, each row once: what is stored, what others read, notices to brokers, and history.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from coordlib import limits
from coordlib.config import BrokersConfig
from coordlib.core.controller import states
from coordlib.core.controller.states import (
    BROKER,
    PARTITIONS,
    TOPICS,
    Broker,
    BrokerState,
    Cluster,
    Partition,
    ReplicaState,
    Topic,
    key_of,
    next_generation,
    saved_partition,
    saved_topic,
)
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import METADATA, BrokenInvariant
from coordlib.core.engine.step import Step
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire.stored import BrokerEndpoint, BrokerValue
from coordlib.errors import ErrorCode

#: A place, its row before the step and after it.
Changed = tuple[Place, Partition | None, Partition | None]
#: A broker before a step and after it; None: it was not, or is not, registered.
BrokerChange = tuple[int, Broker | None, Broker | None]
COMMA_BYTES: Final = 1


class Part(NamedTuple):
    """What one record of several says."""

    rows: Mapping[str, Sequence[Any]]
    size_bytes: int

    @property
    def fields(self) -> dict[str, Any]:
        """As a response has them."""
        return {name: tuple(some) for name, some in self.rows.items()}


# -- as it stands on the wire ---------------------------------------------------------------------


def replica_row(place: Place, row: Partition) -> api.ReplicaRow:
    """A partition as notices have it."""
    return api.ReplicaRow(
        topic=place[0],
        partition=place[1],
        topic_id=row.topic_id,
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.partition_epoch,
        fence=row.fence,
        replicas=row.replicas,
        isr=row.isr,
        adding=row.adding,
        removing=row.removing,
        recovering=row.recovering,
        deleting=tuple(b for b, s in row.deleting.items() if s == ReplicaState.DELETION_STARTED),
    )


def topic_row(name: str, topic: Topic | None) -> api.TopicRow:
    """A topic as notices have it; None: it is gone."""
    if topic is None:
        return api.TopicRow(name, -1, 0, 1, False, True)
    return api.TopicRow(
        name, topic.topic_id, topic.partitions, topic.min_isr, topic.unclean, topic.is_deleting
    )


def broker_row(broker: Broker) -> api.BrokerRow:
    """A broker as notices have it."""
    return api.BrokerRow(
        broker.broker, broker.incarnation, broker.state.value, broker.endpoints, broker.rack
    )


def _gone_row(place: Place, row: Partition) -> api.ReplicaRow:
    return api.ReplicaRow(
        *place, row.topic_id, -1, row.leader_epoch, row.partition_epoch, row.fence, (), ()
    )


def record_parts(**fields: Iterable[Any]) -> Iterator[Part]:
    """Rows of these fields, in this order, in parts of METADATA_PART_BYTES_MAX; at least one.

    All kinds of rows are counted: a cluster may have as many topics as partitions.  # INV-43
    """
    part: dict[str, list[Any]] = {name: [] for name in fields}
    size_bytes = 0
    for name, rows in fields.items():
        for row in rows:
            row_bytes = len(codec.encode(row)) + COMMA_BYTES
            if size_bytes and size_bytes + row_bytes > limits.METADATA_PART_BYTES_MAX:
                yield Part(part, size_bytes)
                part, size_bytes = {each: [] for each in fields}, 0
            part[name].append(row)
            size_bytes += row_bytes
    yield Part(part, size_bytes)


# -- what follows from a step ---------------------------------------------------------------------


def changed_brokers(before: Cluster, after: Cluster) -> list[BrokerChange]:
    """The brokers whose published state changed, or whose generation ends."""
    found: list[BrokerChange] = []
    if before.brokers is after.brokers:
        return found  # an ISR changed: nothing that grows with the brokers is looked at
    for number in sorted(before.brokers.keys() | after.brokers.keys()):
        was, now = before.brokers.get(number), after.brokers.get(number)
        if was is not now and _published_as(was) != _published_as(now):
            found.append((number, was, now))
    return found


def _published_as(broker: Broker | None) -> Any:
    return broker and (broker.incarnation, broker.state, broker.since)


def published(cluster: str, brokers: Iterable[BrokerChange]) -> Iterator[fx.Publish]:
    """Records of brokers in `coord.metadata`: of those alone that are Active or Stopping."""
    for number, was, now in brokers:
        key = codec.encode(key_of(cluster, BROKER, number, 0))
        if now is not None and now.is_ready:
            yield fx.Publish(METADATA, key, _value_of(now))
        elif was is not None and was.is_ready:
            yield fx.Publish(METADATA, key, None)


def _value_of(broker: Broker) -> BrokerValue:
    return BrokerValue(
        incarnation=broker.incarnation,
        current_state=broker.state.value,
        endpoints=tuple(BrokerEndpoint(e.name, e.host, e.port) for e in broker.endpoints),
        rack=broker.rack,
        since_ms=broker.since_ms,
    )


def lines(
    changed: Iterable[Changed], elections: Mapping[Place, str], before: Cluster
) -> Iterator[dict[str, Any]]:
    """Details of PartitionsChanged: who leads, who led before, and by which election."""
    rows = [
        _line(place, was, now, elections, before)
        for place, was, now in changed
        if now is not None and _epochs(was) != _epochs(now)
    ]
    for start in range(0, len(rows), limits.ROWS_PER_LINE_MAX):
        yield {"partitions": rows[start : start + limits.ROWS_PER_LINE_MAX]}


def _line(
    place: Place,
    was: Partition | None,
    now: Partition,
    elections: Mapping[Place, str],
    before: Cluster,
) -> dict[str, Any]:
    former = was.leader if was else -1
    line: dict[str, Any] = {
        "topic": place[0],
        "partition": place[1],
        "was": former,
        "leader": now.leader,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "fence": now.fence,
        "replicas": now.replicas,
        "isr": now.isr,
        "election": elections.get(place),
    }
    led = before.brokers.get(former)
    if led is not None and led.is_legacy and now.leader != former:
        line["unproved"] = True
    return line


def _epochs(row: Partition | None) -> tuple[int, int] | None:
    return (row.leader_epoch, row.partition_epoch) if row else None


def notices(
    step: "ClusterStep",
    brokers: Sequence[BrokerChange],
    topics: Iterable[tuple[str, Topic | None]],
    changed: Iterable[Changed],
) -> Iterator[fx.Notify]:
    """MetadataChanged for each partition of the answers that a broker of the cluster reads."""
    all_of_it = record_parts(
        gone=_gone(brokers),
        brokers=(broker_row(now) for _, _, now in brokers if now is not None and now.is_ready),
        topics=(topic_row(name, topic) for name, topic in topics),
        partitions=(row for each in changed if (row := _changed_row(*each))),
    )
    some = [
        api.MetadataChanged(
            group=step.name,
            cause=step.at.coordinate,
            generation=step.live.generation,
            **part.fields,
        )
        for part in all_of_it
        if part.size_bytes
    ]
    for reply in step.live.replies:
        for each in some:
            yield fx.Notify(reply, each)


def _changed_row(
    place: Place, was: Partition | None, now: Partition | None
) -> api.ReplicaRow | None:
    if now is None:
        return None if was is None else _gone_row(place, was)
    row = replica_row(place, now)
    return row if was is None or replica_row(place, was) != row else None


def _gone(brokers: Iterable[BrokerChange]) -> Iterator[api.GoneBroker]:
    for number, was, now in brokers:
        is_gone = now is None or not now.is_ready or (was and was.incarnation != now.incarnation)
        if was is not None and was.is_ready and is_gone:
            yield api.GoneBroker(number, was.incarnation)


#: Names of KIP-343, where Kafka calls the error otherwise today.
DESIGN_ERRORS: Final[dict[ErrorCode, str]] = {
    ErrorCode.STALE_BROKER_EPOCH: "INVALID_INCARNATION_ID",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.FENCED_LEADER_EPOCH: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.NOT_CONTROLLER: "NOT_CONTROLLER",
}


class ClusterStep(Step[Cluster]):
    """One cluster during one step."""

    DESIGN_ERRORS = DESIGN_ERRORS
    __slots__ = (
        "_active",
        "_places",
        "_rows",
        "_stopping",
        "_topics",
        "asking",
        "before",
        "elections",
        "is_written",
        "reason",
    )

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: The cluster before this step.
        self.before = self.value or Cluster(group=self.name)
        self._rows: dict[Place, Partition | None] = {}
        #: Their places, by each broker and by the topic that they have to do with.
        self._places: dict[int | str, set[Place]] = {}
        self._topics: dict[str, Topic | None] = {}
        #: Brokers by their state; None: to be found anew.
        self._active: Set[int] | None = None
        self._stopping: Set[int] | None = None
        #: Brokers that lead what others are to lead; perhaps asked already.
        self.asking: set[int] = set()
        #: By which election each row got its leader in this step.
        self.elections: dict[Place, str] = {}
        #: Why rows change, for history.
        self.reason = ""
        self.is_written = False

    @property
    def config(self) -> BrokersConfig:
        """The bounds of clusters."""
        config: BrokersConfig = self.family
        return config

    @property
    def cluster(self) -> Cluster:
        """The head as it is by now; one without brokers where there is none."""
        return self.value or self.before

    # -- brokers ---------------------------------------------------------------------------

    def broker(self, number: int) -> Broker | None:
        """A registered broker."""
        return self.cluster.brokers.get(number)

    def is_ready(self, number: int) -> bool:
        """Whether a broker is Active or Stopping."""
        broker = self.broker(number)
        return broker is not None and broker.is_ready

    @property
    def active(self) -> Set[int]:
        """The brokers that may be elected. Read for each row of a step: heads come and go with
        what is counted in them, and states rarely change."""
        if self._active is None:
            self._active = self.cluster.active
        return self._active

    @property
    def stopping(self) -> Set[int]:
        """The brokers that stop."""
        if self._stopping is None:
            self._stopping = self.cluster.stopping
        return self._stopping

    def put(self, broker: Broker) -> Broker:
        """Add a broker, or replace it under its id."""
        known = self.live.brokers.get(broker.broker)
        if known is None or known.state is not broker.state:
            self._active = self._stopping = None
        brokers = self.live.brokers | {broker.broker: broker}
        if known is None:
            brokers = dict(sorted(brokers.items()))
        self.change(brokers=brokers)
        return broker

    def enter(self, broker: Broker, state: BrokerState, reason: str, **fields: Any) -> Broker:
        """Change a broker's state, along the table only, and record that.  # INV-76"""
        states.move_broker(broker.state, state)
        at = self.at
        self.record(
            stored.EVENT_BROKER_STATE_CHANGED,
            member=broker.member,
            reason=reason,
            detail={
                "broker": broker.broker,
                "incarnation": broker.incarnation,
                "from": broker.state.value,
                "to": state.value,
            },
        )
        after = replace(broker, state=state, since=at.offset, since_ms=at.time_ms, **fields)
        return self.put(after)

    # -- rows ------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """A topic as this step has left it by now."""
        if name in self._topics:
            return self._topics[name]
        topic: Topic | None = self.entries(TOPICS).get(name, 0)
        return topic

    def put_topic(self, name: str, topic: Topic | None) -> None:
        """Store a topic; None: it is gone."""
        self._open()
        self._topics[name] = topic

    def row(self, topic: str, partition: int) -> Partition | None:
        """A partition as this step has left it by now."""
        place = (topic, partition)
        return self._rows[place] if place in self._rows else self._base(place)

    def at_place(self, place: Place) -> Partition:
        """The same, of one that is there."""
        row = self.row(*place)
        if row is None:
            raise BrokenInvariant(f"{place}: there is no such partition")
        return row

    def rows_of(self, broker: int) -> list[tuple[Place, Partition]]:
        """All partitions that have a replica on a broker, or had one that is to be deleted."""
        before = dict(self.entries(PARTITIONS).marked(broker))
        return self._newest(broker, before)

    def changed_rows_of(self, broker: int) -> list[tuple[Place, Partition]]:
        """Those of them that this step has changed: it may ask a thousand brokers for some, and a
        search in all rows takes milliseconds."""
        return self._newest(broker, {})

    def _newest(self, broker: int, before: dict[Place, Partition]) -> list[tuple[Place, Partition]]:
        """These rows, and those that this step has changed, as they are by now."""
        changed = self._places.get(broker, set())
        rows = (
            (place, self._rows[place] if place in self._rows else before[place])
            for place in sorted(before.keys() | changed)
        )
        return [
            (place, row)
            for place, row in rows
            if row is not None and (broker in row.replicas or broker in row.deleting)
        ]

    def rows_of_topic(self, topic: str) -> list[tuple[Place, Partition]]:
        """All partitions of a topic."""
        found = {(topic, number) for number, _ in self.entries(PARTITIONS).of_name(topic)}
        found |= self._places.get(topic, set())
        rows = [(place, self.row(*place)) for place in sorted(found)]
        return [(place, row) for place, row in rows if row is not None]

    def all_rows(self) -> Iterator[tuple[Place, Partition]]:
        """All partitions as they were before this step."""
        for topic, number, row in self.entries(PARTITIONS):
            yield (topic, number), row

    def make(self, place: Place, row: Partition) -> None:
        """A partition that is not there."""
        self._store(place, None, row)

    def drop(self, place: Place) -> None:
        """A partition whose replicas are deleted."""
        self._store(place, self.at_place(place), None)

    def alter(
        self,
        place: Place,
        *,
        election: str = "",
        is_new_epoch: bool = False,
        is_counted: bool = False,
        **fields: Any,
    ) -> Partition:
        """Change fields of a partition; its epochs and fence follow.  # INV-72

        The partition epoch rises once in a step however often the row changes in it, and so does
        the leader epoch. Whoever does not lead any more is asked for nothing.

        Args:
            election: by which it has its leader now.
            is_new_epoch: whether a new leader epoch begins, also under the same leader.
            is_counted: whether the partition epoch rises though nothing has changed.
        """
        before = self.at_place(place)
        base = self._base(place) or before
        after = replace(before, **fields)
        if is_new_epoch or after.leader != before.leader:
            freed = {"asked": -1, "move": "", **{k: fields[k] for k in fields if k == "move"}}
            epoch = base.leader_epoch + 1
            after = replace(after, leader_epoch=epoch, fence=self.at.offset, **freed)
        if is_new_epoch or is_counted or _is_counted(base, after):
            is_made = self._base(place) is None
            after = replace(after, partition_epoch=base.partition_epoch + (0 if is_made else 1))
        if election:
            self.elections[place] = election
        self._store(place, before, after)
        return after

    def _open(self) -> None:
        if self.is_written:
            raise BrokenInvariant(f"{self.name}: changed after it was written")

    def _base(self, place: Place) -> Partition | None:
        """A partition as it was before this step."""
        row: Partition | None = self.entries(PARTITIONS).get(*place)
        return row

    def _store(self, place: Place, before: Partition | None, after: Partition | None) -> None:
        self._open()
        self._check(place, before, after)
        self._count(before, -1)
        self._count(after, 1)
        self._rows[place] = after
        self._places.setdefault(place[0], set()).add(place)
        for broker in _brokers(after):
            self._places.setdefault(broker, set()).add(place)

    def _count(self, row: Partition | None, number: int) -> None:
        """Keep `Broker.moving` of a leader."""
        leader = self.broker(row.leader) if row is not None and row.move else None
        if leader is not None:
            self.put(replace(leader, moving=leader.moving + number))

    def _check(self, place: Place, before: Partition | None, after: Partition | None) -> None:
        """Hold a change against the tables.  # INV-76"""
        was, now = states.partition_state(before), states.partition_state(after)
        is_elected = (before and before.leader_epoch) != (after and after.leader_epoch)
        if was is not now or (is_elected and now is states.PartitionState.ONLINE):
            states.move_partition(was, now)
        is_first = place not in self._rows
        for broker in sorted({*_brokers(before), *_brokers(after)}):
            was_ready = self._was_ready(broker) if is_first else self.is_ready(broker)
            old = states.replica_state(before, broker, was_ready)
            new = states.replica_state(after, broker, self.is_ready(broker))
            is_notified = new is ReplicaState.ONLINE and is_elected
            is_out = new is ReplicaState.OFFLINE and _is_in(before, broker) > _is_in(after, broker)
            if old is not new or is_notified or is_out:
                states.move_replica(old, new)

    def _was_ready(self, number: int) -> bool:
        broker = self.before.brokers.get(number)
        return broker is not None and broker.is_ready

    # -- the end of a step -----------------------------------------------------------------

    def write(self) -> None:
        """Let happen what the step has changed; once in a step."""
        if self.is_written:
            return
        self.is_written = True
        changed = [
            (place, self._base(place), self._rows[place])
            for place in sorted(self._rows)
            if self._rows[place] != self._base(place)
        ]
        self._put_entries(changed)
        if self.value is not None:
            brokers = changed_brokers(self.before, self.live)
            if brokers:
                self.change(generation=next_generation(self.live.generation))
            self._tell(changed, brokers)

    def _put_entries(self, changed: list[Changed]) -> None:
        for name, topic in sorted(self._topics.items()):
            self.put_entry(TOPICS, (name, 0), None if topic is None else saved_topic(topic))
        for place, _, row in changed:
            self.put_entry(PARTITIONS, place, None if row is None else saved_partition(row))

    def _tell(self, changed: list[Changed], brokers: list[Any]) -> None:
        for line in lines(changed, self.elections, self.before):
            self.record(stored.EVENT_PARTITIONS_CHANGED, reason=self.reason, detail=line)
        topics = sorted(self._topics.items())
        self.effects += published(self.name, brokers)
        self.effects += notices(self, brokers, topics, changed)

    def room_of(self, broker: Broker) -> bool:
        """Whether the cluster and the shard have room for this broker."""
        known = self.broker(broker.broker)
        size_bytes = broker.size_bytes - (known.size_bytes if known else 0)
        is_in_head = self.cluster.size_bytes() + size_bytes <= limits.GROUP_BYTES_MAX
        return is_in_head and size_bytes <= (
            self.room_bytes if known is None else self.members_room_bytes
        )


def _is_counted(base: Partition, after: Partition) -> bool:
    return (base.leader, base.isr, base.replicas) != (after.leader, after.isr, after.replicas)


def _brokers(row: Partition | None) -> tuple[int, ...]:
    return () if row is None else (*row.replicas, *row.deleting)


def _is_in(row: Partition | None, broker: int) -> bool:
    return row is not None and broker in row.isr


NOT_ITS_OWN_WORD = "Only the broker itself can say that: it is not yours."


def find_own(
    step: ClusterStep, request: "api.BrokerHeartbeat | api.AlterPartition | api.ReplicasDeleted"
) -> Broker | tuple[ErrorCode, str | None]:
    """The broker that sent this request, in its registered incarnation, or why it is not judged."""
    broker = step.broker(request.broker)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED, None
    if broker.incarnation != request.incarnation:
        return ErrorCode.STALE_BROKER_EPOCH, None
    if broker.client != request.client:
        return ErrorCode.INVALID_REQUEST, NOT_ITS_OWN_WORD
    return broker
