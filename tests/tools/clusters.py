"""Requests of brokers and about clusters, with what rarely matters left out; clusters so far.

talk = Conversation()
talk.send(register(1))
talk.send(beat(1, incarnation=0, since=0))
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from coordlib.core.controller.states import PARTITIONS, TOPICS, Cluster, Partition, Topic
from coordlib.core.engine.rows import Row
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api
from tests.tools.core import Shard
from tests.tools.driving import Conversation

#: Longer than what these conversations take, unless one waits for it.
SESSION_MS: Final = 10_000
RELEASE_MS: Final = 20_000


def register(broker: int, **fields: Any) -> api.RegisterBroker:
    """RegisterBroker of a client that is called as its broker is."""
    defaults: dict[str, Any] = {
        "id": "r1",
        "client": f"b{broker}",
        "group": "g",
        "endpoints": (api.Endpoint("in", f"host-{broker}", 9092),),
        "session_timeout_ms": SESSION_MS,
        "release_timeout_ms": RELEASE_MS,
    }
    return api.RegisterBroker(v=1, broker=broker, **{**defaults, **fields})


def beat(
    broker: int, incarnation: int, since: int, target: str = "Active", **fields: Any
) -> api.BrokerHeartbeat:
    """BrokerHeartbeat."""
    fields = {"id": "b", "client": f"b{broker}", "group": "g", **fields}
    return api.BrokerHeartbeat(
        v=1,
        broker=broker,
        incarnation=incarnation,
        since=since,
        target_state=target,  # type: ignore[arg-type]  # tests say what no broker may
        **fields,
    )


def alter(
    broker: int,
    incarnation: int,
    rows: Mapping[Place, tuple[int, int, tuple[tuple[int, int], ...]]],
    recovered: bool = False,
    **fields: Any,
) -> api.AlterPartition:
    """AlterPartition; rows: leader epoch, partition epoch, and (broker, incarnation) of the ISR."""
    fields = {"id": "a", "client": f"b{broker}", "group": "g", **fields}
    topics: dict[str, list[api.AlteredPartition]] = {}
    for (topic, number), (leader_epoch, partition_epoch, isr) in rows.items():
        row = api.AlteredPartition(
            partition=number,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=tuple(api.InSyncReplica(*each) for each in isr),
            recovered=recovered,
        )
        topics.setdefault(topic, []).append(row)
    named = tuple(api.AlteredTopic(topic, tuple(some)) for topic, some in topics.items())
    return api.AlterPartition(v=1, broker=broker, incarnation=incarnation, topics=named, **fields)


def deleted(
    broker: int, incarnation: int, *rows: api.DeletedReplica, **fields: Any
) -> api.ReplicasDeleted:
    """ReplicasDeleted."""
    fields = {"id": "d", "client": f"b{broker}", "group": "g", **fields}
    return api.ReplicasDeleted(v=1, broker=broker, incarnation=incarnation, results=rows, **fields)


def lets_go(client: str, member: str, cause: int, **fields: Any) -> api.Release:
    """Release of one demand."""
    fields = {"id": "l", "group": "g", "generation": 0, "space": "cluster", **fields}
    return api.Release(v=1, client=client, member=member, cause=cause, **fields)


def leaves(client: str, *members: str, **fields: Any) -> api.LeaveGroup:
    """LeaveGroup of a cluster."""
    fields = {"id": "l", "group": "g", "space": "cluster", **fields}
    return api.LeaveGroup(v=1, client=client, members=tuple(map(api.Leaver, members)), **fields)


def lives(client: str, member: str, **fields: Any) -> api.Heartbeat:
    """Heartbeat of a broker."""
    fields = {"id": "h", "group": "g", "generation": 0, "space": "cluster", **fields}
    return api.Heartbeat(v=1, client=client, member=member, **fields)


def new_topic(topic: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> api.NewTopic:
    """A topic to be made; with `assignment` a list of replicas by partition."""
    given = fields.pop("assignment", None)
    if given is None:
        return api.NewTopic(
            topic=topic, partitions=partitions, replication_factor=replicas, **fields
        )
    rows = {str(number): tuple(each) for number, each in enumerate(given)}
    return api.NewTopic(topic=topic, assignment=rows, **fields)


def create(*topics: api.NewTopic, **fields: Any) -> api.CreateTopics:
    """CreateTopics by an operator."""
    request: api.CreateTopics = about(api.CreateTopics, topics=topics, **fields)
    return request


def about(request: type[Any], **fields: Any) -> Any:
    """A request of an operator about the cluster."""
    return request(**{"v": 1, "id": "o", "client": "ops", "group": "g", **fields})


def elect(election: str, *places: Place, **fields: Any) -> api.ElectLeaders:
    """ElectLeaders; without places: all that need it."""
    rows = tuple(api.PartitionName(*each) for each in places) or None
    request: api.ElectLeaders = about(
        api.ElectLeaders, election=election, partitions=rows, **fields
    )
    return request


def move(place: Place, replicas: tuple[int, ...] | None, **fields: Any) -> Any:
    """AlterPartitionReassignments of one partition."""
    row = api.Reassignment(*place, replicas)
    return about(api.AlterPartitionReassignments, partitions=(row,), **fields)


# -- what a shard has -------------------------------------------------------------------------


def row_of(shard: Shard, name: str = "g") -> Row:
    """The row of a cluster."""
    return shard.row(name, "cluster")


def cluster_of(shard: Shard, name: str = "g") -> Cluster:
    """The head of a cluster."""
    cluster: Cluster = row_of(shard, name).value
    return cluster


def partitions_of(shard: Shard, name: str = "g") -> dict[Place, Partition]:
    """All partitions of a cluster."""
    entries = row_of(shard, name).entries(PARTITIONS)
    return {(topic, number): row for topic, number, row in entries}


def topics_of(shard: Shard, name: str = "g") -> dict[str, Topic]:
    """All topics of a cluster."""
    return {topic: row for topic, _, row in row_of(shard, name).entries(TOPICS)}


def partition(talk: Conversation, topic: str = "t", number: int = 0) -> Partition:
    """One partition."""
    return partitions_of(talk.shard)[topic, number]


# -- clusters that have come so far -----------------------------------------------------------

#: Member ids of the brokers 1, 2 and 3 below.
MEMBERS: Final = {1: "b1-t-0-0", 2: "b2-t-0-1", 3: "b3-t-0-2"}


def registered() -> Conversation:
    """Brokers 1, 2 and 3 have said that they are there; nobody is Active."""
    talk = Conversation()
    talk.send_all(*(register(number, storage=f"disk-{number}") for number in MEMBERS))
    talk.tick()
    return talk


def active(*topics: api.NewTopic) -> Conversation:
    """All three are Active; a topic "t" of one partition lies on 1, 2 and 3, if none is named."""
    talk = registered()
    for number in MEMBERS:
        talk.send(beat(number, number - 1, number - 1))
    talk.send(create(*(topics or (new_topic("t", assignment=[(1, 2, 3)]),))))
    talk.tick()
    return talk


def says(talk: Conversation, broker: int, target: str, **fields: Any) -> list[str]:
    """A broker says what it wants, as it knows its state."""
    known = cluster_of(talk.shard).brokers[broker]
    return talk.send(beat(broker, known.incarnation, known.since, target, **fields))


def stopping() -> Conversation:
    """Broker 1, which leads, stops, and is asked to let go."""
    talk = active()
    says(talk, 1, "Stopping")
    talk.tick()
    return talk


def guarded() -> Conversation:
    """Broker 1 was removed by an operator while it led: what it led is guarded."""
    talk = active()
    talk.send(leaves("ops", MEMBERS[1]))
    talk.tick()
    return talk


def leaderless() -> Conversation:
    """All three are silent: the last one stays in the ISR."""
    talk = active()
    talk.wait(12_000)
    return talk


def deleting() -> Conversation:
    """The topic is being deleted; broker 3 is away."""
    talk = active()
    says(talk, 3, "Inactive")
    talk.send(about(api.DeleteTopics, topics=("t",)))
    talk.tick()
    return talk


def moving() -> Conversation:
    """The partition moves from 1 and 2 to 2 and 3, which has to catch up."""
    talk = active(new_topic("t", assignment=[(1, 2)]))
    talk.send(move(("t", 0), (2, 3)))
    talk.tick()
    return talk


STATES: Final[Mapping[str, Callable[[], Conversation]]] = {
    "absent": Conversation,
    "Registered": registered,
    "Active": active,
    "Stopping": stopping,
    "Guarded": guarded,
    "Leaderless": leaderless,
    "Deleting": deleting,
    "Moving": moving,
}


def with_fields(request: Any, **fields: Any) -> Any:
    """The same request with other fields."""
    return msgspec.structs.replace(request, **fields)
