"""The responses and notifications of wire format version 1: all of them by one import.

Each stands in the file of its subject, beside its request.
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
    AwaitedMember,
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroupResponse,
    FindCoordinatorResponse,
    ReleaseQuarantineResponse,
)
from coordlib.core.wire.api_versions import ApiVersionsResponse
from coordlib.core.wire.assigned import (
    AssignmentChanged,
    DemandedRelease,
    GrantedPartitions,
    OwnedPartitions,
    ReleaseResponse,
    SubscribeResponse,
)
from coordlib.core.wire.brokers import (
    AlteredRow,
    AlterPartitionResponse,
    BrokerHeartbeatResponse,
    PartitionResult,
    RegisterBrokerResponse,
    ReplicaRow,
    ReplicasDeletedResponse,
    UnregisterBrokerResponse,
)
from coordlib.core.wire.classic import (
    JoinedMember,
    JoinGroupResponse,
    RebalanceInProgress,
    SyncGroupResponse,
)
from coordlib.core.wire.cluster_topics import (
    AlterPartitionReassignmentsResponse,
    BrokerRow,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    ElectLeadersResponse,
    GoneBroker,
    LeadershipDemanded,
    LedPartitions,
    MetadataChanged,
    MetadataResponse,
    TopicResult,
    TopicRow,
)
from coordlib.core.wire.envelope import Rejected, Response
from coordlib.core.wire.job import CoordinatorLoading, Progress
from coordlib.core.wire.membership import (
    HeartbeatResponse,
    LeaveGroupResponse,
    LeftMember,
    MemberRemoved,
)
from coordlib.core.wire.offsets import (
    AwaitedDecision,
    FailedPartition,
    FetchedOffset,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from coordlib.core.wire.producers import (
    AbortTransactionResponse,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    DescribeTransactionResponse,
    EndedTransaction,
    EndTxnResponse,
    InitProducerIdResponse,
    TransactionCompleted,
    TxnMarkersWrittenResponse,
    TxnOffsetCommitResponse,
)
from coordlib.core.wire.transactions import (
    DecidePendingResponse,
    DescribedPending,
    PendingCommitResponse,
)

__all__ = [
    "NOT_DELETED",
    "NOT_JOINED",
    "NOT_REJOINED",
    "NOT_RELEASED",
    "NOT_STOPPED",
    "NOT_SYNCED",
    "AbortTransactionResponse",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnResponse",
    "AlterPartitionReassignmentsResponse",
    "AlterPartitionResponse",
    "AlteredRow",
    "AnyResponse",
    "ApiVersionsResponse",
    "AssignmentChanged",
    "AwaitedDecision",
    "AwaitedMember",
    "BrokerHeartbeatResponse",
    "BrokerRow",
    "CoordinatorLoading",
    "CreatePartitionsResponse",
    "CreateTopicsResponse",
    "DecidePendingResponse",
    "DeleteGroupResponse",
    "DeleteTopicsResponse",
    "DemandedRelease",
    "DescribeGroupResponse",
    "DescribeTransactionResponse",
    "DescribedMember",
    "DescribedPending",
    "ElectLeadersResponse",
    "EndTxnResponse",
    "EndedTransaction",
    "FailedPartition",
    "FetchedOffset",
    "FindCoordinatorResponse",
    "GoneBroker",
    "GrantedPartitions",
    "HeartbeatResponse",
    "InitProducerIdResponse",
    "JoinGroupResponse",
    "JoinedMember",
    "LeadershipDemanded",
    "LeaveGroupResponse",
    "LedPartitions",
    "LeftMember",
    "MemberRemoved",
    "MetadataChanged",
    "MetadataResponse",
    "Notification",
    "OfTheCoordinator",
    "OffsetCommitResponse",
    "OffsetDeleteResponse",
    "OffsetFetchResponse",
    "OwnedPartitions",
    "PartitionResult",
    "PendingCommitResponse",
    "Progress",
    "RebalanceInProgress",
    "RegisterBrokerResponse",
    "Rejected",
    "ReleaseQuarantineResponse",
    "ReleaseResponse",
    "ReplicaRow",
    "ReplicasDeletedResponse",
    "Response",
    "SubscribeResponse",
    "SyncGroupResponse",
    "TopicResult",
    "TopicRow",
    "TransactionCompleted",
    "TxnMarkersWrittenResponse",
    "TxnOffsetCommitResponse",
    "UnregisterBrokerResponse",
    "answer_to",
]


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
