"""Brokers of clusters, and their topics."""

from typing import Any, Final

from coordlib import limits
from coordlib.core.wire import api
from tests.tools import clusters
from tests.tools.bytes_out.measure import (
    ALL_NAMED,
    ALL_PARTITIONS,
    NAME,
    PARTITIONS,
    PRODUCTION,
    TOPIC,
    Made,
    case,
    silence,
)
from tests.tools.driving import Conversation

#: As many as one partition may have.
BROKERS: Final = range(limits.INT32_MAX - limits.REPLICAS_MAX, limits.INT32_MAX)
FIRST, LAST = BROKERS[0], BROKERS[-1]


def _cluster(partitions: int = PARTITIONS) -> Conversation:
    """Active brokers that all have all partitions of a topic with a long name."""
    talk = Conversation(PRODUCTION)
    for broker in BROKERS:
        talk.send(clusters.register(broker, group=NAME, storage="s"))
    for broker in BROKERS:
        talk.send(_beat(talk, broker))
    talk.tick()
    if partitions:
        topic = clusters.new_topic(TOPIC, partitions, len(BROKERS))
        talk.send(clusters.create(topic, group=NAME))
        talk.tick()
    return talk


def _broker(talk: Conversation, number: int) -> Any:
    return clusters.cluster_of(talk.shard, NAME).brokers[number]


def _beat(talk: Conversation, number: int, target: str = "Active") -> api.BrokerHeartbeat:
    """Of a broker as the cluster knows it."""
    known = _broker(talk, number)
    return clusters.beat(number, known.incarnation, known.since, target, group=NAME)


def _about(request: type[Any], **fields: Any) -> Any:
    return clusters.about(request, group=NAME, **fields)


@case(
    "RegisterBroker",
    "a broker comes back that has many replicas",
    times=ALL_PARTITIONS,
)
def _() -> Made:
    return _cluster(), [clusters.register(FIRST, group=NAME, storage="s")]


@case(
    "BrokerHeartbeat",
    "a broker that leads stops",
    times=ALL_PARTITIONS,
)
def _() -> Made:
    talk = _cluster()
    return talk, [_beat(talk, FIRST, "Inactive")]


@case(
    "AlterPartition",
    "another ISR of many partitions",
    times=ALL_NAMED,
)
def _() -> Made:
    talk = _cluster()
    leads: dict[int, dict[Any, Any]] = {}
    known = {number: _broker(talk, number).incarnation for number in BROKERS}
    for place, row in clusters.partitions_of(talk.shard, NAME).items():
        isr = ((row.leader, known[row.leader]),)
        leads.setdefault(row.leader, {})[place] = (row.leader_epoch, row.partition_epoch, isr)
    broker = max(leads)
    return talk, [clusters.alter(broker, known[broker], leads[broker], group=NAME)]


@case(
    "AlterPartition",
    "of partitions that are not there",
    times=ALL_NAMED,
)
def _() -> Made:
    talk = _cluster(0)
    rows = {("t", number): (0, 0, ((FIRST, 0),)) for number in range(PARTITIONS)}
    return talk, [clusters.alter(FIRST, _broker(talk, FIRST).incarnation, rows, group=NAME)]


@case("CreateTopics", "one with many partitions", times=ALL_PARTITIONS)
def _() -> Made:
    return _cluster(0), [
        clusters.create(clusters.new_topic(TOPIC, PARTITIONS, len(BROKERS)), group=NAME)
    ]


@case("CreateTopics", "many with short names", times=ALL_NAMED)
def _() -> Made:
    some = [clusters.new_topic(f"t{n}", 1, len(BROKERS)) for n in range(PARTITIONS)]
    return _cluster(0), [clusters.create(*some, group=NAME)]


@case("CreateTopics", "names that none can have", times=ALL_NAMED)
def _() -> Made:
    some = [clusters.new_topic(f"\u00e9{n}") for n in range(PARTITIONS)]
    return _cluster(0), [clusters.create(*some, group=NAME)]


@case("CreatePartitions", "many more", times=ALL_PARTITIONS)
def _() -> Made:
    return _cluster(1), [_about(api.CreatePartitions, topic=TOPIC, count=PARTITIONS)]


@case("DeleteTopics", "one with many partitions", times=ALL_PARTITIONS)
def _() -> Made:
    return _cluster(), [_about(api.DeleteTopics, topics=(TOPIC,))]


@case(
    "ReplicasDeleted",
    "of many partitions, by the last broker",
    times=ALL_NAMED,
)
def _() -> Made:
    talk = _cluster()
    topic_id = clusters.topics_of(talk.shard, NAME)[TOPIC].topic_id
    talk.send(_about(api.DeleteTopics, topics=(TOPIC,)))
    rows = [
        api.DeletedReplica(topic=TOPIC, topic_id=topic_id, partition=n) for n in range(PARTITIONS)
    ]
    for broker in BROKERS[:-1]:
        talk.send(clusters.deleted(broker, _broker(talk, broker).incarnation, *rows, group=NAME))
    return talk, [clusters.deleted(LAST, _broker(talk, LAST).incarnation, *rows, group=NAME)]


@case("UnregisterBroker", "one that is away, with deletions that wait for it")
def _() -> Made:
    talk = _cluster()
    talk.send(_beat(talk, LAST, "Inactive"))
    talk.send(_about(api.DeleteTopics, topics=(TOPIC,)))
    talk.tick()
    return talk, [_about(api.UnregisterBroker, broker=LAST)]


@case("ElectLeaders", "all that need it", times=ALL_PARTITIONS // 5)
def _() -> Made:
    talk = _cluster(5 * PARTITIONS)
    talk.send(_beat(talk, FIRST, "Inactive"))
    talk.tick()
    talk.send(_beat(talk, FIRST))
    talk.tick()
    return talk, [_about(api.ElectLeaders, election="preferred")]


@case(
    "AlterPartitionReassignments",
    "many partitions to one broker",
    times=ALL_NAMED,
)
def _() -> Made:
    rows = tuple(api.Reassignment(TOPIC, n, (FIRST,)) for n in range(PARTITIONS))
    return _cluster(), [_about(api.AlterPartitionReassignments, partitions=rows)]


@case(
    "AlterPartitionReassignments",
    "of partitions that are not there",
    times=ALL_NAMED,
)
def _() -> Made:
    rows = tuple(api.Reassignment("t", n, None) for n in range(PARTITIONS))
    return _cluster(0), [_about(api.AlterPartitionReassignments, partitions=rows)]


@case("Metadata", "of everything")
def _() -> Made:
    return _cluster(), [_about(api.Metadata)]


@case(
    "Tick",
    "a broker's session ends, which leads many partitions",
    times=ALL_PARTITIONS,
    after_ms=1_000,
)
def _() -> Made:
    talk = _cluster()
    talk.send(_beat(talk, FIRST))
    return talk, silence(talk, 9)
