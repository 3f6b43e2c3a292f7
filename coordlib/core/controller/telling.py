"""What a step tells: history of partitions, brokers in `coord.metadata`, notices to all brokers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordlib import limits
from coordlib.core.controller.cluster import Broker, Cluster
from coordlib.core.controller.rows import BROKER, Partition, Topic, key_of
from coordlib.core.controller.states import ReplicaState
from coordlib.core.engine import effect as fx
from coordlib.core.engine.routing import METADATA
from coordlib.core.engine.table import Place
from coordlib.core.wire import codec
from coordlib.core.wire import responses as rs
from coordlib.core.wire.clusters import BrokerEndpoint, BrokerValue

if TYPE_CHECKING:
    from coordlib.core.controller.step import ClusterStep

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


def replica_row(place: Place, row: Partition) -> rs.ReplicaRow:
    """A partition as brokers are told of it."""
    return rs.ReplicaRow(
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


def topic_row(name: str, topic: Topic | None) -> rs.TopicRow:
    """A topic as brokers are told of it; None: it is gone."""
    if topic is None:
        return rs.TopicRow(name, -1, 0, 1, False, True)
    return rs.TopicRow(
        name, topic.topic_id, topic.partitions, topic.min_isr, topic.unclean, topic.is_deleting
    )


def broker_row(broker: Broker) -> rs.BrokerRow:
    """A broker as others are told of it."""
    return rs.BrokerRow(
        broker.broker, broker.incarnation, broker.state.value, broker.endpoints, broker.rack
    )


def _gone_row(place: Place, row: Partition) -> rs.ReplicaRow:
    return rs.ReplicaRow(
        *place, row.topic_id, -1, row.leader_epoch, row.partition_epoch, row.fence, (), ()
    )


def parts(**fields: Iterable[Any]) -> Iterator[Part]:
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


def brokers_told(before: Cluster, after: Cluster) -> list[BrokerChange]:
    """The brokers of which others must be told, or whose generation ends."""
    found: list[BrokerChange] = []
    if before.brokers is after.brokers:
        return found  # an ISR changed: nothing that grows with the brokers is looked at
    for number in sorted(before.brokers.keys() | after.brokers.keys()):
        was, now = before.brokers.get(number), after.brokers.get(number)
        if was is not now and _told_of(was) != _told_of(now):
            found.append((number, was, now))
    return found


def _told_of(broker: Broker | None) -> Any:
    return broker and (broker.incarnation, broker.state, broker.since)


def published(cluster: str, told: Iterable[BrokerChange]) -> Iterator[fx.Publish]:
    """Records of brokers in `coord.metadata`: of those alone that are Active or Stopping."""
    for number, was, now in told:
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
    told: Sequence[BrokerChange],
    topics: Iterable[tuple[str, Topic | None]],
    changed: Iterable[Changed],
) -> Iterator[fx.Notify]:
    """MetadataChanged for each partition of the answers that a broker of the cluster reads."""
    all_of_it = parts(
        gone=_gone(told),
        brokers=(broker_row(now) for _, _, now in told if now is not None and now.is_ready),
        topics=(topic_row(name, topic) for name, topic in topics),
        partitions=(row for each in changed if (row := _told_row(*each))),
    )
    said = [
        rs.MetadataChanged(
            group=step.name,
            cause=step.at.coordinate,
            generation=step.live.generation,
            **part.fields,
        )
        for part in all_of_it
        if part.size_bytes
    ]
    for reply in step.live.replies:
        for each in said:
            yield fx.Notify(reply, each)


def _told_row(place: Place, was: Partition | None, now: Partition | None) -> rs.ReplicaRow | None:
    """The row as it is told, where that has changed."""
    if now is None:
        return None if was is None else _gone_row(place, was)
    row = replica_row(place, now)
    return row if was is None or replica_row(place, was) != row else None


def _gone(told: Iterable[BrokerChange]) -> Iterator[rs.GoneBroker]:
    for number, was, now in told:
        is_gone = now is None or not now.is_ready or (was and was.incarnation != now.incarnation)
        if was is not None and was.is_ready and is_gone:
            yield rs.GoneBroker(number, was.incarnation)
