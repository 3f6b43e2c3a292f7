"""The states of brokers, partitions and replicas, and which may follow which, as literal tables.

A broker's state is kept. Those of partitions and replicas follow from the rows and from the
brokers' states: they are never stored, so they cannot contradict them. Every change of a row or of
a broker's state is held against the tables.  # INV-76

Source: KIP-343 (brokers); PartitionStateMachine and ReplicaStateMachine of Kafka's controller.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from coordlib.core.controller.rows import Partition
from coordlib.core.engine.step import BrokenInvariant


class BrokerState(StrEnum):
    """The state of a registered broker. `Initial` is the agent's own, before any answer."""

    INACTIVE = "Inactive"
    """Registered and fenced: leads nothing, in no ISR but as its last member.
    action: heartbeats with a target are answered
    transition: says Active -> ACTIVE
    """
    ACTIVE = "Active"
    """Ready: may lead, may be in sync, stands in the metadata.
    action: leads and follows
    transition: says Stopping -> STOPPING; is silent, leaves, says Inactive, is replaced -> INACTIVE
    """
    STOPPING = "Stopping"
    """Ready; its leaderships move away (controlled shutdown).
    action: lets go of what it is asked for
    transition: says Active -> ACTIVE; is silent, leaves, says Inactive, is replaced -> INACTIVE
    """


#: Of registered brokers. Silence, LeaveGroup and a newer incarnation lead to Inactive, too.
VALID_PREVIOUS_BROKER_STATES: Final[Mapping[BrokerState, frozenset[BrokerState]]] = {
    BrokerState.INACTIVE: frozenset({BrokerState.ACTIVE, BrokerState.STOPPING}),
    BrokerState.ACTIVE: frozenset({BrokerState.INACTIVE, BrokerState.STOPPING}),
    BrokerState.STOPPING: frozenset({BrokerState.ACTIVE}),
}

#: current state -> target -> the state after a BrokerHeartbeat.
TARGETS: Final[Mapping[BrokerState, Mapping[BrokerState, BrokerState]]] = {
    BrokerState.INACTIVE: {
        BrokerState.ACTIVE: BrokerState.ACTIVE,
        BrokerState.STOPPING: BrokerState.INACTIVE,
        BrokerState.INACTIVE: BrokerState.INACTIVE,
    },
    BrokerState.ACTIVE: {
        BrokerState.ACTIVE: BrokerState.ACTIVE,
        BrokerState.STOPPING: BrokerState.STOPPING,
        BrokerState.INACTIVE: BrokerState.INACTIVE,
    },
    BrokerState.STOPPING: {
        BrokerState.ACTIVE: BrokerState.ACTIVE,
        BrokerState.STOPPING: BrokerState.STOPPING,
        BrokerState.INACTIVE: BrokerState.INACTIVE,
    },
}


class PartitionState(StrEnum):
    """The state of a partition, as its row tells it."""

    NON_EXISTENT = "NonExistentPartition"
    """There is no row.
    action: none
    transition: CreateTopics, CreatePartitions -> NEW
    """
    NEW = "NewPartition"
    """It was never led.
    action: none
    transition: a replica's broker is Active -> ONLINE; its topic is deleted -> OFFLINE
    """
    ONLINE = "OnlinePartition"
    """It has a leader.
    action: AlterPartition
    transition: an election -> ONLINE; nobody can be elected, its topic is deleted -> OFFLINE
    """
    OFFLINE = "OfflinePartition"
    """It had a leader.
    action: none
    transition: an election -> ONLINE; all replicas are deleted -> NON_EXISTENT
    """


VALID_PREVIOUS_PARTITION_STATES: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(
        {PartitionState.NEW, PartitionState.OFFLINE, PartitionState.ONLINE}
    ),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}


class ReplicaState(IntEnum):
    """The state of a replica; numbers as Kafka's, which rows keep of replicas to be deleted."""

    NEW = 1
    """Made or added, and never online since.
    action: follows
    transition: its broker comes, it is in sync -> ONLINE; its broker goes -> OFFLINE
    """
    ONLINE = 2
    """Its broker is ready.
    action: follows or leads
    transition: is told of another leader -> ONLINE; its broker goes, it is removed -> OFFLINE
    """
    OFFLINE = 3
    """Its broker is Inactive, or it has been told to stop.
    action: none
    transition: its broker comes -> ONLINE; is to be deleted -> DELETION_STARTED, or
        DELETION_INELIGIBLE where its broker is Inactive
    """
    DELETION_STARTED = 4
    """Its broker has been told to delete it.
    action: ReplicasDeleted is waited for
    transition: ReplicasDeleted -> DELETION_SUCCESSFUL, with an error -> DELETION_INELIGIBLE, as
        when its broker goes
    """
    DELETION_SUCCESSFUL = 5
    """It is deleted.
    action: none
    transition: the row loses it -> NON_EXISTENT
    """
    DELETION_INELIGIBLE = 6
    """It cannot be deleted now.
    action: none
    transition: its broker comes, DeleteTopics is said again, it is assigned anew -> OFFLINE,
        ONLINE; its broker is unregistered -> DELETION_SUCCESSFUL
    """
    NON_EXISTENT = 7
    """The row does not have it.
    action: none
    transition: it is made or added -> NEW
    """


_R = ReplicaState
VALID_PREVIOUS_REPLICA_STATES: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    # Kafka has the first one alone: there an operator's word does not end a deletion.
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED, _R.DELETION_INELIGIBLE}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}

#: States that a row keeps of a replica that is to be deleted.
TO_BE_DELETED: Final = frozenset(
    {_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL, _R.DELETION_INELIGIBLE}
)


def partition_state(row: Partition | None) -> PartitionState:
    """The state of a partition."""
    if row is None:
        return PartitionState.NON_EXISTENT
    if row.leader >= 0:
        return PartitionState.ONLINE
    is_deleted = row.deleting.keys() >= set(row.replicas)  # all of them: with its topic
    return PartitionState.NEW if row.leader_epoch < 0 and not is_deleted else PartitionState.OFFLINE


def replica_state(row: Partition | None, broker: int, is_ready: bool) -> ReplicaState:
    """The state of a broker's replica; `is_ready`: the broker is Active or Stopping."""
    if row is None:
        return _R.NON_EXISTENT
    if broker in row.deleting:
        return _R(row.deleting[broker])
    if broker not in row.replicas:
        return _R.NON_EXISTENT
    if broker in row.new:
        return _R.NEW
    return _R.ONLINE if is_ready else _R.OFFLINE


def move_broker(before: BrokerState, after: BrokerState) -> None:
    """Raises BrokenInvariant when a broker must not go from the one state to the other."""
    if before not in VALID_PREVIOUS_BROKER_STATES[after]:
        raise BrokenInvariant(f"broker: {before} to {after}")


def move_partition(before: PartitionState, after: PartitionState) -> None:
    """The same of a partition."""
    if before not in VALID_PREVIOUS_PARTITION_STATES[after]:
        raise BrokenInvariant(f"partition: {before} to {after}")


def move_replica(before: ReplicaState, after: ReplicaState) -> None:
    """The same of a replica."""
    if before not in VALID_PREVIOUS_REPLICA_STATES[after]:
        raise BrokenInvariant(f"replica: {before.name} to {after.name}")
