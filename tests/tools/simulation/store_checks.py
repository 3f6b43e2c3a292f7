"""A cluster of stores, at rest and at the end of a run.

At rest everybody is Active, everything is led that can be, nobody waits for anybody, and what
brokers believe is what the topics hold. At the end the history is looked through, line by line.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from coordlib.client.kit.events import TopicPartition
from coordlib.core.controller import states as kept
from coordlib.core.controller.states import BrokerState, Cluster, Partition
from coordlib.core.controller.step import broker_row, replica_row
from coordlib.core.engine.effects import METADATA, Output
from coordlib.core.wire import api, stored
from coordlib.core.wire.stored import PartitionValue
from tests.tools.cluster_soundness import changes
from tests.tools.simulation.disks import Place
from tests.tools.simulation.evidence import Asked, Evidence, Told
from tests.tools.simulation.fleet import Fleet
from tests.tools.simulation.store import Store
from tests.tools.simulation.world import PREFIX, Violation, World

Rows = Mapping[Place, Partition]
REGISTRATIONS: Final = frozenset({stored.EVENT_BROKER_REGISTERED, stored.EVENT_BROKER_UNREGISTERED})


def check_peace(world: World) -> None:
    """INV-79, INV-80, INV-81: faults have ended long ago."""
    if world.fleet is None:
        return
    fleet, rows, head = world.fleet, world.fleet.rows(), world.fleet.head()
    if head is None or not rows:
        raise Violation(f"INV-81: the operator has asked for {list(fleet.topics)}, and has nothing")
    _check_brokers(fleet, head)
    _check_nobody_waits(fleet, head, rows)
    _check_led(fleet, head, rows)
    _check_published(fleet, head)
    for store in fleet.living:
        _check_beliefs(store, head, rows)
        _check_disk(store, rows)


def check_mourned(world: World) -> None:
    """INV-81: what a broker led that died in peace is led by others in time."""
    if world.fleet is None:
        return
    head = world.fleet.head()
    if head is not None:
        _check_led(world.fleet, head, world.fleet.rows())
        _check_published(world.fleet, head)
        broker = head.brokers.get(world.fleet.mourned)
        if broker is not None and broker.state is not BrokerState.INACTIVE:
            raise Violation(f"INV-81: broker {broker.broker} is dead, and {broker.state.value}")


def _check_brokers(fleet: Fleet, head: Cluster) -> None:
    for broker in fleet.brokers:
        store, known = fleet.newest[broker], head.brokers.get(broker)
        if known is None or known.incarnation != store.life.incarnation:
            raise Violation(f"INV-79: {store.name} is not broker {broker} of {head.brokers.keys()}")
        if known.state is not BrokerState.ACTIVE:
            raise Violation(f"INV-81: {store.name} is {known.state.value}, and nothing holds it up")


def _check_nobody_waits(fleet: Fleet, head: Cluster, rows: Rows) -> None:
    """INV-80: demands, guards and deletions have ended."""
    asked = [number for number, each in head.brokers.items() if each.demand or each.moving]
    if head.guards or asked:
        raise Violation(f"INV-80: {asked} owe a Release, {list(head.guards)} are guarded")
    for place, row in rows.items():
        if row.deleting or row.guard >= 0:
            raise Violation(f"INV-80: {place} waits: {row}")
        if row.leader >= 0 and (row.adding or row.removing):
            raise Violation(f"INV-80: {place} moves for ever: {row}")


def _check_led(fleet: Fleet, head: Cluster, rows: Rows) -> None:
    """INV-81, INV-78: all that have somebody in sync that is Active; and their logs are whole."""
    for place, row in rows.items():
        if not any(each in head.active for each in row.isr):
            continue
        store = fleet.newest.get(row.leader)
        if store is None or not store.may_lead(place):
            name = store.name if store else "nobody"
            raise Violation(f"INV-81: {name} is to lead {place}, and does not: {row}")
        fleet.require_log(store, place)


def _check_published(fleet: Fleet, head: Cluster) -> None:
    """INV-74, INV-79: `coord.metadata` names those that are ready, and nobody else."""
    known = fleet.world.cluster.newest_by_key(f"{PREFIX}.metadata", fleet.shard)
    named = {msgspec.json.decode(key)[2] for key in known if kept.is_broker_key(key)}
    ready = {number for number, each in head.brokers.items() if each.is_ready}
    if named != ready:
        raise Violation(f"INV-74: coord.metadata names brokers {named}, and {ready} are ready")


def _check_disk(store: Store, rows: Rows) -> None:
    """INV-80: what was deleted is deleted, also where its broker was away meanwhile.

    Nobody waits for a broker that is forgotten; then what it has is its own concern.
    """
    kept_ids = {place: row.topic_id for place, row in rows.items()}
    for topic, partition, topic_id in store.disk.logs if not store.disk.is_forgotten else ():
        if topic_id >= 0 and kept_ids.get((topic, partition)) != topic_id:
            raise Violation(f"INV-80: {store.name} has {topic}/{partition} of id {topic_id} still")


def _check_beliefs(store: Store, head: Cluster, rows: Rows) -> None:
    """INV-79: brokers, topics and partitions as this broker has read of them."""
    known = store.life.metadata(store.transport.now_ms())
    told = {TopicPartition(*place): replica_row(place, row) for place, row in rows.items()}
    for place in sorted({*told, *known.partitions}):
        believed, row = known.partitions.get(place), told.get(place)
        if believed != row:
            raise Violation(f"INV-79: {store.name} believes {believed}, and the log says {row}")
    brokers = {n: broker_row(each) for n, each in head.brokers.items() if each.is_ready}
    if dict(known.brokers) != brokers:
        raise Violation(f"INV-79: {store.name} believes {dict(known.brokers)}, not {brokers}")


# ---- the topics ---------------------------------------------------------------------------------


def check_end(world: World, evidence: Evidence) -> None:
    """INV-71 to INV-77 as far as history and rows tell them, one record after the other."""
    if world.fleet is None:
        return
    fleet = world.fleet
    events = [each for each in evidence.told if each.group == fleet.name]
    _check_history(fleet, events)
    _check_results(evidence)
    _check_entered(fleet, events, evidence)
    _check_late_words(fleet, events, evidence)
    _check_ready(events)
    if world.checkpoints == 1:
        _check_rows(fleet, events)


def _check_rows(fleet: Fleet, events: Iterable[Told]) -> None:
    """INV-72, INV-73: by what history says of each change, since the topic is compacted."""
    before: dict[bytes, PartitionValue] = {}
    for event in events:
        if event.type == "TopicDeleted":
            # One that is made anew begins anew.
            gone = event.detail["topic"]
            before = {key: row for key, row in before.items() if _topic(key) != gone}
        if event.type != "PartitionsChanged":
            continue
        for line in event.detail["partitions"]:
            _check_row(fleet, before, line)


def _topic(key: bytes) -> str:
    _, place = kept.PARTITIONS.place(key) or ("", ("", 0))
    return place[0]


def _check_row(fleet: Fleet, before: dict[bytes, PartitionValue], line: dict[str, object]) -> None:
    topic, partition = str(line["topic"]), int(str(line["partition"]))
    key = kept.PARTITIONS.key(fleet.name, (topic, partition))
    fields = {name: line[name] for name in PartitionValue.__struct_fields__ if name in line}
    value = msgspec.json.encode({"topic_id": 0, **fields})
    row = msgspec.json.decode(value, type=PartitionValue)
    if (row.leader >= 0 and row.leader not in row.isr) or not set(row.isr) <= set(row.replicas):
        raise Violation(f"INV-73: {line}")
    found = list(changes(before, [Output(METADATA, 0, key, value)]))
    if found:
        raise Violation(found[0])


def _check_ready(events: Iterable[Told]) -> None:
    """INV-74: whoever leads is ready when that is decided, and so are all of an ISR of several."""
    ready: set[int] = set()
    for event in events:
        if event.type == "BrokerRegistered":
            ready.discard(event.detail["broker"])
        elif event.type == "BrokerStateChanged":
            keep = event.detail["to"] != BrokerState.INACTIVE
            ready = ready | {event.detail["broker"]} if keep else ready - {event.detail["broker"]}
        elif event.type == "PartitionsChanged":
            for line in event.detail["partitions"]:
                isr = set(line["isr"]) if len(line["isr"]) > 1 else set()
                if not isr | ({line["leader"]} - {-1}) <= ready:
                    raise Violation(f"INV-74: at {event.cause} {line}, and {ready} are ready")


def _check_late_words(fleet: Fleet, events: Iterable[Told], evidence: Evidence) -> None:
    """Rule 12: what a broker says once moves it once, however often and late its record comes."""
    said: dict[tuple[str, str], int] = {}
    again: set[int] = set()
    for each in evidence.asked:
        if each.shard == fleet.shard and isinstance(each.request, api.BrokerHeartbeat):
            key = (each.request.client, each.request.id)
            if said.setdefault(key, each.offset) != each.offset:
                again.add(each.offset)
    for event in events:
        is_own = event.type == "BrokerStateChanged" and event.cause.startswith("r")
        if is_own and event.offset in again:
            raise Violation(f"rule 12: {event.cause} came again, and {event.member} is moved by it")


def _check_results(evidence: Evidence) -> None:
    """INV-75, INV-82: one result for each row, in the order of the request; only leaders' count."""
    for each in evidence.asked:
        if isinstance(each.request, api.CreateTopics):
            for answer in evidence.answers.get(each.coordinate, []):
                names = [row["topic"] for row in answer.get("results", ())]
                if names != [topic.topic for topic in each.request.topics]:
                    raise Violation(f"INV-82: {each.coordinate} is told of {names}")
        if not isinstance(each.request, api.AlterPartition):
            continue
        asked = [(t.topic, row.partition) for t in each.request.topics for row in t.partitions]
        for answer in evidence.answers.get(each.coordinate, []):
            rows = answer.get("results", ())
            found = [(row["topic"], row.get("partition", 0)) for row in rows]
            if answer["error"] == "NONE" and found != asked:
                raise Violation(f"INV-82: {each.coordinate} asks for {asked}, is told of {found}")
            for row in rows:
                if row["error"] == "NONE" and row["leader"] != each.request.broker:
                    raise Violation(f"INV-75: {each.coordinate} is no leader's, and counts: {row}")


def _check_entered(fleet: Fleet, events: Iterable[Told], evidence: Evidence) -> None:
    """INV-75, KIP-903: a change that counts names brokers in the incarnation that is registered."""
    registered: dict[int, int] = {}
    steps = {each.offset: each for each in events if each.type in REGISTRATIONS}
    gone = stored.EVENT_BROKER_UNREGISTERED
    asked = {each.offset: each for each in evidence.asked if each.shard == fleet.shard}
    for offset in sorted({*steps, *asked}):
        if (step := steps.get(offset)) is not None:
            known = -1 if step.type == gone else step.detail["incarnation"]
            registered[step.detail["broker"]] = known
        for place, named in _accepted(asked[offset], evidence) if offset in asked else ():
            if any(registered.get(one.broker) != one.incarnation for one in named):
                raise Violation(
                    f"INV-75: {asked[offset].coordinate} lets {named} into {place}, and "
                    f"{registered} are registered"
                )


def _accepted(
    each: Asked, evidence: Evidence
) -> Iterator[tuple[Place, tuple[api.InSyncReplica, ...]]]:
    """The rows of an AlterPartition that count: where, and whom they name."""
    request = each.request
    if not isinstance(request, api.AlterPartition):
        return
    wanted = {(t.topic, row.partition): row.isr for t in request.topics for row in t.partitions}
    for answer in evidence.answers.get(each.coordinate, []):
        for row in answer.get("results", ()):
            if row["error"] in {"NONE", "NEW_LEADER_ELECTED"}:
                place = (row["topic"], row.get("partition", 0))
                yield place, wanted[place]


def _check_history(fleet: Fleet, events: Iterable[Told]) -> None:
    """INV-77: unclean elections only where an operator or the topic allows them."""
    unclean = {name for name, topic in fleet.topics.items() if topic.unclean}
    for event in events:
        if event.type == "GroupQuarantined":
            raise Violation(f"INV-42: the cluster was set aside: {event.detail}")
        if event.type != "PartitionsChanged" or "unclean election" in event.reason:
            continue
        for line in event.detail["partitions"]:
            if line.get("election") == "unclean" and line["topic"] not in unclean:
                raise Violation(f"INV-77: {line} was elected, and nobody has allowed it")
