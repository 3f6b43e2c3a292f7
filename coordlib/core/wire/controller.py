"""Clusters of brokers and their controller: registration, in-sync replicas, topics.

Source: KIP-343 (seed 001); KIP-380 and KIP-903 for incarnations, KIP-497 for AlterPartition. Topics
are made, extended, deleted and moved by requests that anybody may send: seed 004's controller;
KIP-460 (ElectLeaders), KIP-455 (AlterPartitionReassignments). A cluster has names of its own: the
space `cluster`.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import (
    NAMED_TWICE,
    Count,
    Int32,
    Name,
    Part,
    Reason,
    Request,
    Response,
    Waits,
    names_fault,
    optional_names_fault,
)
from coordlib.errors import ErrorCode

CLUSTER: str = "cluster"
#: The offset of a broker's RegisterBroker; -1: none.
MaybeIncarnation = Annotated[int, Meta(ge=-1, le=limits.INT64_MAX)]
#: Brokers of this version and above prove that they live (KIP-343: BrokerInfo 5).
VERSION_WITH_HEARTBEATS: int = 5


class ClusterRequest(Request, frozen=True, kw_only=True):
    """A request about a cluster; `group` names it."""

    SPACE: ClassVar[str] = CLUSTER
    WAITS: ClassVar[Waits] = Waits.WITH_ITS_GROUP


class Endpoint(Part, frozen=True):
    """Where a broker can be reached, for others."""

    name: Name
    host: Annotated[str, Meta(max_length=limits.HOST_LENGTH_MAX)]
    port: Annotated[int, Meta(ge=1, le=limits.PORT_MAX)]


class RegisterBroker(ClusterRequest, tag="RegisterBroker", frozen=True, kw_only=True):
    """A broker process is there; its incarnation is the offset of this record.

    A newer registration of a broker id wins over the older one, at once (KIP-343).
    """

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    broker: Int32
    endpoints: Annotated[tuple[Endpoint, ...], Meta(min_length=1, max_length=limits.ENDPOINTS_MAX)]
    rack: Name | None = None
    #: Silence for as long makes the broker Inactive.
    session_timeout_ms: Int32
    #: How long the broker may take to let go of leaderships that it is asked for.
    release_timeout_ms: Int32
    #: Names what outlives the process; "": nothing does.
    storage: Name = ""
    #: The incarnation whose process has certainly ended: this one holds the lock of its folder.
    previous: MaybeIncarnation = -1
    #: Below 5: a broker that sends no heartbeats, and counts as Active until it is removed.
    version: Int32 = VERSION_WITH_HEARTBEATS
    reason: Reason | None = None

    def fault(self) -> str | None:
        """Endpoints have hosts, and names of their own."""
        names = [each.name for each in self.endpoints]
        hosts = [each.host for each in self.endpoints]
        if len(set(names)) < len(names):
            return "endpoints name one listener twice: name each once."
        return (
            names_fault("endpoints.name", names)
            or names_fault("endpoints.host", hosts, limits.HOST_LENGTH_MAX)
            or (None if self.rack is None else names_fault("rack", [self.rack]))
            or optional_names_fault("storage", [self.storage])
        )


class ReplicaRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition as brokers are told of it; without `replicas`: it is gone."""

    topic: str
    partition: int
    #: Of the topic: one that is made anew has another.
    topic_id: int
    #: -1: none.
    leader: int
    leader_epoch: int
    partition_epoch: int
    #: Offset of the record that gave or took the leadership: a token for other systems.
    fence: int
    #: In order of preference.
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    #: Whether its leader was elected uncleanly and has not said since that it recovered.
    recovering: bool = False
    #: Brokers that have to delete their replica now, and to answer with ReplicasDeleted.
    deleting: tuple[int, ...] = ()


class RegisterBrokerResponse(Response, tag="RegisterBroker", frozen=True, kw_only=True):
    """Large answers come as several records."""

    broker: int | UnsetType = UNSET
    incarnation: int | UnsetType = UNSET
    member: str | UnsetType = UNSET
    current_state: str | UnsetType = UNSET
    #: Offset of the record that gave the state.
    since: int | UnsetType = UNSET
    generation: int | UnsetType = UNSET
    #: All that have a replica on this broker.
    partitions: tuple[ReplicaRow, ...] | UnsetType = UNSET
    part: int | UnsetType = UNSET
    parts: int | UnsetType = UNSET


class BrokerHeartbeat(ClusterRequest, tag="BrokerHeartbeat", frozen=True, kw_only=True):
    """The state that a broker wants to be in (KIP-343, MetadataHeartbeat); always answered.

    Sent when the target and the state differ. Signs of life are plain Heartbeats.
    """

    broker: Int32
    incarnation: Count
    #: The record that gave the present state, as the broker knows it: a late request names another.
    since: Count
    target_state: Literal["Active", "Stopping", "Inactive"]
    reason: Reason | None = None


class BrokerHeartbeatResponse(Response, tag="BrokerHeartbeat", frozen=True, kw_only=True):
    """The state that the broker is in by now."""

    broker: int | UnsetType = UNSET
    incarnation: int | UnsetType = UNSET
    current_state: str | UnsetType = UNSET
    since: int | UnsetType = UNSET
    #: Whether nothing is left to be let go of by a broker that stops.
    may_stop: bool | UnsetType = UNSET


class InSyncReplica(Part, frozen=True):
    """A broker in an ISR, in the incarnation that fetched (KIP-903)."""

    broker: Int32
    incarnation: Count


class AlteredPartition(Part, frozen=True, kw_only=True):
    """One partition of an AlterPartition: the ISR that its leader wants."""

    partition: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    isr: tuple[InSyncReplica, ...]
    #: Whether the leader has recovered from an unclean election.
    recovered: bool = False


class AlteredTopic(Part, frozen=True):
    """Partitions of one topic."""

    topic: Name
    partitions: Annotated[
        tuple[AlteredPartition, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
    ]
    #: Which topic of that name, by its creation (KIP-516); left out: whichever is there. Epochs of
    #: a topic that is made anew begin at 0 again: only this tells a late request of the former.
    topic_id: Count | UnsetType = UNSET


class AlterPartition(ClusterRequest, tag="AlterPartition", frozen=True, kw_only=True):
    """A leader wants other in-sync replicas (KIP-343, IsrChange; KIP-497)."""

    broker: Int32
    incarnation: Count
    topics: Annotated[
        tuple[AlteredTopic, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
    ]

    def fault(self) -> str | None:
        """Each partition is named once."""
        places = [(t.topic, row.partition) for t in self.topics for row in t.partitions]
        return places_fault("topics", places)


class AlteredRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one partition of an AlterPartition was judged, and how it stands now."""

    topic: str
    partition: int
    error: str
    message: str | UnsetType = UNSET
    design_error: str | UnsetType = UNSET
    leader: int | UnsetType = UNSET
    leader_epoch: int | UnsetType = UNSET
    partition_epoch: int | UnsetType = UNSET
    isr: tuple[int, ...] | UnsetType = UNSET


class AlterPartitionResponse(Response, tag="AlterPartition", frozen=True, kw_only=True):
    """One row for each partition, in the order of the request."""

    results: tuple[AlteredRow, ...] | UnsetType = UNSET


class DeletedReplica(Part, frozen=True, kw_only=True):
    """What became of the deletion of one replica."""

    topic: Name
    topic_id: Count
    partition: Int32
    error: Literal["NONE", "KAFKA_STORAGE_ERROR"] = "NONE"


class ReplicasDeleted(ClusterRequest, tag="ReplicasDeleted", frozen=True, kw_only=True):
    """A broker has deleted replicas, or cannot (Kafka: the answer to StopReplica)."""

    broker: Int32
    incarnation: Count
    results: Annotated[
        tuple[DeletedReplica, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
    ]

    def fault(self) -> str | None:
        """Each partition is named once."""
        return places_fault("results", [(row.topic, row.partition) for row in self.results])


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a row about one partition was judged."""

    topic: str
    partition: int
    error: str
    message: str | UnsetType = UNSET


class ReplicasDeletedResponse(Response, tag="ReplicasDeleted", frozen=True, kw_only=True):
    """One row for each replica, in the order of the request."""

    results: tuple[PartitionResult, ...] | UnsetType = UNSET


class UnregisterBroker(ClusterRequest, tag="UnregisterBroker", frozen=True, kw_only=True):
    """Forget a broker that is Inactive for ever; no deletion waits for it any more."""

    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = frozenset()

    broker: Int32


class UnregisterBrokerResponse(Response, tag="UnregisterBroker", frozen=True, kw_only=True):
    """NONE: it is forgotten."""


def places_fault(field: str, places: list[tuple[str, int]]) -> str | None:
    """What is wrong with the partitions that a request names."""
    if len(places) > limits.ROWS_PER_REQUEST_MAX:
        return f"{field} has {len(places)} rows: send at most {limits.ROWS_PER_REQUEST_MAX}."
    if len(set(places)) < len(places):
        return NAMED_TWICE.format(field)
    return names_fault(f"{field}.topic", dict.fromkeys(topic for topic, _ in places))


#: Any text: what is no name of a topic is refused row by row.
TopicName = Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]
Replicas = tuple[Int32, ...]
#: Partition (as text, JSON has no other keys) -> its replicas, the preferred leader first.
Assignment = dict[str, Replicas]
Number = Annotated[int, Meta(ge=-limits.INT32_MAX - 1, le=limits.INT32_MAX)]


class NewTopic(Part, frozen=True, kw_only=True):
    """A topic with a number of partitions and replicas, or with an assignment."""

    topic: TopicName
    partitions: Number = -1
    replication_factor: Number = -1
    assignment: Assignment | None = None
    #: So many in-sync replicas a leader should have to acknowledge a write.
    min_isr: Annotated[int, Meta(ge=1, le=limits.REPLICAS_MAX)] = 1
    #: Whether a replica that is not in sync may lead when no other can.
    unclean: bool = False


class CreateTopics(ClusterRequest, tag="CreateTopics", frozen=True, kw_only=True):
    """Make topics."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS

    topics: Annotated[
        tuple[NewTopic, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
    ]
    #: Judge, and make nothing.
    validate_only: bool = False

    def fault(self) -> str | None:
        """Each topic is named once."""
        return topics_fault([each.topic for each in self.topics])


class TopicResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a row about one topic was judged."""

    topic: str
    error: str
    message: str | UnsetType = UNSET


class CreateTopicsResponse(Response, tag="CreateTopics", frozen=True, kw_only=True):
    """One row for each topic, in the order of the request."""

    results: tuple[TopicResult, ...] | UnsetType = UNSET


class CreatePartitions(ClusterRequest, tag="CreatePartitions", frozen=True, kw_only=True):
    """Give a topic more partitions."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS

    topic: TopicName
    #: How many it is to have.
    count: Number
    #: Of the new partitions, by their numbers; null: placed as CreateTopics does.
    assignment: Assignment | None = None


class CreatePartitionsResponse(Response, tag="CreatePartitions", frozen=True, kw_only=True):
    """One row."""

    results: tuple[TopicResult, ...] | UnsetType = UNSET


class DeleteTopics(ClusterRequest, tag="DeleteTopics", frozen=True, kw_only=True):
    """Delete topics; of one that is being deleted, try again what failed."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS

    topics: Annotated[
        tuple[TopicName, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
    ]

    def fault(self) -> str | None:
        """Each topic is named once."""
        return topics_fault(self.topics)


class DeleteTopicsResponse(Response, tag="DeleteTopics", frozen=True, kw_only=True):
    """One row for each topic; NONE: its deletion has begun."""

    results: tuple[TopicResult, ...] | UnsetType = UNSET


class PartitionName(Part, frozen=True):
    """A partition."""

    topic: TopicName
    partition: Int32


class ElectLeaders(ClusterRequest, tag="ElectLeaders", frozen=True, kw_only=True):
    """Let the preferred replicas lead, or, where nobody else can, replicas that are not in sync."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS

    election: Literal["preferred", "unclean"]
    #: Null: all that need it.
    partitions: (
        Annotated[
            tuple[PartitionName, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
        ]
        | None
    ) = None

    def fault(self) -> str | None:
        """Each partition is named once."""
        rows = self.partitions or ()
        return places_fault("partitions", [(row.topic, row.partition) for row in rows])


class ElectLeadersResponse(Response, tag="ElectLeaders", frozen=True, kw_only=True):
    """One row for each partition; NONE: elected, or its leader is asked to let go."""

    results: tuple[PartitionResult, ...] | UnsetType = UNSET


class Reassignment(Part, frozen=True):
    """The replicas that a partition is to have; null: those that it had."""

    topic: TopicName
    partition: Int32
    replicas: Replicas | None


class AlterPartitionReassignments(
    ClusterRequest, tag="AlterPartitionReassignments", frozen=True, kw_only=True
):
    """Move partitions to other brokers, or stop that."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS

    partitions: Annotated[
        tuple[Reassignment, ...], Meta(min_length=1, max_length=limits.ROWS_PER_REQUEST_MAX)
    ]

    def fault(self) -> str | None:
        """Each partition is named once."""
        return places_fault("partitions", [(row.topic, row.partition) for row in self.partitions])


class AlterPartitionReassignmentsResponse(
    Response, tag="AlterPartitionReassignments", frozen=True, kw_only=True
):
    """One row for each partition; NONE: it has begun, or is cancelled."""

    results: tuple[PartitionResult, ...] | UnsetType = UNSET


class Metadata(ClusterRequest, tag="Metadata", frozen=True, kw_only=True):
    """Ask for brokers, topics and partitions, all as of one place of the log."""

    WAITS: ClassVar[Waits] = Waits.ALWAYS

    #: Null: all.
    topics: (
        Annotated[tuple[TopicName, ...], Meta(max_length=limits.ROWS_PER_REQUEST_MAX)] | None
    ) = None

    def fault(self) -> str | None:
        """Each topic is named once."""
        return topics_fault(self.topics or ())


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker that is Active or Stopping."""

    broker: int
    incarnation: int
    current_state: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None


class TopicRow(msgspec.Struct, frozen=True):
    """A topic; without `partitions`: it is gone."""

    topic: str
    topic_id: int
    partitions: int
    min_isr: int
    unclean: bool
    is_deleting: bool


class MetadataResponse(Response, tag="Metadata", frozen=True, kw_only=True):
    """Large answers come as several records. A topic that is not there is left out."""

    generation: int | UnsetType = UNSET
    brokers: tuple[BrokerRow, ...] | UnsetType = UNSET
    topics: tuple[TopicRow, ...] | UnsetType = UNSET
    partitions: tuple[ReplicaRow, ...] | UnsetType = UNSET
    part: int | UnsetType = UNSET
    parts: int | UnsetType = UNSET


class GoneBroker(msgspec.Struct, frozen=True):
    """A broker that no metadata names any more, in the incarnation that it had."""

    broker: int
    incarnation: int


class MetadataChanged(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """What one record changed, for all brokers; several records when it is much."""

    v: int = 1
    group: str
    cause: str
    generation: int
    brokers: tuple[BrokerRow, ...] = ()
    gone: tuple[GoneBroker, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    partitions: tuple[ReplicaRow, ...] = ()


class LedPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic that a broker leads."""

    topic: str
    partitions: tuple[int, ...]


class LeadershipDemanded(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """A broker must let go of these leaderships, with a Release that names `cause`."""

    v: int = 1
    group: str
    #: Offset of the record that demands it.
    cause: int
    member: str
    partitions: tuple[LedPartitions, ...]


def topics_fault(names: Any) -> str | None:
    """What is wrong with the topics that a request names; bad names are refused row by row."""
    if len(set(names)) < len(names):
        return "topics names one topic twice: name each once."
    return names_fault("topics", (name for name in names if name))
