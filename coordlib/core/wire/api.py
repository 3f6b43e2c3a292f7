"""Requests, responses and notifications of wire format version 1: all of them by one import.

One struct per type, named as Kafka names it, each in the file of its subject, requests beside their
answers and with the check that their types cannot express. Field meanings are Kafka's; times are
milliseconds. Bytes (`metadata`, `assignment`) are base64 on the wire and opaque to the coordinator.
The page about all of this, with examples, is docs/reference/wire.md.
"""

from functools import cache

import msgspec

from coordlib.core.wire.admin import (
    NOT_DELETED,
    NOT_JOINED,
    NOT_REJOINED,
    NOT_RELEASED,
    NOT_STOPPED,
    NOT_SYNCED,
    ApiVersions,
    ApiVersionsResponse,
    AwaitedMember,
    DeleteGroup,
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    ReleaseQuarantine,
    ReleaseQuarantineResponse,
)
from coordlib.core.wire.control import (
    CoordinatorLoading,
    FromShard,
    Progress,
    Tick,
    Topic,
    TopicMetadata,
    TxnDecided,
)
from coordlib.core.wire.controller import (
    AlteredPartition,
    AlteredRow,
    AlteredTopic,
    AlterPartition,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    BrokerHeartbeat,
    BrokerHeartbeatResponse,
    BrokerRow,
    ClusterRequest,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeletedReplica,
    DeleteTopics,
    DeleteTopicsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    Endpoint,
    GoneBroker,
    InSyncReplica,
    LeadershipDemanded,
    LedPartitions,
    Metadata,
    MetadataChanged,
    MetadataResponse,
    NewTopic,
    PartitionName,
    PartitionResult,
    Reassignment,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaRow,
    ReplicasDeleted,
    ReplicasDeletedResponse,
    TopicResult,
    TopicRow,
    UnregisterBroker,
    UnregisterBrokerResponse,
)
from coordlib.core.wire.envelope import (
    Control,
    InAnySpace,
    Message,
    Rejected,
    Request,
    Response,
    Waits,
)
from coordlib.core.wire.groups import (
    ASSIGNMENT_ERRORS,
    AssignmentChanged,
    DemandedRelease,
    GrantedPartitions,
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Leaver,
    LeftMember,
    MemberAssignment,
    MemberRemoved,
    OwnedPartitions,
    Protocol,
    RebalanceInProgress,
    Release,
    ReleaseResponse,
    Subscribe,
    SubscribeResponse,
    SyncGroup,
    SyncGroupResponse,
)
from coordlib.core.wire.offsets import (
    AwaitedDecision,
    CommittedOffset,
    DecidePending,
    DecidePendingResponse,
    DescribedPending,
    FailedPartition,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PendingCommit,
    PendingCommitResponse,
    TopicPartitions,
)
from coordlib.core.wire.transactions import (
    AbortTransaction,
    AbortTransactionResponse,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    DescribeTransaction,
    DescribeTransactionResponse,
    EndedTransaction,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    ProducerRequest,
    TopicsOfCluster,
    TransactionCompleted,
    TransactionRequest,
    TxnMarkersWritten,
    TxnMarkersWrittenResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)

__all__ = [
    "ASSIGNMENT_ERRORS",
    "NOT_DELETED",
    "NOT_JOINED",
    "NOT_REJOINED",
    "NOT_RELEASED",
    "NOT_STOPPED",
    "NOT_SYNCED",
    "AbortTransaction",
    "AbortTransactionResponse",
    "AddOffsetsToTxn",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxn",
    "AddPartitionsToTxnResponse",
    "AlterPartition",
    "AlterPartitionReassignments",
    "AlterPartitionReassignmentsResponse",
    "AlterPartitionResponse",
    "AlteredPartition",
    "AlteredRow",
    "AlteredTopic",
    "AnyRequest",
    "AnyResponse",
    "ApiVersions",
    "ApiVersionsResponse",
    "AssignmentChanged",
    "AwaitedDecision",
    "AwaitedMember",
    "BrokerHeartbeat",
    "BrokerHeartbeatResponse",
    "BrokerRow",
    "ClusterRequest",
    "CommittedOffset",
    "Control",
    "CoordinatorLoading",
    "CreatePartitions",
    "CreatePartitionsResponse",
    "CreateTopics",
    "CreateTopicsResponse",
    "DecidePending",
    "DecidePendingResponse",
    "DeleteGroup",
    "DeleteGroupResponse",
    "DeleteTopics",
    "DeleteTopicsResponse",
    "DeletedReplica",
    "DemandedRelease",
    "DescribeGroup",
    "DescribeGroupResponse",
    "DescribeTransaction",
    "DescribeTransactionResponse",
    "DescribedMember",
    "DescribedPending",
    "ElectLeaders",
    "ElectLeadersResponse",
    "EndTxn",
    "EndTxnResponse",
    "EndedTransaction",
    "Endpoint",
    "FailedPartition",
    "FetchedOffset",
    "FindCoordinator",
    "FindCoordinatorResponse",
    "FromShard",
    "GoneBroker",
    "GrantedPartitions",
    "Heartbeat",
    "HeartbeatResponse",
    "InAnySpace",
    "InSyncReplica",
    "InitProducerId",
    "InitProducerIdResponse",
    "JoinGroup",
    "JoinGroupResponse",
    "JoinedMember",
    "LeadershipDemanded",
    "LeaveGroup",
    "LeaveGroupResponse",
    "Leaver",
    "LedPartitions",
    "LeftMember",
    "MemberAssignment",
    "MemberRemoved",
    "Message",
    "Metadata",
    "MetadataChanged",
    "MetadataResponse",
    "NewTopic",
    "Notification",
    "OfTheCoordinator",
    "OffsetCommit",
    "OffsetCommitResponse",
    "OffsetDelete",
    "OffsetDeleteResponse",
    "OffsetFetch",
    "OffsetFetchResponse",
    "OwnedPartitions",
    "PartitionName",
    "PartitionResult",
    "PendingCommit",
    "PendingCommitResponse",
    "ProducerRequest",
    "Progress",
    "Protocol",
    "Reassignment",
    "RebalanceInProgress",
    "RegisterBroker",
    "RegisterBrokerResponse",
    "Rejected",
    "Release",
    "ReleaseQuarantine",
    "ReleaseQuarantineResponse",
    "ReleaseResponse",
    "ReplicaRow",
    "ReplicasDeleted",
    "ReplicasDeletedResponse",
    "Request",
    "Response",
    "Subscribe",
    "SubscribeResponse",
    "SyncGroup",
    "SyncGroupResponse",
    "Tick",
    "Topic",
    "TopicMetadata",
    "TopicPartitions",
    "TopicResult",
    "TopicRow",
    "TopicsOfCluster",
    "TransactionCompleted",
    "TransactionRequest",
    "TxnDecided",
    "TxnMarkersWritten",
    "TxnMarkersWrittenResponse",
    "TxnOffsetCommit",
    "TxnOffsetCommitResponse",
    "UnregisterBroker",
    "UnregisterBrokerResponse",
    "Waits",
    "answer_to",
]

AnyRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
    | FindCoordinator
    | ApiVersions
    | ReleaseQuarantine
    | Subscribe
    | Release
    | RegisterBroker
    | BrokerHeartbeat
    | AlterPartition
    | ReplicasDeleted
    | UnregisterBroker
    | CreateTopics
    | CreatePartitions
    | DeleteTopics
    | ElectLeaders
    | AlterPartitionReassignments
    | Metadata
    | PendingCommit
    | DecidePending
    | InitProducerId
    | AddPartitionsToTxn
    | AddOffsetsToTxn
    | TxnOffsetCommit
    | EndTxn
    | TxnMarkersWritten
    | AbortTransaction
    | DescribeTransaction
    | TopicMetadata
    | FromShard
    | Tick
    | TxnDecided
)


@cache
def answer_to(request: type[msgspec.Struct]) -> type[Response]:
    """The type of the response to this request type: the one with its tag.

    Raises:
        LookupError: it has no answer.
    """
    tag = request.__struct_config__.tag
    found = [Response]
    for each in found:
        if each.__struct_config__.tag == tag:
            return each
        found += each.__subclasses__()
    raise LookupError(f"{tag} has no answer.")


#: Notices of the job itself, for all readers of the partition.
OfTheCoordinator = Progress | CoordinatorLoading
AnyResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetDeleteResponse
    | OffsetFetchResponse
    | DescribeGroupResponse
    | DeleteGroupResponse
    | FindCoordinatorResponse
    | ApiVersionsResponse
    | ReleaseQuarantineResponse
    | SubscribeResponse
    | ReleaseResponse
    | RegisterBrokerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | ReplicasDeletedResponse
    | UnregisterBrokerResponse
    | CreateTopicsResponse
    | CreatePartitionsResponse
    | DeleteTopicsResponse
    | ElectLeadersResponse
    | AlterPartitionReassignmentsResponse
    | MetadataResponse
    | PendingCommitResponse
    | DecidePendingResponse
    | InitProducerIdResponse
    | AddPartitionsToTxnResponse
    | AddOffsetsToTxnResponse
    | TxnOffsetCommitResponse
    | EndTxnResponse
    | TxnMarkersWrittenResponse
    | AbortTransactionResponse
    | DescribeTransactionResponse
    | Rejected
    | AssignmentChanged
    | RebalanceInProgress
    | MemberRemoved
    | MetadataChanged
    | LeadershipDemanded
    | TransactionCompleted
    | Progress
    | CoordinatorLoading
)
Notification = (
    AssignmentChanged
    | RebalanceInProgress
    | MemberRemoved
    | MetadataChanged
    | LeadershipDemanded
    | TransactionCompleted
)
