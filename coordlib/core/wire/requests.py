"""The requests of wire format version 1, as typed values: all of them by one import.

One struct per request type, named as Kafka names it, each in the file of its subject beside its
answer and with the check that its types cannot express. Field meanings are Kafka's; times are
milliseconds. Bytes (`metadata`, `assignment`) are base64 on the wire and opaque to the coordinator.
The page about all of this, with examples, is README.md beside this file.
"""

from coordlib.core.wire.admin import DeleteGroup, DescribeGroup, FindCoordinator, ReleaseQuarantine
from coordlib.core.wire.api_versions import ApiVersions
from coordlib.core.wire.assigned import Release, Subscribe
from coordlib.core.wire.brokers import (
    AlteredPartition,
    AlteredTopic,
    AlterPartition,
    BrokerHeartbeat,
    ClusterRequest,
    DeletedReplica,
    Endpoint,
    InSyncReplica,
    RegisterBroker,
    ReplicasDeleted,
    UnregisterBroker,
)
from coordlib.core.wire.classic import (
    ASSIGNMENT_ERRORS,
    JoinGroup,
    MemberAssignment,
    Protocol,
    SyncGroup,
)
from coordlib.core.wire.cluster_topics import (
    AlterPartitionReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Metadata,
    NewTopic,
    PartitionName,
    Reassignment,
)
from coordlib.core.wire.envelope import Control, InAnySpace, Message, Request, Waits
from coordlib.core.wire.job import FromShard, Tick, Topic, TopicMetadata, TxnDecided
from coordlib.core.wire.membership import Heartbeat, LeaveGroup, Leaver
from coordlib.core.wire.offsets import (
    CommittedOffset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TopicPartitions,
)
from coordlib.core.wire.producers import (
    AbortTransaction,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ProducerRequest,
    TopicsOfCluster,
    TransactionRequest,
    TxnMarkersWritten,
    TxnOffsetCommit,
)
from coordlib.core.wire.transactions import DecidePending, PendingCommit

__all__ = [
    "ASSIGNMENT_ERRORS",
    "AbortTransaction",
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "AlterPartition",
    "AlterPartitionReassignments",
    "AlteredPartition",
    "AlteredTopic",
    "AnyRequest",
    "ApiVersions",
    "BrokerHeartbeat",
    "ClusterRequest",
    "CommittedOffset",
    "Control",
    "CreatePartitions",
    "CreateTopics",
    "DecidePending",
    "DeleteGroup",
    "DeleteTopics",
    "DeletedReplica",
    "DescribeGroup",
    "DescribeTransaction",
    "ElectLeaders",
    "EndTxn",
    "Endpoint",
    "FindCoordinator",
    "FromShard",
    "Heartbeat",
    "InAnySpace",
    "InSyncReplica",
    "InitProducerId",
    "JoinGroup",
    "LeaveGroup",
    "Leaver",
    "MemberAssignment",
    "Message",
    "Metadata",
    "NewTopic",
    "OffsetCommit",
    "OffsetDelete",
    "OffsetFetch",
    "PartitionName",
    "PendingCommit",
    "ProducerRequest",
    "Protocol",
    "Reassignment",
    "RegisterBroker",
    "Release",
    "ReleaseQuarantine",
    "ReplicasDeleted",
    "Request",
    "Subscribe",
    "SyncGroup",
    "Tick",
    "Topic",
    "TopicMetadata",
    "TopicPartitions",
    "TopicsOfCluster",
    "TransactionRequest",
    "TxnDecided",
    "TxnMarkersWritten",
    "TxnOffsetCommit",
    "UnregisterBroker",
    "Waits",
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
