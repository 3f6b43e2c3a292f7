"""Members of groups, for any Python program; nothing that is named here needs Spark.

`CoordinatedConsumer` has the shape of confluent-kafka's Consumer. `ClassicMember` is what it stands
on, for programs that share partitions but read them in their own way; `AssignedMember` is the same
for server-assigned groups. `GroupMember` is the former name of `ClassicMember` and the
same class: programs that use it need no change. `read_options` reads how a program connects to
secured brokers from a file.

Below them: `machine` (a member's life as a pure state machine, and when it must stop), `classic`
and `assigned` (the protocols), `shell` (transport, reading, settings). `spark` makes a Spark query
a member; programs that have Spark import it from there.
"""

from coordlib.client.assigned import AssignedMember
from coordlib.client.classic.assignor import (
    Assignor,
    FunctionAssignor,
    GroupMemberView,
    RackAware,
    ReadsUserData,
    RebalanceMode,
    SubscriptionState,
)
from coordlib.client.classic.member import ClassicMember
from coordlib.client.consumer import CoordinatedConsumer
from coordlib.client.machine.errors import AssignmentFailed, MemberFenced
from coordlib.client.machine.signals import TopicPartition
from coordlib.client.machine.wording import Timing
from coordlib.client.shell.transport import KafkaTransport
from coordlib.kafka.options import read_options

#: The former name of `ClassicMember`, from when there was no other kind of member.
GroupMember = ClassicMember

__all__ = [
    "AssignedMember",
    "AssignmentFailed",
    "Assignor",
    "ClassicMember",
    "CoordinatedConsumer",
    "FunctionAssignor",
    "GroupMember",
    "GroupMemberView",
    "KafkaTransport",
    "MemberFenced",
    "RackAware",
    "ReadsUserData",
    "RebalanceMode",
    "SubscriptionState",
    "Timing",
    "TopicPartition",
    "read_options",
]
