"""Topics of a cluster of brokers: made, extended, deleted, moved, and told of.

Anybody may say these requests. Source: seed 004's controller; KIP-460 (ElectLeaders), KIP-455
(AlterPartitionReassignments).
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.brokers import (
    ClusterRequest,
    Endpoint,
    PartitionResult,
    ReplicaRow,
    places_fault,
)
from coordlib.core.wire.checks import names_fault
from coordlib.core.wire.envelope import Int32, Part, Response, Waits

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
