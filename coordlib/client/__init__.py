"""Clients of the coordinator, for any Python program; nothing that is named here needs Spark.

`CoordinatedConsumer` has the shape of confluent-kafka's Consumer, `AsyncConsumer` that of its
AIOConsumer. They use a `ClassicMember`, for
programs that share partitions but read them in their own way, or an `AssignedMember`, the same for
server-assigned groups. `BrokerAgent` makes a program a broker of a cluster. `read_options` reads
from a file how a program connects to secured brokers.

Below them: `groups`, `transactions`, `controller` and `claims`, each with its state machines
without IO, and `kit`, which all of them use. `spark` makes a Spark query a member; programs that
have Spark import it from there.
"""

from coordlib.client.controller import (
    BrokerAgent,
    BrokerFenced,
    BrokerReplaced,
    BrokerTiming,
    ClusterMetadata,
    Following,
    Leadership,
    MetadataRefused,
    NotLeader,
)
from coordlib.client.groups.assignors import (
    Assignor,
    FunctionAssignor,
    GroupMemberView,
    RackAware,
    ReadsUserData,
    RebalanceMode,
    SubscriptionState,
)
from coordlib.client.groups.async_consumer import AsyncConsumer
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.member import AssignedMember, ClassicMember
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import AssignmentFailed, MemberFenced
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.requests import Timing
from coordlib.client.kit.transport import KafkaTransport
from coordlib.client.transactions.committed import TornTransaction, UndecidedTransaction
from coordlib.client.transactions.committed_reader import CommittedReader
from coordlib.client.transactions.data_cluster import write_markers
from coordlib.client.transactions.idempotent import IdempotentProducer
from coordlib.client.transactions.machine import TransactionError
from coordlib.client.transactions.producer import CoordinatedProducer
from coordlib.client.units import exactly_once, send_offsets_to_transaction
from coordlib.core.wire.api import Endpoint
from coordlib.kafka.options import read_options

__all__ = [
    "AssignedMember",
    "AssignmentFailed",
    "Assignor",
    "AsyncConsumer",
    "BrokerAgent",
    "BrokerFenced",
    "BrokerReplaced",
    "BrokerTiming",
    "ClassicMember",
    "ClusterMetadata",
    "CommittedReader",
    "CoordinatedConsumer",
    "CoordinatedProducer",
    "Endpoint",
    "Following",
    "FunctionAssignor",
    "GroupMemberView",
    "GroupMetadata",
    "IdempotentProducer",
    "KafkaTransport",
    "Leadership",
    "MemberFenced",
    "MetadataRefused",
    "NotLeader",
    "RackAware",
    "ReadsUserData",
    "RebalanceMode",
    "SubscriptionState",
    "Timing",
    "TopicPartition",
    "TornTransaction",
    "TransactionError",
    "UndecidedTransaction",
    "exactly_once",
    "read_options",
    "send_offsets_to_transaction",
    "write_markers",
]
