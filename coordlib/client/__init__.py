"""Members of groups, for any Python program; nothing that is named here needs Spark.

`CoordinatedConsumer` has the shape of confluent-kafka's Consumer. `GroupMember` is what it stands
on, for programs that share partitions but read them in their own way; `AssignedMember` is the same
for groups whose coordinator divides. Below them: `machine` (a member's life as a pure state
machine, and when it must stop), `classic` and `assigned` (the protocols), `shell` (transport,
reading, settings). `spark` makes a Spark query a member; import it from there, where Spark is
installed.
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
from coordlib.client.classic.group_member import GroupMember
from coordlib.client.consumer import CoordinatedConsumer
from coordlib.client.machine.errors import AssignmentFailed, MemberFenced
from coordlib.client.machine.signals import TopicPartition
from coordlib.client.machine.wording import Timing
from coordlib.client.shell.transport import KafkaTransport

__all__ = [
    "AssignedMember",
    "AssignmentFailed",
    "Assignor",
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
]
